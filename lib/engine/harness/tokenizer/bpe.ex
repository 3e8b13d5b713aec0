defmodule Engine.Harness.Tokenizer.Bpe do
  @moduledoc """
  Exact counts for OpenAI's models: byte-pair encodings, in Rust.

      config :engine, :tokenizer, {Engine.Harness.Tokenizer.Bpe, encoding: :o200k_base}

  | encoding | models |
  |---|---|
  | `:o200k_base` | GPT-4o, GPT-4.1, GPT-5 and the o-series |
  | `:cl100k_base` | GPT-3.5, GPT-4 and the text-embedding-3 models |

  The tables are inside the library: no network, no file to lose. The first use of an encoding makes
  its table, once in the life of the VM. A table that is damaged is an error
  (`Engine.Harness.Tokenizer.Bpe.VocabularyError`), never a silent fall back to an estimate.

  Counts don't add up: a text can cost more or less than its parts. What is assembled is counted as
  it is sent.

  ## Options

    * `:encoding` - `:o200k_base` or `:cl100k_base`; required.
  """
  @behaviour Engine.Harness.Tokenizer

  import Engine.Harness.Schedule, only: [is_small_to_count: 1]

  alias Engine.Harness.{InvalidTextError, Native, Options}

  @encodings [:o200k_base, :cl100k_base]

  @typedoc "A byte-pair encoding."
  @type encoding :: :o200k_base | :cl100k_base

  defmodule VocabularyError do
    @moduledoc """
    A table inside the library is not what it was built with.

    Field: `message`.
    """
    defexception [:message]
  end

  @doc """
  Checks the options, and makes the encoding's table if this is its first use.

      iex> Engine.Harness.Tokenizer.Bpe.init(encoding: :o200k_base)
      {:ok, :o200k_base}
  """
  @impl true
  @spec init(keyword) :: {:ok, encoding} | {:error, Exception.t()}
  def init(opts) do
    opts = Options.validate!(opts, [:encoding])
    encoding = Keyword.get(opts, :encoding)

    if encoding not in @encodings do
      raise ArgumentError,
            "expected :encoding to be one of #{Options.list(@encodings)}, " <>
              "got: #{Options.show(encoding)}"
    end

    case Native.tokens_prepare(encoding) do
      :ok -> {:ok, encoding}
      {:error, {:vocabulary, message}} -> {:error, %VocabularyError{message: message}}
    end
  end

  @doc """
  The tokens of a text. Text that spells a special token, such as `<|endoftext|>`, is ordinary text.

  Raises `Engine.Harness.InvalidTextError` for what is not UTF-8.

      iex> Engine.Harness.Tokenizer.Bpe.count("Hello, world!", :o200k_base)
      4
      iex> Engine.Harness.Tokenizer.Bpe.count("<|endoftext|>", :cl100k_base)
      7
  """
  @impl true
  @spec count(String.t(), encoding) :: non_neg_integer
  def count(text, encoding) when is_binary(text) and encoding in @encodings do
    counted =
      if is_small_to_count(byte_size(text)) do
        Native.tokens_count(encoding, text)
      else
        Native.tokens_count_dirty(encoding, text)
      end

    case counted do
      {:ok, tokens} -> tokens
      {:error, {:not_utf8, offset}} -> raise %InvalidTextError{offset: offset}
      {:error, {:vocabulary, message}} -> raise %VocabularyError{message: message}
    end
  end

  @doc """
  Always `false`.
  """
  @impl true
  @spec estimated?(encoding) :: false
  def estimated?(_encoding), do: false

  @doc false
  @impl true
  def native(encoding), do: encoding
end
