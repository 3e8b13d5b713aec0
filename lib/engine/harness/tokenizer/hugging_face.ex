defmodule Engine.Harness.Tokenizer.HuggingFace do
  @moduledoc """
  Exact counts for any model that has a `tokenizer.json`, by the `tokenizers` crate, in Rust.

      config :engine, :tokenizer,
             {Engine.Harness.Tokenizer.HuggingFace, path: "/srv/models/qwen3/tokenizer.json"}

  The crate is large, so it is in a native library of its own, which is there only when `:engine` was
  compiled with the environment variable `HARNESS_HF=1`:

      HARNESS_HF=1 mix compile

  What is counted is the text alone, and all of it: no special token is added, and text that spells
  one, such as `<|endoftext|>`, is ordinary text. What the file says of truncation, padding and
  dropout is left out. Tokens that the file adds without calling them special are found as the model
  finds them.

  The file is read once, and again when its identity, size or times have changed; the four used last
  are kept, whoever asks. Counts are not remembered as those of `Engine.Harness.Tokenizer.Bpe` are. A
  layer that has to be cut is counted about log2(bytes) times, so it costs more time than there.

  ## Options

    * `:path` - the file, of at most 128 MiB; required. A relative one starts from the current folder.
  """
  @behaviour Engine.Harness.Tokenizer

  alias Engine.Harness.{InvalidTextError, Options}
  alias __MODULE__.{Error, Native}

  @unlimited 0xFFFFFFFFFFFFFFFF

  @typedoc "A tokenizer that was loaded, and the path it was loaded from."
  @type prepared :: %{tokenizer: reference, path: Path.t()}

  defmodule Error do
    @moduledoc """
    There is no tokenizer, or it has no count.

    Fields: `path` (as it was given), `message`, and `reason`:

      * `:not_compiled` - `:engine` was compiled without `HARNESS_HF=1`
      * `:not_loaded` - the native library is there, but can't be loaded
      * `:missing`, `:unreadable`, `:not_regular` - no file, one that the system doesn't let this
        process read, a directory or a device
      * `:too_large` - a file of more than 128 MiB
      * `:damaged` - not a tokenizer
      * `:text_too_large` - a text of more than 16 MiB
      * `:failed` - the tokenizer has no count for a text, such as one that holds what the
        vocabulary has no token for
    """
    defexception [:path, :reason, :message]

    @type t :: %__MODULE__{path: Path.t(), reason: atom, message: String.t()}
  end

  @doc """
  Whether `:engine` was compiled with it.
  """
  @spec available? :: boolean
  def available?, do: Native.loaded() == :ok

  @doc """
  Checks the options, and loads the file if this is its first use.
  """
  @impl true
  @spec init(keyword) :: {:ok, prepared} | {:error, Error.t()}
  def init(opts) do
    opts = Options.validate!(opts, [:path])
    path = opts |> Keyword.get(:path) |> path!()

    with :ok <- Native.loaded(),
         {:ok, tokenizer} <- path |> Path.absname() |> Native.load() do
      {:ok, %{tokenizer: tokenizer, path: path}}
    else
      {:error, {reason, message}} -> {:error, error(path, reason, message)}
    end
  end

  @doc """
  The tokens of a text.

  Raises `Engine.Harness.InvalidTextError` for what is not UTF-8, and
  `Engine.Harness.Tokenizer.HuggingFace.Error` for what the tokenizer can't count.
  """
  @impl true
  @spec count(String.t(), prepared) :: non_neg_integer
  def count(text, prepared), do: count_up_to(text, @unlimited, prepared)

  @doc """
  The tokens of a text if they are at most `limit`, else a number above it.

  Raises as `count/2` does.
  """
  @impl true
  @spec count_up_to(String.t(), non_neg_integer, prepared) :: non_neg_integer
  def count_up_to(text, limit, %{tokenizer: tokenizer, path: path})
      when is_binary(text) and is_integer(limit) and limit >= 0 do
    case Native.count_up_to(tokenizer, text, min(limit, @unlimited)) do
      {:ok, tokens} -> tokens
      {:error, {:not_utf8, offset}} -> raise %InvalidTextError{offset: offset}
      {:error, {reason, message}} -> raise error(path, reason, message)
    end
  end

  @doc """
  Always `false`.
  """
  @impl true
  @spec estimated?(prepared) :: false
  def estimated?(_prepared), do: false

  # Told by the file and the folder it lies in: all files have the same name, and a report tells
  # nothing else of the machine it was made on.
  @doc false
  @spec name(keyword) :: String.t()
  def name(opts) do
    opts |> Keyword.get(:path) |> path!() |> Path.split() |> Enum.take(-2) |> Path.join()
  end

  defp path!(path) do
    if is_binary(path) and path != "" and not String.contains?(path, "\0") do
      path
    else
      raise ArgumentError,
            "expected :path to be the path of a tokenizer.json, got: #{Options.show(path)}"
    end
  end

  defp error(path, reason, message) do
    %Error{path: path, reason: reason, message: "tokenizer #{Options.show(path)}: #{message}"}
  end
end
