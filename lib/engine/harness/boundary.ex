defmodule Engine.Harness.Boundary do
  @moduledoc """
  Where a text may be cut: the core's answer, the same on every Elixir release.

  `String.next_grapheme/1` follows the Unicode version that an Elixir release was built with, by
  which "क्ष" is one cluster or two.
  """

  import Engine.Harness.Schedule, only: [is_small: 1]

  alias Engine.Harness.Native

  @doc """
  The boundary at or before a byte offset: the last extended grapheme cluster boundary (Unicode
  Standard Annex #29) that is at most `offset` if it lies within 1,024 bytes of it, otherwise the
  last code point boundary. An offset past the end is the end.

      iex> Engine.Harness.Boundary.at_or_before("a\\r\\nb", 2)
      1
      iex> Engine.Harness.Boundary.at_or_before("क्ष", 8)
      0
  """
  @spec at_or_before(String.t(), non_neg_integer) :: non_neg_integer
  def at_or_before(text, offset)
      when is_binary(text) and is_integer(offset) and offset >= 0 do
    offset = min(offset, byte_size(text))

    if is_small(byte_size(text)) do
      Native.boundary_at_or_before(text, offset)
    else
      Native.boundary_at_or_before_dirty(text, offset)
    end
  end

  @doc """
  The end of the last line that ends at or before a boundary, its line break (`\\n`, `\\r\\n` or `\\r`)
  included; 0 where none does.

      iex> Engine.Harness.Boundary.line_at_or_before("one\\r\\ntwo\\nthree", 8)
      5
      iex> Engine.Harness.Boundary.line_at_or_before("one", 3)
      0
  """
  @spec line_at_or_before(String.t(), non_neg_integer) :: non_neg_integer
  def line_at_or_before(text, boundary)
      when is_binary(text) and is_integer(boundary) and boundary >= 0 do
    boundary = min(boundary, byte_size(text))

    if is_small(byte_size(text)) do
      Native.boundary_line_at_or_before(text, boundary)
    else
      Native.boundary_line_at_or_before_dirty(text, boundary)
    end
  end

  @doc """
  The byte offset at which a binary stops being UTF-8, or `nil` where all of it is.

      iex> Engine.Harness.Boundary.invalid_at("caf\\xE9")
      3
      iex> Engine.Harness.Boundary.invalid_at("café")
      nil
  """
  @spec invalid_at(binary) :: non_neg_integer | nil
  def invalid_at(text) when is_small(byte_size(text)) do
    Native.boundary_invalid_at(text)
  end

  def invalid_at(text) when is_binary(text), do: Native.boundary_invalid_at_dirty(text)
end
