defmodule Engine.Harness.Tokenizer do
  @moduledoc """
  Counts the tokens of a text.

  The tokenizer in use is application configuration, a module or `{module, options}`:

      config :engine, :tokenizer, Engine.Harness.Tokenizer.Approximate

  and `opts[:tokenizer]` of `Engine.Harness.PromptAssembler.assemble/2` overrides it for one
  assembly. `Engine.Harness.Tokenizer.Approximate` is the default.

  ## Writing one

      defmodule MyApp.Words do
        @behaviour Engine.Harness.Tokenizer

        @impl true
        def count(text, _opts), do: text |> String.split() |> length()

        @impl true
        def estimated?(_opts), do: false
      end

  The same guarantees hold for it as for the tokenizers of this library: nothing that is sent is
  over budget by its own count. It is asked for the count of about log2(bytes) prefixes of a text
  that has to be cut, and of about log2(units) joined texts and each single unit of a layer of
  units; one that can stop early says so by `c:count_up_to/3`. Text that spells a special token,
  such as `<|endoftext|>`, is ordinary text: to be counted as such, never an error.

  ## Remembered counts

  What doesn't change from turn to turn is not counted again: the encodings of
  `Engine.Harness.Tokenizer.Bpe` keep the counts of texts of 64 bytes and more, found by a hash of
  128 bits with a secret of the VM, in a table that all processes share. It changes no result. Its
  size, in results of about 80 bytes, is read when the application starts; 0 turns it off:

      config :engine, :remembered_counts, 65_536
  """

  alias __MODULE__
  alias Engine.Harness.{Native, Options}

  @most_remembered 16_777_216

  @typedoc "A tokenizer as it is configured."
  @type spec :: module | {module, options}

  @typedoc "Options as they are configured, of whatever shape the tokenizer documents."
  @type options :: term

  @typedoc "What `c:init/1` made of the options; the options themselves where there is no `c:init/1`."
  @type prepared :: term

  @typedoc "A tokenizer that is ready to count, and as it was configured."
  @type t :: %Tokenizer{module: module, prepared: prepared, estimated: boolean, spec: spec}

  @enforce_keys [:module, :prepared, :estimated, :spec]
  defstruct @enforce_keys

  @doc """
  The tokens of a text, which is UTF-8 and not empty.
  """
  @callback count(text :: String.t(), prepared) :: non_neg_integer

  @doc """
  Whether counts are estimates (`true`) or exactly what a model charges for (`false`).
  """
  @callback estimated?(prepared) :: boolean

  @doc """
  Validates and prepares the options, once an assembly. An error becomes the assembly's error.
  """
  @callback init(options) :: {:ok, prepared} | {:error, Exception.t()}

  @doc """
  The tokens of a text if they are at most `limit`, else any number above it. Asked instead of
  `c:count/2` where more than that makes no difference.
  """
  @callback count_up_to(text :: String.t(), limit :: non_neg_integer, prepared) ::
              non_neg_integer

  # The core's tokenizer that counts the same, for those that live in Rust.
  @doc false
  @callback native(prepared) :: atom

  @optional_callbacks init: 1, count_up_to: 3, native: 1

  defmodule Error do
    @moduledoc """
    A tokenizer's callback returned what it must not.

    Fields: `tokenizer` (its module), `callback` (such as `"count/2"`), `returned` (the value) and
    `expected` (in words).
    """
    defexception [:tokenizer, :callback, :returned, :expected]

    @impl true
    def message(error) do
      "tokenizer #{inspect(error.tokenizer)}: expected #{error.callback} to return " <>
        "#{error.expected}, got: #{inspect(error.returned, limit: 5, printable_limit: 200)}"
    end
  end

  @doc """
  The tokenizer that the application is configured to use.

      iex> Engine.Harness.Tokenizer.configured()
      Engine.Harness.Tokenizer.Approximate
  """
  @spec configured :: spec
  def configured, do: Application.get_env(:engine, :tokenizer, Tokenizer.Approximate)

  @doc """
  Validates a tokenizer and makes it ready to count.

  Raises `ArgumentError` when the value is not a module, or `{module, options}`, with this
  behaviour's callbacks. What the tokenizer's own `c:init/1` objects to is an error.

      iex> {:ok, tokenizer} = Engine.Harness.Tokenizer.new(Engine.Harness.Tokenizer.Approximate)
      iex> tokenizer.estimated
      true
  """
  @spec new(spec) :: {:ok, t} | {:error, Exception.t()}
  def new(spec) do
    {module, options} = split(spec)

    with {:ok, prepared} <- init(module, options) do
      case module.estimated?(prepared) do
        estimated when is_boolean(estimated) ->
          {:ok, %Tokenizer{module: module, prepared: prepared, estimated: estimated, spec: spec}}

        other ->
          {:error, error(module, "estimated?/1", "a boolean", other)}
      end
    end
  end

  @doc """
  The tokens of a text; 0 for the empty text, whatever the tokenizer says.

  Raises `Engine.Harness.Tokenizer.Error` when the tokenizer returns anything else than a
  non-negative integer.

      iex> {:ok, tokenizer} = Engine.Harness.Tokenizer.new(Engine.Harness.Tokenizer.Approximate)
      iex> Engine.Harness.Tokenizer.count(tokenizer, "Hello, world!")
      4
  """
  @spec count(t, String.t()) :: non_neg_integer
  def count(%Tokenizer{}, ""), do: 0

  def count(%Tokenizer{module: module, prepared: prepared}, text) do
    case module.count(text, prepared) do
      tokens when is_integer(tokens) and tokens >= 0 -> tokens
      other -> raise error(module, "count/2", "a non-negative integer", other)
    end
  end

  @doc """
  The tokens of a text if they are at most `limit`, else some number above it: for a tokenizer that
  stops early this is cheaper than the whole count.

      iex> {:ok, tokenizer} = Engine.Harness.Tokenizer.new(Engine.Harness.Tokenizer.Approximate)
      iex> Engine.Harness.Tokenizer.count_up_to(tokenizer, "Hello, world!", 8)
      4
  """
  @spec count_up_to(t, String.t(), non_neg_integer) :: non_neg_integer
  def count_up_to(%Tokenizer{}, "", _limit), do: 0

  def count_up_to(%Tokenizer{module: module, prepared: prepared} = tokenizer, text, limit) do
    if function_exported?(module, :count_up_to, 3) do
      case module.count_up_to(text, limit, prepared) do
        tokens when is_integer(tokens) and tokens >= 0 -> tokens
        other -> raise error(module, "count_up_to/3", "a non-negative integer", other)
      end
    else
      count(tokenizer, text)
    end
  end

  @doc """
  What the table of remembered counts holds (see above), and how often it helped.

    * `capacity` - the most results it holds; 0 when it is off
    * `entries` - the results it holds
    * `hits`, `misses` - look-ups since the VM started that were answered, and that were not

  ## Example

      iex> Engine.Harness.Tokenizer.cache_info() |> Map.keys()
      [:capacity, :entries, :hits, :misses]
  """
  @spec cache_info :: %{
          capacity: non_neg_integer,
          entries: non_neg_integer,
          hits: non_neg_integer,
          misses: non_neg_integer
        }
  def cache_info do
    {capacity, entries, hits, misses} = Native.tokens_remembered()
    %{capacity: capacity, entries: entries, hits: hits, misses: misses}
  end

  # Without the setting nothing is asked of the native library, whose default then counts.
  @doc false
  @spec configure_cache :: :ok
  def configure_cache do
    case Application.fetch_env(:engine, :remembered_counts) do
      :error ->
        :ok

      {:ok, capacity} when is_integer(capacity) and capacity in 0..@most_remembered ->
        Native.tokens_remember(capacity)

      {:ok, other} ->
        raise ArgumentError,
              "expected :remembered_counts of application :engine to be an integer from 0 to " <>
                "#{@most_remembered}, got: #{Options.show(other)}"
    end
  end

  # The core's name for it, or nil for one that is written in Elixir.
  @doc false
  @spec native(t) :: atom
  def native(%Tokenizer{module: module, prepared: prepared}) do
    if function_exported?(module, :native, 1), do: module.native(prepared)
  end

  @doc """
  A tokenizer's name in reports: the encoding or the file where it has one, else its module.

      iex> Engine.Harness.Tokenizer.name({Engine.Harness.Tokenizer.Bpe, encoding: :o200k_base})
      "o200k_base"
      iex> Engine.Harness.Tokenizer.name(Engine.Harness.Tokenizer.Approximate)
      "bytes/4"
      iex> Engine.Harness.Tokenizer.name({Engine.Harness.Tokenizer.HuggingFace, path: "/srv/qwen3/tokenizer.json"})
      "qwen3/tokenizer.json"
      iex> Engine.Harness.Tokenizer.name({MyApp.Words, language: "de"})
      "MyApp.Words"
  """
  @spec name(spec) :: String.t()
  def name({Tokenizer.Bpe, options}), do: Atom.to_string(options[:encoding])
  def name({Tokenizer.HuggingFace, options}), do: Tokenizer.HuggingFace.name(options)
  def name({module, _options}), do: name(module)
  def name(Tokenizer.Approximate), do: "bytes/4"
  def name(module), do: inspect(module)

  defp split({module, options}) when is_atom(module), do: {checked(module), options}
  defp split(module) when is_atom(module), do: {checked(module), []}
  defp split(other), do: raise(ArgumentError, expected(other))

  defp checked(module) do
    if Code.ensure_loaded?(module) and function_exported?(module, :count, 2) and
         function_exported?(module, :estimated?, 1) do
      module
    else
      raise ArgumentError, expected(module)
    end
  end

  defp expected(value) do
    "expected :tokenizer to be a module that implements Engine.Harness.Tokenizer " <>
      "(count/2 and estimated?/1), or {module, options}, got: #{inspect(value)}"
  end

  defp init(module, options) do
    if function_exported?(module, :init, 1) do
      case module.init(options) do
        {:ok, prepared} ->
          {:ok, prepared}

        {:error, error} when is_exception(error) ->
          {:error, error}

        other ->
          {:error, error(module, "init/1", "{:ok, prepared} or {:error, exception}", other)}
      end
    else
      {:ok, options}
    end
  end

  defp error(module, callback, expected, returned) do
    %Error{tokenizer: module, callback: callback, expected: expected, returned: returned}
  end
end
