defmodule Engine.Harness.HooksTest do
  use ExUnit.Case, async: true

  import Engine.Property

  alias Engine.Harness.Hooks
  alias Engine.Harness.Hooks.{Error, Payload}

  doctest Engine.Harness.Hooks
  doctest Engine.Harness.Hooks.Error
  doctest Engine.Harness.Hooks.Event
  doctest Engine.Harness.Hooks.Payload

  @phases [
    :pre_tool_use,
    :post_tool_use,
    :session_start,
    :session_end,
    :pre_model_call,
    :post_model_call
  ]

  @call %{tool: "sh", arguments: "ls", assigns: %{}}
  @session %{session_id: "s1", assigns: %{}}
  @ended %{session_id: "s1", reason: :normal, assigns: %{}}

  # A handler that tells the test that it ran, with what, and answers.
  defp tell(name, answer \\ :ok) do
    test = self()

    {name,
     fn payload ->
       send(test, {name, payload})
       if is_function(answer), do: answer.(payload), else: answer
     end}
  end

  # Which handlers ran, in order.
  defp ran do
    receive do
      {name, _payload} -> [name | ran()]
    after
      0 -> []
    end
  end

  defp hooks(phase, handlers, opts \\ []) do
    Enum.reduce(handlers, Hooks.new(), &Hooks.register(&2, phase, &1, opts))
  end

  # As transforms, which may do more; without the events, which have tests of their own.
  defp run(handlers) do
    hooks = hooks(:pre_tool_use, handlers, kind: :transform)
    bare(Hooks.run(hooks, :pre_tool_use, @call))
  end

  defp run_end(handlers) do
    bare(Hooks.run(hooks(:session_end, handlers), :session_end, @ended))
  end

  defp bare(outcome) do
    last = tuple_size(outcome) - 1
    put_elem(outcome, last, Map.delete(elem(outcome, last), :events))
  end

  defp append(text) do
    fn payload -> {:cont, %{payload | arguments: payload.arguments <> text}} end
  end

  describe "the order" do
    test "H01: the one that halts is the last to run, with its reason" do
      answer = run([tell(:a), tell(:b, {:halt, :not_allowed}), tell(:c)])

      assert answer == {:halt, :not_allowed, @call}
      assert ran() == [:a, :b]
    end

    test "is that of registration: a guard registered after a transform sees its arguments" do
      rewrite = fn payload -> {:cont, %{payload | arguments: "rm -rf"}} end

      guard = fn
        %{arguments: "ls"} -> :ok
        %{arguments: other} -> {:halt, {:not_allowed, other}}
      end

      assert {:halt, {:not_allowed, "rm -rf"}, %{arguments: "rm -rf"}} = run([rewrite, guard])
    end

    test "H03: a later handler can't undo a halt, and the tool has no side effect" do
      loop = fn handlers ->
        with {:ok, payload} <- run(handlers), do: send(self(), {:tool, payload})
      end

      assert {:halt, :no, @call} = loop.([tell(:a, {:halt, :no}), tell(:b, {:cont, @call})])
      assert ran() == [:a]

      # The same loop without the halt does run the tool.
      loop.([tell(:b, {:cont, @call})])
      assert ran() == [:b, :tool]
    end

    test "H09: a slow transform, then a quick one, a hundred times: always in that order" do
      slow = fn payload ->
        Process.sleep(1)
        append(" a").(payload)
      end

      for _ <- 1..100 do
        assert run([slow, append(" b")]) == {:ok, %{@call | arguments: "ls a b"}}
      end
    end

    test "H11: without handlers the payload comes back unchanged" do
      assert Hooks.run(Hooks.new(), :pre_tool_use, @call) == {:ok, @call}
      assert Hooks.run(Hooks.new(), :session_end, @ended) == {:ok, @ended}
    end

    test "handlers of other phases don't run" do
      hooks = Hooks.register(hooks(:session_start, [tell(:start)]), :session_end, tell(:end))

      assert bare(Hooks.run(hooks, :session_start, @session)) == {:ok, @session}
      assert ran() == [:start]
    end

    test "a handler registered twice runs twice" do
      assert {:ok, %{arguments: "ls !  !"}} = run([append(" ! "), append(" !")])
      assert {:ok, %{arguments: "ls ! !"}} = run([append(" !"), append(" !")])
    end

    test "what was counted before a halt is kept" do
      counted = put_in(@call.assigns[:calls], 7)

      assert run([fn _ -> {:cont, counted} end, fn _ -> {:halt, :enough} end]) ==
               {:halt, :enough, counted}

      assert run([fn _ -> {:halt, :enough, counted} end]) == {:halt, :enough, counted}
    end
  end

  describe "guards and transforms" do
    defp rewrite(text), do: fn payload -> {:cont, %{payload | arguments: text}} end

    test "H02: a guard sees what a transform registered later makes of the arguments" do
      allow_ls = fn
        %{arguments: "ls"} -> :ok
        %{arguments: other} -> {:halt, {:not_allowed, other}}
      end

      hooks = Hooks.register(Hooks.new(), :pre_tool_use, {"allow", allow_ls})

      assert {:ok, %{arguments: "ls"}} = Hooks.run(hooks, :pre_tool_use, @call)

      hooks = Hooks.register(hooks, :pre_tool_use, {"rm", rewrite("rm -rf")}, kind: :transform)

      assert {:halt, {:not_allowed, "rm -rf"}, %{arguments: "rm -rf"}} =
               Hooks.run(hooks, :pre_tool_use, @call)
    end

    test "each kind keeps its registration order" do
      for {phase, payload, order} <- [
            {:pre_tool_use, @call, [:c, :e, :a, :b, :d]},
            {:pre_model_call, %{model: "m", prompt: ""}, [:c, :e, :a, :b, :d]},
            {:post_tool_use, Map.put(@call, :result, ""), [:a, :b, :c, :d, :e]},
            {:session_end, @ended, [:a, :b, :c, :d, :e]}
          ] do
        hooks =
          Enum.reduce(
            [a: :guard, b: :guard, c: :transform, d: :guard, e: :transform],
            Hooks.new(),
            fn {name, kind}, hooks -> Hooks.register(hooks, phase, tell(name), kind: kind) end
          )

        assert {:ok, _payload} = Hooks.run(hooks, phase, payload)
        assert ran() == order
      end
    end

    test "a transform's halt is final: no guard runs" do
      hooks = Hooks.register(Hooks.new(), :pre_tool_use, tell(:guard))
      hooks = Hooks.register(hooks, :pre_tool_use, tell(:t, {:halt, :no}), kind: :transform)
      assert bare(Hooks.run(hooks, :pre_tool_use, @call)) == {:halt, :no, @call}
      assert ran() == [:t]
    end

    test "a guard that changes the step returned rubbish, whether it lets pass or halts" do
      changed = %{@call | arguments: "ls -l"}

      for {answer, shape} <- [
            {{:cont, changed}, "{:cont, payload}"},
            {{:halt, :no, changed}, "{:halt, reason, payload}"}
          ] do
        hooks = hooks(:pre_tool_use, [{"guard", fn _ -> answer end}, tell(:next)])

        assert {:halt, %Error{kind: :invalid_return, reason: ^answer} = error, payload} =
                 Hooks.run(hooks, :pre_tool_use, @call)

        assert Exception.message(error) ==
                 ~s(handler "guard" of :pre_tool_use returned #{shape}: ) <>
                   "a guard may not change :arguments"

        assert payload.arguments == "ls"
        assert ran() == []
      end
    end

    test "a guard may change no key of the step, by however little, nor add one" do
      call = %{tool: "sh", arguments: %{"n" => 1}, call_id: "c1", assigns: %{}}
      prompt = %{model: "m", prompt: "Hello", assigns: %{}}

      for {phase, payload, changed, key} <- [
            {:pre_tool_use, call, %{call | arguments: %{"n" => 1.0}}, ":arguments"},
            {:pre_tool_use, call, %{call | tool: "rm"}, ":tool"},
            {:pre_tool_use, call, Map.delete(call, :call_id), ":call_id"},
            {:pre_tool_use, call, Map.put(call, :batch_id, 1), ":batch_id"},
            {:pre_model_call, prompt, %{prompt | prompt: "Hi", model: "n"}, ":model, :prompt"},
            {:pre_model_call, prompt, Map.put(prompt, :tools, []), ":tools"}
          ] do
        hooks = hooks(phase, [{"guard", fn _ -> {:cont, changed} end}])
        assert {:halt, %Error{problem: problem}, _payload} = Hooks.run(hooks, phase, payload)
        assert problem == "a guard may not change #{key}"

        hooks = hooks(phase, [{"transform", fn _ -> {:cont, changed} end}], kind: :transform)
        assert bare(Hooks.run(hooks, phase, payload)) == {:ok, changed}
      end
    end

    test "a guard may change assigns, the time and what the caller added" do
      changed = Map.merge(@call, %{assigns: %{calls: 1}, now_ms: 7, own: 2})
      hooks = hooks(:pre_tool_use, [fn _ -> {:cont, changed} end])
      assert bare(Hooks.run(hooks, :pre_tool_use, @call)) == {:ok, changed}
    end

    test "in other phases a guard may change what it likes" do
      payload = Map.put(@call, :result, "a very long text")
      shorten = fn payload -> {:cont, %{payload | result: "a"}} end
      assert {:ok, left} = Hooks.run(hooks(:post_tool_use, [shorten]), :post_tool_use, payload)
      assert left.result == "a"
    end
  end

  describe "on_error: :continue" do
    test "a failure lets the next one run, with the payload as it was, and is in the events" do
      for {function, decision} <- [
            {fn _ -> raise "boom" end, :raise},
            {fn _ -> throw(:boom) end, :throw},
            {fn _ -> exit(:boom) end, :exit},
            {fn _ -> :boom end, :invalid_return},
            {rewrite("rm"), :invalid_return}
          ] do
        hooks = Hooks.register(Hooks.new(), :pre_tool_use, {"a", function}, on_error: :continue)
        hooks = Hooks.register(hooks, :pre_tool_use, tell("b"))

        assert {:ok, %{arguments: "ls", events: events}} = Hooks.run(hooks, :pre_tool_use, @call)
        assert_received {"b", @call}

        assert [
                 %{handler: "b", decision: :ok, on_error: :halt},
                 %{handler: "a", decision: ^decision, on_error: :continue, reason: reason}
               ] = events

        assert reason =~ ~s(handler "a" of :pre_tool_use )
      end
    end

    test "a halt is no failure: it still halts" do
      hooks =
        hooks(:pre_tool_use, [{"a", fn _ -> {:halt, :no} end}, tell(:b)], on_error: :continue)

      assert bare(Hooks.run(hooks, :pre_tool_use, @call)) == {:halt, :no, @call}
      assert ran() == []
    end

    test "at the session's end such a failure is not the answer" do
      hooks = hooks(:session_end, [{"a", fn _ -> raise "boom" end}], on_error: :continue)
      assert {:ok, %{events: [%{decision: :raise}]}} = Hooks.run(hooks, :session_end, @ended)
    end
  end

  describe "events" do
    test "are in front of those that were there, the newest first" do
      hooks = hooks(:pre_tool_use, [{"a", fn _ -> :ok end}, {"b", fn _ -> {:halt, :no} end}])

      assert {:halt, :no, %{events: events}} =
               Hooks.run(hooks, :pre_tool_use, Map.put(@call, :events, [:earlier]))

      assert events == [
               %{
                 phase: :pre_tool_use,
                 handler: "b",
                 kind: :guard,
                 decision: :halt,
                 reason: ":no",
                 on_error: :halt,
                 step: %{tool: "sh"}
               },
               %{
                 phase: :pre_tool_use,
                 handler: "a",
                 kind: :guard,
                 decision: :ok,
                 reason: nil,
                 on_error: :halt,
                 step: %{tool: "sh"}
               },
               :earlier
             ]
    end

    test "handlers don't see them, and can't lose or forge them" do
      payload = Map.put(@call, :events, [:earlier])

      assert {:ok, %{events: [%{decision: :ok}, :earlier]}} =
               Hooks.run(hooks(:pre_tool_use, [tell("a")]), :pre_tool_use, payload)

      assert_received {"a", @call}

      lose = fn payload -> {:cont, Map.put(payload, :events, [])} end

      assert {:ok, %{events: [%{decision: :cont}, :earlier]}} =
               Hooks.run(hooks(:pre_tool_use, [lose]), :pre_tool_use, payload)

      for events <- [[%{handler: "b", decision: :ok, reason: "x"}], [1], [[] | 1], :none] do
        forge = fn payload -> {:cont, Map.put(payload, :events, events)} end

        assert {:halt, %Error{kind: :invalid_return}, %{events: [event, :earlier]}} =
                 Hooks.run(hooks(:pre_tool_use, [forge]), :pre_tool_use, payload)

        assert event.decision == :invalid_return
      end
    end

    test "tell the step, and nothing of its content" do
      payload = %{
        tool: "sh",
        arguments: "ls",
        result: "secret",
        is_error: true,
        call_id: "c1",
        batch_id: {1, 2},
        session_id: "s1",
        now_ms: 5,
        own: 1
      }

      assert {:ok, %{events: [event]}} =
               Hooks.run(hooks(:post_tool_use, [tell("a")]), :post_tool_use, payload)

      assert event.step == %{
               tool: "sh",
               call_id: "c1",
               batch_id: "{1, 2}",
               session_id: "s1",
               is_error: true,
               now_ms: 5
             }

      payload = %{model: "m", prompt: "p", completion: "c", usage: %{input_tokens: 3}}

      assert {:ok, %{events: [event]}} =
               Hooks.run(hooks(:post_model_call, [tell("a")]), :post_model_call, payload)

      assert event.step == %{model: "m", usage: %{input_tokens: 3}}

      payload = %{@ended | reason: {:raise, %RuntimeError{message: "boom"}}}

      assert {:ok, %{events: [event]}} =
               Hooks.run(hooks(:session_end, [tell("a")]), :session_end, payload)

      assert event.step == %{session_id: "s1", ended: "boom"}
    end

    test "a reason is text, of bounded length, whatever it is" do
      long = String.duplicate("é", 1_000)

      for {reason, text} <- [
            {:no, ":no"},
            {"no", "no"},
            {%ArgumentError{message: "no"}, "no"},
            {long, String.duplicate("é", 512)},
            {%RuntimeError{message: long}, String.duplicate("é", 512)},
            {"caf\xE9", ~S(<<99, 97, 102, 233>>)}
          ] do
        hooks = hooks(:pre_tool_use, [fn _ -> {:halt, reason} end])
        assert {:halt, ^reason, %{events: [event]}} = Hooks.run(hooks, :pre_tool_use, @call)
        assert event.reason == text
      end
    end

    test "a handler without a name is named the same in every build" do
      hooks = hooks(:pre_tool_use, [fn _ -> :ok end, &Map.fetch!(%{@call => :ok}, &1)])
      assert {:ok, %{events: events}} = Hooks.run(hooks, :pre_tool_use, @call)

      assert Enum.map(events, & &1.handler) |> Enum.uniq() == [
               "a function in #{inspect(__MODULE__)}"
             ]
    end
  end

  # Where the library is on the code path: it is no dependency.
  if Code.ensure_loaded?(:telemetry) do
    describe "telemetry" do
      @describetag :capture_log
      @compile {:no_warn_undefined, :telemetry}

      setup do
        {:ok, _} = Application.ensure_all_started(:telemetry)

        on_exit(fn -> for %{id: id} <- :telemetry.list_handlers([]), do: :telemetry.detach(id) end)
      end

      defp listen(function) do
        # These tests run beside others, whose runs are listened to as well.
        test = self()
        names = for phase <- @phases, name <- [:start, :stop, :exception], do: {phase, name}

        for {phase, name} <- names do
          :telemetry.attach(
            {test, phase, name},
            [:engine, :harness, phase, name],
            fn event, measurements, metadata, _config ->
              if self() == test, do: function.(event, measurements, metadata)
            end,
            nil
          )
        end
      end

      defp sent do
        receive do
          {:telemetry, event, measurements, metadata} ->
            [{event, measurements |> Map.keys() |> Enum.sort(), metadata} | sent()]
        after
          0 -> []
        end
      end

      test "is told of each handler's start and decision" do
        listen(&send(self(), {:telemetry, &1, &2, &3}))
        hooks = hooks(:pre_tool_use, [{"a", fn _ -> :ok end}, {"b", fn _ -> raise "boom" end}])

        assert {:halt, %Error{stacktrace: stacktrace}, %{events: [b, a]}} =
                 Hooks.run(hooks, :pre_tool_use, @call)

        assert sent() == [
                 {[:engine, :harness, :pre_tool_use, :start], [:monotonic_time, :system_time],
                  %{event: %{a | decision: nil}}},
                 {[:engine, :harness, :pre_tool_use, :stop], [:duration, :monotonic_time],
                  %{event: a}},
                 {[:engine, :harness, :pre_tool_use, :start], [:monotonic_time, :system_time],
                  %{event: %{b | decision: nil, reason: nil}}},
                 {[:engine, :harness, :pre_tool_use, :exception], [:duration, :monotonic_time],
                  %{
                    event: b,
                    kind: :raise,
                    reason: %RuntimeError{message: "boom"},
                    stacktrace: stacktrace
                  }}
               ]
      end

      test "H10: a listener that exits leaves the run as it is" do
        test = self()

        listen(fn event, _measurements, _metadata ->
          send(test, {:telemetry, event, %{}, %{}})
          exit(:boom)
        end)

        assert run([append(" -l")]) == {:ok, %{@call | arguments: "ls -l"}}
        assert [{[:engine, :harness, :pre_tool_use, :start], [], %{}} | _] = sent()
      end

      test "H10: so does a library that is stopped" do
        :ok = Application.stop(:telemetry)
        assert run([append(" -l")]) == {:ok, %{@call | arguments: "ls -l"}}
      end
    end
  end

  describe "a handler that fails" do
    test "H04: any other answer halts, with the payload kept, and is never an allow" do
      for answer <- [nil, false, true, :error, {:halt}, {:ok, 1}, {:ok, @call}, :cont, :halt] do
        assert {:halt, error, @call} = run([{"guard", fn _ -> answer end}, tell(:next)])

        assert error == %Error{
                 phase: :pre_tool_use,
                 handler: "guard",
                 kind: :invalid_return,
                 reason: answer,
                 problem: nil,
                 stacktrace: []
               }

        assert ran() == []
      end
    end

    test "H04: the message says what came back and what was expected" do
      assert {:halt, error, @call} = run([{"guard", fn _ -> {:ok, 1} end}])

      assert Exception.message(error) ==
               ~s(handler "guard" of :pre_tool_use returned {:ok, 1}; ) <>
                 "expected :ok, {:cont, payload}, {:halt, reason} or {:halt, reason, payload}"
    end

    test "H04: a payload that lost its keys, or is none, is an invalid return" do
      for {answer, message} <- [
            {{:cont, %{arguments: "ls", assigns: %{}}},
             "returned {:cont, payload}: the payload of :pre_tool_use lacks :tool"},
            {{:cont, %{}},
             "returned {:cont, payload}: " <>
               "the payload of :pre_tool_use lacks :tool, :arguments, :assigns"},
            {{:cont, %{tool: "sh", arguments: "ls"}},
             "returned {:cont, payload}: the payload of :pre_tool_use lacks :assigns"},
            {{:cont, [1]},
             "returned {:cont, payload}: " <>
               "expected the payload of :pre_tool_use to be a map, got: [1]"},
            {{:cont, %{@call | assigns: []}},
             "returned {:cont, payload}: " <>
               "expected :assigns in the payload of :pre_tool_use to be a map, got: []"},
            {{:halt, :no, nil},
             "returned {:halt, reason, payload}: " <>
               "expected the payload of :pre_tool_use to be a map, got: nil"}
          ] do
        assert {:halt, %Error{kind: :invalid_return, reason: ^answer} = error, @call} =
                 run([{"guard", fn _ -> answer end}])

        assert Exception.message(error) == ~s(handler "guard" of :pre_tool_use ) <> message
      end
    end

    test "H05: raise, throw and exit halt, with phase and handler" do
      for {kind, reason, function, message} <- [
            {:raise, %RuntimeError{message: "boom"}, fn _ -> raise "boom" end,
             "raised RuntimeError: boom"},
            {:raise, %ErlangError{original: :boom}, fn _ -> :erlang.error(:boom) end,
             "raised ErlangError: Erlang error: :boom"},
            {:throw, :boom, fn _ -> throw(:boom) end, "threw :boom"},
            {:exit, :boom, fn _ -> exit(:boom) end, "exited: :boom"},
            {:exit, :normal, fn _ -> exit(:normal) end, "exited: normal"}
          ] do
        assert {:halt, error, @call} = run([{:guard, function}, tell(:next)])
        assert %Error{phase: :pre_tool_use, handler: :guard, kind: ^kind} = error
        assert error.reason == reason
        assert [{_module, _function, _arity, _location} | _] = error.stacktrace
        assert Exception.message(error) == "handler :guard of :pre_tool_use #{message}"
        assert ran() == []
      end
    end

    test "H05: a failure and a denial for the same reason are told apart" do
      assert run([fn _ -> {:halt, :boom} end]) == {:halt, :boom, @call}
      assert {:halt, %Error{reason: :boom}, @call} = run([fn _ -> throw(:boom) end])
    end

    test "H05: a payload changed before the failure is kept" do
      assert {:halt, %Error{}, %{arguments: "ls -l"}} =
               run([append(" -l"), fn _ -> raise "boom" end])
    end

    test "H05: a handler without a name is called by its function" do
      assert {:halt, error, @call} = run([&Enum.count/1])
      assert error.handler == (&Enum.count/1)

      assert Exception.message(error) ==
               "handler &Enum.count/1 of :pre_tool_use returned 3; " <>
                 "expected :ok, {:cont, payload}, {:halt, reason} or {:halt, reason, payload}"
    end

    test "is an exception that can be raised as it is" do
      {:halt, error, _payload} = run([{"guard", fn _ -> throw(:boom) end}])

      assert_raise Error, ~s(handler "guard" of :pre_tool_use threw :boom), fn -> raise error end
    end
  end

  describe "arguments" do
    @phase_list ":pre_tool_use, :post_tool_use, :session_start, :session_end, " <>
                  ":pre_model_call, :post_model_call"

    test "H06: an unknown phase" do
      for {phase, shown} <- [{:before_tool, ":before_tool"}, {"session_end", ~s("session_end")}] do
        message = "expected a phase to be one of #{@phase_list}, got: #{shown}"

        assert_raise ArgumentError, message, fn ->
          Hooks.register(Hooks.new(), phase, fn _ -> :ok end)
        end

        assert_raise ArgumentError, message, fn -> Hooks.run(Hooks.new(), phase, @call) end
      end
    end

    test "H06: a handler of the wrong arity or shape" do
      for {handler, shown} <- [
            {fn -> :ok end, "a function of 0 arguments"},
            {fn _, _ -> :ok end, "a function of 2 arguments"},
            {{"guard", fn _, _ -> :ok end}, ~s({"guard", a function of 2 arguments})},
            {{nil, fn _ -> :ok end}, "{nil, a function of 1 argument}"},
            {{"", fn _ -> :ok end}, ~s({"", a function of 1 argument})},
            {{1, fn _ -> :ok end}, "{1, a function of 1 argument}"},
            {{"guard", :allow}, ~s({"guard", :allow})},
            {__MODULE__, "Engine.Harness.HooksTest"},
            {nil, "nil"}
          ] do
        message =
          "expected a handler to be a function of one argument or {name, function}, " <>
            "the name a string or an atom, got: #{shown}"

        assert_raise ArgumentError, message, fn ->
          Hooks.register(Hooks.new(), :pre_tool_use, handler)
        end
      end
    end

    test "options of a registration" do
      for {opts, message} <- [
            {[kind: :filter], "expected :kind to be one of :guard, :transform, got: :filter"},
            {[on_error: nil], "expected :on_error to be one of :halt, :continue, got: nil"},
            {[order: 1], "option :order is unknown, expected any of: :kind, :on_error"}
          ] do
        assert_raise ArgumentError, message, fn ->
          Hooks.register(Hooks.new(), :pre_tool_use, fn _ -> :ok end, opts)
        end
      end
    end

    test "a payload without the keys of its phase" do
      for {payload, message} <- [
            {%{tool: "sh"}, "the payload of :pre_tool_use lacks :arguments"},
            {nil, "expected the payload of :pre_tool_use to be a map, got: nil"},
            {[tool: "sh"],
             ~s(expected the payload of :pre_tool_use to be a map, got: [tool: "sh"])},
            {%{@call | assigns: nil},
             "expected :assigns in the payload of :pre_tool_use to be a map, got: nil"},
            {Map.put(@call, :events, nil),
             "expected :events in the payload of :pre_tool_use to be a list, got: nil"}
          ] do
        assert_raise ArgumentError, message, fn ->
          Hooks.run(Hooks.new(), :pre_tool_use, payload)
        end
      end
    end

    test "assigns are put in when absent, and kept when there" do
      payload = %{tool: "sh", arguments: "ls"}
      assert Hooks.run(Hooks.new(), :pre_tool_use, payload) == {:ok, @call}

      payload = %{tool: "sh", arguments: "ls", assigns: %{calls: 1}}
      assert Hooks.run(Hooks.new(), :pre_tool_use, payload) == {:ok, payload}
    end

    test "keys that no phase knows are passed along" do
      payload = Map.merge(@call, %{"own" => 1, call_id: "c1", attempt: 2})
      hooks = hooks(:pre_tool_use, [tell(:a)])
      assert bare(Hooks.run(hooks, :pre_tool_use, payload)) == {:ok, payload}
      assert_received {:a, ^payload}
    end
  end

  describe "session_end" do
    test "H07: all run, though the first one raises" do
      raises = tell(:a, fn _ -> raise "boom" end)
      counts = tell(:b, {:cont, put_in(@ended.assigns[:closed], 1)})

      assert {:halt, %Error{phase: :session_end, handler: :a, kind: :raise} = error, payload} =
               run_end([raises, counts])

      assert error.reason == %RuntimeError{message: "boom"}
      assert payload == put_in(@ended.assigns[:closed], 1)
      assert ran() == [:a, :b]
    end

    test "H07: the session's own result is unchanged" do
      hooks = hooks(:session_end, [tell(:a, fn _ -> raise "boom" end), tell(:b, {:halt, :late})])

      assert {:ok, 42, {:halt, %Error{handler: :a}, @ended}} =
               Hooks.session(hooks, @session, fn payload -> {42, payload} end)

      assert ran() == [:a, :b]
    end

    test "the first halt's reason is kept, the payload goes on from handler to handler" do
      a = put_in(@ended.assigns[:seen], [:a])
      c = put_in(@ended.assigns[:seen], [:a, :c])

      assert run_end([
               tell(:a, {:halt, :first, a}),
               tell(:b, fn _ -> throw(:second) end),
               tell(:c, fn ^a -> {:cont, c} end),
               tell(:d, {:halt, :third})
             ]) == {:halt, :first, c}

      assert ran() == [:a, :b, :c, :d]
    end
  end

  describe "session/3" do
    defp session(handlers, work) do
      handlers
      |> Enum.reduce(Hooks.new(), fn {phase, handler}, hooks ->
        Hooks.register(hooks, phase, handler)
      end)
      |> Hooks.session(@session, work)
    end

    test "start, work and end see each other's assigns" do
      open = fn payload -> {:cont, put_in(payload.assigns[:log], [:open])} end
      close = fn payload -> {:cont, update_in(payload.assigns.log, &(&1 ++ [:close]))} end
      work = fn payload -> {:done, update_in(payload.assigns.log, &(&1 ++ [:work]))} end

      assert {:ok, :done, ended} = session([session_start: open, session_end: close], work)
      assert bare(ended) == {:ok, %{@ended | assigns: %{log: [:open, :work, :close]}}}
    end

    test "a halt at the start leaves out the work, not the end" do
      handlers = [
        session_start: tell(:a),
        session_start: tell(:b, {:halt, :closed_today}),
        session_end: tell(:end)
      ]

      ended = %{@ended | reason: {:halt, :closed_today}}

      assert {:halt, :closed_today, outcome} =
               session(handlers, fn _ -> flunk("the work began") end)

      assert bare(outcome) == {:ok, ended}

      assert ran() == [:a, :b, :end]
    end

    test "H08: the work raises: the end ran once, with the reason, and the failure goes on" do
      work = fn _payload -> raise ArgumentError, "no such file" end

      assert_raise ArgumentError, "no such file", fn ->
        session([session_end: tell(:end)], work)
      end

      ended = %{@ended | reason: {:raise, %ArgumentError{message: "no such file"}}}
      assert_received {:end, ^ended}
      assert ran() == []
    end

    test "H08: the work fails in Erlang's way: the failure goes on as it was" do
      assert :badarg = catch_error(session([session_end: tell(:end)], &:erlang.hd(&1.assigns)))

      assert_received {:end, %{reason: {:raise, %ArgumentError{}}}}
      assert ran() == []
    end

    test "H08: the work throws: the end ran once, with the reason, and the failure goes on" do
      assert :away = catch_throw(session([session_end: tell(:end)], fn _ -> throw(:away) end))

      ended = %{@ended | reason: {:throw, :away}}
      assert_received {:end, ^ended}
      assert ran() == []
    end

    test "H08: the work exits: the end ran once, with the reason, and the failure goes on" do
      assert :gone = catch_exit(session([session_end: tell(:end)], fn _ -> exit(:gone) end))

      ended = %{@ended | reason: {:exit, :gone}}
      assert_received {:end, ^ended}
      assert ran() == []
    end

    test "H08: a failing end does not hide the failure of the work" do
      handlers = [
        session_end: tell(:a, fn _ -> raise "second" end),
        session_end: tell(:b)
      ]

      assert :first = catch_throw(session(handlers, fn _ -> throw(:first) end))
      assert ran() == [:a, :b]
    end

    test "H08: the stack trace that goes on is the work's own" do
      work = fn _payload -> :erlang.raise(:error, :boom, [{:some, :where, 1, []}]) end

      stacktrace =
        try do
          session([session_end: tell(:end)], work)
        rescue
          ErlangError -> __STACKTRACE__
        end

      assert stacktrace == [{:some, :where, 1, []}]
      assert ran() == [:end]
    end

    test "a work that returns rubbish ends its session, too" do
      message = "expected a session's work to return {value, payload}, got: :done"

      assert_raise ArgumentError, message, fn ->
        session([session_end: tell(:end)], fn _ -> :done end)
      end

      assert ran() == [:end]

      message = "the payload of :session_start lacks :session_id"

      assert_raise ArgumentError, message, fn ->
        session([session_end: tell(:end)], fn _ -> {:done, %{}} end)
      end

      assert_received {:end, %{session_id: "s1", reason: {:raise, %ArgumentError{}}}}
      assert ran() == []
    end
  end

  describe "the phases" do
    test "are these six" do
      assert Hooks.phases() == @phases
      assert Payload.phases() == @phases
    end

    test "take the least that a loop has to tell" do
      for {phase, payload} <- [
            pre_tool_use: %{tool: "sh", arguments: "ls"},
            post_tool_use: %{tool: "sh", arguments: "ls", result: "a.md"},
            session_start: %{session_id: "s1"},
            session_end: %{session_id: "s1", reason: :normal},
            pre_model_call: %{model: "m", prompt: "Hello"},
            post_model_call: %{model: "m", prompt: "Hello", completion: "Hi"}
          ] do
        assert Map.keys(payload) == Enum.sort(Payload.required(phase))

        assert Hooks.run(Hooks.new(), phase, payload) ==
                 {:ok, Map.put(payload, :assigns, %{})}

        for key <- Map.keys(payload) do
          assert_raise ArgumentError, fn ->
            Hooks.run(Hooks.new(), phase, Map.delete(payload, key))
          end
        end
      end
    end

    test "have a typed payload each" do
      {:ok, types} = Code.Typespec.fetch_types(Payload)
      names = for {:type, {name, _type, []}} <- types, do: name

      assert Enum.sort(names) == Enum.sort([:t, :phase | @phases])
    end
  end

  describe "whatever handlers do" do
    import :proper_types, only: [any: 0, list: 1, oneof: 1]

    # What a handler does, and whether it lets the step pass.
    @acts [
      ok: true,
      cont: true,
      halt: false,
      halt_with: false,
      rubbish: false,
      raise: false,
      throw: false,
      exit: false
    ]

    # Each handler is named by its place, and where it changes the payload it notes that name.
    defp named(acts) do
      for {{act, _passes}, index} <- Enum.with_index(acts), do: {"#{index}", act}
    end

    defp handlers(acts) do
      for {name, act} <- named(acts), do: tell(name, &act(act, name, &1))
    end

    defp act(:ok, _name, _payload), do: :ok
    defp act(:cont, name, payload), do: {:cont, note(payload, name)}
    defp act(:halt, name, _payload), do: {:halt, name}
    defp act(:halt_with, name, payload), do: {:halt, name, note(payload, name)}
    defp act(:rubbish, _name, payload), do: {:ok, payload}
    defp act(:raise, _name, _payload), do: raise("boom")
    defp act(:throw, _name, _payload), do: throw(:ok)
    defp act(:exit, _name, _payload), do: exit(:normal)

    defp note(payload, name), do: update_in(payload.assigns[:notes], &((&1 || []) ++ [name]))

    defp who({:halt, %Error{handler: name}, _payload}), do: name
    defp who({:halt, name, _payload}), do: name
    defp who({:ok, _payload}), do: nil

    defp notes(outcome) do
      payload = elem(outcome, tuple_size(outcome) - 1)
      Map.get(payload.assigns, :notes, [])
    end

    test "those up to the first that does not let the step pass run, in order" do
      check_all(list(oneof(@acts)), fn acts ->
        {pass, rest} = Enum.split_while(acts, fn {_act, passes} -> passes end)
        run = named(pass ++ Enum.take(rest, 1))
        outcome = run(handlers(acts))

        assert ran() == for({name, _act} <- run, do: name)
        assert who(outcome) == if(rest == [], do: nil, else: "#{length(pass)}")
        assert notes(outcome) == for({name, act} <- run, act in [:cont, :halt_with], do: name)
      end)
    end

    test "in session_end all run, in order, and the first halt's reason is kept" do
      check_all(list(oneof(@acts)), fn acts ->
        first = Enum.find_index(acts, fn {_act, passes} -> not passes end)
        outcome = run_end(handlers(acts))

        assert ran() == for({name, _act} <- named(acts), do: name)
        assert who(outcome) == if(first, do: "#{first}")

        assert notes(outcome) ==
                 for({name, act} <- named(acts), act in [:cont, :halt_with], do: name)
      end)
    end

    test "an answer of any other shape is never an allow" do
      check_all(
        oneof([{:returned, any()}, {:cont, any()}, {:ok, any()}, list(any())]),
        fn answer ->
          assert {:halt, %Error{kind: :invalid_return, reason: ^answer}, @call} =
                   run([fn _ -> answer end])
        end
      )
    end
  end
end
