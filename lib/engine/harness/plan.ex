defmodule Engine.Harness.Plan do
  # What of each layer is kept, as integers: made in one native call for tokenizers that live in
  # Rust, and by Engine.Harness.Plan.Bisection for those written in Elixir, which a native call
  # can't call back. Nothing above this module knows which of the two ran.
  @moduledoc false

  import Engine.Harness.Schedule, only: [is_small: 2, is_small_to_count: 1]

  alias Engine.Harness.{Native, Plan, Tokenizer}

  @typedoc "Units that are not empty, or a text."
  @type content :: String.t() | [String.t()]
  @type layer :: {strategy :: atom, budget :: non_neg_integer | :infinity, content}

  @typedoc """
  Units are counted from the head; `cut_at` is a byte offset; the last element holds each unit's
  own tokens.
  """
  @type layer_plan ::
          {status :: atom, tokens_before :: non_neg_integer, tokens :: non_neg_integer,
           dropped :: non_neg_integer, cut_at :: non_neg_integer | nil, [non_neg_integer]}

  @type result ::
          {:ok, [layer_plan], prompt_tokens :: non_neg_integer}
          | {:error,
             {:not_utf8, layer_index :: non_neg_integer, unit_index :: non_neg_integer,
              byte_offset :: non_neg_integer}}
          | {:error, {:vocabulary, message :: String.t()}}

  @unlimited 0xFFFFFFFFFFFFFFFF

  @spec make([layer], Tokenizer.t()) :: result
  def make(layers, tokenizer) do
    case Tokenizer.native(tokenizer) do
      nil -> Plan.Bisection.make(layers, tokenizer)
      native -> make_native(layers, native)
    end
  end

  @doc "Stands between two units of a layer, and between two layers that are not empty."
  @spec separator :: String.t()
  def separator, do: Native.plan_separator()

  @doc "Follows the prefix of a text that was cut."
  @spec marker :: String.t()
  def marker, do: Native.plan_marker()

  defp make_native(layers, tokenizer) do
    terms =
      for {strategy, budget, content} <- layers, do: {strategy, native_budget(budget), content}

    if small?(tokenizer, layers) do
      Native.plan_make(tokenizer, terms)
    else
      Native.plan_make_dirty(tokenizer, terms)
    end
  end

  defp native_budget(:infinity), do: @unlimited
  defp native_budget(budget), do: min(budget, @unlimited)

  defp small?(tokenizer, layers), do: small?(tokenizer, layers, 0, 0)

  defp small?(_tokenizer, _layers, bytes, units) when not is_small(bytes, units), do: false

  defp small?(tokenizer, _layers, bytes, _units)
       when tokenizer != :approximate and not is_small_to_count(bytes),
       do: false

  defp small?(_tokenizer, [], _bytes, _units), do: true

  defp small?(tokenizer, [{_, _, text} | layers], bytes, units) when is_binary(text) do
    small?(tokenizer, layers, bytes + byte_size(text), units)
  end

  defp small?(tokenizer, [{_, _, []} | layers], bytes, units) do
    small?(tokenizer, layers, bytes, units)
  end

  defp small?(tokenizer, [{strategy, budget, [unit | rest]} | layers], bytes, units) do
    layers = [{strategy, budget, rest} | layers]
    small?(tokenizer, layers, bytes + byte_size(unit), units + 1)
  end
end
