defmodule Engine.Harness.Hooks.Event do
  @moduledoc """
  What one handler decided in one step, as a plain map.

  Each run of `Engine.Harness.Hooks.run/3` puts the events of its handlers in front of the
  payload's `:events`, so the newest comes first and a run costs the same however many there
  are. Hand them on from run to run as with `:assigns`, or take them out after each run and
  keep them elsewhere; handlers themselves don't see them.

  | key | value |
  |---|---|
  | `:phase` | `t:Engine.Harness.Hooks.Payload.phase/0` |
  | `:handler` | the handler's name, as text |
  | `:kind` | `:guard` or `:transform` |
  | `:decision` | `:ok`, `:cont`, `:halt`; `:raise`, `:throw`, `:exit`, `:invalid_return` where it failed; what a handler noted itself (`Engine.Harness.Middleware.note/3`) |
  | `:reason` | why, as text of at most 1,024 bytes; `nil` for `:ok` and `:cont` |
  | `:on_error` | what a failure of this handler does: `:halt` or `:continue` |
  | `:step` | what the payload says about the step |

  A step has the keys of the payload that tell which step it is and what it cost: `:session_id`,
  `:agent`, `:model`, `:tool`, `:call_id`, `:batch_id`, `:is_error`, `:usage`, `:now_ms`, and
  `:ended`, the reason of `:session_end` as text. Prompts, completions, arguments and results are
  not in it.

      iex> alias Engine.Harness.Hooks
      iex> hooks = Hooks.register(Hooks.new(), :pre_tool_use, {"no", fn _ -> {:halt, :closed} end})
      iex> call = %{tool: "ls", arguments: %{"dir" => "docs"}, now_ms: 12}
      iex> {:halt, :closed, payload} = Hooks.run(hooks, :pre_tool_use, call)
      iex> payload.events
      [
        %{
          phase: :pre_tool_use,
          handler: "no",
          kind: :guard,
          decision: :halt,
          reason: ":closed",
          on_error: :halt,
          step: %{tool: "ls", now_ms: 12}
        }
      ]
  """

  alias Engine.Harness.{Boundary, Options}
  alias Engine.Harness.Hooks.Payload

  @typedoc "A decision."
  @type t :: %{
          phase: Payload.phase(),
          handler: String.t(),
          kind: :guard | :transform,
          decision: atom,
          reason: String.t() | nil,
          on_error: :halt | :continue,
          step: %{optional(atom) => term}
        }

  @step [
    :session_id,
    :agent,
    :model,
    :tool,
    :call_id,
    :batch_id,
    :is_error,
    :usage,
    :now_ms
  ]

  @text_bytes 1_024

  @doc false
  # `handler` as `Hooks` keeps it; `decision` is left to be put in.
  @spec new(map, Payload.phase(), map) :: map
  def new(handler, phase, payload) do
    %{
      phase: phase,
      handler: name(handler.name),
      kind: handler.kind,
      decision: nil,
      reason: nil,
      on_error: handler.on_error,
      step: step(phase, payload)
    }
  end

  @doc """
  A reason as text: an exception by its message, text as it is, the rest as it is inspected.

      iex> Engine.Harness.Hooks.Event.text(%ArgumentError{message: "no such file"})
      "no such file"
      iex> Engine.Harness.Hooks.Event.text({:too_many, 3})
      "{:too_many, 3}"
  """
  @spec text(term) :: String.t()
  def text(reason) when is_exception(reason), do: text(Exception.message(reason))

  def text(reason) when is_binary(reason) do
    part = binary_part(reason, 0, Boundary.at_or_before(reason, @text_bytes))
    if String.valid?(part), do: part, else: Options.show(part)
  end

  def text(reason), do: Options.show(reason)

  defp name(name) when is_binary(name), do: text(name)

  # How a function without a name of its own prints differs from build to build.
  defp name(function) when is_function(function) do
    case Function.info(function, :type) do
      {:type, :external} -> inspect(function)
      {:type, :local} -> "a function in #{inspect(elem(Function.info(function, :module), 1))}"
    end
  end

  defp name(name), do: inspect(name)

  defp step(phase, payload) do
    step = for {key, value} <- Map.take(payload, @step), into: %{}, do: {key, plain(value)}
    if phase == :session_end, do: Map.put(step, :ended, ended(payload.reason)), else: step
  end

  defp ended(:normal), do: "normal"
  defp ended({_kind, reason}), do: text(reason)
  defp ended(reason), do: text(reason)

  defp plain(value) when is_number(value) or is_atom(value), do: value
  defp plain(value) when is_binary(value), do: text(value)

  defp plain(%{} = map) when not is_struct(map) do
    for {key, value} when is_atom(key) and is_number(value) <- map, into: %{}, do: {key, value}
  end

  defp plain(value), do: text(value)
end
