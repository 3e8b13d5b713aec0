defmodule Engine.Harness.Middleware.AIRateLimit.Server do
  @moduledoc """
  Shares one `Engine.Harness.Middleware.AIRateLimit` between processes, and between nodes.

      children = [
        {AIRateLimit.Server, name: :limits, limits: [session_budget: [cost: 5_000_000]]}
      ]

      iex> alias Engine.Harness.Middleware.AIRateLimit.Server
      iex> {:ok, _pid} = Server.start_link(name: {:global, :docs}, limits: [session_budget: [calls: 1]])
      iex> {:ok, lease} = Server.reserve({:global, :docs}, %{key: "openai", tokens: 700})
      iex> :ok = Server.settle({:global, :docs}, lease, %{outcome: :success, usage: 640})
      iex> {:halt, refusal} = Server.reserve({:global, :docs}, %{key: "openai", tokens: 700})
      iex> {refusal.kind, refusal.used}
      {:calls, 1}

  ## Owners

  A lease belongs to the process that reserved it, and so does an account. When its owner dies, or
  the connection to the owner's node is lost, the lease is settled at its estimate, marked as
  estimated: the money of a request in flight is spent. A dead owner's account is closed.

  ## When the server can't be reached

  Then `reserve/3` and `allot/4` are `{:halt, refusal}` of kind `:unreachable`, and the others
  `{:error, error}`: whoever can't ask doesn't pass. A reservation that the server makes only after
  its caller gave up waiting is released. If the server dies between making a reservation and
  answering, it stays reserved until its caller ends.

  ## What a restart keeps

  All that is spent, reserved and owned is in a table that another process of the application
  `:engine` holds, under the server's name, on its node. A server that is started under the same name takes it
  over, whatever ended the one before, and settles what dead owners left. It needs the same limits.
  `forget/1` deletes what was kept. What was kept on a node is lost with that node; until a server
  is started elsewhere, by whoever accepts that, nothing passes.
  """

  use GenServer

  alias Engine.Harness.Middleware.AIRateLimit
  alias Engine.Harness.Options

  alias Engine.Harness.Middleware.AIRateLimit.{
    Accounts,
    Actual,
    Budget,
    Error,
    Estimate,
    Ledger,
    Lease,
    Limits,
    Refusal,
    Report
  }

  @timeout 5_000
  @name "an atom, {:global, term} or {:via, module, term}"

  @typedoc "A server's name, as `start_link/1` got it, or its pid."
  @type server :: GenServer.server()

  @doc """
  Starts a server.

  | option | default | meaning |
  |---|---|---|
  | `:name` | required | an atom, `{:global, term}` or `{:via, module, term}`; one name in a cluster is one limit |
  | `:limits` | required | as `Engine.Harness.Middleware.AIRateLimit.Limits` has them |
  | `:clock` | the VM's monotonic clock | a function that returns milliseconds |

  Raises `ArgumentError` for anything else.
  """
  @spec start_link(keyword) :: GenServer.on_start()
  def start_link(opts) do
    Options.validate!(opts, [:name, :limits, :clock])
    name = Options.value!(Map.new(opts), :name, @name, &name?/1)
    limits = Keyword.get(opts, :limits)
    Limits.new!(limits)
    clock = Keyword.get(opts, :clock, &clock/0)
    GenServer.start_link(__MODULE__, {name, limits, clock}, name: name)
  end

  @doc false
  def child_spec(opts) do
    %{id: {__MODULE__, opts[:name]}, start: {__MODULE__, :start_link, [opts]}}
  end

  @doc """
  As `Engine.Harness.Middleware.AIRateLimit.reserve/3`, for the calling process. `timeout_ms` is
  how long it waits for the server.
  """
  @spec reserve(server, Estimate.given(), pos_integer) ::
          {:ok, Lease.t()} | {:wait, pos_integer, Refusal.t()} | {:halt, Refusal.t()}
  def reserve(server, estimate, timeout_ms \\ @timeout) do
    admit(server, {:reserve, Estimate.new!(estimate)}, timeout_ms)
  end

  @doc "As `Engine.Harness.Middleware.AIRateLimit.settle/4`; the lease's owner alone can settle it."
  @spec settle(server, Lease.t(), Actual.given(), pos_integer) :: :ok | {:error, Error.t()}
  def settle(server, lease, actual, timeout_ms \\ @timeout) do
    change(server, {:settle, Lease.check!(lease), Actual.new!(actual)}, timeout_ms)
  end

  @doc "As `Engine.Harness.Middleware.AIRateLimit.release/3`; the lease's owner alone can release it."
  @spec release(server, Lease.t(), pos_integer) :: :ok | {:error, Error.t()}
  def release(server, lease, timeout_ms \\ @timeout) do
    change(server, {:release, Lease.check!(lease)}, timeout_ms)
  end

  @doc """
  As `Engine.Harness.Middleware.AIRateLimit.allot/4`: the calling process owns the account. Any
  process may name it in its estimates.
  """
  @spec allot(
          server,
          Accounts.id(),
          %{optional(Budget.dimension()) => non_neg_integer},
          pos_integer
        ) :: {:ok, pos_integer} | {:halt, Refusal.t()}
  def allot(server, parent, amounts, timeout_ms \\ @timeout) do
    admit(server, {:allot, parent, AIRateLimit.check_grant!(amounts)}, timeout_ms)
  end

  @doc "As `Engine.Harness.Middleware.AIRateLimit.close/3`; the account's owner alone can close it."
  @spec close(server, Accounts.id(), pos_integer) :: :ok | {:error, Error.t()}
  def close(server, account, timeout_ms \\ @timeout) do
    change(server, {:close, account}, timeout_ms)
  end

  @doc "As `Engine.Harness.Middleware.AIRateLimit.report/2`."
  @spec report(server, pos_integer) :: {:ok, Report.t()} | {:error, Error.t()}
  def report(server, timeout_ms \\ @timeout) do
    with {:exit, _reason} <- ask(server, :report, timeout_ms), do: unreachable(server)
  end

  @doc "As `Engine.Harness.Middleware.AIRateLimit.balance/4`."
  @spec balance(server, String.t() | atom, Accounts.id(), pos_integer) ::
          {:ok, [Report.row()]} | {:error, Error.t()}
  def balance(server, key, account, timeout_ms \\ @timeout) do
    change(server, {:balance, key, account}, timeout_ms)
  end

  @doc """
  Settles at their estimates the leases that the calling process has open in a session, as if it had
  died: `{:ok, how_many}`.

  The session is the one that estimates name as their `:session`.
  """
  @spec abandon(server, String.t(), pos_integer) :: {:ok, non_neg_integer} | {:error, Error.t()}
  def abandon(server, session, timeout_ms \\ @timeout) when is_binary(session) do
    change(server, {:abandon, session}, timeout_ms)
  end

  @doc """
  Deletes what was kept of a server that has ended, on this node.

  `{:error, error}` while a server of that name runs.
  """
  @spec forget(server) :: :ok | {:error, Error.t()}
  def forget(name) do
    cond do
      GenServer.whereis(name) -> {:error, %Error{reason: :running, subject: name}}
      Ledger.delete(name) == :ok -> :ok
      true -> unreachable(Ledger)
    end
  end

  ## The caller's side

  # Whoever gives up says so. The server gets that after the request, and undoes what it has done.
  defp admit(server, request, timeout_ms) do
    ref = make_ref()

    with {:exit, _reason} <- ask(server, {request, ref}, timeout_ms) do
      cancel(server, ref)
      {:halt, %Refusal{kind: :unreachable, scope: {:server, server}}}
    end
  end

  defp change(server, request, timeout_ms) do
    with {:exit, _reason} <- ask(server, request, timeout_ms), do: unreachable(server)
  end

  # A `:via` module that can't look its name up raises what it likes.
  defp ask(server, request, timeout_ms) do
    GenServer.call(server, request, timeout_ms)
  catch
    _kind, reason -> {:exit, reason}
  end

  defp cancel(server, ref) do
    GenServer.cast(server, {:cancel, self(), ref})
  catch
    _kind, _reason -> :ok
  end

  defp unreachable(server), do: {:error, %Error{reason: :unreachable, subject: server}}

  defp clock, do: System.monotonic_time(:millisecond)

  defp name?(name) when is_atom(name), do: name not in [nil, true, false]
  defp name?({:global, _term}), do: true
  defp name?({:via, module, _term}), do: is_atom(module)
  defp name?(_other), do: false

  ## The server's side

  # `owners` are by what they own, `{:lease, id}` or `{:account, id}`: the owner's pid, and the
  # reference of the request that it came by. `monitors` are both ways: from what is owned to the
  # monitor and back.
  @impl true
  def init({name, limits, clock}) do
    with {:ok, table} <- Ledger.table(name),
         {:ok, state, owners} <- restore(table, limits, clock) do
      server = %{
        name: name,
        clock: clock,
        table: table,
        written: true,
        state: state,
        owners: owners,
        monitors: %{}
      }

      true = Ledger.write_all(table, state, owners)
      {:ok, Enum.reduce(owners, server, fn {owned, {pid, _ref}}, s -> monitor(s, owned, pid) end)}
    else
      {:error, reason} -> {:stop, reason}
    end
  end

  defp restore(table, limits, clock) do
    new = AIRateLimit.new(limits, clock.())

    case Ledger.read(table) do
      nil -> {:ok, new, %{}}
      {state, owners} when state.limits == new.limits -> {:ok, state, owners}
      {_state, _owners} -> {:error, %Error{reason: :other_limits, subject: limits}}
    end
  end

  @impl true
  def handle_call({{:reserve, estimate}, ref}, {pid, _tag}, server) do
    case AIRateLimit.reserve(server.state, server.clock.(), estimate) do
      {:ok, lease, state} ->
        server = own(%{server | state: state}, {:lease, lease.id}, pid, ref)

        {:reply, {:ok, lease},
         store(server, [{:owner, {:lease, lease.id}} | lease_parts(state, lease)])}

      {:wait, ms, refusal, state} ->
        {:reply, {:wait, ms, refusal}, store(%{server | state: state}, [])}

      {:halt, refusal, state} ->
        {:reply, {:halt, refusal}, store(%{server | state: state}, [])}
    end
  end

  def handle_call({{:allot, parent, amounts}, ref}, {pid, _tag}, server) do
    case AIRateLimit.allot(server.state, server.clock.(), parent, amounts) do
      {:ok, id, state} ->
        server = own(%{server | state: state}, {:account, id}, pid, ref)
        {:reply, {:ok, id}, store(server, [{:owner, {:account, id}} | account_parts(state, id)])}

      {:halt, refusal, state} ->
        {:reply, {:halt, refusal}, store(%{server | state: state}, [])}
    end
  end

  def handle_call({:settle, lease, actual}, {pid, _tag}, server) do
    finish(server, {:lease, lease.id}, pid, lease_parts(server.state, lease), fn state, now ->
      AIRateLimit.settle(state, now, lease, actual)
    end)
  end

  def handle_call({:release, lease}, {pid, _tag}, server) do
    finish(server, {:lease, lease.id}, pid, lease_parts(server.state, lease), fn state, now ->
      AIRateLimit.release(state, now, lease)
    end)
  end

  def handle_call({:close, account}, {pid, _tag}, server) do
    finish(server, {:account, account}, pid, account_parts(server.state, account), fn state,
                                                                                      now ->
      AIRateLimit.close(state, now, account)
    end)
  end

  def handle_call({:abandon, session}, {pid, _tag}, server) do
    left =
      for {{:lease, id} = owned, {^pid, _ref}} <- server.owners,
          Map.fetch!(server.state.leases, id).session == session,
          do: owned

    # In the order of their numbers: the breaker's doesn't depend on that of a map.
    server = left |> Enum.sort() |> Enum.reduce(server, &settle_left/2)
    {:reply, {:ok, length(left)}, server}
  end

  def handle_call({:balance, key, account}, _from, server) do
    {:reply, {:ok, AIRateLimit.balance(server.state, server.clock.(), key, account)}, server}
  end

  def handle_call(:report, _from, server) do
    {:reply, {:ok, AIRateLimit.report(server.state, server.clock.())}, server}
  end

  @impl true
  def handle_cast({:cancel, pid, ref}, server) do
    case Enum.find(server.owners, fn {_owned, owner} -> owner == {pid, ref} end) do
      nil -> {:noreply, server}
      {owned, _owner} -> {:noreply, give_up(server, owned, &AIRateLimit.release/3)}
    end
  end

  @impl true
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, server) do
    case server.monitors do
      %{^monitor => owned} -> {:noreply, settle_left(owned, server)}
      _gone -> {:noreply, server}
    end
  end

  def handle_info(_message, server), do: {:noreply, server}

  defp settle_left(owned, server), do: give_up(server, owned, &settle_estimated/3)

  defp settle_estimated(state, now, lease) do
    AIRateLimit.settle(state, now, lease, %{outcome: :unknown})
  end

  # Ends what nobody owns any more.
  defp give_up(server, {:lease, id} = owned, finish) do
    lease = Map.fetch!(server.state.leases, id)
    {:ok, state} = finish.(server.state, server.clock.(), lease)
    parts = lease_parts(server.state, lease)
    %{server | state: state} |> disown(owned) |> store([{:owner, owned} | parts])
  end

  defp give_up(server, {:account, id} = owned, _finish) do
    {:ok, state} = AIRateLimit.close(server.state, server.clock.(), id)
    parts = account_parts(server.state, id)
    %{server | state: state} |> disown(owned) |> store([{:owner, owned} | parts])
  end

  defp finish(server, owned, pid, parts, fun) do
    with :ok <- check_owner(server, owned, pid),
         {:ok, state} <- fun.(server.state, server.clock.()) do
      server = disown(%{server | state: state}, owned)
      {:reply, :ok, store(server, [{:owner, owned} | parts])}
    else
      error -> {:reply, error, server}
    end
  end

  # What nobody owns is no open lease or account either, and answered as such.
  defp check_owner(server, {_kind, id} = owned, pid) do
    case server.owners do
      %{^owned => {owner, _ref}} when owner != pid ->
        {:error, %Error{reason: :not_owner, subject: id}}

      _own_or_nobodys ->
        :ok
    end
  end

  defp own(server, owned, pid, ref) do
    monitor(%{server | owners: Map.put(server.owners, owned, {pid, ref})}, owned, pid)
  end

  defp monitor(server, owned, pid) do
    monitor = Process.monitor(pid)
    monitors = server.monitors |> Map.put(owned, monitor) |> Map.put(monitor, owned)
    %{server | monitors: monitors}
  end

  defp disown(server, owned) do
    {monitor, monitors} = Map.pop!(server.monitors, owned)
    Process.demonitor(monitor, [:flush])
    %{server | owners: Map.delete(server.owners, owned), monitors: Map.delete(monitors, monitor)}
  end

  ## What is kept

  # The table is gone where the process that held it has died. Then all is written into the next
  # one, as soon as there is one; until then it is in this process alone.
  defp store(%{written: true} = server, parts) do
    if Ledger.write(server.table, server.state, server.owners, parts) do
      server
    else
      store(%{server | written: false}, parts)
    end
  end

  defp store(%{written: false} = server, _parts) do
    case Ledger.table(server.name) do
      {:ok, table} ->
        written = Ledger.write_all(table, server.state, server.owners)
        %{server | table: table, written: written}

      {:error, _reason} ->
        server
    end
  end

  defp lease_parts(state, lease) do
    [
      {:lease, lease.id},
      {:key, lease.key} | account_parts(state, lease.account)
    ]
  end

  defp account_parts(state, id) do
    for id <- Accounts.lineage(state.accounts, id), do: {:account, id}
  end
end
