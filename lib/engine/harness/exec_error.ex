defmodule Engine.Harness.ExecError do
  @moduledoc """
  A program that could not be run, or of which nothing is known: `message` says why.
  """
  defexception [:message]

  @type t :: %__MODULE__{message: String.t()}
end
