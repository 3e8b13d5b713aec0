defmodule Engine.Harness.Plan do
  # What of each layer is kept, as integers: made in one native call for tokenizers that live in
  # Rust, and by Engine.Harness.Plan.Bisection for those written in Elixir, which a native call
  # can't call back. Nothing above this module knows which of the two ran.
  @moduledoc false

  import Engine.Harness.Schedule, only: [is_small: 2, is_small_to_count: 1]

  alias Engine.Harness.{Markdown, Native, Plan, Tokenizer}

  @typedoc "Units that are not empty, or a text."
  @type content :: String.t() | [String.t()]
  @typedoc """
  The option is the step of `:drop_whole_units` or `nil`, where to cut of `:truncate_tail`, `nil` of
  `:keep_or_drop`.
  """
  @type layer ::
          {strategy :: atom, option :: pos_integer | atom, budget, content}
  @type budget :: non_neg_integer | :infinity

  @typedoc "What the whole may cost, and the indexes of the layers that give way to it, in order."
  @type total :: {budget, give_way :: [non_neg_integer]}

  @typedoc """
  `limit` is what the layer was trimmed to; units are counted from the head; the last element holds
  each unit's own tokens.
  """
  @type layer_plan ::
          {status :: atom, tokens_before :: non_neg_integer, tokens :: non_neg_integer,
           limit :: budget, dropped :: non_neg_integer, Markdown.cut() | nil, [non_neg_integer]}

  @type result ::
          {:ok, [layer_plan], prompt_tokens :: non_neg_integer}
          | {:error,
             {:not_utf8, layer_index :: non_neg_integer, unit_index :: non_neg_integer,
              byte_offset :: non_neg_integer}}
          | {:error,
             {:over_total, prompt_tokens :: non_neg_integer, layer_tokens :: [non_neg_integer]}}
          | {:error, {:vocabulary, message :: String.t()}}

  @unlimited 0xFFFFFFFFFFFFFFFF

  @spec make([layer], total, Tokenizer.t()) :: result
  def make(layers, total, tokenizer) do
    case Tokenizer.native(tokenizer) do
      nil -> Plan.Bisection.make(layers, total, tokenizer)
      native -> make_native(layers, total, native)
    end
  end

  @doc "Stands between two units of a layer, and between two layers that are not empty."
  @spec separator :: String.t()
  def separator, do: Native.plan_separator()

  @doc "Follows the prefix of a text that was cut."
  @spec marker :: String.t()
  def marker, do: Native.plan_marker()

  defp make_native(layers, {budget, give_way}, tokenizer) do
    terms = for layer <- layers, do: native_layer(layer)
    total = {native_budget(budget), give_way}

    planned =
      if small?(tokenizer, layers, budget),
        do: Native.plan_make(tokenizer, terms, total),
        else: Native.plan_make_dirty(tokenizer, terms, total)

    with {:ok, plans, tokens} <- planned do
      {:ok, layers |> Enum.zip(plans) |> Enum.map(&limit/1), tokens}
    end
  end

  defp native_layer({:drop_whole_units, step, budget, units}) when is_integer(step) do
    {:drop_whole_units, native_budget(step), native_budget(budget), units}
  end

  defp native_layer({strategy, option, budget, content}) do
    {strategy, option, native_budget(budget), content}
  end

  # The core knows no :infinity, and no budget beyond its integers.
  defp limit({{_, _, budget, _}, plan}) do
    if elem(plan, 3) == native_budget(budget), do: put_elem(plan, 3, budget), else: plan
  end

  defp native_budget(:infinity), do: @unlimited
  defp native_budget(budget), do: min(budget, @unlimited)

  # Layers that give way are counted again and again.
  defp small?(:approximate, layers, _total), do: small?(:approximate, layers, 0, 0)
  defp small?(tokenizer, layers, :infinity), do: small?(tokenizer, layers, 0, 0)
  defp small?(_tokenizer, _layers, _total), do: false

  defp small?(_tokenizer, _layers, bytes, units) when not is_small(bytes, units), do: false

  defp small?(tokenizer, _layers, bytes, _units)
       when tokenizer != :approximate and not is_small_to_count(bytes),
       do: false

  defp small?(_tokenizer, [], _bytes, _units), do: true

  defp small?(tokenizer, [{_, _, _, text} | layers], bytes, units) when is_binary(text) do
    small?(tokenizer, layers, bytes + byte_size(text), units)
  end

  defp small?(tokenizer, [{_, _, _, []} | layers], bytes, units) do
    small?(tokenizer, layers, bytes, units)
  end

  defp small?(tokenizer, [{strategy, option, budget, [unit | rest]} | layers], bytes, units) do
    layers = [{strategy, option, budget, rest} | layers]
    small?(tokenizer, layers, bytes + byte_size(unit), units + 1)
  end
end
