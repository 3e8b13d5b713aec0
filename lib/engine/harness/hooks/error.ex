defmodule Engine.Harness.Hooks.Error do
  @moduledoc """
  A handler failed, as opposed to one that said no.

  It is the `reason` of `{:halt, reason, payload}` when a handler raised, threw, exited or
  returned what is none of the four answers.

  | field | type | meaning |
  |---|---|---|
  | `:phase` | `t:Engine.Harness.Hooks.Payload.phase/0` | where it failed |
  | `:handler` | name or function | which handler: its name, or the function when it has none |
  | `:kind` | `:invalid_return`, `:raise`, `:throw`, `:exit` | how it failed |
  | `:reason` | term | what it returned, threw or exited with; the exception that it raised |
  | `:problem` | text, `nil` | what is wrong with the payload that it returned |
  | `:stacktrace` | `t:Exception.stacktrace/0` | where; `[]` for `:invalid_return` |

  It is an exception, so that a caller who takes it for fatal can raise it as it is.

      iex> alias Engine.Harness.Hooks
      iex> hooks = Hooks.register(Hooks.new(), :session_start, {"login", fn _ -> throw(:late) end})
      iex> {:halt, error, _payload} = Hooks.run(hooks, :session_start, %{session_id: "s1"})
      iex> {error.kind, error.reason}
      {:throw, :late}
      iex> Exception.message(error)
      ~s(handler "login" of :session_start threw :late)
  """

  alias Engine.Harness.Hooks.Payload

  @typedoc "A handler's failure."
  @type t :: %__MODULE__{
          phase: Payload.phase(),
          handler: String.t() | atom | (map -> term),
          kind: :invalid_return | :raise | :throw | :exit,
          reason: term,
          problem: String.t() | nil,
          stacktrace: Exception.stacktrace()
        }

  defexception [:phase, :handler, :kind, :reason, :problem, stacktrace: []]

  @impl true
  def message(%__MODULE__{phase: phase, handler: handler} = error) do
    "handler #{inspect(handler)} of #{inspect(phase)} #{what(error)}"
  end

  defp what(%{kind: :raise, reason: %module{} = exception}) do
    "raised #{inspect(module)}: #{Exception.message(exception)}"
  end

  defp what(%{kind: :throw, reason: value}), do: "threw #{inspect(value)}"
  defp what(%{kind: :exit, reason: reason}), do: "exited: #{Exception.format_exit(reason)}"

  # These two have the shape of an answer, so it is their payload that is wrong.
  defp what(%{kind: :invalid_return, reason: {:cont, _payload}, problem: problem}) do
    "returned {:cont, payload}: #{problem}"
  end

  defp what(%{kind: :invalid_return, reason: {:halt, _reason, _payload}, problem: problem}) do
    "returned {:halt, reason, payload}: #{problem}"
  end

  defp what(%{kind: :invalid_return, reason: value}) do
    "returned #{inspect(value)}; " <>
      "expected :ok, {:cont, payload}, {:halt, reason} or {:halt, reason, payload}"
  end
end
