defmodule Engine.Harness.Middleware.AIRateLimitTest do
  use ExUnit.Case, async: true

  import Engine.Property

  import :proper_types,
    only: [any: 0, integer: 2, list: 1, non_neg_integer: 0, oneof: 1, tuple: 1, vector: 2]

  alias Engine.Harness.Middleware.AIRateLimit
  alias AIRateLimit.{Error, Lease, Limits, Refusal}

  for module <- [
        AIRateLimit,
        AIRateLimit.Actual,
        AIRateLimit.Budget,
        AIRateLimit.Estimate,
        AIRateLimit.Rate,
        AIRateLimit.Usage
      ],
      do: doctest(module)

  @breaker [failures: 3, window_ms: 10_000, backoff_ms: 1_000, max_backoff_ms: 3_000]

  defp call(tokens \\ 0, more \\ %{}), do: Map.merge(%{key: "k", tokens: tokens}, more)

  # Reserves again and again at one moment: what was admitted, what was refused, and the state.
  defp reserve_all(state, now, estimates) do
    Enum.reduce(estimates, {[], [], state}, fn estimate, {leases, refusals, state} ->
      case AIRateLimit.reserve(state, now, estimate) do
        {:ok, lease, state} -> {leases ++ [lease], refusals, state}
        {:wait, _ms, refusal, state} -> {leases, refusals ++ [refusal], state}
        {:halt, refusal, state} -> {leases, refusals ++ [refusal], state}
      end
    end)
  end

  defp reserve!(state, now, estimate) do
    {:ok, lease, state} = AIRateLimit.reserve(state, now, estimate)
    {lease, state}
  end

  defp settle!(state, now, lease, actual) do
    {:ok, state} = AIRateLimit.settle(state, now, lease, actual)
    state
  end

  # Makes a call that ends at once.
  defp make!(state, now, outcome) do
    {lease, state} = reserve!(state, now, call())
    settle!(state, now, lease, %{outcome: outcome, usage: 0})
  end

  defp row(state, now, scope, kind) do
    Enum.find(AIRateLimit.report(state, now).rows, &(&1.scope == scope and &1.kind == kind))
  end

  defp numbers(row), do: {row.used, row.reserved, row.left}

  describe "budgets" do
    test "R01: of eight reservations of 0.30 in a budget of 1.00 exactly three are admitted" do
      state =
        AIRateLimit.new(
          session_budget: [cost: 1_000_000],
          prices: %{"m" => %{input: 1_000_000, output: 0}}
        )

      {leases, refusals, state} =
        reserve_all(state, 0, List.duplicate(call(300_000, %{model: "m"}), 8))

      assert length(leases) == 3
      assert Enum.map(leases, & &1.amounts.cost) == [300_000, 300_000, 300_000]

      assert List.last(refusals) == %Refusal{
               kind: :cost,
               scope: :session,
               limit: 1_000_000,
               used: 0,
               reserved: 900_000,
               asked: 300_000,
               left: 100_000,
               retry: :when_settled
             }

      assert numbers(row(state, 0, :session, :cost)) == {0, 900_000, 100_000}
    end

    test "R10: of five calls two are used and three refused where two are allowed" do
      state = AIRateLimit.new(session_budget: [calls: 2])

      state =
        Enum.reduce(1..5, state, fn _, state ->
          case AIRateLimit.reserve(state, 0, call()) do
            {:ok, lease, state} -> settle!(state, 0, lease, %{outcome: :success, usage: 0})
            {:halt, refusal, state} -> assert(refusal.retry == :never) && state
          end
        end)

      assert row(state, 0, :session, :calls).used == 2
      assert AIRateLimit.report(state, 0).totals.refused == 3
    end

    test "a key's budget is its own; the session's is all keys'" do
      state = AIRateLimit.new(session_budget: [tokens: 25], key_budget: [tokens: 10])
      {_lease, state} = reserve!(state, 0, call(10))

      assert {:halt, %Refusal{kind: :tokens, scope: {:key, "k"}, left: 0}, state} =
               AIRateLimit.reserve(state, 0, call(1))

      {_lease, state} = reserve!(state, 0, call(10, %{key: :other}))

      assert {:halt, %Refusal{kind: :tokens, scope: :session, left: 5}, _state} =
               AIRateLimit.reserve(state, 0, call(6, %{key: "third"}))
    end

    test "a key named in :keys has limits of its own, and the others' where it names none" do
      state =
        AIRateLimit.new(
          key_budget: [calls: 1],
          tokens: [limit: 5, interval_ms: 1_000],
          keys: %{"big" => [key_budget: [calls: 2]]}
        )

      big = call(1, %{key: "big"})
      assert {[_, _], [%Refusal{kind: :calls}], _} = reserve_all(state, 0, [big, big, big])
      assert {[_], [%Refusal{kind: :calls}], _} = reserve_all(state, 0, [call(1), call(1)])

      assert {:halt, %Refusal{kind: :token_rate}, _} =
               AIRateLimit.reserve(state, 0, %{big | tokens: 6})
    end

    test "what a failed call cost is spent, and more than was reserved, too" do
      state = AIRateLimit.new(session_budget: [tokens: 100])
      {lease, state} = reserve!(state, 0, call(60))
      state = settle!(state, 0, lease, %{outcome: :failure, usage: %{input_tokens: 130}})
      assert %{used: 130, left: 0, estimated: 0} = row(state, 0, :session, :tokens)

      assert {:halt, %Refusal{used: 130, left: 0, retry: :never}, _} =
               AIRateLimit.reserve(state, 0, call(0))
    end

    test "cached tokens have their own price; a cost is rounded up once" do
      prices = %{"m" => %{input: 500_000, cached_input: 50_000, output: 2_000_000}}
      state = AIRateLimit.new(prices: prices)
      tokens = %{input_tokens: 3, cached_input_tokens: 5, output_tokens: 1}
      # 1.5 + 0.25 + 2 micro-units
      assert {%Lease{amounts: %{cost: 4, tokens: 9}}, _} =
               reserve!(state, 0, call(tokens, %{model: "m"}))
    end

    test "where the cost is limited, a call of unknown price is refused" do
      state = AIRateLimit.new(key_budget: [cost: 10])

      assert {:halt, %Refusal{kind: :price, scope: {:model, "new"}} = refusal, _state} =
               AIRateLimit.reserve(state, 0, call(1, %{model: "new"}))

      assert Exception.message(refusal) ==
               ~s(model "new", price: it is not known, and the cost is limited)

      assert {_lease, _state} = reserve!(AIRateLimit.new([]), 0, call(1, %{model: "new"}))
    end

    test "R12: a reply without a usage is charged what was reserved, marked as estimated" do
      prices = %{"m" => %{input: 1_000_000, output: 4_000_000}}
      state = AIRateLimit.new(session_budget: [tokens: 100, cost: 1_000], prices: prices)
      estimate = call(%{input_tokens: 30, output_tokens: 10}, %{model: "m"})
      {lease, state} = reserve!(state, 0, estimate)
      missing = settle!(state, 0, lease, %{outcome: :success})

      assert %{used: 40, reserved: 0, estimated: 40, left: 60} =
               row(missing, 0, :session, :tokens)

      assert %{used: 70, estimated: 70} = row(missing, 0, :session, :cost)
      assert %{used: 1, estimated: 1} = row(missing, 0, :session, :calls)
      assert %{settled: 1, estimated: 1} = AIRateLimit.report(missing, 0).totals

      # Without the output alone, only that is estimated.
      part = settle!(state, 0, lease, %{outcome: :success, usage: %{input_tokens: 25}})
      assert %{used: 35, estimated: 10} = row(part, 0, :session, :tokens)
      assert %{used: 65, estimated: 40} = row(part, 0, :session, :cost)
    end

    test "R13: a lease is settled or released once, in its own state; else nothing changes" do
      state = AIRateLimit.new(session_budget: [tokens: 100])
      {one, state} = reserve!(state, 0, call(10))
      {two, state} = reserve!(state, 0, call(20, %{key: "other"}))
      state = settle!(state, 0, one, %{outcome: :success, usage: 9})

      again = AIRateLimit.settle(state, 0, one, %{outcome: :success, usage: 9})
      assert {:error, %Error{reason: :not_open, subject: ^one} = error} = again

      assert Exception.message(error) ==
               ~s(lease 1 of key "k" is not open: it is settled or released, or another state's)

      assert {:error, %Error{reason: :not_open}} = AIRateLimit.release(state, 0, one)

      {:ok, released} = AIRateLimit.release(state, 0, two)

      assert {:error, %Error{reason: :not_open}} =
               AIRateLimit.settle(released, 0, two, %{outcome: :success, usage: 9})

      assert {:error, %Error{reason: :altered} = error} =
               AIRateLimit.settle(state, 0, %{two | key: "k"}, %{outcome: :success, usage: 9})

      assert Exception.message(error) ==
               ~s(lease 2 of key "k" is not the one that is open under this number)

      assert numbers(row(state, 0, :session, :tokens)) == {9, 20, 71}
    end

    test "R09: 0 lets nothing pass; absent and :infinity everything; the rest is no limit" do
      options = fn limit ->
        for dimension <- [:calls, :tokens, :cost], budget <- [:session_budget, :key_budget] do
          [{budget, [{dimension, limit}]}]
        end ++
          [
            [requests: [limit: limit, interval_ms: 1_000]],
            [tokens: [limit: limit, interval_ms: 1_000]],
            [deadline_ms: limit],
            [attempt_ms: limit]
          ]
      end

      prices = %{"m" => %{input: 0, output: 0}}

      for limits <- options.(0) do
        for tokens <- [0, 1] do
          assert {:halt, %Refusal{left: 0}, _} =
                   AIRateLimit.reserve(
                     AIRateLimit.new([prices: prices] ++ limits),
                     0,
                     call(tokens, %{model: "m"})
                   ),
                 inspect(limits)
        end
      end

      for limits <- [[] | options.(:infinity)] do
        assert {:ok, _, _} =
                 AIRateLimit.reserve(AIRateLimit.new(limits), 0, call(1_000_000_000_000)),
               inspect(limits)
      end

      for wrong <- [nil, -1, false, 1.5], limits <- options.(wrong) do
        error = assert_raise ArgumentError, fn -> AIRateLimit.new(limits) end
        assert error.message =~ "a non-negative integer", inspect(limits)
        assert error.message =~ "got: #{inspect(wrong)}", inspect(limits)
      end
    end

    test "what is no option is named" do
      for {limits, message} <- [
            {[budget: []], "option :budget is unknown, expected any of: " <> allowed()},
            {[tokens: [limit: 5]],
             ":tokens: expected :interval_ms to be a positive integer, got: nil"},
            {[requests: [limit: 5, interval_ms: 9, burst: 0]],
             ":requests: expected :burst to be a positive integer, got: 0"},
            {[breaker: [failures: 0]],
             ":breaker: expected :failures to be a positive integer, got: 0"},
            {[breaker: Keyword.put(@breaker, :max_backoff_ms, 999)],
             ":breaker: expected :max_backoff_ms to be at least :backoff_ms, 1000, got: 999"},
            {[keys: %{1 => []}],
             "expected :keys to be a map from strings or atoms to limits, got: %{1 => []}"},
            {[prices: %{"m" => %{input: 1}}],
             "expected the price of \"m\" to be a map of non-negative integers with the keys " <>
               ":input, :output and, if it differs, :cached_input, got: %{input: 1}"}
          ] do
        assert_raise ArgumentError, message, fn -> Limits.new!(limits) end
      end

      state = AIRateLimit.new([])

      assert_raise ArgumentError, "an estimate lacks :tokens", fn ->
        AIRateLimit.reserve(state, 0, %{key: "k"})
      end

      assert_raise ArgumentError, "expected :key to be a string or an atom, got: nil", fn ->
        AIRateLimit.reserve(state, 0, %{key: nil, tokens: 1})
      end

      assert_raise ArgumentError,
                   "expected a time to be an integer of milliseconds, got: 0.5",
                   fn -> AIRateLimit.reserve(state, 0.5, call()) end

      {lease, state} = reserve!(state, 0, call())

      assert_raise ArgumentError,
                   "expected :outcome to be one of :success, :failure, :unknown, got: :ok",
                   fn -> AIRateLimit.settle(state, 0, lease, %{outcome: :ok}) end
    end

    defp allowed do
      ":requests, :tokens, :key_budget, :breaker, :keys, :session_budget, :prices, " <>
        ":deadline_ms, :attempt_ms"
    end
  end

  describe "sub-agents" do
    test "R11: parts of a parent's budget are granted while they fit; unused ones go back" do
      state = AIRateLimit.new(session_budget: [tokens: 100])

      {children, refusals, state} =
        Enum.reduce(1..5, {[], [], state}, fn _, {children, refusals, state} ->
          case AIRateLimit.allot(state, 0, :session, %{tokens: 40}) do
            {:ok, child, state} -> {children ++ [child], refusals, state}
            {:halt, refusal, state} -> {children, refusals ++ [refusal], state}
          end
        end)

      assert [first, _second] = children
      assert [20, 20, 20] = Enum.map(refusals, & &1.left)

      {lease, state} = reserve!(state, 0, call(15, %{account: first}))
      state = settle!(state, 0, lease, %{outcome: :success, usage: 10})
      {:ok, state} = AIRateLimit.close(state, 0, first)
      {:ok, _third, state} = AIRateLimit.allot(state, 0, :session, %{tokens: 40})

      assert {:halt, %Refusal{left: 10, asked: 20, used: 10, reserved: 80}, _state} =
               AIRateLimit.allot(state, 0, :session, %{tokens: 20})
    end

    test "a child spends its own part, and what it overspends is its parent's at once" do
      state = AIRateLimit.new(session_budget: [tokens: 100, calls: 3])
      {:ok, child, state} = AIRateLimit.allot(state, 0, :session, %{tokens: 40})
      child_call = &call(&1, %{account: child})

      assert {:halt, %Refusal{scope: {:account, ^child}, left: 40}, state} =
               AIRateLimit.reserve(state, 0, child_call.(41))

      {lease, state} = reserve!(state, 0, child_call.(40))
      assert numbers(row(state, 0, :session, :tokens)) == {0, 40, 60}
      # It was granted no calls of its own.
      assert numbers(row(state, 0, :session, :calls)) == {0, 1, 2}

      state = settle!(state, 0, lease, %{outcome: :success, usage: 50})
      assert numbers(row(state, 0, :session, :tokens)) == {0, 50, 50}
      assert numbers(row(state, 0, {:account, child}, :tokens)) == {50, 0, 0}

      {:ok, state} = AIRateLimit.close(state, 0, child)
      assert numbers(row(state, 0, :session, :tokens)) == {50, 0, 50}
      assert numbers(row(state, 0, :session, :calls)) == {1, 0, 2}
    end

    test "a closed child's open calls stay reserved until they end" do
      state = AIRateLimit.new(session_budget: [tokens: 100])
      {:ok, child, state} = AIRateLimit.allot(state, 0, :session, %{tokens: 40})
      {:ok, grandchild, state} = AIRateLimit.allot(state, 0, child, %{tokens: 30})
      {lease, state} = reserve!(state, 0, call(20, %{account: grandchild}))

      {:ok, state} = AIRateLimit.close(state, 0, child)
      assert numbers(row(state, 0, :session, :tokens)) == {0, 30, 70}

      {:ok, state} = AIRateLimit.close(state, 0, grandchild)
      assert numbers(row(state, 0, :session, :tokens)) == {0, 20, 80}

      assert {:error, %Error{reason: :no_account}} = AIRateLimit.close(state, 0, grandchild)
      assert {:error, %Error{reason: :no_account}} = AIRateLimit.close(state, 0, :session)

      assert {:halt, %Refusal{kind: :account, scope: {:account, ^grandchild}}, state} =
               AIRateLimit.reserve(state, 0, call(1, %{account: grandchild}))

      state = settle!(state, 0, lease, %{outcome: :success, usage: 5})
      assert numbers(row(state, 0, :session, :tokens)) == {5, 0, 95}
      assert Enum.map(AIRateLimit.report(state, 0).rows, & &1.scope) |> Enum.uniq() == [:session]
    end
  end

  describe "rates" do
    test "R03: 20 a second with a burst of 5" do
      state = AIRateLimit.new(requests: [limit: 20, interval_ms: 1_000, burst: 5])
      {leases, refusals, state} = reserve_all(state, 0, List.duplicate(call(), 7))
      assert {length(leases), Enum.map(refusals, & &1.retry)} == {5, [50, 50]}

      {admitted, _state} =
        Enum.reduce(Enum.take_every(50..2_000, 50), {0, state}, fn now, {admitted, state} ->
          {leases, _refusals, state} = reserve_all(state, now, [call()])
          {admitted + length(leases), state}
        end)

      assert admitted == 40
    end

    test "R04: one in 10 s: the second try, 100 ms after the first, waits 9,900 ms" do
      state = AIRateLimit.new(requests: [limit: 1, interval_ms: 10_000])
      {_lease, state} = reserve!(state, 9_950, call())
      assert {:wait, 9_900, refusal, state} = AIRateLimit.reserve(state, 10_050, call())

      assert Exception.message(refusal) ==
               ~s{key "k", call rate: 1 asked, 0 of 1 left (1 used, 0 reserved); } <>
                 "try again in 9900 ms"

      assert {:wait, 1, _, state} = AIRateLimit.reserve(state, 19_949, call())
      assert {:ok, _, _} = AIRateLimit.reserve(state, 19_950, call())
    end

    test "R05: a clock that steps back gets the answers of the latest time seen" do
      state = AIRateLimit.new(requests: [limit: 2, interval_ms: 10_000])
      {_lease, state} = reserve!(state, 20_000, call())
      # 11 s back: as at 20,000.
      {_lease, state} = reserve!(state, 9_000, call())
      assert {:wait, 5_000, _, state} = AIRateLimit.reserve(state, 9_001, call())
      # Forward again.
      assert {:wait, 4_000, _, state} = AIRateLimit.reserve(state, 21_000, call())
      assert {:ok, _, _} = AIRateLimit.reserve(state, 25_000, call())
    end

    test "R06: what no burst can hold is refused, not made to wait" do
      state = AIRateLimit.new(tokens: [limit: 1_000, interval_ms: 60_000, burst: 100])

      assert {:halt, %Refusal{kind: :token_rate, limit: 100, asked: 101, retry: :never}, state} =
               AIRateLimit.reserve(state, 0, call(101))

      assert {:ok, _, _} = AIRateLimit.reserve(state, 0, call(100))
    end

    test "a million tokens a minute, to the millisecond" do
      # One token takes 0.06 ms: 50 of them 3 ms, 51 a little more.
      state = AIRateLimit.new(tokens: [limit: 1_000_000, interval_ms: 60_000])
      {_lease, state} = reserve!(state, -7, call(1_000_000))
      assert {:wait, 3, _, state} = AIRateLimit.reserve(state, -7, call(50))
      assert {:wait, 4, _, state} = AIRateLimit.reserve(state, -7, call(51))
      assert {:wait, 1, _, state} = AIRateLimit.reserve(state, -5, call(50))
      assert {:ok, _, _} = AIRateLimit.reserve(state, -4, call(50))
    end

    test "tokens that a call did not use go back, as far as their time has not gone by" do
      state = AIRateLimit.new(tokens: [limit: 10, interval_ms: 10_000])
      {lease, state} = reserve!(state, 0, call(10))
      early = settle!(state, 0, lease, %{outcome: :success, usage: 4})
      assert numbers(row(early, 0, {:key, "k"}, :token_rate)) == {4, 0, 6}
      # After 8 s only 2 of the 10 are still ahead.
      late = settle!(state, 8_000, lease, %{outcome: :success, usage: 4})
      assert numbers(row(late, 8_000, {:key, "k"}, :token_rate)) == {0, 0, 10}
      assert {:wait, 1_000, _, _} = late |> reserve!(8_000, call(10)) |> elem(1) |> try1(8_000)
      # What it used beyond its estimate is added.
      over = settle!(state, 0, lease, %{outcome: :success, usage: 12})
      assert {:wait, 3_000, _, _} = try1(over, 0)
    end

    defp try1(state, now), do: AIRateLimit.reserve(state, now, call(1))

    test "giving back what has gone by would let too much pass" do
      # A burst of 1 every 10 ms: A at 0, B at 10 and, A given back, nothing else at 10.
      state = AIRateLimit.new(requests: [limit: 1, interval_ms: 10])
      {a, state} = reserve!(state, 0, call())
      {_b, state} = reserve!(state, 10, call())
      {:ok, state} = AIRateLimit.release(state, 10, a)
      assert {:wait, 10, _, _} = AIRateLimit.reserve(state, 10, call())
    end

    test "a lease that moved up has less ahead of it" do
      # A burst of 2, one every 10 ms. B's piece moves from 10..20 to 0..10 when A is released.
      state = AIRateLimit.new(requests: [limit: 1, interval_ms: 10, burst: 2])
      {a, state} = reserve!(state, 0, call())
      {b, state} = reserve!(state, 0, call())
      {:ok, state} = AIRateLimit.release(state, 0, a)
      {_c, state} = reserve!(state, 10, call())
      {:ok, state} = AIRateLimit.release(state, 10, b)
      {_d, state} = reserve!(state, 10, call())
      assert {:wait, 10, _, _} = AIRateLimit.reserve(state, 10, call())
    end

    test "of two waits the longer one counts" do
      state =
        AIRateLimit.new(
          requests: [limit: 1, interval_ms: 100],
          tokens: [limit: 10, interval_ms: 1_000]
        )

      {_lease, state} = reserve!(state, 0, call(10))

      assert {:wait, 300, %Refusal{kind: :token_rate}, state} =
               AIRateLimit.reserve(state, 0, call(3))

      assert {:wait, 100, %Refusal{kind: :request_rate}, _} =
               AIRateLimit.reserve(state, 0, call(0))
    end
  end

  describe "time" do
    test "R07: a second attempt gets what the deadline leaves" do
      state = AIRateLimit.new([deadline_ms: 10_000, attempt_ms: 8_000], 0)
      {lease, state} = reserve!(state, 0, call())
      assert lease.timeout_ms == 8_000
      state = settle!(state, 7_000, lease, %{outcome: :failure, usage: 0})
      {lease, state} = reserve!(state, 7_000, call())
      assert lease.timeout_ms == 3_000

      assert {:halt, %Refusal{kind: :deadline, limit: 10_000, left: 0}, _} =
               AIRateLimit.reserve(state, 10_000, call())
    end

    test "a call that is expected to take longer than what is left is refused" do
      state = AIRateLimit.new([deadline_ms: 1_000], 50)
      assert {:ok, _, _} = AIRateLimit.reserve(state, 50, call(0, %{expected_ms: 1_000}))

      assert {:halt, refusal, _} = AIRateLimit.reserve(state, 51, call(0, %{expected_ms: 1_000}))

      assert Exception.message(refusal) ==
               "session, time (ms): 1000 ms asked, 999 of 1000 ms left"

      {lease, _state} = reserve!(AIRateLimit.new([]), 0, call(0, %{expected_ms: 1_000}))
      assert lease.timeout_ms == :infinity
    end

    test "R08: a Retry-After of 300 s with 60 s left is a halt, with both numbers" do
      state = AIRateLimit.new([deadline_ms: 100_000], 0)
      {lease, state} = reserve!(state, 40_000, call())
      actual = %{outcome: :failure, usage: 0, retry_after_ms: 300_000}
      state = settle!(state, 40_000, lease, actual)

      assert {:halt, %Refusal{kind: :deadline, asked: 300_000, left: 60_000} = refusal, _} =
               AIRateLimit.reserve(state, 40_000, call())

      assert Exception.message(refusal) ==
               "session, time (ms): 300000 ms asked, 60000 of 100000 ms left " <>
                 ~s{(key "k", Retry-After: 300000 ms to wait; try again in 300000 ms)}

      # Another key's provider asked for nothing.
      assert {:ok, _, _} = AIRateLimit.reserve(state, 40_000, call(0, %{key: "other"}))
    end

    test "a Retry-After that the deadline leaves is waited for, the longest of several" do
      state = AIRateLimit.new([deadline_ms: 100_000], 0)
      {one, state} = reserve!(state, 0, call())
      {two, state} = reserve!(state, 0, call())
      state = settle!(state, 0, one, %{outcome: :failure, usage: 0, retry_after_ms: 900})
      state = settle!(state, 0, two, %{outcome: :failure, usage: 0, retry_after_ms: 100})
      assert {:wait, 900, %Refusal{kind: :retry_after}, state} = try1(state, 0)
      assert {:wait, 1, _, state} = try1(state, 899)
      assert {:ok, _, _} = try1(state, 900)
    end

    test "a rate that would pass only after the deadline is a halt" do
      state = AIRateLimit.new([deadline_ms: 900, requests: [limit: 1, interval_ms: 1_000]], 0)
      {_lease, state} = reserve!(state, 0, call())

      assert {:halt, %Refusal{kind: :deadline, asked: 1_000, left: 900} = refusal, _} =
               AIRateLimit.reserve(state, 0, call())

      assert %Refusal{kind: :request_rate, retry: 1_000} = refusal.cause
    end
  end

  describe "the breaker" do
    defp open, do: Enum.reduce([0, 5_000, 10_000], AIRateLimit.new(breaker: @breaker), &fail/2)
    defp fail(now, state), do: make!(state, now, :failure)
    defp note(state, now), do: row(state, now, {:key, "k"}, :breaker).note

    test "R14: two failures, a success, a failure leave it closed" do
      state = AIRateLimit.new(breaker: @breaker)
      state = Enum.reduce([:failure, :failure, :success, :failure], state, &make!(&2, 0, &1))
      assert {:ok, _, state} = AIRateLimit.reserve(state, 0, call())
      assert note(state, 0) == "closed"
    end

    test "it opens when the first and the last of its failures lie within the window" do
      assert note(open(), 10_000) == "open for 1,000 ms"
      state = Enum.reduce([0, 5_000, 10_001], AIRateLimit.new(breaker: @breaker), &fail/2)
      assert note(state, 10_001) == "closed"
      # The last three lie within it.
      assert note(fail(15_000, state), 15_000) == "open for 1,000 ms"
    end

    test "R15: at the end of its back-off one probe is admitted, a second caller is not" do
      state = open()

      assert {:wait, 1_000, %Refusal{kind: :breaker, limit: 3, used: 3}, state} =
               AIRateLimit.reserve(state, 10_000, call())

      assert {:wait, 1, _, state} = AIRateLimit.reserve(state, 10_999, call())
      {_probe, state} = reserve!(state, 11_000, call())

      assert {:wait, 1_000, refusal, state} = AIRateLimit.reserve(state, 11_000, call())
      assert note(state, 11_000) == "half-open, waits for its probe"

      assert Exception.message(refusal) ==
               ~s(key "k", circuit breaker: open after 3 failures in a row; try again in 1000 ms)
    end

    test "a probe's success closes it, and the next back-off is the first one again" do
      state = make!(open(), 11_000, :success)
      assert note(state, 11_000) == "closed"
      state = Enum.reduce([12_000, 12_000, 12_000], state, &fail/2)
      assert {:wait, 1_000, _, _} = AIRateLimit.reserve(state, 12_000, call())
    end

    test "each failed probe doubles the back-off, to its cap" do
      state = fail(11_000, open())
      assert {:wait, 2_000, _, state} = AIRateLimit.reserve(state, 11_000, call())
      state = fail(13_000, state)
      assert {:wait, 3_000, _, state} = AIRateLimit.reserve(state, 13_000, call())
      state = fail(16_000, state)
      assert {:wait, 3_000, _, _} = AIRateLimit.reserve(state, 16_000, call())
    end

    test "a probe that is released, or of which nothing is known, has failed" do
      {probe, state} = reserve!(open(), 11_000, call())
      {:ok, released} = AIRateLimit.release(state, 11_000, probe)
      assert {:wait, 2_000, _, _} = AIRateLimit.reserve(released, 11_000, call())

      unknown = settle!(state, 11_000, probe, %{outcome: :unknown})
      assert {:wait, 2_000, _, _} = AIRateLimit.reserve(unknown, 11_000, call())
    end

    test "a call that was never made, or of which nothing is known, is no failure" do
      state = AIRateLimit.new(breaker: @breaker)
      state = Enum.reduce([:unknown, :unknown, :unknown], state, &make!(&2, 0, &1))
      assert note(state, 0) == "closed"
    end

    test "calls that were under way when it opened don't open it again" do
      state = AIRateLimit.new(breaker: @breaker)
      {late, _refusals, state} = reserve_all(state, 0, List.duplicate(call(), 3))
      state = Enum.reduce([0, 0, 0], state, &fail/2)
      state = make!(state, 1_000, :success)

      state = Enum.reduce(late, state, &settle!(&2, 1_000, &1, %{outcome: :failure, usage: 0}))

      assert note(state, 1_000) == "closed"
    end

    test "each key has its own" do
      assert {:ok, _, _} = AIRateLimit.reserve(open(), 10_000, call(0, %{key: :other}))
    end
  end

  test "the report is a table with bars" do
    state =
      AIRateLimit.new(
        [
          session_budget: [tokens: 1_000],
          deadline_ms: 60_000,
          requests: [limit: 60, interval_ms: 60_000, burst: 3],
          breaker: @breaker
        ],
        0
      )

    {lease, state} = reserve!(state, 0, call(300, %{key: "a\n\e[31m"}))
    state = settle!(state, 15_000, lease, %{outcome: :success})
    {:ok, child, state} = AIRateLimit.allot(state, 15_000, :session, %{tokens: 100})
    {_lease, state} = reserve!(state, 15_000, call(50, %{key: :b, account: child}))
    {_, _, state} = AIRateLimit.reserve(state, 15_000, call(601, %{key: :b}))

    assert to_string(AIRateLimit.report(state, 15_000)) ==
             """
             whose                 what                  used  reserved    left   limit
             session               calls                   ~1         1       ∞       ∞  ░░░░░░░░░░
             session               tokens                ~300       100     600   1,000  ███▒░░░░░░
             session               cost (micro-units)       0         0       ∞       ∞  ░░░░░░░░░░
             session               time (ms)           15,000         0  45,000  60,000  ███░░░░░░░
             account 2             tokens                   0        50      50     100  ▒▒▒▒▒░░░░░
             key :b                call rate                1         0       2       3  ████░░░░░░  60 in 60,000 ms
             key :b                circuit breaker          0         0       3       3  ░░░░░░░░░░  closed
             key a\\u{a}\\u{1b}[31m  call rate                0         0       3       3  ░░░░░░░░░░  60 in 60,000 ms
             key a\\u{a}\\u{1b}[31m  circuit breaker          0         0       3       3  ░░░░░░░░░░  closed

             calls: 2 admitted = 1 settled (1 by estimate) + 0 released + 1 open; 1 refused
             """
             |> String.trim_trailing("\n")
  end

  test "of a key's name the report shows the beginning" do
    name = String.duplicate("é", 1_000_000)
    report = AIRateLimit.report(AIRateLimit.new(keys: %{name => [key_budget: [calls: 1]]}), 0)
    assert to_string(report) =~ "\nkey " <> String.duplicate("é", 30) <> "…  calls "
  end

  test "a struct that a caller made is checked as a map is" do
    estimate = AIRateLimit.Estimate.new!(call(1))

    for wrong <- [%{estimate | tokens: -5}, put_in(estimate.tokens.output_tokens, -1)] do
      assert_raise ArgumentError, ~r/\Aexpected :tokens to be/, fn ->
        AIRateLimit.reserve(AIRateLimit.new([]), 0, wrong)
      end
    end

    {lease, state} = reserve!(AIRateLimit.new([]), 0, estimate)
    actual = AIRateLimit.Actual.new!(%{outcome: :failure})

    for wrong <- [%{usage: -7}, %{outcome: :maybe}, %{retry_after_ms: -1}] do
      assert_raise ArgumentError, fn ->
        AIRateLimit.settle(state, 0, lease, Map.merge(actual, wrong))
      end
    end

    assert {:ok, _state} = AIRateLimit.settle(state, 0, lease, actual)
  end

  describe "for all inputs" do
    # What a caller does next: after how long, and what. Which open lease is meant is taken modulo
    # their number.
    defp steps(times) do
      list(
        tuple([
          times,
          oneof([
            {:reserve, integer(0, 12)},
            {:reserve, integer(0, 12)},
            {:reserve, integer(0, 12)},
            {:release, non_neg_integer()},
            {:settle, non_neg_integer(), integer(0, 12)}
          ])
        ])
      )
    end

    defp rates do
      tuple([integer(1, 40), integer(1, 300), integer(1, 12)])
    end

    # Runs the steps; returns the answers, the state, and for each admitted lease, in order, when it
    # was admitted and how much it holds in the end.
    defp run(state, steps, opts \\ []) do
      {state, _now, open, held, answers} =
        Enum.reduce(steps, {state, 0, [], [], []}, fn {after_ms, step}, acc ->
          {state, now, open, held, answers} = acc
          now = now + after_ms

          case {step, open} do
            {{:reserve, tokens}, _} ->
              more = if opts[:account], do: %{account: opts[:account]}, else: %{}

              case AIRateLimit.reserve(state, now, call(tokens, more)) do
                {:ok, lease, state} ->
                  {state, now, open ++ [lease], held ++ [{lease.id, state.now, tokens}],
                   [:ok | answers]}

                {:wait, ms, refusal, state} ->
                  {state, now, open, held, [{:wait, ms, refusal} | answers]}

                {:halt, refusal, state} ->
                  {state, now, open, held, [{:halt, refusal} | answers]}
              end

            {_end, []} ->
              {state, now, [], held, answers}

            {{:release, which}, open} ->
              lease = Enum.at(open, rem(which, length(open)))
              {:ok, state} = AIRateLimit.release(state, now, lease)
              {state, now, open -- [lease], hold(held, lease, nil), answers}

            {{:settle, which, used}, open} ->
              lease = Enum.at(open, rem(which, length(open)))
              used = if opts[:within_estimate], do: min(used, lease.amounts.tokens), else: used
              actual = %{outcome: :success, usage: used}
              {:ok, state} = AIRateLimit.settle(state, now, lease, actual)
              {state, now, open -- [lease], hold(held, lease, used), answers}
          end
        end)

      {Enum.reverse(answers), state, held, open}
    end

    defp hold(held, lease, nil), do: Enum.reject(held, fn {id, _, _} -> id == lease.id end)

    defp hold(held, lease, used) do
      Enum.map(held, fn {id, at, tokens} ->
        {id, at, if(id == lease.id, do: used, else: tokens)}
      end)
    end

    defp assert_windows(passed, {limit, interval, burst}) do
      for {{start, _}, index} <- Enum.with_index(passed), reduce: nil do
        _ ->
          passed
          |> Enum.drop(index)
          |> Enum.reduce(0, fn {at, units}, sum ->
            sum = sum + units
            assert sum <= burst + div((at - start) * limit, interval)
            sum
          end)
      end
    end

    test "in any window what passed is at most burst + ⌊w · limit / interval⌋" do
      type = tuple([rates(), steps(integer(0, 60))])

      check_all(type, [tests: 500, max_size: 60], fn {{limit, interval, burst} = rate, steps} ->
        options = [limit: limit, interval_ms: interval, burst: burst]

        {_answers, _state, held, _open} =
          run(AIRateLimit.new(tokens: options), steps, within_estimate: true)

        assert_windows(for({_id, at, tokens} <- held, do: {at, tokens}), rate)

        {_answers, _state, held, _open} = run(AIRateLimit.new(requests: options), steps)
        assert_windows(for({_id, at, _tokens} <- held, do: {at, 1}), rate)
      end)
    end

    test "a try at now + wait passes, one a millisecond before that does not" do
      type = tuple([rates(), rates(), steps(integer(-3, 60)), integer(0, 12)])

      check_all(type, [tests: 400], fn {requests, tokens, steps, asked} ->
        {limit, interval, burst} = requests
        {token_limit, token_interval, token_burst} = tokens

        state =
          AIRateLimit.new(
            requests: [limit: limit, interval_ms: interval, burst: burst],
            tokens: [limit: token_limit, interval_ms: token_interval, burst: token_burst]
          )

        {_answers, state, _held, _open} = run(state, steps)
        now = state.now || 0

        case AIRateLimit.reserve(state, now, call(asked)) do
          {:wait, ms, _, state} ->
            assert {:ok, _, _} = AIRateLimit.reserve(state, now + ms, call(asked))
            if ms > 1, do: assert({:wait, 1, _, _} = try_at(state, now + ms - 1, asked))

          {:halt, refusal, _} ->
            assert refusal.retry == :never and asked > token_burst
            assert {:halt, _, _} = AIRateLimit.reserve(state, now + 1_000_000, call(asked))

          {:ok, _, _} ->
            :ok
        end
      end)
    end

    defp try_at(state, now, asked), do: AIRateLimit.reserve(state, now, call(asked))

    test "a reservation that is released again leaves no trace, at once or later" do
      type = tuple([rates(), steps(integer(0, 60)), integer(0, 12), steps(integer(0, 60))])

      check_all(type, [tests: 400], fn {{limit, interval, burst}, before, asked, later} ->
        state =
          AIRateLimit.new(
            requests: [limit: limit, interval_ms: interval, burst: burst],
            tokens: [limit: limit, interval_ms: interval],
            session_budget: [tokens: 100],
            key_budget: [calls: 30]
          )

        {_answers, state, _held, _open} = run(state, before)
        now = state.now || 0

        with {:ok, lease, reserved} <- AIRateLimit.reserve(state, now, call(asked)) do
          {:ok, released} = AIRateLimit.release(reserved, now, lease)
          assert AIRateLimit.report(released, now).rows == with_key(state, now)
          later = [{now, {:reserve, 0}} | later]
          assert answers(released, later) == answers(state, later)
        end
      end)
    end

    # The report of a state that has seen the key.
    defp with_key(state, now) do
      keys = Map.put_new(state.keys, "k", Limits.for_key(state.limits, "k"))
      AIRateLimit.report(%{state | keys: keys}, now).rows
    end

    defp answers(state, steps), do: state |> run(steps) |> elem(0)

    test "a clock that steps back gets the answers of the latest time seen" do
      tries = list(tuple([integer(-50, 60), {:reserve, integer(0, 12)}]))

      check_all(tuple([rates(), tries]), [tests: 300], fn {{limit, interval, burst}, steps} ->
        state = AIRateLimit.new(tokens: [limit: limit, interval_ms: interval, burst: burst])
        {steady, _} = Enum.map_reduce(steps, {0, nil}, &forwards/2)
        assert answers(state, steps) == answers(state, steady)
      end)
    end

    # The same step, at the latest time seen so far.
    defp forwards({after_ms, step}, {now, latest}) do
      stepped = now + after_ms
      seen = if latest, do: max(latest, stepped), else: stepped
      {{seen - (latest || 0), step}, {stepped, seen}}
    end

    test "admitted are settled, released or open; no balance is negative, however large" do
      amount = oneof([integer(0, 9), integer(0, 1_000_000_000_000_000_000_000)])

      act =
        oneof([
          {:reserve, amount},
          {:reserve, amount},
          {:settle, non_neg_integer(), amount},
          {:unknown, non_neg_integer()},
          {:release, non_neg_integer()},
          {:allot, amount},
          {:close, non_neg_integer()}
        ])

      limits = vector(7, oneof([amount, :infinity]))
      type = tuple([limits, list(tuple([integer(-9, 99), non_neg_integer(), act]))])

      check_all(type, [tests: 400, max_size: 60], fn {limits, acts} ->
        [calls, tokens, key_tokens, requests, rate, price, deadline] = limits
        price = if price == :infinity, do: 1, else: price

        state =
          AIRateLimit.new(
            session_budget: [calls: calls, tokens: tokens],
            key_budget: [tokens: key_tokens],
            requests: [limit: requests, interval_ms: 100],
            tokens: [limit: rate, interval_ms: 100],
            prices: %{"m" => %{input: price, output: price}},
            breaker: @breaker,
            deadline_ms: deadline
          )

        {state, _now, leases, accounts} =
          Enum.reduce(acts, {state, 0, [], [:session]}, fn {after_ms, pick, act}, acc ->
            now = elem(acc, 1) + after_ms
            acc = act(act, pick, put_elem(acc, 1, now))
            assert_sound(elem(acc, 0), now)
            acc
          end)

        state =
          Enum.reduce(leases, state, fn lease, state ->
            settle!(state, state.now, lease, %{outcome: :unknown})
          end)

        state =
          for id <- accounts, id != :session, reduce: state do
            state -> state |> AIRateLimit.close(state.now, id) |> elem(1)
          end

        # Nothing is left behind: what was used is all there is.
        assert Map.keys(state.accounts) == [:session]
        assert state.leases == %{}
        assert Enum.all?(AIRateLimit.report(state, 0).rows, &(&1.reserved == 0))
        assert row(state, 0, :session, :calls).used == state.totals.settled
      end)
    end

    defp act({:reserve, tokens}, pick, {state, now, leases, accounts}) do
      account = Enum.at(accounts, rem(pick, length(accounts)))
      key = Enum.at(["k", :other], rem(pick, 2))

      case AIRateLimit.reserve(state, now, %{
             key: key,
             tokens: tokens,
             model: "m",
             account: account
           }) do
        {:ok, lease, state} -> {state, now, [lease | leases], accounts}
        {:wait, ms, _, state} when ms > 0 -> {state, now, leases, accounts}
        {:halt, _, state} -> {state, now, leases, accounts}
      end
    end

    defp act({:allot, amount}, pick, {state, now, leases, accounts}) do
      parent = Enum.at(accounts, rem(pick, length(accounts)))

      case AIRateLimit.allot(state, now, parent, %{tokens: amount}) do
        {:ok, id, state} -> {state, now, leases, accounts ++ [id]}
        {:halt, _, state} -> {state, now, leases, accounts}
      end
    end

    defp act({:close, which}, _pick, {state, now, leases, accounts}) do
      case Enum.at(accounts, rem(which, length(accounts))) do
        :session ->
          {state, now, leases, accounts}

        id ->
          {:ok, state} = AIRateLimit.close(state, now, id)
          {state, now, leases, accounts -- [id]}
      end
    end

    defp act(_end, _pick, {_state, _now, [], _accounts} = acc), do: acc

    defp act(act, _pick, {state, now, leases, accounts}) do
      lease = Enum.at(leases, rem(elem(act, 1), length(leases)))

      {:ok, state} =
        case act do
          {:settle, _, used} ->
            AIRateLimit.settle(state, now, lease, %{outcome: :failure, usage: used})

          {:unknown, _} ->
            AIRateLimit.settle(state, now, lease, %{outcome: :unknown})

          {:release, _} ->
            AIRateLimit.release(state, now, lease)
        end

      {state, now, leases -- [lease], accounts}
    end

    defp assert_sound(state, now) do
      report = AIRateLimit.report(state, now)
      totals = report.totals
      assert totals.admitted == totals.settled + totals.released + totals.open
      assert totals.estimated <= totals.settled

      for row <- report.rows do
        assert row.used >= 0 and row.reserved >= 0 and row.left >= 0
        assert row.estimated in 0..row.used

        if row.kind in [:calls, :tokens, :cost] and row.limit != :infinity do
          assert row.left == max(0, row.limit - row.used - row.reserved)
        end
      end

      # What is reserved for the session is what its leases, and its children, hold.
      for {id, account} <- state.accounts do
        leases = for {_, lease} <- state.leases, lease.account == id, do: lease.amounts.tokens

        children =
          for {_, child} <- state.accounts, child.parent == id do
            max(Map.get(child.budget.limits, :tokens, 0), taken(child.budget))
          end

        assert account.budget.reserved.tokens == Enum.sum(leases) + Enum.sum(children)
        assert account.open == length(leases) + length(children)
      end
    end

    defp taken(budget), do: budget.used.tokens + budget.reserved.tokens

    test "what is no estimate, no outcome and no limit raises ArgumentError, and nothing else" do
      check_all(any(), [tests: 300], fn value ->
        state = AIRateLimit.new([])
        {lease, state} = reserve!(state, 0, call())

        for attempt <- [
              fn -> AIRateLimit.new(value) end,
              fn -> AIRateLimit.new(session_budget: value) end,
              fn -> AIRateLimit.new(keys: value) end,
              fn -> AIRateLimit.new(prices: value) end,
              fn -> AIRateLimit.reserve(state, 0, value) end,
              fn -> AIRateLimit.reserve(state, 0, call(value)) end,
              fn -> AIRateLimit.reserve(state, 0, call(0, %{account: value})) end,
              fn -> AIRateLimit.reserve(state, 0, call(0, %{model: value})) end,
              fn -> AIRateLimit.settle(state, 0, lease, value) end,
              fn -> AIRateLimit.settle(state, 0, value, %{outcome: :success}) end,
              fn -> AIRateLimit.release(state, 0, value) end,
              fn -> AIRateLimit.allot(state, 0, :session, value) end,
              fn -> AIRateLimit.close(state, 0, value) end
            ] do
          try do
            attempt.()
          rescue
            ArgumentError -> :ok
          end
        end
      end)
    end
  end
end
