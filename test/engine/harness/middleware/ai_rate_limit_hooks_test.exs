defmodule Engine.Harness.Middleware.AIRateLimit.HooksTest do
  use ExUnit.Case, async: true

  import Engine.Property
  import :proper_types, only: [integer: 2, list: 1, oneof: 1, tuple: 1]

  alias Engine.Harness.{Hooks, Middleware}
  alias Engine.Harness.Middleware.AIRateLimit
  alias AIRateLimit.{Error, Notice, Refusal, Server}

  doctest Notice

  # Every call is expected to use what the payload says, or 100 tokens.
  defp estimate(payload), do: %{key: payload.model, tokens: Map.get(payload, :asks, 100)}

  defp hooks(opts, notice \\ nil) do
    opts = if opts[:model], do: [estimate: &estimate/1] ++ opts, else: opts
    hooks = Middleware.attach(Hooks.new(), {AIRateLimit, opts})
    if notice, do: Middleware.attach(hooks, {Notice, notice}), else: hooks
  end

  defp call(now, more \\ %{}), do: Map.merge(%{model: "m", prompt: "Hi.", now_ms: now}, more)
  defp tool(name, now), do: %{tool: name, arguments: %{}, now_ms: now}

  defp run(hooks, phase, payload, assigns \\ %{}) do
    Hooks.run(hooks, phase, Map.put(payload, :assigns, assigns))
  end

  # A call that is admitted; then what became of it.
  defp go(hooks, payload, assigns) do
    {:ok, payload} = run(hooks, :pre_model_call, payload, assigns)
    {payload, payload.assigns}
  end

  defp done(hooks, payload, assigns, more) do
    run(
      hooks,
      :post_model_call,
      payload |> Map.put(:completion, "Ok.") |> Map.merge(more),
      assigns
    )
  end

  defp row(%{assigns: assigns}, now, kind, scope \\ :session) do
    Enum.find(
      AIRateLimit.report(assigns[AIRateLimit].model, now).rows,
      &(&1.kind == kind and &1.scope == scope)
    )
  end

  defp totals(%{assigns: assigns}, which \\ :model) do
    AIRateLimit.report(assigns[AIRateLimit][which], 0).totals
  end

  defp notes(payload, decision) do
    for %{decision: ^decision, reason: reason} <- payload.events, do: reason
  end

  describe "a call of the model" do
    test "is reserved before and settled after, with what it really used" do
      hooks = hooks(model: [session_budget: [tokens: 1_000]])
      {admitted, assigns} = go(hooks, call(0), %{})
      assert %{used: 0, reserved: 100, left: 900} = row(admitted, 0, :tokens)
      refute Map.has_key?(admitted, :timeout_ms)

      # What a provider counts besides is not charged twice.
      usage = %{input_tokens: 30, cached_input_tokens: 5, output_tokens: 7, total_tokens: 42}
      {:ok, settled} = done(hooks, call(0), assigns, %{usage: usage})
      assert %{used: 42, reserved: 0, left: 958, estimated: 0} = row(settled, 0, :tokens)
    end

    test "over the budget is a halt, with the numbers" do
      hooks = hooks(model: [session_budget: [tokens: 150]])
      {_payload, assigns} = go(hooks, call(0), %{})

      {:ok, %{assigns: assigns}} =
        done(hooks, call(0), assigns, %{usage: %{input_tokens: 90, output_tokens: 10}})

      assert {:halt, refusal, payload} = run(hooks, :pre_model_call, call(0), assigns)

      assert refusal == %Refusal{
               kind: :tokens,
               scope: :session,
               limit: 150,
               used: 100,
               reserved: 0,
               asked: 100,
               left: 50,
               retry: :never
             }

      # What was counted before the halt is not lost.
      assert %{admitted: 1, settled: 1, refused: 1} = totals(payload)

      assert [%{decision: :halt, handler: "Engine.Harness.Middleware.AIRateLimit"} | _] =
               payload.events
    end

    test "that has to wait is a halt that says how long, and passes after just that" do
      hooks = hooks(model: [requests: [limit: 1, interval_ms: 1_000]])
      {payload, assigns} = go(hooks, call(0), %{})
      {:ok, %{assigns: assigns}} = done(hooks, payload, assigns, %{})

      assert {:halt, %Refusal{kind: :request_rate, retry: 700} = refusal, waits} =
               run(hooks, :pre_model_call, call(300), assigns)

      assert notes(waits, :wait) == [Exception.message(refusal)]

      assert {:halt, %Refusal{retry: 1}, waits} =
               run(hooks, :pre_model_call, call(999), waits.assigns)

      assert {:ok, _} = run(hooks, :pre_model_call, call(1_000), waits.assigns)
    end

    test "gets what the deadline leaves as its time-out, and never more than it has" do
      hooks = hooks(model: [deadline_ms: 10_000, attempt_ms: 8_000])
      {:ok, payload} = run(hooks, :session_start, %{session_id: "s", now_ms: 50})
      {payload, assigns} = go(hooks, call(50), payload.assigns)
      assert payload.timeout_ms == 8_000
      {:ok, %{assigns: assigns}} = done(hooks, call(7_050), assigns, %{outcome: :failure})

      {payload, assigns} = go(hooks, call(7_050), assigns)
      assert payload.timeout_ms == 3_000
      {:ok, %{assigns: assigns}} = done(hooks, call(7_050), assigns, %{})

      {payload, assigns} = go(hooks, call(7_050, %{timeout_ms: 20}), assigns)
      assert payload.timeout_ms == 20
      {:ok, %{assigns: assigns}} = done(hooks, call(7_050), assigns, %{})

      assert {:halt, %Refusal{kind: :deadline, limit: 10_000, left: 0}, _} =
               run(hooks, :pre_model_call, call(10_050), assigns)
    end

    test "that fails is charged what it cost; its Retry-After holds, and the deadline with it" do
      hooks = hooks(model: [session_budget: [tokens: 1_000], deadline_ms: 100_000])
      {_payload, assigns} = go(hooks, call(0), %{})
      nothing = %{input_tokens: 0, output_tokens: 0}
      failed = %{outcome: :failure, usage: nothing, retry_after_ms: 60_000}
      {:ok, payload} = done(hooks, call(10), assigns, failed)
      assert %{used: 0, reserved: 0} = row(payload, 10, :tokens)

      assert {:halt, %Refusal{kind: :retry_after, retry: 59_990}, payload} =
               run(hooks, :pre_model_call, call(20), payload.assigns)

      {_payload, assigns} = go(hooks, call(60_010), payload.assigns)
      {:ok, payload} = done(hooks, call(60_010), assigns, %{failed | retry_after_ms: 300_000})

      assert {:halt, %Refusal{kind: :deadline, asked: 300_000, left: 39_990} = refusal, _} =
               run(hooks, :pre_model_call, call(60_010), payload.assigns)

      assert %Refusal{kind: :retry_after} = refusal.cause
    end

    test "opens the breaker by its outcome" do
      breaker = [failures: 2, window_ms: 1_000, backoff_ms: 500, max_backoff_ms: 1_000]
      hooks = hooks(model: [breaker: breaker])

      assigns =
        for _ <- 1..2, reduce: %{} do
          assigns ->
            {_payload, assigns} = go(hooks, call(0), assigns)
            {:ok, payload} = done(hooks, call(0), assigns, %{outcome: :failure})
            payload.assigns
        end

      assert {:halt, %Refusal{kind: :breaker, retry: 500}, payload} =
               run(hooks, :pre_model_call, call(0), assigns)

      # The probe never comes back: it has failed, and the back-off doubles.
      {_payload, assigns} = go(hooks, call(500), payload.assigns)

      assert {:halt, %Refusal{kind: :breaker, retry: 1_000}, payload} =
               run(hooks, :pre_model_call, call(500), assigns)

      {_payload, assigns} = go(hooks, call(1_500), payload.assigns)
      {:ok, payload} = done(hooks, call(1_500), assigns, %{})
      assert %{note: "closed"} = row(payload, 1_500, :breaker, {:key, "m"})
    end

    test "whose usage is missing, or in words unknown here, is charged as estimated" do
      for usage <- [%{}, %{usage: nil}, %{usage: %{prompt_tokens: 3}}] do
        hooks = hooks(model: [session_budget: [tokens: 1_000]])
        {_payload, assigns} = go(hooks, call(0), %{})
        {:ok, payload} = done(hooks, call(0), assigns, usage)
        assert %{used: 100, estimated: 100, reserved: 0} = row(payload, 0, :tokens)
      end
    end

    test "that never comes back is settled at its estimate by the next one, and noted" do
      hooks = hooks(model: [session_budget: [tokens: 1_000]])
      {_payload, assigns} = go(hooks, call(0), %{})
      {payload, _assigns} = go(hooks, call(0), assigns)
      assert %{used: 100, estimated: 100, reserved: 100, left: 800} = row(payload, 0, :tokens)
      assert notes(payload, :estimated) == ["lease 1 never came back: 100 tokens are charged"]
    end

    test "that never comes back is settled at its estimate at the session's end" do
      hooks = hooks(model: [session_budget: [tokens: 1_000]])
      {_payload, assigns} = go(hooks, call(0), %{})
      ended = %{session_id: "s", reason: {:halt, :enough}, now_ms: 9}
      {:ok, payload} = run(hooks, :session_end, ended, assigns)
      assert %{used: 100, estimated: 100, reserved: 0} = row(payload, 9, :tokens)
      assert %{open: 0} = totals(payload)
      assert {:ok, ^payload} = Hooks.run(hooks, :session_end, payload) |> without_events(payload)
    end

    defp without_events({:ok, again}, payload), do: {:ok, %{again | events: payload.events}}

    test "that comes back without having gone out, or twice, halts" do
      hooks = hooks(model: [])

      assert {:halt, %Error{reason: :no_lease, subject: "m"}, _} = done(hooks, call(0), %{}, %{})
      {_payload, assigns} = go(hooks, call(0), %{})
      {:ok, payload} = done(hooks, call(0), assigns, %{})

      assert {:halt, %Error{reason: :no_lease} = error, _} =
               done(hooks, call(0), payload.assigns, %{})

      assert Exception.message(error) ==
               ~s(the call of model "m" was never admitted: :assigns must be handed on)
    end

    test "of which nonsense is told fails the hook, and stays reserved until it is settled" do
      hooks = hooks(model: [session_budget: [tokens: 1_000]])
      {_payload, assigns} = go(hooks, call(0), %{})

      for wrong <- [
            %{outcome: :ok},
            %{usage: %{input_tokens: -1}},
            %{usage: [1]},
            %{retry_after_ms: 0.5}
          ] do
        assert {:halt, %Hooks.Error{kind: :raise, reason: %ArgumentError{}}, payload} =
                 done(hooks, call(0), assigns, wrong)

        assert %{used: 0, reserved: 100} = row(payload, 0, :tokens)
      end

      {payload, _assigns} = go(hooks, call(0), assigns)
      assert %{used: 100, reserved: 100} = row(payload, 0, :tokens)
    end

    test "needs a time where the limits are a value" do
      hooks = hooks(model: [])
      call = Map.delete(call(0), :now_ms)

      assert {:halt, %Hooks.Error{kind: :raise, reason: error}, _} =
               Hooks.run(hooks, :pre_model_call, call)

      assert error.message ==
               "expected :now_ms in the payload, an integer: limits that are a value have no clock"
    end

    test "is judged after the transforms, and not reserved where a guard before it halts" do
      longer = fn payload -> {:cont, Map.put(payload, :asks, 900)} end
      no = fn payload -> if payload[:no], do: {:halt, :no}, else: :ok end

      hooks =
        Hooks.new()
        |> Hooks.register(:pre_model_call, {"no", no})
        |> Middleware.attach(
          {AIRateLimit, model: [session_budget: [tokens: 800]], estimate: &estimate/1}
        )
        |> Hooks.register(:pre_model_call, {"longer", longer}, kind: :transform)

      assert {:halt, :no, payload} = run(hooks, :pre_model_call, call(0, %{no: true}))
      refute Map.has_key?(payload.assigns, AIRateLimit)

      assert {:halt, %Refusal{kind: :tokens, asked: 900}, _} =
               run(hooks, :pre_model_call, call(0))
    end

    test "is estimated by the bytes of its prompt and tools" do
      message = %{"role" => "user", "content" => "Hi."}
      # {"content":"Hi.","role":"user"} in brackets: 33 bytes.
      payload = %{model: "m", prompt: [message], tools: [%{"name" => "ls"}]}
      # [{"name":"ls"}]: 15 bytes.
      assert %{tokens: %{input_tokens: 13, output_tokens: 7}} = AIRateLimit.estimate(payload, 7)
    end
  end

  describe "calls of tools" do
    test "are counted for each tool and for all" do
      limits = [session_budget: [calls: 3], keys: %{"search" => [key_budget: [calls: 1]]}]
      hooks = hooks(tools: limits)
      {:ok, payload} = run(hooks, :pre_tool_use, tool("search", 0))

      assert {:halt, %Refusal{kind: :calls, scope: {:key, "search"}, limit: 1, used: 1}, payload} =
               run(hooks, :pre_tool_use, tool("search", 0), payload.assigns)

      {:ok, payload} = run(hooks, :pre_tool_use, tool("ls", 0), payload.assigns)
      {:ok, payload} = run(hooks, :pre_tool_use, tool("ls", 0), payload.assigns)

      assert {:halt, %Refusal{kind: :calls, scope: :session, limit: 3, used: 3} = refusal,
              payload} = run(hooks, :pre_tool_use, tool("ls", 0), payload.assigns)

      assert Exception.message(refusal) ==
               "session, calls: 1 asked, 0 of 3 left (3 used, 0 reserved)"

      assert totals(payload, :tools) ==
               %{admitted: 3, settled: 3, released: 0, open: 0, refused: 2, estimated: 0}
    end

    test "R10: of five, two are used and three refused where two are allowed" do
      hooks = hooks(tools: [session_budget: [calls: 2]])

      payload =
        for _ <- 1..5, reduce: %{assigns: %{}} do
          %{assigns: assigns} ->
            case run(hooks, :pre_tool_use, tool("ls", 0), assigns) do
              {:ok, payload} -> payload
              {:halt, %Refusal{}, payload} -> payload
            end
        end

      assert %{settled: 2, refused: 3} = totals(payload, :tools)
    end

    test "have rates, and are apart from the model's" do
      hooks =
        hooks(model: [session_budget: [calls: 1]], tools: [requests: [limit: 1, interval_ms: 10]])

      {payload, _assigns} = go(hooks, call(0), %{})
      {:ok, payload} = run(hooks, :pre_tool_use, tool("ls", 0), payload.assigns)

      assert {:halt, %Refusal{kind: :request_rate, retry: 10}, payload} =
               run(hooks, :pre_tool_use, tool("ls", 0), payload.assigns)

      assert %{reserved: 1, used: 0} = row(payload, 0, :calls)
    end
  end

  describe "options" do
    test "that are wrong are named" do
      for {opts, message} <- [
            {[], "nothing is limited"},
            {[limits: []],
             "option :limits is unknown, expected any of: :model, :estimate, :tools"},
            {[model: []],
             "expected :estimate to be a function of one argument, beside :model, got: nil"},
            {[model: [], estimate: 5],
             "expected :estimate to be a function of one argument, beside :model, got: 5"},
            {[model: {:server, nil}, estimate: &estimate/1],
             "expected options to be a keyword list, got: {:server, nil}"},
            {[model: [session_budget: [calls: 1.5]], estimate: &estimate/1],
             ":session_budget: expected :calls to be a non-negative integer or :infinity, got: 1.5"},
            {[tools: [breaker: [failures: 1, window_ms: 1, backoff_ms: 1, max_backoff_ms: 1]]],
             "expected :tools to have no :breaker: their calls are only counted"}
          ] do
        assert_raise ArgumentError, message, fn ->
          Middleware.attach(Hooks.new(), {AIRateLimit, opts})
        end
      end

      for below <- [0, 101, 0.2, nil] do
        assert_raise ArgumentError,
                     "expected :below to be an integer of percent from 1 to 100, got: #{inspect(below)}",
                     fn -> Middleware.attach(Hooks.new(), {Notice, below: below}) end
      end
    end
  end

  describe "the notice" do
    # Makes calls that use these tokens each, and returns what the model was told with each.
    defp told(hooks, uses, assigns \\ %{}) do
      {told, payload} =
        Enum.map_reduce(uses, %{assigns: assigns}, fn tokens, %{assigns: assigns} ->
          {payload, assigns} = go(hooks, call(0, %{asks: 0}), assigns)
          usage = %{input_tokens: tokens, output_tokens: 0}
          {:ok, left} = done(hooks, call(0), assigns, %{usage: usage})
          {String.replace_prefix(payload.prompt, "Hi.", ""), left}
        end)

      {told, payload.assigns}
    end

    test "comes once below the share, and again each time half of that is gone" do
      hooks = hooks([model: [session_budget: [tokens: 1_000]]], below: 20)
      # Left before each call: 1000, 200, 199, 150, 100, 99, 0, 0.
      {told, _} = told(hooks, [800, 1, 49, 50, 1, 99, 0])

      assert told == [
               "",
               "",
               "\n\nLeft of what you may use: 199 of 1,000 tokens.",
               "",
               "",
               "\n\nLeft of what you may use: 99 of 1,000 tokens.",
               "\n\nLeft of what you may use: 0 of 1,000 tokens."
             ]
    end

    test "leaves the prompt as it was before it, so that a provider's cache is kept" do
      hooks = hooks([model: [session_budget: [tokens: 1_000]]], below: 20)
      {_told, assigns} = told(hooks, [900])
      messages = [%{role: "system", content: "Be kind."}, %{role: "user", content: "Hi."}]
      {payload, _} = go(hooks, call(0, %{prompt: messages, asks: 0}), assigns)
      assert {^messages, [notice]} = Enum.split(payload.prompt, 2)
      assert notice == %{role: "user", content: "Left of what you may use: 100 of 1,000 tokens."}
    end

    test "in a prompt that wasn't sent comes again" do
      limits = [session_budget: [tokens: 100], requests: [limit: 1, interval_ms: 1_000]]
      hooks = hooks([model: limits], below: 50)
      {_told, assigns} = told(hooks, [60])
      sentence = "Hi.\n\nLeft of what you may use: 40 of 100 tokens."

      {:halt, %Refusal{retry: 1_000}, payload} =
        run(hooks, :pre_model_call, call(0, %{asks: 0}), assigns)

      assert payload.prompt == sentence
      {payload, assigns} = go(hooks, call(1_000, %{asks: 0}), payload.assigns)
      assert payload.prompt == sentence

      {:ok, payload} =
        done(hooks, call(1_000), assigns, %{usage: %{input_tokens: 1, output_tokens: 0}})

      {payload, _} = go(hooks, call(2_000, %{asks: 0}), payload.assigns)
      assert payload.prompt == "Hi."
    end

    test "names of each kind the limit that binds, and time" do
      limits = [
        session_budget: [calls: 4, tokens: 1_000],
        key_budget: [tokens: 100],
        deadline_ms: 10_000
      ]

      hooks = hooks([model: limits], below: 80)
      {_told, assigns} = told(hooks, [50])
      {payload, _} = go(hooks, call(9_000, %{asks: 0}), assigns)

      assert payload.prompt ==
               "Hi.\n\nLeft of what you may use: 3 of 4 calls, 50 of 100 tokens, 1,000 of 10,000 ms of time."
    end

    test "without limits, or before anything is known, is none" do
      hooks = Middleware.attach(Hooks.new(), Notice)
      assert {:ok, %{prompt: "Hi."}} = Hooks.run(hooks, :pre_model_call, call(0))
      hooks = hooks([tools: [session_budget: [calls: 0]]], below: 100)
      assert {:ok, %{prompt: "Hi."}} = Hooks.run(hooks, :pre_model_call, call(0))
    end

    test "is the same for the same facts, in whichever order the two are attached" do
      limits = [session_budget: [tokens: 1_000, calls: 9]]
      one = hooks([model: limits], below: 70)

      other =
        Hooks.new()
        |> Middleware.attach({Notice, below: 70})
        |> Middleware.attach({AIRateLimit, model: limits, estimate: &estimate/1})

      uses = [200, 150, 10, 300, 90, 1]
      assert {told, _} = told(one, uses)
      assert {^told, _} = told(other, uses)
      assert Enum.count(told, &(&1 != "")) == 3
    end
  end

  describe "a server" do
    setup context do
      name = context.test
      on_exit(fn -> Server.forget(name) end)
      [name: name]
    end

    defp start!(name, limits) do
      clock = :counters.new(1, [])
      now = fn -> :counters.get(clock, 1) end
      start_supervised!({Server, name: name, limits: limits, clock: now})
      clock
    end

    defp server_row(name, kind) do
      {:ok, report} = Server.report(name)
      Enum.find(report.rows, &(&1.kind == kind and &1.scope == :session))
    end

    defp eventually(condition, tries \\ 500) do
      cond do
        condition.() -> true
        tries == 0 -> flunk("it did not happen")
        true -> Process.sleep(10) && eventually(condition, tries - 1)
      end
    end

    # It has its own clock, so no payload needs one.
    defp timeless(payload), do: Map.delete(payload, :now_ms)

    test "is shared by sessions, and needs no time in the payload", %{name: name} do
      clock = start!(name, session_budget: [tokens: 250], deadline_ms: 1_000)
      hooks = hooks(model: {:server, name})
      {payload, mine} = go(hooks, timeless(call(0)), %{})
      assert payload.timeout_ms == 1_000
      :counters.put(clock, 1, 300)
      {payload, theirs} = go(hooks, timeless(call(0)), %{})
      assert payload.timeout_ms == 700

      assert {:halt, %Refusal{kind: :tokens, reserved: 200, left: 50, retry: :when_settled}, _} =
               run(hooks, :pre_model_call, timeless(call(0)))

      {:ok, _} = done(hooks, call(0), mine, %{usage: %{input_tokens: 10, output_tokens: 0}})
      {:ok, _} = done(hooks, call(0), theirs, %{outcome: :failure})
      assert %{used: 110, reserved: 0, estimated: 100} = server_row(name, :tokens)
    end

    test "whose budget recovered is told of again when it is low again", %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      hooks = hooks([model: {:server, name}], below: 20)
      {:ok, started} = run(hooks, :session_start, %{session_id: "s"})
      reserve = fn tokens -> Server.reserve(name, %{key: "other", tokens: tokens}) end

      # What the model is told where another one has so much reserved.
      told = fn assigns, tokens ->
        {:ok, lease} = reserve.(tokens)
        {payload, assigns} = go(hooks, call(0, %{asks: 0}), assigns)
        :ok = Server.release(name, lease)

        {:ok, payload} =
          done(hooks, payload, assigns, %{usage: %{input_tokens: 0, output_tokens: 0}})

        {String.replace_prefix(payload.prompt, "Hi.", ""), payload.assigns}
      end

      assert {"\n\nLeft of what you may use: 150 of 1,000 tokens.", assigns} =
               told.(started.assigns, 850)

      assert {"", assigns} = told.(assigns, 860)
      assert {"", assigns} = told.(assigns, 500)
      assert {"\n\nLeft of what you may use: 140 of 1,000 tokens.", _} = told.(assigns, 860)
    end

    test "counts tools", %{name: name} do
      start!(name, session_budget: [calls: 1])
      hooks = hooks(tools: {:server, name})
      {:ok, _} = run(hooks, :pre_tool_use, tool("ls", 0))
      assert {:halt, %Refusal{kind: :calls}, _} = run(hooks, :pre_tool_use, tool("ls", 0))
      assert %{used: 1, reserved: 0} = server_row(name, :calls)
    end

    test "that can't be reached lets nothing pass", %{name: name} do
      hooks = hooks([model: {:server, name}, tools: {:server, name}], below: 50)
      {:ok, started} = run(hooks, :session_start, %{session_id: "s"})

      assert {:halt, %Refusal{kind: :unreachable}, payload} =
               run(hooks, :pre_model_call, call(0), started.assigns)

      assert payload.prompt == "Hi."
      assert {:halt, %Refusal{kind: :unreachable}, _} = run(hooks, :pre_tool_use, tool("ls", 0))

      assert {:halt, %Error{reason: :unreachable}, _} =
               run(hooks, :session_end, %{session_id: "s", reason: :normal}, started.assigns)
    end

    test "that ends during a call: what it came to is settled once the server is back",
         %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      hooks = hooks(model: {:server, name})
      {_payload, assigns} = go(hooks, call(0), %{})
      stop_supervised!({Server, name})
      usage = %{usage: %{input_tokens: 30, output_tokens: 1}}

      assert {:halt, %Error{reason: :unreachable}, payload} = done(hooks, call(0), assigns, usage)

      assert {:halt, %Error{reason: :unreachable}, payload} =
               run(hooks, :pre_model_call, call(0), payload.assigns)

      start!(name, session_budget: [tokens: 1_000])
      {_payload, _assigns} = go(hooks, call(0), payload.assigns)
      assert %{used: 31, estimated: 0, reserved: 100} = server_row(name, :tokens)
    end

    test "that has settled a lease itself is believed, and that is noted", %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      hooks = hooks(model: {:server, name})
      {payload, assigns} = go(hooks, call(0, %{session_id: "s"}), %{})
      assert Server.abandon(name, "s") == {:ok, 1}
      assert {:ok, payload} = done(hooks, payload, assigns, %{})
      assert [~s(lease 1 of key "m" is not open) <> _] = notes(payload, :not_open)
      assert %{used: 100, estimated: 100} = server_row(name, :tokens)
    end

    test "settles what a session whose work failed had open, and no other session's",
         %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      hooks = hooks(model: {:server, name})
      {_payload, _assigns} = go(hooks, call(0, %{session_id: "other"}), %{})

      assert_raise RuntimeError, "lost", fn ->
        Hooks.session(hooks, %{session_id: "s"}, fn payload ->
          {:ok, _payload} = run(hooks, :pre_model_call, call(0), payload.assigns)
          assert %{reserved: 200} = server_row(name, :tokens)
          raise "lost"
        end)
      end

      assert %{used: 100, estimated: 100, reserved: 100} = server_row(name, :tokens)

      ended = %{session_id: "other", reason: :normal}
      {:ok, payload} = run(hooks, :session_end, ended)
      assert notes(payload, :estimated) == ["calls that never came back: 1"]
      assert %{used: 200, reserved: 0} = server_row(name, :tokens)
    end

    test "abandons only what the calling process has", %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      hooks = hooks(model: {:server, name})
      {_payload, _assigns} = go(hooks, call(0, %{session_id: "s"}), %{})
      assert Task.await(Task.async(fn -> Server.abandon(name, "s") end)) == {:ok, 0}
      assert %{reserved: 100} = server_row(name, :tokens)
    end

    test "settles what a killed process had open", %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      hooks = hooks(model: {:server, name})
      parent = self()

      pid =
        spawn(fn ->
          {_payload, _assigns} = go(hooks, call(0), %{})
          send(parent, :reserved)
          Process.sleep(:infinity)
        end)

      assert_receive :reserved, 5_000
      assert %{reserved: 100} = server_row(name, :tokens)
      Process.exit(pid, :kill)
      eventually(fn -> server_row(name, :tokens).reserved == 0 end)
      assert %{used: 100, estimated: 100} = server_row(name, :tokens)
    end

    test "refuses another process what is not its lease", %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      hooks = hooks(model: {:server, name})
      {_payload, assigns} = go(hooks, call(0), %{})
      other = Task.async(fn -> done(hooks, call(0), assigns, %{}) end)
      assert {:halt, %Error{reason: :not_owner}, _} = Task.await(other)
      assert %{reserved: 100} = server_row(name, :tokens)
    end

    test "tells a sub-agent what is left of its part", %{name: name} do
      start!(name, session_budget: [tokens: 1_000])
      {:ok, account} = Server.allot(name, :session, %{tokens: 120})
      estimate = fn _payload -> %{key: "m", tokens: 60, account: account} end

      hooks =
        Hooks.new()
        |> Middleware.attach({AIRateLimit, model: {:server, name}, estimate: estimate})
        |> Middleware.attach({Notice, below: 60})

      {_payload, assigns} = go(hooks, call(0), %{})

      {:ok, payload} =
        done(hooks, call(0), assigns, %{usage: %{input_tokens: 60, output_tokens: 0}})

      {payload, assigns} = go(hooks, call(0), payload.assigns)
      assert payload.prompt == "Hi.\n\nLeft of what you may use: 60 of 120 tokens."

      {:ok, payload} =
        done(hooks, call(0), assigns, %{usage: %{input_tokens: 10, output_tokens: 0}})

      assert {:halt, %Refusal{scope: {:account, ^account}, left: 50}, _} =
               run(hooks, :pre_model_call, call(0), payload.assigns)

      # What it didn't use goes back.
      assert Server.close(name, account) == :ok
      assert %{used: 70, reserved: 0, left: 930} = server_row(name, :tokens)
    end
  end

  test "for all sessions: what goes out comes back or is settled, and value and server agree" do
    act = oneof([:call, :fail, :lost, :tool])
    type = list(tuple([act, integer(0, 40), integer(0, 60), integer(0, 9)]))
    limits = [session_budget: [tokens: 400, calls: 30], tokens: [limit: 60, interval_ms: 20]]
    name = {:global, __MODULE__}
    Process.flag(:trap_exit, true)

    check_all(type, [tests: 100, max_size: 40], fn acts ->
      clock = :counters.new(1, [])
      now = fn -> :counters.get(clock, 1) end
      {:ok, pid} = Server.start_link(name: name, limits: limits, clock: now)
      value = hooks([model: limits, tools: [session_budget: [calls: 5]]], below: 50)
      server = hooks([model: {:server, name}, tools: [session_budget: [calls: 5]]], below: 50)

      try do
        start = %{session_id: "s", now_ms: 0}
        {:ok, a} = run(value, :session_start, start)
        {:ok, b} = run(server, :session_start, start)

        {told, {a, b, at}} =
          Enum.map_reduce(acts, {a.assigns, b.assigns, 0}, fn act, {a, b, at} ->
            at = at + elem(act, 3)
            :counters.put(clock, 1, at)
            {seen, a} = act(value, act, at, a)
            assert {^seen, b} = act(server, act, at, b)
            {seen, {a, b, at}}
          end)

        assert length(told) == length(acts)
        ended = %{session_id: "s", reason: :normal, now_ms: at}
        {:ok, a} = run(value, :session_end, ended, a)
        {:ok, _} = run(server, :session_end, ended, b)
        report = AIRateLimit.report(a.assigns[AIRateLimit].model, at)
        assert {:ok, ^report} = Server.report(name)
        assert %{open: 0, admitted: n, settled: n, released: 0} = report.totals
        assert Enum.all?(report.rows, &(&1.reserved == 0))
      after
        GenServer.stop(pid)
        :ok = Server.forget(name)
      end
    end)
  end

  # What a caller sees of one act, and the assigns.
  defp act(hooks, {:tool, _, _, _}, at, assigns) do
    case run(hooks, :pre_tool_use, tool("ls", at), assigns) do
      {:ok, payload} -> {:ok, payload.assigns}
      {:halt, reason, payload} -> {reason, payload.assigns}
    end
  end

  defp act(hooks, {act, asks, uses, _}, at, assigns) do
    case run(hooks, :pre_model_call, call(at, %{asks: asks}), assigns) do
      {:halt, %Refusal{} = refusal, payload} ->
        {refusal, payload.assigns}

      {:ok, payload} when act == :lost ->
        {payload.prompt, payload.assigns}

      {:ok, payload} ->
        usage = %{input_tokens: uses, output_tokens: 0}
        more = if act == :call, do: %{usage: usage}, else: %{outcome: :failure}
        {:ok, left} = done(hooks, payload, payload.assigns, more)
        {payload.prompt, left.assigns}
    end
  end
end
