defmodule Engine.Harness.Middleware.AIRateLimit.Ledger do
  # Holds what servers have spent, so that a server's end doesn't lose it.
  #
  # One table for each server's name. This process makes the tables and holds them, and does nothing
  # else that could fail; the servers write into them directly. A row is `{part, value}`; what an
  # operation changes is inserted in one atomic step, with `nil` in place of what is gone, which is
  # deleted afterwards. So a server that is killed at any point leaves a state behind in which each
  # operation happened wholly or not at all.
  @moduledoc false
  use GenServer

  alias Engine.Harness.Middleware.AIRateLimit

  @typedoc "A piece of a state, or the owner of a lease or an account."
  @type part ::
          :limits
          | :header
          | {:key | :account | :lease | :owner, term}

  @header [:started, :now, :next_id, :totals]

  def start_link(_opts), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  @doc "The table of this name, made if there is none."
  @spec table(term) :: {:ok, :ets.tid()} | {:error, term}
  def table(name), do: ask({:table, name})

  @doc "Deletes the table of this name."
  @spec delete(term) :: :ok | {:error, term}
  def delete(name), do: ask({:delete, name})

  @doc "Writes these parts of a state and these owners, atomically; false where the table is gone."
  @spec write(:ets.tid(), AIRateLimit.t(), map, [part]) :: boolean
  def write(table, state, owners, parts) do
    rows = for part <- [:header | parts], do: {part, value(part, state, owners)}
    true = :ets.insert(table, rows)
    for {part, nil} <- rows, do: :ets.delete(table, part)
    true
  rescue
    ArgumentError -> false
  end

  @doc "Writes all parts."
  @spec write_all(:ets.tid(), AIRateLimit.t(), map) :: boolean
  def write_all(table, state, owners) do
    parts =
      for {kind, map} <- [
            key: state.keys,
            account: state.accounts,
            lease: state.leases,
            owner: owners
          ],
          {id, _value} <- map,
          do: {kind, id}

    write(table, state, owners, [:limits | parts])
  end

  @doc "The state and the owners that were written; `nil` where nothing was."
  @spec read(:ets.tid()) :: {AIRateLimit.t(), map} | nil
  def read(table) do
    case Map.new(:ets.tab2list(table)) do
      %{limits: limits, header: header} = rows ->
        parts =
          for {{kind, id}, value} when value != nil <- rows,
              reduce: %{key: %{}, account: %{}, lease: %{}, owner: %{}} do
            parts -> put_in(parts[kind][id], value)
          end

        state = %AIRateLimit{
          limits: limits,
          keys: parts.key,
          accounts: parts.account,
          leases: parts.lease
        }

        {struct!(state, Enum.zip(@header, Tuple.to_list(header))), parts.owner}

      _nothing ->
        nil
    end
  end

  defp value(:limits, state, _owners), do: state.limits

  defp value(:header, state, _owners),
    do: {state.started, state.now, state.next_id, state.totals}

  defp value({:key, id}, state, _owners), do: state.keys[id]
  defp value({:account, id}, state, _owners), do: state.accounts[id]
  defp value({:lease, id}, state, _owners), do: state.leases[id]
  defp value({:owner, id}, _state, owners), do: owners[id]

  defp ask(request) do
    GenServer.call(__MODULE__, request)
  catch
    :exit, reason -> {:error, reason}
  end

  @impl true
  def init(nil), do: {:ok, %{}}

  @impl true
  def handle_call({:table, name}, _from, tables) do
    tables = Map.put_new_lazy(tables, name, fn -> :ets.new(__MODULE__, [:set, :public]) end)
    {:reply, {:ok, Map.fetch!(tables, name)}, tables}
  end

  def handle_call({:delete, name}, _from, tables) do
    {table, tables} = Map.pop(tables, name)
    if table, do: :ets.delete(table)
    {:reply, :ok, tables}
  end
end
