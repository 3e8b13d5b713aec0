defmodule Engine.Harness.Demo do
  @moduledoc """
  Scripted sessions that show what the harness does, without a model and without running anything.

  Clock and ids are scripted too, so what is shown is the same each time.
  """

  alias Engine.Harness.{Hooks, Middleware, Trace}
  alias Engine.Harness.Middleware.LoopDetection
  alias Engine.Harness.Middleware.LoopDetection.Verdict

  # How long the scripted model and tool take, in milliseconds.
  @model_ms 900
  @tool_ms 250

  # The model never does anything else; only its words change.
  @call %{tool: "sh", arguments: ~S({"command": "make test"})}
  @texts [
    "I'll run the tests.",
    "Let me run them once more.",
    "Maybe it passes now.",
    "One more time.",
    "I'll try again.",
    "Running the tests.",
    "Again.",
    "And again."
  ]

  @doc """
  An agent that runs the same failing test over and over: it is nudged, blocked, and halted.

  Returns what happened, as text, and the session's trace as OTLP JSON.

  ## Examples

      iex> {story, trace} = Engine.Harness.Demo.loops()
      iex> story =~ "the tool ran 5 times for 8 calls"
      true
      iex> trace =~ ~s("name":"execute_tool sh")
      true

  """
  @spec loops() :: {story :: String.t(), trace :: String.t()}
  def loops do
    hooks = Hooks.new() |> Middleware.attach(Trace) |> Middleware.attach(LoopDetection)
    session = %{session_id: "demo", agent: "developer", now_ms: 0}

    {:ok, {story, tools}, {:ok, ended}} =
      Hooks.session(hooks, session, fn payload ->
        {story, tools, payload} = turns(hooks, carried(payload), @texts, [], 0)
        {{story, tools}, Map.merge(session, payload)}
      end)

    count = "the tool ran #{tools} times for #{length(@texts)} calls\n"
    trace = Trace.otlp(ended.events, ids: counting(), provider: "scripted")
    {IO.iodata_to_binary([introduction(), story, "\n", count]), trace}
  end

  defp introduction do
    """
    A scripted agent is asked to make a failing test pass, and does nothing but run it.
    The harness watches with Engine.Harness.Middleware.LoopDetection: nudge at 3, block at 5, halt at 8.
    """
  end

  # The model is called, then the tool, until a handler halts before the model's next call.
  defp turns(hooks, carried, texts, story, tools) do
    model = Map.merge(carried, %{model: "scripted-1", prompt: "Make the failing test pass."})

    case Hooks.run(hooks, :pre_model_call, model) do
      {:halt, %Verdict{} = verdict, payload} ->
        {[story, "\nhalt       #{Exception.message(verdict)}\n"], tools, carried(payload)}

      {:ok, payload} ->
        [text | texts] = texts
        told = told(payload.prompt)
        payload = Map.merge(payload, %{completion: text, usage: usage(payload.prompt, text)})
        payload = Map.update!(payload, :now_ms, &(&1 + @model_ms))
        {:ok, payload} = Hooks.run(hooks, :post_model_call, payload)
        number = length(@texts) - length(texts)
        {did, ran, carried} = tool(hooks, carried(payload), number)
        line = "\nmessage #{number}  #{text}\n           sh: make test → #{did}\n"
        turns(hooks, carried, texts, [story, told, line], tools + ran)
    end
  end

  defp tool(hooks, carried, number) do
    call =
      carried |> Map.merge(@call) |> Map.merge(%{call_id: "call-#{number}", batch_id: number})

    case Hooks.run(hooks, :pre_tool_use, call) do
      {:halt, %Verdict{rung: :block}, payload} ->
        {"refused, not run", 0, carried(payload)}

      {:ok, payload} ->
        # Line and time differ from run to run; the failure is the same.
        result = "cart_test.c:#{40 + number}: expected 3, got 2 (0.#{20 + number} s)"
        payload = Map.merge(payload, %{result: result, is_error: true})
        payload = Map.update!(payload, :now_ms, &(&1 + @tool_ms))
        {:ok, payload} = Hooks.run(hooks, :post_tool_use, payload)
        {result, 1, carried(payload)}
    end
  end

  defp carried(payload), do: Map.take(payload, [:assigns, :events, :now_ms])

  defp told(prompt) do
    case String.split(prompt, "\n\n", parts: 2) do
      [_prompt] -> ""
      [_prompt, sentence] -> "\ntold       #{sentence}\n"
    end
  end

  defp usage(prompt, text) do
    %{input_tokens: div(byte_size(prompt), 4), output_tokens: div(byte_size(text), 4)}
  end

  # A real session takes `&:crypto.strong_rand_bytes/1`.
  defp counting do
    counter = :counters.new(1, [])

    fn bytes ->
      :counters.add(counter, 1, 1)
      <<:counters.get(counter, 1)::size(bytes)-unit(8)>>
    end
  end
end
