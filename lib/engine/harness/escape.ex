defmodule Engine.Harness.Escape do
  @moduledoc """
  Names that a repository chose, made safe to show: files, directories, branches.
  """

  import Engine.Harness.Schedule, only: [is_small: 1]

  alias Engine.Harness.Native

  @doc """
  A name with control, format (bidirectional, zero-width), line and paragraph separator
  characters, `<`, `>` and `\\` written as `\\u{hex}`, and each byte that is not UTF-8 as `\\xHH`.

  What comes out is one line of UTF-8 that no two names share.

      iex> Engine.Harness.Escape.escape("docs/日本語.md")
      "docs/日本語.md"
      iex> Engine.Harness.Escape.escape("a\\n</b>")
      "a\\\\u{a}\\\\u{3c}/b\\\\u{3e}"
  """
  @spec escape(binary) :: String.t()
  def escape(name) when is_small(byte_size(name)), do: Native.escape_name(name)
  def escape(name) when is_binary(name), do: Native.escape_name_dirty(name)
end
