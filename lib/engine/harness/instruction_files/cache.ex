defmodule Engine.Harness.InstructionFiles.Cache do
  @moduledoc """
  Holds the table in which `Engine.Harness.InstructionFiles` keeps what it loaded.

  The process does nothing else: all reading of files and of the database, and all reading and
  writing of the table, happens in the process that calls `Engine.Harness.InstructionFiles.load/2`
  (ADR 0006). Where the process is not running everything works, uncached.

  ## Why nothing stale is ever served

  An entry is stored under the workspace's *generation* at the moment its load began.
  Invalidating moves the generation on, so a load that began before it writes where nobody looks
  any more, and takes its entry away again. A generation belongs to one table: a load that outlives
  the table it began with stores nothing.
  """
  use GenServer

  @table __MODULE__

  @typep generation :: {:ets.tid(), term}

  @doc false
  def start_link(_opts), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init([]) do
    _ = :ets.new(@table, [:named_table, :public, read_concurrency: true])
    {:ok, []}
  end

  @doc """
  The workspace's generation, to be taken before a load begins; `nil` where there is no table.
  """
  @spec generation(String.t()) :: generation | nil
  def generation(workspace) do
    with table when table != :undefined <- :ets.whereis(@table),
         {:ok, counters} <- counters(table, workspace) do
      {table, counters}
    else
      _no_table -> nil
    end
  end

  @doc """
  What was stored in that generation under that key.
  """
  @spec fetch(generation | nil, String.t(), term) :: {:ok, term} | :error
  def fetch(nil, _workspace, _key), do: :error

  def fetch({table, counters}, workspace, key) do
    case :ets.lookup(table, {workspace, counters, key}) do
      [{_key, value}] -> {:ok, value}
      [] -> :error
    end
  rescue
    ArgumentError -> :error
  end

  @doc """
  Stores a value in the generation in which its load began.
  """
  @spec store(generation | nil, String.t(), term, term) :: :ok
  def store(nil, _workspace, _key, _value), do: :ok

  def store({table, counters}, workspace, key, value) do
    entry = {workspace, counters, key}
    true = :ets.insert(table, {entry, value})
    if counters(table, workspace) != {:ok, counters}, do: :ets.delete(table, entry)
    :ok
  rescue
    ArgumentError -> :ok
  end

  @doc """
  Forgets a workspace's entries, or with `:all` every workspace's.
  """
  @spec invalidate(String.t() | :all) :: :ok
  def invalidate(workspace) do
    # The generation moves on first: what is stored from here on is stored where nobody looks.
    _ = :ets.update_counter(@table, {:generation, workspace}, 1, {{:generation, workspace}, 0})
    pattern = if workspace == :all, do: :_, else: workspace
    _ = :ets.match_delete(@table, {{pattern, :_, :_}, :_})
    :ok
  rescue
    # No table, nothing to forget.
    ArgumentError -> :ok
  end

  defp counters(table, workspace) do
    {:ok, {counter(table, :all), counter(table, workspace)}}
  rescue
    ArgumentError -> :error
  end

  defp counter(table, name) do
    case :ets.lookup(table, {:generation, name}) do
      [{_name, count}] -> count
      [] -> 0
    end
  end
end
