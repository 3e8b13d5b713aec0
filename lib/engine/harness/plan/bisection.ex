defmodule Engine.Harness.Plan.Bisection do
  # The plan for tokenizers that are written in Elixir. Nothing is assumed of their counts: what
  # is kept was counted as it will be sent.
  @moduledoc false

  alias Engine.Harness.{Boundary, Plan, Tokenizer}

  @spec make([Plan.layer()], Tokenizer.t()) :: Plan.result()
  def make(layers, tokenizer) do
    with :ok <- validate(layers) do
      {plans, texts} = layers |> Enum.map(&plan(&1, tokenizer)) |> Enum.unzip()
      prompt = texts |> Enum.reject(&(&1 == "")) |> join()
      {:ok, plans, Tokenizer.count(tokenizer, prompt)}
    end
  end

  defp validate(layers) do
    invalid =
      for {{_, _, content}, layer} <- Stream.with_index(layers),
          {text, unit} <- content |> List.wrap() |> Stream.with_index(),
          offset = Boundary.invalid_at(text),
          do: {:not_utf8, layer, unit, offset}

    case invalid do
      [] -> :ok
      [first | _] -> {:error, first}
    end
  end

  defp plan({strategy, budget, content}, tokenizer) do
    units = content |> List.wrap() |> Enum.reject(&(&1 == ""))
    unit_tokens = for unit <- units, is_list(content), do: Tokenizer.count(tokenizer, unit)
    whole = join(units)
    before = Tokenizer.count(tokenizer, whole)

    {status, tokens, dropped, cut_at, text} =
      cond do
        units == [] -> {:empty, 0, 0, nil, ""}
        # Integers sort before atoms, so nothing is over :infinity.
        before <= budget and budget > 0 -> {:kept, before, 0, nil, whole}
        true -> fit(strategy, units, budget, tokenizer)
      end

    {{status, before, tokens, dropped, cut_at, unit_tokens}, text}
  end

  defp fit(:keep_or_drop, _units, _budget, _tokenizer), do: {:dropped, 0, 0, nil, ""}

  defp fit(:drop_whole_units, units, 0, _tokenizer), do: {:dropped, 0, length(units), nil, ""}

  defp fit(:drop_whole_units, units, budget, tokenizer) do
    all = length(units)
    probe = fn dropped -> units |> Enum.drop(dropped) |> join() end

    # With no unit dropped it does not fit; with all dropped it does.
    case bisect(probe, {all, "", 0}, 0, budget, tokenizer) do
      {^all, _, _} -> {:dropped, 0, all, nil, ""}
      {dropped, text, tokens} -> {:trimmed, tokens, dropped, nil, text}
    end
  end

  defp fit(:truncate_tail, _text, 0, _tokenizer), do: {:dropped, 0, 0, nil, ""}

  defp fit(:truncate_tail, [text], budget, tokenizer) do
    probe = fn
      0 -> ""
      cut -> binary_part(text, 0, cut) <> Plan.marker()
    end

    snap = &Boundary.at_or_before(text, &1)

    # With nothing of the text it fits (nothing is sent at all then); with all of it it does not.
    case bisect(probe, {0, "", 0}, byte_size(text), budget, tokenizer, snap) do
      {0, _, _} -> {:dropped, 0, 0, nil, ""}
      {cut, sent, tokens} -> {:trimmed, tokens, 0, cut, sent}
    end
  end

  # Narrows down to the point next to `over`, which does not fit, that was seen to fit: `fits` is
  # the point with its text and tokens, on whichever side of `over` it lies. `snap` moves a
  # midpoint back to where a cut may be.
  defp bisect(probe, fits, over, budget, tokenizer, snap \\ & &1) do
    search(probe, fits, elem(fits, 0), over, budget, tokenizer, snap)
  end

  defp search(_probe, fits, at, over, _budget, _tokenizer, _snap) when abs(at - over) <= 1 do
    fits
  end

  defp search(probe, {seen, _, _} = fits, at, over, budget, tokenizer, snap) do
    middle = div(at + over, 2)
    point = snap.(middle)

    if point == seen do
      search(probe, fits, middle, over, budget, tokenizer, snap)
    else
      text = probe.(point)
      tokens = Tokenizer.count(tokenizer, text)

      if tokens <= budget do
        search(probe, {point, text, tokens}, middle, over, budget, tokenizer, snap)
      else
        search(probe, fits, at, middle, budget, tokenizer, snap)
      end
    end
  end

  defp join(units), do: units |> Enum.intersperse(Plan.separator()) |> IO.iodata_to_binary()
end
