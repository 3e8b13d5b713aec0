defmodule Engine.Harness.Assembly do
  @moduledoc """
  An assembled prompt, with the report of all that was kept, dropped and cut.

  Made by `Engine.Harness.PromptAssembler`.
  """

  alias Engine.Harness.Assembly.Layer

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
          tokenizer: Engine.Harness.Tokenizer.spec(),
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
      * `text` - what is sent: a part of the prompt's binary, not a copy
      * `kept`, `dropped` - the units, in the order given, without empty ones; `[]` for layers of text
      * `cut_at` - the byte offset in the given text at which it was cut, or `nil`
      * `closing` - what stands between the prefix up to there and the marker: the end of a code fence that
        was left open, mostly `""`
      * `offset` - the byte offset of `text` in the prompt, `nil` when nothing is sent
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
            text: String.t(),
            kept: [unit],
            dropped: [unit],
            cut_at: non_neg_integer | nil,
            closing: String.t(),
            offset: non_neg_integer | nil
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
      :text,
      :kept,
      :dropped,
      :cut_at,
      :closing,
      :offset
    ]
    defstruct @enforce_keys
  end
end
