defmodule Engine.Harness.Middleware.LoopDetectionTest do
  use ExUnit.Case, async: true

  import Engine.Property

  import :proper_types,
    only: [any: 0, boolean: 0, integer: 2, list: 1, vector: 2, binary: 0]

  alias Engine.Harness.{Hooks, Middleware}
  alias Engine.Harness.Middleware.LoopDetection
  alias Engine.Harness.Middleware.LoopDetection.Verdict

  doctest LoopDetection
  doctest Verdict

  defp call(tool, arguments \\ %{}, result \\ "ok") do
    %{tool: tool, arguments: arguments, result: result}
  end

  defp failing(tool, arguments, text) do
    %{tool: tool, arguments: arguments, result: text, is_error: true}
  end

  # The answer to each message, without what is in the verdict; the last verdict; the state.
  defp observe(state \\ LoopDetection.new(), messages) do
    {answers, state} = Enum.map_reduce(messages, state, &LoopDetection.observe(&2, message(&1)))
    {Enum.map(answers, &rung/1), with({_rung, verdict} <- List.last(answers), do: verdict), state}
  end

  defp answers(state \\ LoopDetection.new(), messages), do: elem(observe(state, messages), 0)

  defp message(%{tool: _} = call), do: %{calls: [call]}
  defp message(calls) when is_list(calls), do: %{calls: calls}
  defp message(text) when is_binary(text), do: %{text: text}
  defp message({text, call}), do: %{text: text, calls: [call]}

  defp rung(:ok), do: :ok
  defp rung({rung, %Verdict{rung: rung}}), do: rung

  defp ok(count), do: List.duplicate(:ok, count)

  describe "the cases" do
    test "L01: the same tool over different paths is no loop" do
      paths = for n <- 1..12, do: "lib/file#{n}.ex"

      messages =
        Enum.map(paths, &call("read_file", %{"path" => &1})) ++
          Enum.map(paths, &call("edit_file", %{"path" => &1}))

      assert answers(messages) == ok(24)
    end

    test "L02: the same call and outcome, six times, each with another text" do
      messages = for n <- 1..6, do: {"Try #{n}.", call("sh", %{"command" => "make test"})}
      assert {answers, verdict, _state} = observe(messages)
      assert answers == [:ok, :ok, :nudge, :nudge, :block, :block]

      assert verdict == %Verdict{
               rung: :block,
               kind: :repetition,
               period: 1,
               repetitions: 6,
               tool: "sh",
               first: 1,
               last: 6
             }
    end

    test "L03: polling while the result changes is none; with equal results it is" do
      poll = fn percent -> call("job_status", %{"id" => 7}, "#{percent} %") end
      assert answers(Enum.map([10, 20, 30, 40], poll)) == ok(4)
      assert answers(Enum.map([10, 10, 10, 10], poll)) == [:ok, :ok, :nudge, :nudge]
    end

    test "L04: after a halt and a user's message the same call is allowed" do
      call = call("sh")
      {answers, _verdict, state} = observe(List.duplicate(call, 8))
      assert List.last(answers) == :halt
      assert {:block, _verdict} = LoopDetection.check(state, call)

      state = LoopDetection.reset(state)
      assert LoopDetection.check(state, call) == :ok
      assert answers(state, [call]) == [:ok]
    end

    test "L05: failures that differ by line, time, pid and temporary path are the same" do
      messages =
        for n <- 1..4 do
          failing("sh", %{"command" => "make"}, """
          2026-01-0#{n}T10:0#{n}:5#{n}Z [pid #{4_000 + n * 37}] /tmp/build-#{n}xq/a.c:#{n * 11}: \
          error: expected ';' (took 0.#{n}s)
          """)
        end

      assert answers(messages) == [:ok, :ok, :nudge, :nudge]

      other = failing("sh", %{"command" => "make"}, "error: no rule to make target")
      assert answers(Enum.take(messages, 2) ++ [other]) == ok(3)
    end

    test "L06: a message with eight failing calls is one observation" do
      calls = for n <- 1..8, do: failing("fetch", %{"url" => "u#{n}"}, "timed out")
      assert answers([calls]) == [:ok]
      assert answers([List.duplicate(hd(calls), 8)]) == [:ok]
      # Three such messages are a loop.
      assert answers([calls, Enum.reverse(calls), calls]) == [:ok, :ok, :nudge]
    end

    test "L07: two calls in turn" do
      calls = [
        Map.put(call("lookup", %{"a" => 1}, "x"), :call_id, "c1"),
        call("search", %{"b" => 2}, "y")
      ]

      messages = for n <- 1..6, do: Map.put(Enum.at(calls, rem(n + 1, 2)), :call_id, "c#{n}")
      assert {answers, verdict, _state} = observe(messages)
      assert answers == ok(5) ++ [:nudge]

      assert verdict == %Verdict{
               rung: :nudge,
               kind: :cycle,
               period: 2,
               repetitions: 3,
               tool: "lookup, search",
               first: 1,
               last: 6
             }
    end

    test "L08: identical failing edits with texts between" do
      edit = failing("edit_file", %{"path" => "a.ex", "old" => "x"}, "old text not found")
      messages = Enum.flat_map(1..5, &["Once more, attempt #{&1}.", edit])
      assert {answers, verdict, _state} = observe(messages)

      assert answers == [:ok, :ok, :ok, :ok, :ok, :nudge, :ok, :nudge, :ok, :block]
      assert {verdict.first, verdict.last, verdict.repetitions} == {2, 10, 5}
    end

    test "L09: offsets in small steps are nudged from the 8th on, and no more than that" do
      messages =
        for n <- 0..20, do: call("read_file", %{"path" => "X", "offset" => n}, "line #{n}")

      assert {answers, verdict, _state} = observe(messages)
      assert answers == ok(7) ++ List.duplicate(:nudge, 14)

      assert verdict == %Verdict{
               rung: :nudge,
               kind: :near_duplicate,
               period: 1,
               repetitions: 21,
               tool: "read_file",
               first: 1,
               last: 21
             }
    end

    test "L09b: offsets in steps of 200 are none" do
      messages =
        for n <- 0..20, do: call("read_file", %{"path" => "X", "offset" => n * 200}, "line #{n}")

      assert answers(messages) == ok(21)
    end

    test "L10: the same test command between real edits" do
      messages =
        Enum.flat_map(1..5, fn n ->
          [
            call("edit_file", %{"path" => "f", "new" => "version #{n}"}),
            call("sh", %{"command" => "make test"}, "#{n} of 5 passed")
          ]
        end)

      assert answers(messages) == ok(10)
    end

    test "L11: the order of keys, white space and the spelling don't matter" do
      messages =
        for arguments <- [
              ~S({"city":"P","unit":"c"}),
              %{"unit" => "c", "city" => "P"},
              ~S( { "unit" : "c", "city" : "P" } ),
              %{unit: :c, city: "P"}
            ],
            do: call("weather", arguments)

      assert answers(messages) == [:ok, :ok, :nudge, :nudge]
    end

    test "L12: other arguments are other calls" do
      for pair <- [
            {[1, 2], [2, 1]},
            {1, "1"},
            {9_007_199_254_740_992, 9_007_199_254_740_993},
            {"9007199254740992", "9007199254740993"},
            {%{"a" => nil}, %{}},
            {true, "true"}
          ] do
        {a, b} = pair

        if is_binary(a) do
          # As JSON texts.
          assert answers(Enum.map([a, b, a], &call("t", &1))) == ok(3)
        else
          messages = Enum.map([a, b, a], &call("t", %{"value" => &1}))
          assert answers(messages) == ok(3)
          assert answers(Enum.map([a, a, a], &call("t", %{"value" => &1}))) == [:ok, :ok, :nudge]
        end
      end
    end

    test "L13: five different malformed argument texts are the same failing call" do
      messages =
        for {arguments, error} <- [
              {~S({"a":), "unexpected end at column 6"},
              {~S({a:1}), "expected a key at column 2"},
              {"nope", "expected a value"},
              {"", "no arguments"},
              {~S({'a':1}), "expected a string"}
            ],
            do: failing("t", arguments, error)

      assert {answers, _verdict, state} = observe(messages)
      assert answers == [:ok, :ok, :nudge, :nudge, :block]
      assert {:block, _verdict} = LoopDetection.check(state, call("t", "{broken in another way"))
      assert LoopDetection.check(state, call("t", "{}")) == :ok
    end

    test "L13: a text that is no JSON but works is an argument like any other" do
      assert answers(for n <- 1..6, do: call("t", "select #{n}")) == ok(6)

      state = LoopDetection.new(tools: %{"sql" => [input: :text]})
      failures = for n <- 1..6, do: failing("sql", "select column#{n}x", "no such column")
      assert answers(state, failures) == ok(6)
    end

    test "L14: an array of near-identical objects is no repeated text" do
      objects = for n <- 1..40, do: ~s({"id": #{n}, "name": "a customer", "state": "active"})
      assert answers(["[" <> Enum.join(objects, ", ") <> "]"]) == [:ok]
      assert answers(["[\n" <> Enum.join(objects, ",\n") <> "\n]"]) == [:ok]
    end

    test "L15: the same sentence of 80 characters twelve times" do
      sentence =
        "I will now read the configuration file again, to see whether the value was set. "

      assert String.length(sentence) == 80
      assert {[:nudge], verdict, _state} = observe([String.duplicate(sentence, 12)])

      assert verdict == %Verdict{
               rung: :nudge,
               kind: :repeated_text,
               period: 80,
               repetitions: 12,
               tool: nil,
               first: 1,
               last: 1
             }
    end

    test "L15b: blocked at the 5th, the call is refused three times more, and that ends it" do
      call = call("sh", %{"command" => "make"})
      {_answers, _verdict, state} = observe(List.duplicate(call, 5))
      asked = %{tool: "sh", arguments: ~S({"command": "make"})}

      _halted =
        for attempt <- 6..8, reduce: state do
          state ->
            assert {:block, %Verdict{rung: :block}} = LoopDetection.check(state, asked)

            {answer, state} =
              LoopDetection.observe(state, %{calls: [Map.put(asked, :refused, true)]})

            assert {rung, %Verdict{repetitions: ^attempt}} = answer
            assert rung == if(attempt == 8, do: :halt, else: :block)
            state
        end
    end

    test "L16: a ladder that goes down" do
      assert_raise ArgumentError,
                   "expected each rung of :ladder to be larger than the one before, " <>
                     "got: [nudge: 5, block: 3, halt: 8]",
                   fn -> LoopDetection.new(ladder: [nudge: 5, block: 3]) end
    end

    test "L17: three messages with no call and the same text" do
      assert {[:ok, :ok, :nudge], verdict, _state} = observe(["Done.", "Done.", "Done."])
      assert {verdict.kind, verdict.first, verdict.last} == {:idle, 1, 3}
      assert answers(["", "", ""]) == [:ok, :ok, :nudge]
      assert answers(["a", "b", "c", "d"]) == ok(4)
      # A call ends it.
      assert answers(["Done.", "Done.", call("ls"), "Done.", "Done."]) == ok(5)
    end
  end

  describe "the ladder" do
    test "without a rung" do
      calls = List.duplicate(call("ls"), 8)

      for {ladder, expected} <- [
            {[nudge: nil], ok(4) ++ [:block, :block, :block, :halt]},
            {[block: nil], [:ok, :ok] ++ List.duplicate(:nudge, 5) ++ [:halt]},
            {[halt: nil], [:ok, :ok, :nudge, :nudge] ++ List.duplicate(:block, 4)},
            {[nudge: nil, block: nil, halt: nil], ok(8)}
          ] do
        assert answers(LoopDetection.new(ladder: ladder), calls) == expected
      end

      # Without nudges nothing is told that could only be a nudge.
      state = LoopDetection.new(ladder: [nudge: nil])
      assert answers(state, ["Done.", "Done.", "Done."]) == ok(3)
    end

    test "the highest rung wins, then the smallest period" do
      # A, A, A, B in turn: three of A are a nudge of their own.
      messages = List.duplicate([call("a"), call("a"), call("a"), call("b")], 5) |> List.flatten()
      assert {answers, verdict, state} = observe(messages)
      assert List.last(answers) == :block
      assert {verdict.kind, verdict.period, verdict.repetitions} == {:cycle, 4, 5}

      assert {{:block, verdict}, _state} = LoopDetection.observe(state, %{calls: [call("a")]})
      assert verdict.period == 4
    end
  end

  describe "the block" do
    test "of a cycle is for each of its calls, and goes on through refused attempts" do
      a = call("a", %{}, "x")
      b = call("b", %{}, "y")
      {_answers, verdict, state} = observe(Enum.flat_map(1..5, fn _ -> [a, b] end))
      assert {verdict.rung, verdict.period} == {:block, 2}

      for blocked <- [a, b], do: assert({:block, _} = LoopDetection.check(state, blocked))
      assert LoopDetection.check(state, call("c")) == :ok

      refused = Enum.map([a, b, a, b, a, b], &Map.put(Map.delete(&1, :result), :refused, true))
      assert answers(state, refused) == List.duplicate(:block, 5) ++ [:halt]
    end

    test "of a cycle in which one call comes to two outcomes" do
      turn = [call("a", %{}, "1"), call("b"), call("a", %{}, "2"), call("b")]
      {answers, verdict, state} = observe(Enum.flat_map(1..5, fn _ -> turn end))
      assert {List.last(answers), verdict.period} == {:block, 4}

      refused = Enum.map(turn ++ turn ++ turn, &Map.put(&1, :refused, true))
      assert List.last(answers(state, refused)) == :halt
    end

    test "ends when something else is done" do
      a = call("a")
      {_answers, _verdict, state} = observe(List.duplicate(a, 5))
      assert {:block, _} = LoopDetection.check(state, a)
      # A text alone does not end it.
      {[:ok], _verdict, state} = observe(state, ["I see."])
      assert {:block, _} = LoopDetection.check(state, a)
      {[:ok], _verdict, state} = observe(state, [call("b")])
      assert LoopDetection.check(state, a) == :ok
      assert answers(state, [a, a]) == ok(2)
    end
  end

  describe "what a tool declares" do
    test "a key" do
      state = LoopDetection.new(tools: %{"read" => [key: ["path"]]})
      calls = for n <- 1..3, do: call("read", %{"path" => "a", "why" => "reason #{n}"})
      assert answers(state, calls) == [:ok, :ok, :nudge]
      assert answers(calls) == ok(3)

      calls = for n <- 1..3, do: call("read", %{"path" => "a#{n}x"})
      assert answers(state, calls) == ok(3)
    end

    test "polling: so many repetitions more" do
      state = LoopDetection.new(tools: %{"wait" => [polling: 10]})

      assert answers(state, List.duplicate(call("wait"), 18)) ==
               ok(12) ++ [:nudge, :nudge, :block, :block, :block, :halt]

      # Another tool in the turn does not poll.
      calls = Enum.flat_map(1..3, fn _ -> [call("wait"), call("ls")] end)
      assert answers(state, calls) == ok(5) ++ [:nudge]
    end
  end

  describe "near-duplicates" do
    test "each number counts, in each call" do
      read = fn a, b -> call("read", %{"from" => a, "to" => b}, "#{a}") end
      assert List.last(answers(for n <- 1..8, do: read.(n, n * 10))) == :nudge
      assert answers(for n <- 1..8, do: read.(n, n * 11)) == ok(8)
      assert List.last(answers(for n <- 1..8, do: read.(-n, n / 2))) == :nudge
      # In several calls of a message at once.
      pairs = for n <- 1..8, do: [read.(n, 0), call("other", %{"n" => n})]
      assert List.last(answers(pairs)) == :nudge
    end

    test "another call ends them, the same one again does not" do
      read = fn n -> call("read", %{"offset" => n}, "#{n}") end
      assert answers(Enum.map(1..7, read) ++ [call("ls"), read.(8)]) == ok(9)
      assert List.last(answers(Enum.map([1, 2, 3, 4, 4, 5, 6, 7, 8], read))) == :nudge
      # Polling is none.
      assert answers(for n <- 1..20, do: call("job", %{"id" => 7}, "#{n}")) == ok(20)
    end

    test "numbers that floats can't hold are no steps" do
      assert answers(for n <- 1..9, do: call("read", %{"id" => 9_007_199_254_740_992 + n})) ==
               ok(9)
    end
  end

  describe "properties" do
    test "no input makes it crash" do
      check_all(
        list({any(), list({any(), any(), any(), boolean(), boolean()})}),
        [max_size: 20],
        fn messages ->
          for {text, calls} <- messages, reduce: LoopDetection.new() do
            state ->
              calls =
                for {tool, arguments, result, is_error, refused} <- calls do
                  %{
                    tool: tool,
                    arguments: arguments,
                    result: result,
                    is_error: is_error,
                    refused: refused
                  }
                end

              Enum.each(calls, &LoopDetection.check(state, &1))
              {_answer, state} = LoopDetection.observe(state, %{text: text, calls: calls})
              state
          end
        end
      )
    end

    test "calls with distinct outcomes are never blocked or halted" do
      check_all(list({integer(0, 2), integer(0, 1), boolean()}), fn steps ->
        {_answers, _} =
          steps
          |> Enum.with_index()
          |> Enum.map_reduce(LoopDetection.new(), fn {{tool, argument, text}, n}, state ->
            call = call("tool#{tool}x", %{"a" => argument}, "result #{n}")
            assert LoopDetection.check(state, call) == :ok
            message = %{text: if(text, do: "text"), calls: [call]}
            {answer, state} = LoopDetection.observe(state, message)
            assert rung(answer) in [:ok, :nudge]
            {answer, state}
          end)
      end)
    end

    test "any cycle of period up to 8 is found at each rung, whatever text stands between" do
      check_all(
        {integer(1, 8), list(binary()), vector(8, integer(0, 3)), list(integer(0, 5))},
        fn {period, texts, turn, before} ->
          # The turn, each place of it with a call of its own, so that it has no smaller period.
          turn = for {n, place} <- Enum.with_index(Enum.take(turn, period)), do: {n, place}
          texts = Stream.cycle([nil | texts])

          state =
            for n <- before, reduce: LoopDetection.new() do
              state -> elem(LoopDetection.observe(state, message(call("before#{n}x"))), 1)
            end

          calls = Enum.flat_map(1..8, fn _ -> turn end)

          {answers, _state} =
            calls
            |> Enum.zip(texts)
            |> Enum.map_reduce(state, fn {{n, place}, text}, state ->
              state =
                if text, do: elem(LoopDetection.observe(state, message(text)), 1), else: state

              call = call("tool", %{"n" => n, "place" => "p#{place}x"})
              {answer, state} = LoopDetection.observe(state, %{text: text || "", calls: [call]})
              {answer, state}
            end)

          for {repetitions, rung} <- [{3, :nudge}, {5, :block}, {8, :halt}] do
            assert {^rung, verdict} = Enum.at(answers, repetitions * period - 1)
            assert {verdict.period, verdict.repetitions} == {period, repetitions}
          end

          # Not one message earlier.
          for {repetitions, lower} <- [{5, :nudge}, {8, :block}] do
            assert rung(Enum.at(answers, repetitions * period - 2)) in [:ok, lower]
          end
        end
      )
    end

    test "the state is a value: the same messages give the same answers, from any point on" do
      check_all(list(integer(0, 2)), fn steps ->
        messages = Enum.map(steps, &call("t#{&1}x"))
        {all, _verdict, state} = observe(messages)
        {first, rest} = Enum.split(messages, div(length(messages), 2))
        {head, _verdict, middle} = observe(first)
        copy = middle |> :erlang.term_to_binary() |> :erlang.binary_to_term()
        {tail, _verdict, ^state} = observe(copy, rest)
        assert head ++ tail == all
      end)
    end

    test "memory does not grow" do
      sizes =
        for n <- 1..3_000, reduce: {LoopDetection.new(), []} do
          {state, sizes} ->
            message = %{text: "text #{n}", calls: [call("t", %{"n" => n * 100}, "#{n}")]}
            {:ok, state} = LoopDetection.observe(state, message)
            {state, [byte_size(state.core) | sizes]}
        end

      {_state, [last | _] = sizes} = sizes
      assert Enum.max(sizes) <= last + 16
      assert last < 2_000
    end
  end

  describe "arguments" do
    test "options" do
      for {opts, message} <- [
            {[ladder: [nudge: 1]],
             "expected :nudge in :ladder to be an integer of at least 2 or nil, got: 1"},
            {[ladder: [halt: "8"]],
             ~s(expected :halt in :ladder to be an integer of at least 2 or nil, got: "8")},
            {[ladder: [stop: 8]],
             "option :stop is unknown, expected any of: :nudge, :block, :halt"},
            {[ladder: [nudge: 5]],
             "expected each rung of :ladder to be larger than the one before, " <>
               "got: [nudge: 5, block: 5, halt: 8]"},
            {[rungs: []], "option :rungs is unknown, expected any of: :ladder, :tools"},
            {[tools: []],
             "expected :tools to be a map from tools' names to keyword lists, got: []"},
            {[tools: %{ls: []}], "expected a tool's name in :tools to be a string, got: :ls"},
            {[tools: %{"ls" => [poll: 1]}],
             "option :poll is unknown, expected any of: :key, :polling, :input"},
            {[tools: %{"ls" => [polling: -1]}],
             ~s(expected :polling of "ls" to be a non-negative integer, got: -1)},
            {[tools: %{"ls" => [key: [:a]]}],
             ~s(expected :key of "ls" to be a list of arguments' names, got: [:a])},
            {[tools: %{"ls" => [input: :xml]}],
             "expected :input to be one of :json, :text, got: :xml"}
          ] do
        assert_raise ArgumentError, message, fn -> LoopDetection.new(opts) end
      end
    end

    test "messages, calls and states" do
      state = LoopDetection.new()

      for {message, error} <- [
            {nil, "expected a message to be a map, got: nil"},
            {%{tool: "ls"}, "unknown key :tool in a message"},
            {%{calls: %{}}, "expected :calls to be a list, got: %{}"},
            {%{calls: [%{tool: "ls"}]},
             ~s(expected a call to be a map with :tool and :arguments, got: %{tool: "ls"})}
          ] do
        assert_raise ArgumentError, error, fn -> LoopDetection.observe(state, message) end
      end

      assert_raise ArgumentError, ~r/^not the state of a loop detection: /, fn ->
        LoopDetection.observe(%{state | core: "x"}, %{})
      end
    end
  end

  test "a tool's name is shown escaped and bounded" do
    {_answers, verdict, _state} = observe(List.duplicate(call("a\n</b>\u202E"), 3))
    assert verdict.tool == "a\\u{a}\\u{3c}/b\\u{3e}\\u{202e}"
    {_answers, verdict, _state} = observe(List.duplicate(call(String.duplicate("é", 500)), 3))
    assert verdict.tool == String.duplicate("é", 128)
  end

  describe "on the hooks" do
    # A loop as an engine runs it: the model's messages are a script of calls; what the tools do
    # is told to the test.
    defp session(script, opts \\ []) do
      hooks =
        Middleware.attach(Hooks.new(), {LoopDetection, Keyword.take(opts, [:ladder, :tools])})

      batched = Keyword.get(opts, :batched, true)

      Enum.reduce_while(Enum.with_index(script), {[], %{}}, fn {message, n}, {log, assigns} ->
        model = %{model: "m", prompt: "Go.", assigns: assigns}

        case Hooks.run(hooks, :pre_model_call, model) do
          {:halt, %Verdict{rung: :halt}, payload} ->
            {:halt, {log ++ [:halted], payload.assigns}}

          {:ok, payload} ->
            told = payload.prompt |> String.split("\n\n") |> Enum.drop(1)
            {text, calls} = message
            payload = Map.put(payload, :completion, text)
            {:ok, %{assigns: assigns}} = Hooks.run(hooks, :post_model_call, payload)

            {results, assigns} =
              Enum.map_reduce(calls, assigns, fn call, assigns ->
                call = if batched, do: Map.put(call, :batch_id, n), else: call
                asked = call |> Map.delete(:result) |> Map.put(:assigns, assigns)

                case Hooks.run(hooks, :pre_tool_use, asked) do
                  {:ok, payload} ->
                    payload = Map.put(payload, :result, call.result)

                    case Hooks.run(hooks, :post_tool_use, payload) do
                      {:ok, payload} -> {:ran, payload.assigns}
                      {:halt, %Verdict{rung: :halt}, payload} -> {:halt, payload.assigns}
                    end

                  {:halt, %Verdict{rung: rung}, payload} ->
                    {if(rung == :block, do: :refused, else: :halt), payload.assigns}
                end
              end)

            entry = if told == [], do: results, else: [:told | results]
            {:cont, {log ++ [entry], assigns}}
        end
      end)
    end

    test "a loop is told, refused, and ends the session before the model is called again" do
      script = List.duplicate({"Once more.", [call("sh", %{"command" => "make"})]}, 12)
      assert {log, _assigns} = session(script)

      assert log == [
               [:ran],
               [:ran],
               [:ran],
               [:told, :ran],
               [:told, :ran],
               [:told, :refused],
               [:told, :refused],
               [:told, :refused],
               :halted
             ]
    end

    test "a call without a batch is observed at once" do
      script = List.duplicate({"", [call("sh")]}, 8)
      assert {log, _assigns} = session(script, batched: false)

      assert Enum.take(log, -4) == [
               [:told, :ran],
               [:told, :refused],
               [:told, :refused],
               [:told, :halt]
             ]
    end

    test "a batch is one observation, however many of its calls are the same" do
      script = List.duplicate({"", [call("a"), call("b"), call("a")]}, 9)
      assert {log, _assigns} = session(script)
      assert Enum.at(log, 4) == [:told, :ran, :ran, :ran]
      assert Enum.at(log, 5) == [:told, :refused, :refused, :refused]
      assert length(log) == 9 and List.last(log) == :halted
    end

    test "texts without calls are observed, too" do
      script = List.duplicate({"I am done.", []}, 4)
      assert {[[], [], [], [:told]], _assigns} = session(script)
    end

    test "what is told stands at the end of the prompt, in its own shape" do
      hooks = Middleware.attach(Hooks.new(), {LoopDetection, ladder: [nudge: 2]})
      ran = fn _, payload -> elem(Hooks.run(hooks, :post_tool_use, payload), 1) end
      payload = Enum.reduce(1..2, call("ls"), ran)

      sentence =
        "The same call of ls gave the same result 2 times in a row. " <>
          "Try something else, or say what is missing."

      for {prompt, told} <- [
            {"Go.", "Go.\n\n" <> sentence},
            {[%{role: "user", content: "Go."}],
             [%{role: "user", content: "Go."}, %{role: "user", content: sentence}]},
            {[%{"role" => "user", "content" => "Go."}],
             [
               %{"role" => "user", "content" => "Go."},
               %{"role" => "user", "content" => sentence}
             ]}
          ] do
        model = %{model: "m", prompt: prompt, assigns: payload.assigns}
        assert {:ok, %{prompt: ^told} = payload} = Hooks.run(hooks, :pre_model_call, model)
        # Once.
        again = %{payload | prompt: prompt}
        assert {:ok, %{prompt: ^prompt}} = Hooks.run(hooks, :pre_model_call, again)
      end

      assert [%{decision: :cont}, %{decision: :nudge, reason: ^sentence} | _] = payload.events
    end

    test "a user's message resets it" do
      hooks = Middleware.attach(Hooks.new(), LoopDetection)
      ran = fn _, payload -> elem(Hooks.run(hooks, :post_tool_use, payload), 1) end
      payload = Enum.reduce(1..5, call("ls"), ran)
      assert {:halt, %Verdict{rung: :block}, payload} = Hooks.run(hooks, :pre_tool_use, payload)
      payload = LoopDetection.reset(payload)
      assert {:ok, payload} = Hooks.run(hooks, :pre_tool_use, payload)
      model = %{model: "m", prompt: "Go.", assigns: payload.assigns}
      assert {:ok, %{prompt: "Go."}} = Hooks.run(hooks, :pre_model_call, model)
      # Where nothing was observed there is nothing to reset.
      assert LoopDetection.reset(%{assigns: %{}}) == %{assigns: %{}}
    end

    test "a session is replayed from its payloads with the same decisions" do
      check_all(list({integer(0, 1), integer(0, 1)}), fn steps ->
        script = for {tool, result} <- steps, do: {"", [call("t#{tool}x", %{}, "#{result}")]}
        assert session(script) == session(script)
      end)
    end

    test "completions of the usual shapes" do
      text =
        String.duplicate(
          "I will now read the configuration file again, to see whether it was. ",
          12
        )

      for completion <- [
            text,
            %{text: text},
            %{"content" => text},
            %{content: [%{type: "text", text: text}, %{type: "tool_use", name: "ls"}]},
            [%{"type" => "text", "text" => text}]
          ] do
        hooks = Middleware.attach(Hooks.new(), LoopDetection)
        model = %{model: "m", prompt: "Go.", completion: completion}
        {:ok, payload} = Hooks.run(hooks, :post_model_call, model)
        {:ok, payload} = Hooks.run(hooks, :pre_model_call, payload)
        assert payload.prompt =~ "12 times in a row in your text"
      end

      # Whatever else a completion is.
      check_all(any(), fn completion ->
        hooks = Middleware.attach(Hooks.new(), LoopDetection)
        model = %{model: "m", prompt: "Go.", completion: completion}
        {:ok, payload} = Hooks.run(hooks, :post_model_call, model)
        {:ok, _payload} = Hooks.run(hooks, :pre_model_call, payload)
      end)
    end
  end
end
