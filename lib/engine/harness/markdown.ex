defmodule Engine.Harness.Markdown do
  # Where Markdown is best cut, and what closes a code fence that a cut leaves open: the core's
  # answers.
  @moduledoc false

  import Engine.Harness.Schedule, only: [is_small: 1]

  alias Engine.Harness.Native

  @typedoc "Byte offsets of the line and of the run of backticks or tildes, and the run's length."
  @type fence :: {line :: non_neg_integer, run :: non_neg_integer, length :: non_neg_integer}
  @type cut :: {at :: non_neg_integer, open :: fence | nil}

  @doc """
  The places from `near` to `far` at which a text may be cut, the best first: before the last
  heading, between the last two paragraphs, after the last line, at `far` itself, a boundary.
  """
  @spec cuts(String.t(), non_neg_integer, non_neg_integer) :: [cut, ...]
  def cuts(text, near, far) when is_small(far), do: Native.markdown_cuts(text, near, far)
  def cuts(text, near, far), do: Native.markdown_cuts_dirty(text, near, far)

  @doc "What closes the code fence that is open at a cut and ends its line; empty where none is."
  @spec closing(String.t(), cut) :: String.t()
  def closing(_text, {_at, nil}), do: ""

  def closing(text, {_at, {line, run, length}} = cut) when is_small(run - line + length) do
    Native.markdown_closing(text, cut)
  end

  def closing(text, cut), do: Native.markdown_closing_dirty(text, cut)
end
