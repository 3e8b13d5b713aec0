defmodule Engine.Harness.Plan.Bisection do
  # The plan for tokenizers that are written in Elixir. Nothing is assumed of their counts: what
  # is kept was counted as it will be sent.
  @moduledoc false

  alias Engine.Harness.{Boundary, Markdown, Plan, Tokenizer}

  @spec make([Plan.layer()], Plan.total(), Tokenizer.t()) :: Plan.result()
  def make(layers, {total, give_way}, tokenizer) do
    with :ok <- validate(layers) do
      layers = Enum.map(layers, &new(&1, tokenizer))
      {layers, tokens} = give_way(give_way, layers, total, tokenizer)

      if tokens <= total do
        {:ok, Enum.map(layers, &plan/1), tokens}
      else
        {:error, {:over_total, tokens, Enum.map(layers, & &1.tokens)}}
      end
    end
  end

  defp validate(layers) do
    invalid =
      for {{_, _, _, content}, layer} <- Stream.with_index(layers),
          {text, unit} <- content |> List.wrap() |> Stream.with_index(),
          offset = Boundary.invalid_at(text),
          do: {:not_utf8, layer, unit, offset}

    case invalid do
      [] -> :ok
      [first | _] -> {:error, first}
    end
  end

  defp new({strategy, option, budget, content}, tokenizer) do
    units = content |> List.wrap() |> Enum.reject(&(&1 == ""))
    whole = join(units)

    layer = %{
      strategy: strategy,
      option: option,
      units: units,
      unit_tokens: for(unit <- units, is_list(content), do: Tokenizer.count(tokenizer, unit)),
      whole: whole,
      before: Tokenizer.count(tokenizer, whole),
      limit: budget,
      status: :empty,
      tokens: 0,
      dropped: 0,
      cut: nil,
      text: ""
    }

    if units == [], do: layer, else: trim(layer, budget, tokenizer)
  end

  defp plan(layer) do
    {layer.status, layer.before, layer.tokens, layer.limit, layer.dropped, layer.cut,
     layer.unit_tokens}
  end

  ## One layer, trimmed to so many tokens

  defp trim(layer, limit, tokenizer) do
    # Integers sort before atoms, so nothing is over :infinity.
    {status, tokens, dropped, cut, text} =
      if layer.before <= limit and limit > 0,
        do: {:kept, layer.before, 0, nil, layer.whole},
        else: fit(layer.strategy, layer, limit, tokenizer)

    %{
      layer
      | limit: limit,
        status: status,
        tokens: tokens,
        dropped: dropped,
        cut: cut,
        text: text
    }
  end

  defp fit(:drop_whole_units, %{units: units}, 0, _tokenizer) do
    {:dropped, 0, length(units), nil, ""}
  end

  defp fit(:drop_whole_units, %{units: units} = layer, limit, tokenizer) do
    all = length(units)
    {rest, gone} = in_steps(layer.before, limit, layer.option)

    probe = fn dropped ->
      {head, kept} = Enum.split(units, dropped)
      if worth(head, gone, tokenizer) >= gone, do: fits(join(kept), rest, tokenizer)
    end

    # With no unit dropped it does not fit; with all dropped it does.
    case bisect(probe, {all, {"", 0}}, 0) do
      {^all, _} -> {:dropped, 0, all, nil, ""}
      {dropped, {text, tokens}} -> {:trimmed, tokens, dropped, nil, text}
    end
  end

  defp fit(:truncate_tail, %{units: [text]} = layer, limit, tokenizer) when limit > 0 do
    case truncate(text, limit, layer.option, tokenizer) do
      nil -> {:dropped, 0, 0, nil, ""}
      {cut, {sent, tokens}} -> {:trimmed, tokens, 0, cut, sent}
    end
  end

  defp fit(_text, _layer, _limit, _tokenizer), do: {:dropped, 0, 0, nil, ""}

  # What the rest may cost, and how many tokens have to go: what is over, rounded up to whole steps.
  defp in_steps(_tokens, limit, nil), do: {limit, 0}

  defp in_steps(tokens, limit, step) do
    gone = min(div(tokens - limit + step - 1, step) * step, tokens)
    {tokens - gone, gone}
  end

  # What units cost in front of other text, each with the separator after it. The letter takes up
  # what a count that rounds would round up, so that it does not matter how much follows.
  defp worth(_units, 0, _tokenizer), do: 0

  defp worth(units, _gone, tokenizer) do
    head = IO.iodata_to_binary([Enum.map(units, &[&1, Plan.separator()]), "x"])
    Tokenizer.count(tokenizer, head) - Tokenizer.count(tokenizer, "x")
  end

  ## Where a text over its budget is cut

  defp truncate(text, budget, at, tokenizer) do
    with {far, sent} <- fit_prefix(text, budget, Plan.marker(), tokenizer) do
      case at do
        :grapheme ->
          {{far, nil}, sent}

        :line ->
          line = Boundary.line_at_or_before(text, far)
          first_cut([{line, nil}, {far, nil}], text, budget, tokenizer)

        :markdown ->
          markdown(text, budget, far, tokenizer)
      end
    end
  end

  defp markdown(text, budget, far, tokenizer) do
    tenth = div(budget + 9, 10)

    near =
      case fit_prefix(text, budget - tenth, Plan.marker(), tokenizer) do
        nil -> 0
        {near, _} -> near
      end

    cuts = Markdown.cuts(text, near, far)

    case {first_cut(cuts, text, budget, tokenizer), List.last(cuts)} do
      # A fence is open at the end, and nothing is left to close it with: sooner, by what that costs.
      {nil, {_, {line, run, _}} = open} ->
        suffix = "\n" <> Markdown.closing(text, open) <> Plan.marker()

        sooner =
          case fit_prefix(text, budget, suffix, tokenizer) do
            {far, _} when far > line -> Markdown.cuts(text, near, far)
            _ -> []
          end

        # Before the fence, or where it is none yet.
        first_cut(sooner ++ [{line, nil}, {run + 2, nil}], text, budget, tokenizer)

      {found, _} ->
        found
    end
  end

  defp first_cut(cuts, text, budget, tokenizer) do
    Enum.find_value(cuts, fn {at, _fence} = cut ->
      sent = [binary_part(text, 0, at), Markdown.closing(text, cut), Plan.marker()]
      fits = at > 0 && fits(IO.iodata_to_binary(sent), budget, tokenizer)
      fits && {cut, fits}
    end)
  end

  # The longest prefix at a boundary that fits with a suffix, as {cut, {text, tokens}}.
  defp fit_prefix(text, budget, suffix, tokenizer) do
    probe = fn
      0 -> nil
      cut -> fits(binary_part(text, 0, cut) <> suffix, budget, tokenizer)
    end

    # With nothing of the text it fits (nothing is sent at all then); with all of it it does not.
    case bisect(probe, {0, nil}, byte_size(text), &Boundary.at_or_before(text, &1)) do
      {0, nil} -> nil
      found -> found
    end
  end

  defp fits(text, budget, tokenizer) do
    tokens = Tokenizer.count_up_to(tokenizer, text, budget)
    if tokens <= budget, do: {text, tokens}
  end

  # Narrows down to the point next to `over`, which does not fit, that was seen to fit: `fits` is
  # the point with what the probe said of it, on whichever side of `over` it lies. `snap` moves a
  # midpoint back to where a cut may be.
  defp bisect(probe, fits, over, snap \\ & &1), do: search(probe, fits, elem(fits, 0), over, snap)

  defp search(_probe, fits, at, over, _snap) when abs(at - over) <= 1, do: fits

  defp search(probe, {seen, _} = fits, at, over, snap) do
    middle = div(at + over, 2)
    point = snap.(middle)

    cond do
      point == seen -> search(probe, fits, middle, over, snap)
      said = probe.(point) -> search(probe, {point, said}, middle, over, snap)
      true -> search(probe, fits, at, middle, snap)
    end
  end

  ## Layers that give way to a budget of the whole

  # As in the core (plan/total.rs): a layer is trimmed to what the others leave, and to less, in
  # steps that double, as long as the whole counts more than its parts.
  defp give_way(order, layers, total, tokenizer) do
    Enum.reduce_while(order, {layers, count(layers, tokenizer)}, fn index, {layers, tokens} ->
      layer = Enum.at(layers, index)

      cond do
        tokens <= total ->
          {:halt, {layers, tokens}}

        layer.text == "" ->
          {:cont, {layers, tokens}}

        true ->
          others = layers |> List.delete_at(index) |> count(tokenizer)
          limit = min(layer.limit, max(total - others, 0))
          {:cont, shrink(layers, index, limit, 1, total, tokenizer)}
      end
    end)
  end

  defp shrink(layers, index, limit, less, total, tokenizer) do
    layers = List.update_at(layers, index, &trim(&1, limit, tokenizer))
    tokens = count(layers, tokenizer)

    if tokens <= total or limit == 0 do
      {layers, tokens}
    else
      limit = max(limit - max(tokens - total, less), 0)
      shrink(layers, index, limit, 2 * less, total, tokenizer)
    end
  end

  defp count(layers, tokenizer), do: Tokenizer.count(tokenizer, layers |> texts() |> join())

  defp texts(layers), do: for(%{text: text} <- layers, text != "", do: text)

  defp join(units), do: units |> Enum.intersperse(Plan.separator()) |> IO.iodata_to_binary()
end
