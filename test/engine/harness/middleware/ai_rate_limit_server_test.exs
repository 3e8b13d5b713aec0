defmodule Engine.Harness.Middleware.AIRateLimit.ServerTest do
  # Not async: a test kills the process that holds all servers' tables.
  use ExUnit.Case, async: false

  alias Engine.Harness.Middleware.AIRateLimit
  alias AIRateLimit.{Error, Ledger, Lease, Refusal, Server}

  doctest Server

  setup context do
    name = context.test
    on_exit(fn -> Server.forget(name) end)
    [name: name]
  end

  defp start!(name, limits, opts \\ []) do
    start_supervised!({Server, [name: name, limits: limits] ++ opts})
  end

  defp call(tokens \\ 0, more \\ %{}), do: Map.merge(%{key: "k", tokens: tokens}, more)

  defp row(server, kind, scope \\ :session) do
    {:ok, report} = Server.report(server)
    Enum.find(report.rows, &(&1.scope == scope and &1.kind == kind))
  end

  defp totals(server) do
    {:ok, report} = Server.report(server)
    report.totals
  end

  # A process that does what it is told, until it is killed.
  defp worker, do: spawn(&work/0)

  defp work do
    receive do
      {from, ref, fun} ->
        send(from, {ref, fun.()})
        work()
    end
  end

  defp tell(worker, fun) do
    ref = make_ref()
    send(worker, {self(), ref, fun})
    assert_receive {^ref, answer}, 5_000
    answer
  end

  defp kill(pid) do
    monitor = Process.monitor(pid)
    Process.exit(pid, :kill)
    assert_receive {:DOWN, ^monitor, :process, _pid, _reason}, 5_000
    :ok
  end

  defp eventually(condition, tries \\ 500) do
    cond do
      condition.() -> true
      tries == 0 -> flunk("it did not happen")
      true -> Process.sleep(10) && eventually(condition, tries - 1)
    end
  end

  test "R01: of eight concurrent reservations of 0.30 in 1.00 three are admitted", %{name: name} do
    prices = %{"m" => %{input: 1_000_000, output: 0}}
    start!(name, session_budget: [cost: 1_000_000], prices: prices)
    parent = self()

    workers =
      for _ <- 1..8 do
        spawn_link(fn ->
          send(parent, {:answer, Server.reserve(name, call(300_000, %{model: "m"}))})
          receive do: (:stop -> :ok)
        end)
      end

    answers = for _ <- workers, do: assert_receive({:answer, answer}, 5_000) && answer
    assert {3, 5} == {Enum.count(answers, &(elem(&1, 0) == :ok)), refused(answers)}
    assert %{used: 0, reserved: 900_000, left: 100_000} = row(name, :cost)
    Enum.each(workers, &send(&1, :stop))
  end

  defp refused(answers) do
    Enum.count(answers, &match?({:halt, %Refusal{kind: :cost, limit: 1_000_000}}, &1))
  end

  test "R02: killed owners' leases are settled at their estimates, marked so", %{name: name} do
    start!(name, session_budget: [tokens: 1_000])
    workers = for _ <- 1..10, do: worker()
    for worker <- workers, do: {:ok, _} = tell(worker, fn -> Server.reserve(name, call(30)) end)
    assert %{used: 0, reserved: 300} = row(name, :tokens)

    Enum.each(workers, &kill/1)
    eventually(fn -> totals(name).open == 0 end)
    assert %{used: 300, reserved: 0, estimated: 300, left: 700} = row(name, :tokens)
    assert %{admitted: 10, settled: 10, estimated: 10, released: 0} = totals(name)
  end

  test "R13: only its owner can settle or release a lease, and once", %{name: name} do
    start!(name, session_budget: [tokens: 100])
    worker = worker()
    {:ok, lease} = tell(worker, fn -> Server.reserve(name, call(30)) end)
    actual = %{outcome: :success, usage: 20}

    assert {:error, %Error{reason: :not_owner} = error} = Server.settle(name, lease, actual)
    assert Exception.message(error) == "1 belongs to another process"
    assert {:error, %Error{reason: :not_owner}} = Server.release(name, lease)
    assert %{used: 0, reserved: 30} = row(name, :tokens)

    altered = %{lease | key: "other"}

    assert {:error, %Error{reason: :altered}} =
             tell(worker, fn -> Server.settle(name, altered, actual) end)

    assert tell(worker, fn -> Server.settle(name, lease, actual) end) == :ok

    assert {:error, %Error{reason: :not_open}} =
             tell(worker, fn -> Server.settle(name, lease, actual) end)

    assert {:error, %Error{reason: :not_open}} =
             tell(worker, fn -> Server.release(name, lease) end)

    assert %{used: 20, reserved: 0} = row(name, :tokens)
    kill(worker)
    assert %{used: 20, reserved: 0, estimated: 0} = row(name, :tokens)
  end

  test "R15: of many callers at the back-off's end one is the probe; its death opens again",
       %{name: name} do
    breaker = [failures: 1, window_ms: 10, backoff_ms: 100, max_backoff_ms: 1_000]
    clock = :counters.new(1, [])
    start!(name, [breaker: breaker], clock: fn -> :counters.get(clock, 1) end)
    {:ok, lease} = Server.reserve(name, call())
    :ok = Server.settle(name, lease, %{outcome: :failure, usage: 0})
    assert {:wait, 100, %Refusal{kind: :breaker}} = Server.reserve(name, call())

    :counters.put(clock, 1, 100)
    workers = for _ <- 1..20, do: worker()

    answers =
      for worker <- workers, do: {worker, tell(worker, fn -> Server.reserve(name, call()) end)}

    assert [{probe, {:ok, _}}] = Enum.filter(answers, &match?({_, {:ok, _}}, &1))
    kill(probe)
    eventually(fn -> row(name, :breaker, {:key, "k"}).note == "open for 200 ms" end)
    assert {:wait, 200, _} = Server.reserve(name, call())
    Enum.each(workers, &Process.exit(&1, :kill))
  end

  describe "sub-agents" do
    test "R11: a child's part goes back when it is closed, or when its owner dies",
         %{name: name} do
      start!(name, session_budget: [tokens: 100])
      children = for _ <- 1..5, do: worker()

      answers =
        for child <- children do
          tell(child, fn -> Server.allot(name, :session, %{tokens: 40}) end)
        end

      assert [ok: first, ok: second, halt: refusal, halt: _, halt: _] = answers
      assert refusal.left == 20
      [owner, other | _] = children

      tell(owner, fn ->
        {:ok, lease} = Server.reserve(name, call(10, %{account: first}))
        :ok = Server.settle(name, lease, %{outcome: :success, usage: 10})
      end)

      assert {:error, %Error{reason: :not_owner}} = Server.close(name, first)
      assert tell(owner, fn -> Server.close(name, first) end) == :ok

      assert {:error, %Error{reason: :no_account}} =
               tell(owner, fn -> Server.close(name, first) end)

      {:ok, third} = Server.allot(name, :session, %{tokens: 40})
      assert {:halt, %Refusal{left: 10}} = Server.allot(name, :session, %{tokens: 20})

      # Any process may spend what was set apart. What it is spending when the owner dies stays.
      {:ok, _lease} = Server.reserve(name, call(5, %{account: second}))
      kill(other)
      eventually(fn -> row(name, :tokens).left == 45 end)
      assert {:halt, %Refusal{kind: :account}} = Server.reserve(name, call(1, %{account: second}))
      assert Server.close(name, third) == :ok
      assert %{used: 10, reserved: 5, left: 85} = row(name, :tokens)
      Enum.each(children, &Process.exit(&1, :kill))
    end
  end

  describe "a restart" do
    test "loses no spend, no lease and no owner", %{name: name} do
      start!(name, session_budget: [tokens: 1_000], tokens: [limit: 900, interval_ms: 3_600_000])
      {:ok, spent} = Server.reserve(name, call(100))
      :ok = Server.settle(name, spent, %{outcome: :success, usage: 90})
      {:ok, mine} = Server.reserve(name, call(200))
      {:ok, account} = Server.allot(name, :session, %{tokens: 50})
      worker = worker()
      {:ok, _} = tell(worker, fn -> Server.reserve(name, call(300, %{key: "other"})) end)
      {:ok, before} = Server.report(name)

      restart(name, fn -> :ok end)
      {:ok, restarted} = Server.report(name)
      assert without_time(restarted) == without_time(before)

      assert Server.settle(name, mine, %{outcome: :success, usage: 150}) == :ok
      assert Server.close(name, account) == :ok
      assert %{used: 240, reserved: 300, estimated: 0} = row(name, :tokens)
      kill(worker)
      eventually(fn -> totals(name).open == 0 end)
      assert %{used: 540, reserved: 0, estimated: 300} = row(name, :tokens)
    end

    test "settles what owners left that died meanwhile", %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      worker = worker()
      {:ok, _} = tell(worker, fn -> Server.reserve(name, call(300)) end)
      {:ok, _} = tell(worker, fn -> Server.allot(name, :session, %{tokens: 100}) end)

      restart(name, fn -> kill(worker) end)
      eventually(fn -> totals(name).open == 0 end)
      eventually(fn -> row(name, :tokens).reserved == 0 end)
      assert %{used: 300, estimated: 300, left: 700} = row(name, :tokens)
    end

    test "happens many times under load, and all adds up", %{name: name} do
      start!(name, session_budget: [tokens: 1_000_000])
      parent = self()

      workers =
        for _ <- 1..10 do
          spawn_link(fn -> send(parent, {:charged, self(), charge(name, 300, 0)}) end)
        end

      for _ <- 1..10 do
        pid = eventually_pid(name)
        kill(pid)
      end

      charged = for w <- workers, do: assert_receive({:charged, ^w, sum}, 30_000) && sum
      eventually_pid(name)
      eventually(fn -> totals(name).open == 0 end)
      # What was settled is spent; so is, at its estimate, what was reserved when the answer was
      # lost with the server.
      row = row(name, :tokens)
      assert row.reserved == 0
      assert row.used - row.estimated == Enum.sum(charged)
      assert %{admitted: admitted, settled: settled, released: released} = totals(name)
      assert admitted == settled + released
    end

    # A settlement whose answer is lost has happened or not; it is tried until that is known.
    defp charge(_name, 0, sum), do: sum

    defp charge(name, left, sum) do
      case Server.reserve(name, call(7)) do
        {:ok, lease} ->
          settle(name, lease)
          charge(name, left - 1, sum + 5)

        {:halt, %Refusal{kind: :unreachable}} ->
          charge(name, left, sum)
      end
    end

    defp settle(name, lease) do
      case Server.settle(name, lease, %{outcome: :success, usage: 5}) do
        :ok -> :ok
        {:error, %Error{reason: :unreachable}} -> settle(name, lease)
        {:error, %Error{reason: :not_open}} -> :ok
      end
    end

    defp eventually_pid(name) do
      eventually(fn -> is_pid(GenServer.whereis(name)) end)
      GenServer.whereis(name) || eventually_pid(name)
    end

    test "with other limits is an error, until what was kept is forgotten", %{name: name} do
      start!(name, session_budget: [tokens: 10])
      assert {:error, %Error{reason: :running}} = Server.forget(name)
      {:ok, _} = Server.reserve(name, call(10))
      stop_supervised!({Server, name})

      Process.flag(:trap_exit, true)

      assert {:error, %Error{reason: :other_limits}} =
               Server.start_link(name: name, limits: [session_budget: [tokens: 20]])

      assert Server.forget(name) == :ok
      start!(name, session_budget: [tokens: 20])
      assert %{used: 0, reserved: 0, left: 20} = row(name, :tokens)
    end

    test "of the process that holds the tables loses nothing while the server runs",
         %{name: name} do
      start!(name, session_budget: [tokens: 100])
      {:ok, lease} = Server.reserve(name, call(30))
      ledger = Process.whereis(Ledger)
      kill(ledger)
      eventually(fn -> Process.whereis(Ledger) not in [nil, ledger] end)
      {:ok, _} = Server.reserve(name, call(20))

      restart(name, fn -> :ok end)
      assert %{used: 0, reserved: 50} = row(name, :tokens)
      assert Server.settle(name, lease, %{outcome: :success, usage: 30}) == :ok
    end

    defp restart(name, meanwhile) do
      pid = GenServer.whereis(name)
      :ok = :sys.suspend(pid)
      meanwhile.()
      kill(pid)
      eventually(fn -> GenServer.whereis(name) not in [nil, pid] end)
    end

    defp without_time(report) do
      # The rate drains meanwhile.
      %{report | rows: Enum.reject(report.rows, &(&1.kind in [:token_rate, :deadline]))}
    end
  end

  describe "a server that can't be reached" do
    test "lets nothing pass", %{name: name} do
      for server <- [
            name,
            {:global, name},
            {:via, Registry, {NoRegistry, name}},
            {name, :no@node}
          ] do
        assert {:halt, %Refusal{kind: :unreachable, scope: {:server, ^server}} = refusal} =
                 Server.reserve(server, call())

        assert Exception.message(refusal) =~ ~r/\Aserver .+, unreachable: it did not answer\z/
        assert {:halt, %Refusal{kind: :unreachable}} = Server.allot(server, :session, %{})
        assert {:error, %Error{reason: :unreachable}} = Server.report(server)
      end

      start!(name, [])
      {:ok, lease} = Server.reserve(name, call())
      stop_supervised!({Server, name})

      assert {:error, %Error{reason: :unreachable}} =
               Server.settle(name, lease, %{outcome: :success})

      assert {:error, %Error{reason: :unreachable}} = Server.release(name, lease)
      assert {:error, %Error{reason: :unreachable}} = Server.close(name, 1)
    end

    test "undoes what its caller no longer waits for", %{name: name} do
      pid = start!(name, session_budget: [tokens: 100])
      :ok = :sys.suspend(pid)
      assert {:halt, %Refusal{kind: :unreachable}} = Server.reserve(name, call(30), 50)

      assert {:halt, %Refusal{kind: :unreachable}} =
               Server.allot(name, :session, %{tokens: 10}, 50)

      :ok = :sys.resume(pid)
      eventually(fn -> row(name, :tokens).left == 100 end)
      assert %{admitted: 1, released: 1, open: 0} = totals(name)
    end
  end

  test "any name will do", %{name: name} do
    start_supervised!({Registry, keys: :unique, name: __MODULE__.Registry})

    for server <- [{:global, name}, {:via, Registry, {__MODULE__.Registry, name}}] do
      start!(server, session_budget: [calls: 1])
      assert {:ok, %Lease{}} = Server.reserve(server, call())
      assert {:halt, %Refusal{kind: :calls}} = Server.reserve(server, call())
      stop_supervised!({Server, server})
      assert Server.forget(server) == :ok
    end

    for wrong <- [nil, "name", true, {:local, name}] do
      assert_raise ArgumentError,
                   "expected :name to be an atom, {:global, term} or {:via, module, term}, " <>
                     "got: #{inspect(wrong)}",
                   fn -> Server.start_link(name: wrong, limits: []) end
    end

    assert_raise ArgumentError, ~r/expected options to be a keyword list/, fn ->
      Server.start_link(name: name)
    end
  end

  test "a wrong argument is the caller's error; the server goes on", %{name: name} do
    pid = start!(name, [])
    {:ok, lease} = Server.reserve(name, call())
    assert_raise ArgumentError, fn -> Server.reserve(name, %{key: "k"}) end
    assert_raise ArgumentError, fn -> Server.settle(name, lease, %{outcome: :maybe}) end
    assert_raise ArgumentError, fn -> Server.allot(name, :session, %{tokens: -1}) end

    assert_raise ArgumentError, "expected a lease, got: :lease", fn ->
      Server.settle(name, :lease, %{outcome: :success})
    end

    assert_raise ArgumentError, "expected a lease, got: nil", fn -> Server.release(name, nil) end

    # Structs that a caller made itself.
    actual = %{AIRateLimit.Actual.new!(%{outcome: :success, usage: 1}) | usage: -7}
    assert_raise ArgumentError, fn -> Server.settle(name, lease, actual) end
    estimate = AIRateLimit.Estimate.new!(call(1))
    negative = put_in(estimate.tokens.input_tokens, -5)
    assert_raise ArgumentError, fn -> Server.reserve(name, negative) end
    assert {:ok, _lease} = Server.reserve(name, estimate)
    assert %{reserved: 1} = row(name, :tokens)
    send(pid, :noise)
    assert %{open: 2} = totals(name)
    assert GenServer.whereis(name) == pid
  end

  @tag timeout: 120_000
  test "100 processes, 100,000 reservations, owners killed at random", %{name: name} do
    limit = 150_000

    start!(name,
      session_budget: [tokens: limit],
      key_budget: [tokens: 100_000],
      breaker: [failures: 5, window_ms: 1_000, backoff_ms: 1, max_backoff_ms: 2]
    )

    left = :atomics.new(1, [])
    :atomics.put(left, 1, 100_000)
    spent = :counters.new(1, [])
    :rand.seed(:exsss, 7)
    seeds = fn -> :rand.uniform(1_000_000_000) end
    workers = for _ <- 1..100, into: %{}, do: start_worker(name, left, spent, seeds.())
    killed = supervise(workers, name, left, spent, seeds, limit, 0)

    assert killed > 100
    assert %{open: 0} = totals = totals(name)
    assert totals.admitted == totals.settled + totals.released
    assert totals.admitted + totals.refused == 100_000
    assert totals.estimated > 0

    assert %{reserved: 0, used: used, estimated: estimated} = row(name, :tokens)
    assert used <= limit
    # What the workers told is what is charged; the dead were charged their estimates.
    assert used == :counters.get(spent, 1) + estimated

    for key <- ["a", "b"] do
      assert %{reserved: 0, used: used} = row(name, :tokens, {:key, key})
      assert used <= 100_000
    end

    assert :sys.get_state(name).owners == %{}
    assert :sys.get_state(name).monitors == %{}
  end

  defp start_worker(name, left, spent, seed) do
    {pid, monitor} =
      spawn_monitor(fn ->
        :rand.seed(:exsss, seed)
        hammer(name, left, spent)
      end)

    {monitor, pid}
  end

  defp hammer(name, left, spent) do
    if :atomics.sub_get(left, 1, 1) >= 0 do
      asked = :rand.uniform(4)
      key = Enum.random(["a", "b"])

      case Server.reserve(name, %{key: key, tokens: asked}, 60_000) do
        {:ok, lease} -> finish(name, lease, asked, spent)
        {:wait, _ms, _refusal} -> :ok
        {:halt, _refusal} -> :ok
      end

      hammer(name, left, spent)
    end
  end

  defp finish(name, lease, asked, spent) do
    case :rand.uniform(100) do
      1 ->
        Process.exit(self(), :kill)

      n when n < 20 ->
        :ok = Server.release(name, lease, 60_000)

      n ->
        used = :rand.uniform(asked)
        outcome = if n < 30, do: :failure, else: :success
        :ok = Server.settle(name, lease, %{outcome: outcome, usage: used}, 60_000)
        :counters.add(spent, 1, used)
    end
  end

  defp supervise(workers, _name, _left, _spent, _seeds, _limit, killed)
       when workers == %{},
       do: killed

  defp supervise(workers, name, left, spent, seeds, limit, killed) do
    receive do
      {:DOWN, monitor, :process, _pid, :normal} ->
        workers |> Map.delete(monitor) |> supervise(name, left, spent, seeds, limit, killed)

      {:DOWN, monitor, :process, _pid, :killed} ->
        row = row(name, :tokens)
        assert row.used + row.reserved <= limit
        {new, pid} = start_worker(name, left, spent, seeds.())

        workers
        |> Map.delete(monitor)
        |> Map.put(new, pid)
        |> supervise(name, left, spent, seeds, limit, killed + 1)
    after
      60_000 -> flunk("the workers hang")
    end
  end
end
