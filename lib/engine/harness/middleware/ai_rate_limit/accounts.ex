defmodule Engine.Harness.Middleware.AIRateLimit.Accounts do
  @moduledoc """
  The session's budget, and the parts of it that sub-agents lease.

  An account is a budget with a parent, but for `:session`, the root. What a child was granted
  counts as reserved in its parent, whether the child has spent it yet or not; what the child
  spends beyond it, or in a dimension that its grant doesn't name, counts there as well, at once.
  So a parent never has more left than all its descendants could still claim:

      held(child) = max(granted, used + reserved) in each dimension

  A child that is closed holds only what its open leases hold. With the last of them it is folded
  into its parent: what it used is used there, the rest is left again.
  """

  alias Engine.Harness.Middleware.AIRateLimit.Budget

  @typedoc "The root, or the number that `open/3` gave."
  @type id :: :session | pos_integer

  @typedoc "One account: open counts its open leases and children."
  @type account :: %{
          parent: id | nil,
          budget: Budget.t(),
          open: non_neg_integer,
          closing: boolean
        }

  @typedoc "All accounts that are not folded yet."
  @type t :: %{optional(id) => account}

  @doc "The session's account alone."
  @spec new(Budget.t()) :: t
  def new(%Budget{} = budget), do: %{session: account(nil, budget)}

  @doc """
  Where an amount does not fit: the account, its parent, or theirs, and the dimension; `nil` where
  it fits in all.

  A dimension that an account limits is not asked of its parent: there it is granted already.
  """
  @spec over(t, id, %{optional(Budget.dimension()) => non_neg_integer}) ::
          {id, Budget.dimension()} | nil
  def over(accounts, id, asked) do
    %{budget: budget, parent: parent} = Map.fetch!(accounts, id)

    case Budget.over(budget, asked) do
      nil when parent == nil -> nil
      nil -> over(accounts, parent, Map.drop(asked, Map.keys(budget.limits)))
      dimension -> {id, dimension}
    end
  end

  @doc "Whether an account is there and takes reservations."
  @spec open?(t, term) :: boolean
  def open?(accounts, id), do: match?(%{^id => %{closing: false}}, accounts)

  @doc "Opens a child with this grant, which `over/3` let pass."
  @spec open(t, pos_integer, id, %{optional(Budget.dimension()) => non_neg_integer}) :: t
  def open(accounts, id, parent, granted) do
    child = account(parent, %Budget{limits: granted})
    held = held(child.budget)

    accounts
    |> change(parent, 1, &Budget.reserve(&1, held))
    |> Map.put(id, child)
  end

  @doc "Takes no further reservation from a child; folds it when nothing in it is open."
  @spec close(t, pos_integer) :: t
  def close(accounts, id) do
    accounts
    |> put_in([id, :closing], true)
    |> change(id, 0, &%{&1 | limits: %{}})
    |> fold(id)
  end

  @doc "Reserves an amount for a lease."
  @spec reserve(t, id, Budget.amounts()) :: t
  def reserve(accounts, id, amounts), do: change(accounts, id, 1, &Budget.reserve(&1, amounts))

  @doc "Ends a lease: what was reserved, what it used, and the part of that which nobody measured."
  @spec finish(t, id, Budget.amounts(), Budget.amounts(), Budget.amounts()) :: t
  def finish(accounts, id, reserved, used, estimated) do
    accounts
    |> change(id, -1, &(&1 |> Budget.unreserve(reserved) |> Budget.use_up(used, estimated)))
    |> fold(id)
  end

  @doc "An account and those above it, up to the root."
  @spec lineage(t, id) :: [id]
  def lineage(accounts, id) do
    case accounts do
      %{^id => %{parent: parent}} when parent != nil -> [id | lineage(accounts, parent)]
      %{^id => _root} -> [id]
      _folded -> []
    end
  end

  defp account(parent, budget), do: %{parent: parent, budget: budget, open: 0, closing: false}

  # Changes a budget, and what the accounts above hold for it.
  defp change(accounts, id, open, fun) do
    account = Map.fetch!(accounts, id)
    budget = fun.(account.budget)
    accounts = Map.put(accounts, id, %{account | budget: budget, open: account.open + open})

    if account.parent do
      more = Budget.minus(held(budget), held(account.budget))
      change(accounts, account.parent, 0, &Budget.reserve(&1, more))
    else
      accounts
    end
  end

  defp fold(accounts, id) do
    case accounts do
      %{^id => %{closing: true, open: 0, parent: parent, budget: budget}} ->
        accounts
        |> Map.delete(id)
        |> finish(parent, held(budget), budget.used, budget.estimated)

      _in_use ->
        accounts
    end
  end

  defp held(budget) do
    Map.new(Budget.dimensions(), fn dimension ->
      granted = Map.get(budget.limits, dimension, 0)
      {dimension, max(granted, Budget.taken(budget, dimension))}
    end)
  end
end
