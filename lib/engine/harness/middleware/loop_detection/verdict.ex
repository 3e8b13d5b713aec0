defmodule Engine.Harness.Middleware.LoopDetection.Verdict do
  @moduledoc """
  A loop that `Engine.Harness.Middleware.LoopDetection` found.

  | field | type | meaning |
  |---|---|---|
  | `:rung` | `:nudge`, `:block`, `:halt` | how far up the ladder it is |
  | `:kind` | see below | what repeats |
  | `:period` | integer | messages in one turn of the loop; characters of the passage for `:repeated_text` |
  | `:repetitions` | integer | how often it was seen in a row |
  | `:tool` | text, `nil` | the tools' names, escaped and joined by `", "`; `nil` where no tool is part of it |
  | `:first`, `:last` | integer | the messages in which it began and was found, counted from 1 |

  | kind | what repeats |
  |---|---|
  | `:repetition` | the same calls with the same outcomes, message after message |
  | `:cycle` | the same 2 to 8 messages in turn |
  | `:near_duplicate` | the same calls but for small steps of numbers |
  | `:repeated_text` | the same passage inside one text |
  | `:idle` | messages with neither a call nor a new text |

  It is an exception, whose message is the sentence for the model.

      iex> alias Engine.Harness.Middleware.LoopDetection.Verdict
      iex> verdict = %Verdict{
      ...>   rung: :block, kind: :cycle, period: 2, repetitions: 5, tool: "ls, cat", first: 3, last: 12
      ...> }
      iex> Exception.message(verdict)
      "The same 2 messages with calls of ls, cat came back 5 times in a row with the same results. These calls are not run any more until you do something else."
  """

  @typedoc "A loop."
  @type t :: %__MODULE__{
          rung: :nudge | :block | :halt,
          kind: :repetition | :cycle | :near_duplicate | :repeated_text | :idle,
          period: pos_integer,
          repetitions: pos_integer,
          tool: String.t() | nil,
          first: pos_integer,
          last: pos_integer
        }

  defexception [:rung, :kind, :period, :repetitions, :tool, :first, :last]

  @impl true
  def message(%__MODULE__{} = verdict), do: what(verdict) <> " " <> advice(verdict)

  defp what(%{kind: :repetition} = verdict) do
    "The same call of #{verdict.tool} gave the same result #{verdict.repetitions} times in a row."
  end

  defp what(%{kind: :cycle} = verdict) do
    "The same #{verdict.period} messages with calls of #{verdict.tool} came back " <>
      "#{verdict.repetitions} times in a row with the same results."
  end

  defp what(%{kind: :near_duplicate} = verdict) do
    "#{verdict.repetitions} calls of #{verdict.tool} in a row differ by small steps of a number alone."
  end

  defp what(%{kind: :repeated_text} = verdict) do
    "A passage of #{verdict.period} characters stands #{verdict.repetitions} times in a row in your text."
  end

  defp what(%{kind: :idle} = verdict) do
    "Your last #{verdict.repetitions} messages had neither a tool call nor a new text."
  end

  defp advice(%{rung: :halt}), do: "The session is ended."

  defp advice(%{rung: :block, kind: :repetition}),
    do: "It is not run any more until you do something else."

  defp advice(%{rung: :block}),
    do: "These calls are not run any more until you do something else."

  defp advice(%{kind: :near_duplicate}),
    do: "Take larger steps, or ask for all of it at once."

  defp advice(%{kind: :repeated_text}), do: "Say it once."
  defp advice(%{kind: :idle}), do: "Call a tool, or say that you are done."
  defp advice(_verdict), do: "Try something else, or say what is missing."
end
