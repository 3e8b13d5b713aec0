defmodule Engine.Harness.InstructionFiles.Error do
  @moduledoc """
  Instructions that could not be read.

  Fields: `workspace` (as it was given), `reason` (an atom, such as `:not_a_directory`) and
  `message` (a sentence that says what is wrong and what is allowed).
  """
  defexception [:workspace, :reason, :message]

  @type t :: %__MODULE__{workspace: binary, reason: atom, message: String.t()}
end
