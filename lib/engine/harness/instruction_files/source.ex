defmodule Engine.Harness.InstructionFiles.Source do
  @moduledoc """
  Instructions from one place.
  """

  @typedoc """
    * `origin` - `:file` or `:database`
    * `path` - of a file relative to the workspace, its components parted by `/`, raw bytes; of a row
      the agent's slug
    * `text` - UTF-8, without a leading byte order mark
    * `sha256` - of the text, in lower-case hex
  """
  @type t :: %__MODULE__{
          origin: :file | :database,
          path: binary,
          text: String.t(),
          sha256: String.t()
        }

  @enforce_keys [:origin, :path, :text, :sha256]
  defstruct @enforce_keys

  @doc false
  @spec new(:file | :database, binary, String.t()) :: t
  def new(origin, path, text) do
    sha256 = :sha256 |> :crypto.hash(text) |> Base.encode16(case: :lower)
    %__MODULE__{origin: origin, path: path, text: text, sha256: sha256}
  end
end
