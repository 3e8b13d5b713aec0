defmodule Engine.Harness.Assembly do
  @moduledoc """
  An assembled prompt, with the report of all that was kept, dropped and cut.

  Made by `Engine.Harness.PromptAssembler`. The account of it is total: `items/1` has every text
  and unit that was given exactly once, and with `separators/1` the parts add up to the whole, in
  bytes and in tokens:

    * items of a layer + the layer's separators = the layer,
    * layers + the assembly's separators = the prompt.
  """

  import Engine.Harness.Schedule, only: [is_small: 1]

  alias Engine.Harness.{Native, Plan, Tokenizer}
  alias Engine.Harness.Assembly.{Item, Layer}

  @typedoc """
    * `prompt` - the text to send
    * `tokens` - its tokens, separators between layers included
    * `budget` - the sum of the layers' budgets in tokens, `:infinity` if one of them is
    * `total_budget` - what the whole may cost in tokens, or `:infinity`
    * `give_way` - the layers that give way to the total budget, in that order
    * `strict` - the layers of which nothing may be lost
    * `estimated` - whether `tokens` is an estimate
    * `tokenizer` - what counted, as it was configured
    * `sha256` - of the prompt, in lower-case hex
    * `layers` - in the order they are sent
  """
  @type t :: %__MODULE__{
          prompt: String.t(),
          tokens: non_neg_integer,
          budget: non_neg_integer | :infinity,
          total_budget: non_neg_integer | :infinity,
          give_way: [atom],
          strict: [atom],
          estimated: boolean,
          tokenizer: Tokenizer.spec(),
          sha256: String.t(),
          layers: [Layer.t()]
        }

  @enforce_keys [
    :prompt,
    :tokens,
    :budget,
    :total_budget,
    :give_way,
    :strict,
    :estimated,
    :tokenizer,
    :sha256,
    :layers
  ]
  defstruct @enforce_keys

  @doc """
  How many bytes of the prompt one token stands for, in hundredths, rounded down; `nil` without
  tokens. The fewer, the dearer is the text.

      iex> {:ok, assembly} = Engine.Harness.PromptAssembler.assemble(identity: "You are careful.")
      iex> Engine.Harness.Assembly.bytes_per_token(assembly)
      400
  """
  @spec bytes_per_token(t) :: non_neg_integer | nil
  def bytes_per_token(%__MODULE__{tokens: 0}), do: nil

  def bytes_per_token(%__MODULE__{prompt: prompt, tokens: tokens}),
    do: div(byte_size(prompt) * 100, tokens)

  @typedoc """
  What stands between the parts of a whole: how many, their bytes, and the tokens that the whole
  costs beyond its parts. These can be negative: bytes/4 rounds each part up, and an exact
  tokenizer may merge across a border.
  """
  @type separators :: %{count: non_neg_integer, bytes: non_neg_integer, tokens: integer}

  @doc """
  Everything that was given for a layer, in that order, each with what became of it.

      iex> rules = [business_rules: ["", {"old", "aaaa"}, "bb"]]
      iex> assembly = Engine.Harness.PromptAssembler.assemble!(rules, budgets: [business_rules: 1])
      iex> layer = Enum.find(assembly.layers, &(&1.name == :business_rules))
      iex> for item <- Engine.Harness.Assembly.items(layer), do: {item.id, item.rank, item.status, item.reason}
      [{0, 3, :empty, :empty}, {"old", 2, :dropped, :over_budget}, {2, 1, :kept, :fits}]
  """
  @spec items(Layer.t()) :: [Item.t()]
  def items(%{given: text} = layer) when is_binary(text) do
    status =
      case layer.status do
        :trimmed -> :cut
        status -> status
      end

    [
      %Item{
        id: nil,
        index: 0,
        rank: 1,
        status: status,
        reason: reason(layer, status),
        offset: layer.offset,
        bytes_before: byte_size(text),
        bytes: byte_size(layer.text),
        tokens_before: layer.tokens_before,
        tokens: layer.tokens,
        sha256: sha256(text)
      }
    ]
  end

  def items(%{given: units} = layer) do
    counted = Enum.map(layer.dropped, &{&1, :dropped}) ++ Enum.map(layer.kept, &{&1, :kept})
    items(units, 0, length(units), counted, layer.offset, layer)
  end

  defp items([], _index, _rank, [], _offset, _layer), do: []

  defp items([unit | units], index, rank, counted, offset, layer) do
    {id, text} = if is_binary(unit), do: {index, unit}, else: unit

    {tokens, status, counted} =
      case {text, counted} do
        {"", counted} -> {0, :empty, counted}
        {_text, [{%{tokens: tokens}, status} | counted]} -> {tokens, status, counted}
      end

    kept? = status == :kept
    size = byte_size(text)

    item = %Item{
      id: id,
      index: index,
      rank: rank,
      status: status,
      reason: reason(layer, status),
      offset: if(kept?, do: offset),
      bytes_before: size,
      bytes: if(kept?, do: size, else: 0),
      tokens_before: tokens,
      tokens: if(kept?, do: tokens, else: 0),
      sha256: sha256(text)
    }

    next = if kept?, do: offset + size + byte_size(Plan.separator()), else: offset
    [item | items(units, index + 1, rank - 1, counted, next, layer)]
  end

  defp reason(_layer, :kept), do: :fits
  defp reason(_layer, :empty), do: :empty
  defp reason(%{limit: limit, budget: budget}, _lost) when limit < budget, do: :over_total_budget
  defp reason(_layer, _lost), do: :over_budget

  @doc """
  What stands between the layers of an assembly, or between the units of a layer.

      iex> assembly = Engine.Harness.PromptAssembler.assemble!(identity: "aaaa", task_state: ["b", "c"])
      iex> Engine.Harness.Assembly.separators(assembly)
      %{count: 1, bytes: 2, tokens: 1}
      iex> assembly.layers |> List.last() |> Engine.Harness.Assembly.separators()
      %{count: 1, bytes: 2, tokens: -1}
  """
  @spec separators(t | Layer.t()) :: separators
  def separators(%__MODULE__{layers: layers, tokens: tokens}) do
    separators(for(%{offset: offset} = layer <- layers, offset != nil, do: layer), tokens)
  end

  def separators(%{kept: kept, tokens: tokens, given: given}) when is_list(given) do
    separators(kept, tokens)
  end

  def separators(%{given: _text}), do: separators([], 0)

  defp separators(parts, tokens) do
    count = max(length(parts) - 1, 0)
    own = parts |> Enum.map(& &1.tokens) |> Enum.sum()
    %{count: count, bytes: count * byte_size(Plan.separator()), tokens: tokens - own}
  end

  # For each layer, as {offset, size} in the prompt, the hash of itself and of the prompt up to its
  # end.
  @doc false
  @spec hashes(String.t(), [{non_neg_integer, non_neg_integer}]) :: [{String.t(), String.t()}]
  def hashes(prompt, layers) when is_small(byte_size(prompt)) do
    Native.assembly_hashes(prompt, layers)
  end

  def hashes(prompt, layers), do: Native.assembly_hashes_dirty(prompt, layers)

  @doc """
  The SHA-256 of a text in lower-case hex, as all hashes of a report are written.

      iex> Engine.Harness.Assembly.sha256("") |> String.slice(0, 8)
      "e3b0c442"
  """
  @spec sha256(binary) :: String.t()
  def sha256(text), do: :sha256 |> :crypto.hash(text) |> Base.encode16(case: :lower)

  defmodule Layer do
    @moduledoc """
    What became of one layer of a prompt.
    """

    @typedoc "A unit's id (the one given, or its index in the given list) and its own tokens."
    @type unit :: %{id: term, tokens: non_neg_integer}

    @typedoc """
    `:empty`, there was nothing to send; `:kept`, all of it is sent; `:trimmed`, a part of it;
    `:dropped`, nothing of it.
    """
    @type status :: :empty | :kept | :trimmed | :dropped

    @typedoc """
      * `name` - one of `Engine.Harness.PromptAssembler.layers/0`
      * `strategy` - `:keep_or_drop`, `:drop_whole_units` or `:truncate_tail`
      * `budget` - tokens that the layer may cost, or `:infinity`
      * `limit` - tokens that it was trimmed to: its budget, or less where it gave way to the total budget
      * `step` - how many tokens go at a time, or `nil`
      * `at` - where a text is best cut: `:grapheme`, `:line`, `:markdown`; `nil` for other strategies
      * `tokens_before` - of all that was given, joined as it would have been sent
      * `tokens` - of what is sent, separators and marker included
      * `estimated` - whether the two are estimates
      * `status` - see `t:status/0`
      * `given` - the text or units as they were given
      * `text` - what is sent: a part of the prompt's binary, not a copy
      * `kept`, `dropped` - the units, in the order given, without empty ones; `[]` for layers of text
      * `cut_at` - the byte offset in the given text at which it was cut, or `nil`
      * `closing` - what stands between the prefix up to there and the marker: the end of a code fence that
        was left open, mostly `""`
      * `offset` - the byte offset of `text` in the prompt, `nil` when nothing is sent
      * `sha256` - of `text`
      * `prefix_sha256` - of the prompt up to the end of this layer
    """
    @type t :: %__MODULE__{
            name: atom,
            strategy: :keep_or_drop | :drop_whole_units | :truncate_tail,
            budget: non_neg_integer | :infinity,
            limit: non_neg_integer | :infinity,
            step: pos_integer | nil,
            at: :grapheme | :line | :markdown | nil,
            tokens_before: non_neg_integer,
            tokens: non_neg_integer,
            estimated: boolean,
            status: status,
            given: String.t() | [String.t() | {id :: term, String.t()}],
            text: String.t(),
            kept: [unit],
            dropped: [unit],
            cut_at: non_neg_integer | nil,
            closing: String.t(),
            offset: non_neg_integer | nil,
            sha256: String.t(),
            prefix_sha256: String.t()
          }

    @enforce_keys [
      :name,
      :strategy,
      :budget,
      :limit,
      :step,
      :at,
      :tokens_before,
      :tokens,
      :estimated,
      :status,
      :given,
      :text,
      :kept,
      :dropped,
      :cut_at,
      :closing,
      :offset,
      :sha256,
      :prefix_sha256
    ]
    defstruct @enforce_keys
  end
end
