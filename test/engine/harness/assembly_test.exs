defmodule Engine.Harness.AssemblyTest do
  use ExUnit.Case, async: true

  import :proper_types, only: [integer: 2, list: 1, oneof: 1]
  import Engine.Property

  alias Engine.Harness.{Assembly, PromptAssembler, Tokenizer, TotalBudgetError}
  alias Engine.Tokenizers.{Jumpy, Words}

  doctest Assembly

  defp layer(assembly, name), do: Enum.find(assembly.layers, &(&1.name == name))
  defp sha256(text), do: Base.encode16(:crypto.hash(:sha256, text), case: :lower)

  test "units: one status each, with rank, tokens, bytes and place" do
    rules = ["", "aaaa", {"two", "bbbbbbbb"}, {:three, ""}, "cc"]
    # Whole 18 bytes, 5 tokens; without the first unit 12 bytes, 3 tokens.
    assembly =
      PromptAssembler.assemble!([identity: "id", business_rules: rules],
        budgets: [business_rules: 3]
      )

    rows =
      for item <- assembly |> layer(:business_rules) |> Assembly.items() do
        {item.id, item.index, item.rank, item.status, item.reason, item.offset,
         {item.bytes_before, item.bytes}, {item.tokens_before, item.tokens}}
      end

    # The layer begins behind "id\n\n", at byte 4.
    assert rows == [
             {0, 0, 5, :empty, :empty, nil, {0, 0}, {0, 0}},
             {1, 1, 4, :dropped, :over_budget, nil, {4, 0}, {1, 0}},
             {"two", 2, 3, :kept, :fits, 4, {8, 8}, {2, 2}},
             {:three, 3, 2, :empty, :empty, nil, {0, 0}, {0, 0}},
             {4, 4, 1, :kept, :fits, 14, {2, 2}, {1, 1}}
           ]

    # 2 + 1 tokens alone, and joined 12 bytes: 3.
    assert assembly |> layer(:business_rules) |> Assembly.separators() ==
             %{count: 1, bytes: 2, tokens: 0}

    # 1 + 3 tokens alone, and joined 16 bytes: 4.
    assert Assembly.separators(assembly) == %{count: 1, bytes: 2, tokens: 0}
  end

  test "texts: kept, cut, dropped and empty" do
    # 8 tokens are 32 bytes: 15 of the text and the marker, which has 17.
    text = String.duplicate("x", 40)

    for {contents, budget, expected} <- [
          {"x", 4_000, {:kept, :fits, 0, 1, {1, 1}}},
          {text, 8, {:cut, :over_budget, 0, 32, {10, 8}}},
          {text, 2, {:dropped, :over_budget, nil, 0, {10, 0}}},
          {"", 4_000, {:empty, :empty, nil, 0, {0, 0}}},
          {nil, 4_000, {:empty, :empty, nil, 0, {0, 0}}}
        ] do
      assembly =
        PromptAssembler.assemble!([project_context: contents], budgets: [project_context: budget])

      assert [item] = assembly |> layer(:project_context) |> Assembly.items()
      assert {item.id, item.index, item.rank} == {nil, 0, 1}

      assert {item.status, item.reason, item.offset, item.bytes,
              {item.tokens_before, item.tokens}} ==
               expected

      assert item.sha256 == sha256(contents || "")
    end
  end

  test "each layer has a hash of itself and of the prompt up to its end" do
    contents = [identity: "id", project_context: "context", task_state: ["a", "b"]]
    assembly = PromptAssembler.assemble!(contents)

    assert Enum.map(assembly.layers, &{&1.sha256, &1.prefix_sha256}) == [
             {sha256("id"), sha256("id")},
             {sha256(""), sha256("id")},
             {sha256("context"), sha256("id\n\ncontext")},
             {sha256(""), sha256("id\n\ncontext")},
             {sha256("a\n\nb"), sha256("id\n\ncontext\n\na\n\nb")}
           ]

    # printf 'id\n\ncontext' | sha256sum
    assert Enum.at(assembly.layers, 2).prefix_sha256 ==
             "968d4619bc6ee6cccd92ac02e120eb142ed41353201e80891475bdaaa3ecd53e"

    assert PromptAssembler.assemble!(%{}).layers |> Enum.map(& &1.prefix_sha256) |> Enum.uniq() ==
             [sha256("")]
  end

  defp text do
    part = oneof(["word ", "\r\n", "é", "\u0301", "漢", "👩‍👩‍👧", "[… truncated …]", "\n\n", ""])
    :proper_types.bind(list(part), &Enum.join/1, false)
  end

  defp budget, do: oneof([integer(0, 60), :infinity])

  defp input do
    units = oneof([list(text()), :proper_types.bind(list({integer(0, 3), text()}), & &1, false)])

    {{text(), units, text(), units, units}, {budget(), budget(), budget(), budget(), budget()},
     oneof([
       Tokenizer.Approximate,
       {Tokenizer.Bpe, encoding: :o200k_base},
       Words,
       {Words, minimum: 2},
       Jumpy
     ]),
     {oneof([nil, integer(1, 9)]), oneof([:grapheme, :line, :markdown]),
      oneof([:infinity, :infinity, integer(0, 90)])}}
  end

  test "everything given is accounted for once, and the sums reconcile" do
    check_all(input(), [tests: 500], fn {contents, budgets, tokenizer, {step, at, total}} ->
      named = &Enum.zip(PromptAssembler.layers(), Tuple.to_list(&1))
      opts = [budgets: named.(budgets), tokenizer: tokenizer, at: [project_context: at]]
      opts = if step, do: [step: [business_rules: step, task_state: step]] ++ opts, else: opts

      case PromptAssembler.assemble(named.(contents), [total_budget: total] ++ opts) do
        {:ok, assembly} -> reconcile(assembly)
        {:error, %TotalBudgetError{}} -> assert total != :infinity
      end
    end)
  end

  defp reconcile(assembly) do
    prompt = assembly.prompt

    for layer <- assembly.layers do
      items = Assembly.items(layer)
      separators = Assembly.separators(layer)

      # Each thing that was given, in that order, with its own hash.
      assert Enum.map(items, & &1.sha256) ==
               for(given <- List.wrap(layer.given), do: sha256(text_of(given)))

      assert Enum.map(items, & &1.index) == Enum.to_list(0..(length(items) - 1)//1)
      assert Enum.map(items, & &1.rank) == Enum.to_list(length(items)..1//-1)

      assert sum(items, :tokens) + separators.tokens == layer.tokens
      assert sum(items, :bytes) + separators.bytes == byte_size(layer.text)

      for item <- items do
        case item.status do
          :kept ->
            assert item.bytes == item.bytes_before
            assert item.tokens == item.tokens_before
            assert sha256(binary_part(prompt, item.offset, item.bytes)) == item.sha256

          :cut ->
            assert item.reason in [:over_budget, :over_total_budget]
            assert binary_part(prompt, item.offset, item.bytes) == layer.text

          status when status in [:dropped, :empty] ->
            assert {item.offset, item.bytes, item.tokens} == {nil, 0, 0}
        end

        assert item.status == :empty == (item.bytes_before == 0)
      end

      upto = if layer.offset, do: layer.offset + byte_size(layer.text)
      if upto, do: assert(layer.prefix_sha256 == sha256(binary_part(prompt, 0, upto)))
      assert layer.sha256 == sha256(layer.text)
    end

    separators = Assembly.separators(assembly)
    assert sum(assembly.layers, :tokens) + separators.tokens == assembly.tokens

    assert assembly.layers
           |> Enum.map(&byte_size(&1.text))
           |> Enum.sum()
           |> Kernel.+(separators.bytes) == byte_size(prompt)

    assert assembly.sha256 == sha256(prompt)
    assert List.last(assembly.layers).prefix_sha256 == assembly.sha256
  end

  defp text_of({_id, text}), do: text
  defp text_of(text), do: text

  defp sum(parts, field), do: parts |> Enum.map(&Map.fetch!(&1, field)) |> Enum.sum()
end
