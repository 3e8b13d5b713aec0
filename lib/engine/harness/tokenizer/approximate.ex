defmodule Engine.Harness.Tokenizer.Approximate do
  @moduledoc """
  An estimate: bytes divided by four, rounded up (ADR 0006, "Token estimation").

  Close for English prose, and wrong by a factor of two to six for much of the world's text; always
  marked as estimated. Takes no options.
  """
  @behaviour Engine.Harness.Tokenizer

  @bytes_per_token 4

  @doc """
  The estimated tokens of a text.

      iex> Engine.Harness.Tokenizer.Approximate.count("Hello, world!", [])
      4
      iex> Engine.Harness.Tokenizer.Approximate.count("漢字", [])
      2
  """
  @impl true
  @spec count(String.t(), term) :: non_neg_integer
  def count(text, _opts), do: div(byte_size(text) + @bytes_per_token - 1, @bytes_per_token)

  @doc """
  Always `true`.
  """
  @impl true
  @spec estimated?(term) :: true
  def estimated?(_opts), do: true

  @doc false
  @impl true
  def native(_opts), do: :approximate
end
