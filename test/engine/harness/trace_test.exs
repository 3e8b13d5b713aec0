defmodule Engine.Harness.TraceTest do
  use ExUnit.Case, async: true

  import Engine.Property
  import :proper_types, only: [any: 0, integer: 2, list: 1]

  alias Engine.Harness.{Hooks, Middleware, Trace}

  doctest Trace

  # Ids that count: the trace's ends in 1, the spans' in 1, 2, 3, …
  defp counting do
    counter = :counters.new(2, [])

    fn bytes ->
      index = if bytes == 16, do: 1, else: 2
      :counters.add(counter, index, 1)
      <<:counters.get(counter, index)::size(bytes)-unit(8)>>
    end
  end

  defp trace(events, opts \\ []) do
    json = Trace.otlp(events, [ids: counting()] ++ opts)
    %{"resourceSpans" => [resource]} = :jiffy.decode(json, [:return_maps])
    [%{"spans" => spans}] = resource["scopeSpans"]
    spans
  end

  defp attributes(%{"attributes" => attributes}) do
    for %{"key" => key, "value" => value} <- attributes, into: %{} do
      [{_type, value}] = Map.to_list(value)
      {key, value}
    end
  end

  # Runs the phases one after another, handing on assigns and events.
  defp events(hooks, steps) do
    Enum.reduce(steps, [], fn {phase, payload}, events ->
      outcome = Hooks.run(hooks, phase, Map.put(payload, :events, events))
      elem(outcome, tuple_size(outcome) - 1).events
    end)
  end

  defp hooks, do: Middleware.attach(Hooks.new(), Trace)

  @session [
    session_start: %{session_id: "s1", agent: "developer", now_ms: 1_000},
    pre_model_call: %{model: "m-1", prompt: "Hi", now_ms: 1_010},
    post_model_call: %{
      model: "m-1",
      prompt: "Hi",
      completion: "ls",
      usage: %{input_tokens: 12, output_tokens: 3, cached_input_tokens: 8},
      now_ms: 1_900
    },
    pre_tool_use: %{tool: "ls", arguments: "{}", call_id: "c1", now_ms: 1_901},
    pre_tool_use: %{tool: "ls", arguments: "{}", call_id: "c2", now_ms: 1_902},
    post_tool_use: %{tool: "ls", arguments: "{}", result: "a", call_id: "c1", now_ms: 1_950},
    post_tool_use: %{
      tool: "ls",
      arguments: "{}",
      result: "no",
      is_error: true,
      call_id: "c2",
      now_ms: 1_960
    },
    session_end: %{session_id: "s1", reason: :normal, now_ms: 2_000}
  ]

  test "a session's spans, with their times, parents and attributes" do
    assert [agent, chat, c1, c2] = trace(events(hooks(), @session), provider: "p")
    trace_id = String.duplicate("0", 31) <> "1"

    for {span, id, name, kind, start, stop} <- [
          {agent, 1, "invoke_agent developer", 1, 1_000, 2_000},
          {chat, 2, "chat m-1", 3, 1_010, 1_900},
          {c1, 3, "execute_tool ls", 1, 1_901, 1_950},
          {c2, 4, "execute_tool ls", 1, 1_902, 1_960}
        ] do
      assert span["traceId"] == trace_id
      assert span["spanId"] == String.duplicate("0", 15) <> "#{id}"
      assert span["name"] == name
      assert span["kind"] == kind
      assert span["startTimeUnixNano"] == "#{start}000000"
      assert span["endTimeUnixNano"] == "#{stop}000000"
    end

    refute is_map_key(agent, "parentSpanId")
    for span <- [chat, c1, c2], do: assert(span["parentSpanId"] == agent["spanId"])

    assert attributes(agent) == %{
             "gen_ai.operation.name" => "invoke_agent",
             "gen_ai.provider.name" => "p",
             "gen_ai.agent.name" => "developer",
             "gen_ai.conversation.id" => "s1"
           }

    assert attributes(chat) == %{
             "gen_ai.operation.name" => "chat",
             "gen_ai.provider.name" => "p",
             "gen_ai.request.model" => "m-1",
             "gen_ai.usage.input_tokens" => "12",
             "gen_ai.usage.output_tokens" => "3",
             "gen_ai.usage.cache_read.input_tokens" => "8"
           }

    assert attributes(c1) == %{
             "gen_ai.operation.name" => "execute_tool",
             "gen_ai.tool.name" => "ls",
             "gen_ai.tool.type" => "function",
             "gen_ai.tool.call.id" => "c1"
           }

    assert attributes(c2)["error.type"] == "tool"
    assert c2["status"] == %{"code" => 2, "message" => "the tool answered with an error"}
    for span <- [agent, chat, c1], do: refute(is_map_key(span, "status"))

    # Two phases, a handler each.
    assert Enum.map(c1["events"], & &1["name"]) == ["engine.harness.ok", "engine.harness.ok"]
    assert Enum.map(c1["events"], & &1["timeUnixNano"]) == ["1901000000", "1950000000"]
    assert attributes(hd(c1["events"]))["engine.harness.handler"] == "Engine.Harness.Trace"
  end

  test "a step that is stopped ends at once, and says why" do
    no = fn payload ->
      if payload.tool == "rm", do: {:halt, "not allowed"}, else: raise("broken")
    end

    hooks = Hooks.register(hooks(), :pre_tool_use, {"no", no})

    assert [_agent, rm, ls, again] =
             trace(
               events(hooks,
                 pre_tool_use: %{tool: "rm", arguments: "{}", now_ms: 1},
                 pre_tool_use: %{tool: "ls", arguments: "{}", now_ms: 2},
                 pre_tool_use: %{tool: "ls", arguments: "{}", now_ms: 2}
               )
             )

    assert rm["status"] == %{"code" => 2, "message" => "not allowed"}
    assert attributes(rm)["error.type"] == "halt"
    assert rm["startTimeUnixNano"] == rm["endTimeUnixNano"]
    assert attributes(ls)["error.type"] == "raise"
    # The same step once more is another span.
    assert again["name"] == ls["name"]
    assert length(again["events"]) == 2
  end

  test "a failure that is continued from is an event, not the step's" do
    hooks =
      Hooks.register(hooks(), :pre_tool_use, {"a", fn _ -> raise "x" end}, on_error: :continue)

    assert [_agent, ls] = trace(events(hooks, pre_tool_use: %{tool: "ls", arguments: "{}"}))
    assert List.last(ls["events"])["name"] == "engine.harness.raise"
    refute is_map_key(ls, "status")
  end

  test "what a handler noted is an event of its own" do
    note = fn payload -> {:cont, Middleware.note(payload, :nudge, "again")} end
    hooks = Hooks.register(hooks(), :pre_model_call, {"n", note})
    assert [_agent, chat] = trace(events(hooks, pre_model_call: %{model: "m", prompt: ""}))

    assert Enum.map(chat["events"], & &1["name"]) ==
             ["engine.harness.ok", "engine.harness.nudge", "engine.harness.cont"]

    assert attributes(Enum.at(chat["events"], 1))["engine.harness.reason"] == "again"
  end

  test "a session that failed" do
    ended = %{session_id: "s1", reason: {:raise, %RuntimeError{message: "lost"}}}
    assert [agent] = trace(events(hooks(), session_end: ended))
    assert agent["status"] == %{"code" => 2, "message" => "lost"}
    assert attributes(agent)["error.type"] == "session"
  end

  test "an incoming traceparent is continued" do
    header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert [agent, chat | _] = trace(events(hooks(), @session), traceparent: header)
    assert agent["traceId"] == "0af7651916cd43dd8448eb211c80319c"
    assert agent["parentSpanId"] == "b7ad6b7169203331"
    assert agent["flags"] == 1
    assert chat["traceId"] == agent["traceId"]
    assert chat["parentSpanId"] == agent["spanId"]
  end

  test "a malformed traceparent counts as absent" do
    id = "0af7651916cd43dd8448eb211c80319c"
    span = "b7ad6b7169203331"

    for header <- [
          "",
          "nonsense",
          "ff-#{id}-#{span}-01",
          "00-#{String.duplicate("0", 32)}-#{span}-01",
          "00-#{id}-#{String.duplicate("0", 16)}-01",
          "00-#{String.upcase(id)}-#{span}-01",
          "00-#{id}-#{span}-01-more",
          "00-#{id}-#{span}",
          "00-#{id}-#{span}-1"
        ] do
      assert [agent | _] = trace(events(hooks(), @session), traceparent: header)
      assert agent["traceId"] == String.duplicate("0", 31) <> "1"
      refute is_map_key(agent, "parentSpanId")
    end

    # A later version may have more fields.
    assert [agent | _] = trace(events(hooks(), @session), traceparent: "01-#{id}-#{span}-00-more")
    assert {agent["traceId"], agent["flags"]} == {id, 0}
  end

  test "times: none, another clock's, and one that steps back" do
    call = %{tool: "ls", arguments: "{}"}
    done = Map.put(call, :result, "")
    times = fn span -> {span["startTimeUnixNano"], span["endTimeUnixNano"]} end

    assert [_, ls] = trace(events(hooks(), pre_tool_use: call, post_tool_use: done))
    assert times.(ls) == {"0", "0"}

    steps = [pre_tool_use: Map.put(call, :now_ms, -5), post_tool_use: Map.put(done, :now_ms, -7)]
    assert [_, ls] = trace(events(hooks(), steps), unix_ms: 1_000)
    assert times.(ls) == {"995000000", "995000000"}
  end

  test "one span a line, and the same for the same events" do
    events = events(hooks(), @session)
    json = Trace.otlp(events, ids: counting())
    assert length(String.split(json, "\n")) == 4 + 2
    assert Trace.otlp(events, ids: counting()) == json
  end

  test "whatever a caller puts into its payloads" do
    check_all(list({integer(0, 5), any(), any()}), fn steps ->
      events =
        for {n, a, b} <- steps, reduce: [] do
          events ->
            phase = Enum.at(Hooks.phases(), n)

            payload = for key <- Hooks.Payload.required(phase), into: %{}, do: {key, a}

            payload = Map.merge(payload, %{call_id: b, now_ms: b, usage: a, events: events})
            {:ok, payload} = Hooks.run(hooks(), phase, payload)
            payload.events
        end

      assert is_list(trace(events))
    end)
  end

  test "arguments" do
    ids = counting()

    for {opts, message} <- [
          {[], "expected :ids to be a function of one argument, got: nil"},
          {[ids: fn _ -> "x" end], ~s(expected :ids to give 16 bytes, got: "x")},
          {[ids: ids, provider: :p], "expected :provider to be a string, got: :p"},
          {[ids: ids, unix_ms: 1.5],
           "expected :unix_ms to be a number of milliseconds, got: 1.5"},
          {[ids: ids, id: 1],
           "option :id is unknown, expected any of: " <>
             ":ids, :traceparent, :unix_ms, :service, :provider"}
        ] do
      assert_raise ArgumentError, message, fn -> Trace.otlp([], opts) end
    end

    assert_raise ArgumentError, ~r/^not a list of events: /, fn ->
      Trace.otlp([:earlier], ids: ids)
    end

    assert_raise ArgumentError, "option :level is unknown, expected any of: ", fn ->
      Middleware.attach(Hooks.new(), {Trace, level: 1})
    end
  end
end
