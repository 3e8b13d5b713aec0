defmodule Engine.Harness.Middleware.AIRateLimit.Report do
  @moduledoc """
  What is used, reserved and left of each limit, as data that prints as a table.

  `:rows` come in a fixed order: the session's budget and its deadline, accounts by number, keys by
  name. A row is a map with

  | key | meaning |
  |---|---|
  | `:scope` | `:session`, `{:account, id}` or `{:key, key}` |
  | `:kind` | as in `Engine.Harness.Middleware.AIRateLimit.Refusal`; `:deadline` in ms |
  | `:limit` | the limit, of a rate its burst; `:infinity` for what the session's budget doesn't limit |
  | `:used`, `:reserved`, `:left` | of that |
  | `:estimated` | the part of `:used` that nobody measured |
  | `:note` | a rate's steady flow, a breaker's state; else `""` |

  `:totals` are calls: `:admitted` are `:settled`, `:released` or `:open`; `:refused` were not
  admitted; `:estimated` of the settled were charged an estimate, at least in part.
  """

  alias Engine.Harness.{Boundary, Escape, Table}
  alias Engine.Harness.Middleware.AIRateLimit

  alias Engine.Harness.Middleware.AIRateLimit.{
    Accounts,
    Admission,
    Breaker,
    Budget,
    Limits,
    Rate,
    Refusal
  }

  @enforce_keys [:rows, :totals]
  defstruct @enforce_keys

  @typedoc "One limit."
  @type row :: %{
          scope: :session | {:account, pos_integer} | {:key, String.t() | atom},
          kind: atom,
          limit: non_neg_integer | :infinity,
          used: non_neg_integer,
          reserved: non_neg_integer,
          left: non_neg_integer | :infinity,
          estimated: non_neg_integer,
          note: String.t()
        }

  @typedoc "All limits, and the calls counted."
  @type t :: %__MODULE__{rows: [row], totals: %{atom => non_neg_integer}}

  @doc "The report of a state at the latest time that it has seen."
  @spec new(AIRateLimit.t()) :: t
  def new(state) do
    keys = Map.merge(state.limits.keys, state.keys)
    accounts = Map.delete(state.accounts, :session)

    %__MODULE__{
      rows:
        session(state) ++
          Enum.flat_map(sorted(accounts), fn {id, account} ->
            budget(account.budget, {:account, id})
          end) ++
          Enum.flat_map(sorted(keys), fn {name, key} -> key(key, {:key, name}, state.now) end),
      totals: Map.put(state.totals, :open, map_size(state.leases))
    }
  end

  @doc false
  # What calls of a key are charged to: its own budget, and that of the accounts of this lineage.
  @spec balance(AIRateLimit.t(), {term, Budget.t()}, [Accounts.id()]) :: [row]
  def balance(state, {key, budget}, lineage) do
    for id <- lineage, id != :session, reduce: session(state) ++ budget(budget, {:key, key}) do
      rows -> rows ++ budget(Map.fetch!(state.accounts, id).budget, {:account, id})
    end
  end

  defp session(state) do
    budget(state.accounts.session.budget, :session, Budget.dimensions()) ++ deadline(state)
  end

  defp sorted(map), do: Enum.sort_by(map, fn {key, _value} -> key end)

  defp budget(budget, scope) do
    budget(budget, scope, Enum.filter(Budget.dimensions(), &is_map_key(budget.limits, &1)))
  end

  defp budget(budget, scope, dimensions) do
    for dimension <- dimensions do
      row(scope, dimension, %{
        limit: Map.get(budget.limits, dimension, :infinity),
        used: Map.fetch!(budget.used, dimension),
        reserved: Map.fetch!(budget.reserved, dimension),
        left: Budget.left(budget, dimension),
        estimated: Map.fetch!(budget.estimated, dimension)
      })
    end
  end

  defp deadline(state) do
    case Admission.left_ms(state) do
      :infinity ->
        []

      left ->
        limit = state.limits.deadline_ms
        [row(:session, :deadline, %{limit: limit, used: limit - left, left: max(0, left)})]
    end
  end

  @spec key(Limits.key_limits(), {:key, String.t() | atom}, integer) :: [row]
  defp key(key, scope, now) do
    rate(key.requests, scope, :request_rate, now) ++
      rate(key.tokens, scope, :token_rate, now) ++
      budget(key.budget, scope) ++ breaker(key.breaker, scope, now)
  end

  defp rate(nil, _scope, _kind, _now), do: []

  defp rate(rate, scope, kind, now) do
    {used, left} = Rate.taken(rate, now)
    flow = "#{Table.number(rate.limit)} in #{Table.number(rate.interval_ms)} ms"
    [row(scope, kind, %{limit: Rate.most(rate), used: used, left: left, note: flow})]
  end

  defp breaker(nil, _scope, _now), do: []

  defp breaker(%Breaker{failures: limit} = breaker, scope, now) do
    failed = length(breaker.failed)

    note =
      case {breaker.state, Breaker.check(breaker, now)} do
        {:open, {:wait, ms}} -> "open for #{Table.number(ms)} ms"
        {:open, :ok} -> "open, the next call is a probe"
        {:half_open, _wait} -> "half-open, waits for its probe"
        {:closed, :ok} -> "closed"
      end

    [row(scope, :breaker, %{limit: limit, used: failed, left: limit - failed, note: note})]
  end

  defp row(scope, kind, numbers) do
    Map.merge(%{scope: scope, kind: kind, reserved: 0, estimated: 0, note: ""}, numbers)
  end

  defimpl String.Chars do
    # Bytes of a key's name in the table.
    @shown 60

    @sides [:left, :left, :right, :right, :right, :right, :left, :left]

    def to_string(report) do
      header = ["whose", "what", "used", "reserved", "left", "limit", "", ""]
      lines = Table.lines([header | Enum.map(report.rows, &cells/1)], @sides)
      IO.iodata_to_binary([Enum.map(lines, &[&1, "\n"]), "\n", totals(report.totals)])
    end

    defp cells(row) do
      estimated = if row.estimated > 0, do: "~", else: ""

      [
        scope(row.scope),
        Refusal.what(row.kind),
        estimated <> Table.number(row.used),
        Table.number(row.reserved),
        Table.number(row.left),
        Table.number(row.limit),
        Table.bar([{"█", row.used}, {"▒", row.reserved}], row.limit),
        row.note
      ]
    end

    defp scope(:session), do: "session"
    defp scope({:account, id}), do: "account #{id}"
    defp scope({:key, key}) when is_binary(key), do: "key #{shown(key)}"
    defp scope({:key, key}), do: "key #{key |> inspect() |> shown()}"

    # A tool's name is what the model wrote, however long.
    defp shown(name) when byte_size(name) > @shown do
      Escape.escape(binary_part(name, 0, Boundary.at_or_before(name, @shown))) <> "…"
    end

    defp shown(name), do: Escape.escape(name)

    defp totals(totals) do
      [admitted, settled, estimated, released, open, refused] =
        for name <- [:admitted, :settled, :estimated, :released, :open, :refused],
            do: Table.number(Map.fetch!(totals, name))

      "calls: #{admitted} admitted = #{settled} settled (#{estimated} by estimate) + " <>
        "#{released} released + #{open} open; #{refused} refused"
    end
  end
end
