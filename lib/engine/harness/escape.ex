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

  @doc """
  The name as `escape/1` writes it, in at most 200 characters: a longer one is cut, never inside
  of an escape, and ends with `…`.

      iex> Engine.Harness.Escape.short("a\\nb")
      "a\\\\u{a}b"
      iex> "a" |> String.duplicate(1_000) |> Engine.Harness.Escape.short() |> String.length()
      200
  """
  @spec short(binary) :: String.t()
  def short(name) when is_binary(name), do: Native.escape_short(name)

  @doc """
  The name that `escape/1` wrote so. What it would not have written stays as it is.

      iex> "a\\n\\xFF</b>" |> Engine.Harness.Escape.escape() |> Engine.Harness.Escape.unescape()
      "a\\n\\xFF</b>"
  """
  @spec unescape(String.t()) :: binary
  def unescape(shown) do
    Regex.replace(~r/\\u\{([0-9a-f]{1,6})\}|\\x([0-9a-f]{2})/, shown, fn
      escape, code, "" -> character(String.to_integer(code, 16), escape)
      _escape, "", byte -> <<String.to_integer(byte, 16)>>
    end)
  end

  defp character(code, _) when code in 0..0xD7FF or code in 0xE000..0x10FFFF, do: <<code::utf8>>
  defp character(_no_character, escape), do: escape
end
