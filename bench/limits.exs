# Reservations a second, in the pure value and through the server, beside the crate governor on the
# same arrivals: their verdicts have to agree, one by one. governor keeps nanoseconds, so the quotas
# are such that a unit takes a whole number of milliseconds.
#
# It does less: no budgets, no leases, nothing to settle. Where ours settle, that is part of the time.

alias Engine.Harness.Middleware.AIRateLimit
alias Engine.Harness.Middleware.AIRateLimit.{Rate, Server}

[governor] = System.argv()
rounds = 5
count = 20_000

# Arrivals about as dense as the quota, with idle stretches and bursts at one moment.
arrivals = fn {limit, interval, burst} ->
  :rand.seed(:exsss, limit + interval + burst)

  {arrivals, _now} =
    Enum.map_reduce(1..count, 0, fn _, now ->
      after_ms =
        case :rand.uniform(100) do
          1 -> :rand.uniform(2 * burst * div(interval, limit))
          n when n < 50 -> 0
          _ -> :rand.uniform(2 * div(interval, limit)) - 1
        end

      units = if :rand.uniform(10) == 1, do: :rand.uniform(burst + 1), else: 1
      {{now + after_ms, units}, now + after_ms}
    end)

  arrivals
end

verdict = fn
  :ok -> ?1
  {:wait, _} -> ?0
  :never -> ?-
end

# Nanoseconds for each arrival, and the verdicts of the last round.
time = fn run ->
  {times, [last | _]} =
    for _ <- 1..rounds do
      start = System.monotonic_time(:nanosecond)
      verdicts = run.()
      {div(System.monotonic_time(:nanosecond) - start, count), verdicts}
    end
    |> Enum.unzip()

  {times |> Enum.sort() |> Enum.at(div(rounds, 2)), to_string(last)}
end

rate_alone = fn arrivals, {limit, interval, burst} ->
  fn ->
    {verdicts, _rate} =
      Enum.map_reduce(arrivals, %Rate{limit: limit, interval_ms: interval, burst: burst}, fn
        {at, units}, rate ->
          answer = Rate.check(rate, at, units)

          rate =
            if answer == :ok,
              do: rate |> Rate.take(at, units, 1) |> Rate.finish(at, units, 1),
              else: rate

          {verdict.(answer), rate}
      end)

    verdicts
  end
end

options = fn {limit, interval, burst} ->
  [tokens: [limit: limit, interval_ms: interval, burst: burst]]
end

value = fn arrivals, quota ->
  fn ->
    {verdicts, _state} =
      Enum.map_reduce(arrivals, AIRateLimit.new(options.(quota), 0), fn {at, units}, state ->
        case AIRateLimit.reserve(state, at, %{key: "k", tokens: units}) do
          {:ok, lease, state} ->
            actual = %{outcome: :success, usage: units}
            {:ok, state} = AIRateLimit.settle(state, at, lease, actual)
            {?1, state}

          {:wait, _ms, _refusal, state} ->
            {?0, state}

          {:halt, _refusal, state} ->
            {?-, state}
        end
      end)

    verdicts
  end
end

server = fn arrivals, quota ->
  fn ->
    clock = :counters.new(1, [])
    now = fn -> :counters.get(clock, 1) end
    {:ok, pid} = Server.start_link(name: :bench, limits: options.(quota), clock: now)

    verdicts =
      for {at, units} <- arrivals do
        :counters.put(clock, 1, at)

        case Server.reserve(:bench, %{key: "k", tokens: units}) do
          {:ok, lease} ->
            :ok = Server.settle(:bench, lease, %{outcome: :success, usage: units})
            ?1

          {:wait, _ms, _refusal} ->
            ?0

          {:halt, _refusal} ->
            ?-
        end
      end

    GenServer.stop(pid)
    :ok = Server.forget(:bench)
    verdicts
  end
end

file = Path.join(System.tmp_dir!(), "arrivals-#{System.pid()}")

IO.puts(
  "\n#{count} arrivals; arrivals a second, and the time of each as a multiple of governor's"
)

columns = ["governor", "rate alone", "value", "server"]

IO.puts([
  String.pad_trailing("quota (units, ms, burst)", 28),
  String.pad_leading("admitted", 10) | Enum.map(columns, &String.pad_leading(&1, 24))
])

try do
  for quota <- [{20, 1_000, 5}, {1, 10_000, 1}, {60, 60_000, 60}, {1_000, 60_000, 200}] do
    arrivals = arrivals.(quota)
    File.write!(file, for({at, units} <- arrivals, do: "#{at} #{units}\n"))
    args = Enum.map(Tuple.to_list(quota), &Integer.to_string/1)
    {output, 0} = System.cmd(governor, [file | args])
    [verdicts, peer] = String.split(output)
    peer = String.to_integer(peer)

    ours = for run <- [rate_alone, value, server], do: time.(run.(arrivals, quota))

    for {_time, mine} <- ours, mine != verdicts do
      raise "the verdicts differ for #{inspect(quota)}"
    end

    cells =
      for ns <- [peer | Enum.map(ours, &elem(&1, 0))] do
        ratio = Float.round(ns / max(peer, 1), 1)
        String.pad_leading("#{div(1_000_000_000, max(ns, 1))} (#{ratio})", 24)
      end

    admitted = verdicts |> String.graphemes() |> Enum.count(&(&1 == "1"))

    IO.puts([
      String.pad_trailing(inspect(quota), 28),
      String.pad_leading("#{admitted}", 10) | cells
    ])
  end

  IO.puts("\nall verdicts agree, one by one")
after
  File.rm(file)
end

# Many callers at once, each with a lease of its own that it settles.
callers = 100
each = 500

{microseconds, :ok} =
  :timer.tc(fn ->
    {:ok, pid} =
      Server.start_link(name: :bench, limits: [session_budget: [tokens: 1_000_000_000]])

    1..callers
    |> Task.async_stream(
      fn _ ->
        for _ <- 1..each do
          {:ok, lease} = Server.reserve(:bench, %{key: "k", tokens: 10}, 60_000)
          :ok = Server.settle(:bench, lease, %{outcome: :success, usage: 9}, 60_000)
        end
      end,
      max_concurrency: callers,
      timeout: :infinity
    )
    |> Stream.run()

    {:ok, report} = Server.report(:bench)
    IO.puts("\nafter #{callers} callers with #{each} calls each\n#{report}")
    GenServer.stop(pid)
    Server.forget(:bench)
  end)

IO.puts("\n#{div(callers * each * 1_000_000, microseconds)} reserved and settled a second")
