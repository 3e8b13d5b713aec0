defmodule Engine.Harness.InstructionFiles.Cache do
  @moduledoc """
  Holds the table in which `Engine.Harness.InstructionFiles` keeps what it loaded.

  All reading of files and of the database, and all reading and writing of the table, happens in
  the process that calls `Engine.Harness.InstructionFiles.load/2` (ADR 0006). The process that holds
  the table only invalidates on behalf of other nodes. Where it is not running everything works,
  uncached.

  ## Why nothing stale is ever served

  An entry is stored under the workspace's *generation* at the moment its load began.
  Invalidating moves the generation on, so a load that began before it writes where nobody looks
  any more, and takes its entry away again. A generation belongs to one table: a load that outlives
  the table it began with stores nothing.

  ## More than one node

  `invalidate/1` asks the process of that name on every connected node, found by its name and not
  by the membership of a process group, which lags behind a connection. A node that was not
  connected can't have been asked, so whenever two nodes connect both forget everything.
  """
  use GenServer

  @table __MODULE__

  # How long a node has to answer, in milliseconds.
  @patience 5_000

  @typep generation :: {:ets.tid(), term}

  @doc false
  def start_link(_opts), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init([]) do
    _ = :ets.new(@table, [:named_table, :public, read_concurrency: true])
    :ok = :net_kernel.monitor_nodes(true)
    {:ok, []}
  end

  @impl true
  def handle_call({:invalidate, workspace}, _from, state) do
    {:reply, forget(workspace), state}
  end

  @impl true
  def handle_info({:nodeup, _node}, state) do
    forget(:all)
    {:noreply, state}
  end

  def handle_info(_nodedown, state), do: {:noreply, state}

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
  Forgets a workspace's entries, or with `:all` every workspace's, on this node and on all that are
  connected. Answers with the nodes that did not say within five seconds that they have.
  """
  @spec invalidate(String.t() | :all) :: :ok | {:error, [node]}
  def invalidate(workspace) do
    :ok = forget(workspace)
    deadline = System.monotonic_time(:millisecond) + @patience

    asked =
      for node <- Node.list() do
        {node, :gen_server.send_request({__MODULE__, node}, {:invalidate, workspace})}
      end

    case for {node, request} <- asked, not answered?(request, deadline), do: node do
      [] -> :ok
      silent -> {:error, silent}
    end
  end

  defp answered?(request, deadline) do
    left = max(0, deadline - System.monotonic_time(:millisecond))

    case :gen_server.receive_response(request, left) do
      {:reply, :ok} -> true
      # The application doesn't run there, or the node is gone, and starts empty when it is back.
      {:error, {_gone, _server}} -> true
      :timeout -> false
    end
  end

  defp forget(workspace) do
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
