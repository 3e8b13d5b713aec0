defmodule Engine.Harness.PromptAssemblerOptionsTest do
  # Steps, places to cut, the total budget, strict layers. By bytes/4, where nothing else is said.
  use ExUnit.Case, async: true

  import :proper_types, only: [integer: 2, list: 1, oneof: 1, vector: 2]
  import Engine.Property

  alias Engine.Harness.{Plan, PromptAssembler, StrictError, Tokenizer, TotalBudgetError}
  alias Engine.Tokenizers.BytesByFour

  @marker "[… truncated …]"

  defp layer(assembly, name), do: Enum.find(assembly.layers, &(&1.name == name))
  defp rules(assembly), do: layer(assembly, :business_rules)
  defp bytes(letter, size), do: String.duplicate(letter, size)

  describe "step" do
    # A unit of two bytes and its separator: one token a turn.
    test "one token a turn, budget 100, step 20: 10 moves in 300 turns" do
      heads =
        for turn <- 1..300 do
          assembly =
            PromptAssembler.assemble!([business_rules: List.duplicate("ru", turn)],
              budgets: [business_rules: 100],
              step: %{business_rules: 20}
            )

          assert assembly.tokens <= 100
          length(rules(assembly).dropped)
        end

      moves =
        for {[a, b], turn} <- heads |> Enum.chunk_every(2, 1, :discard) |> Enum.with_index(2),
            a != b,
            do: {turn, b}

      # At 101 tokens the first 20 have to go, and 20 more at 121.
      assert moves == for(n <- 1..10, do: {20 * n + 81, 20 * n})
    end

    test "over 200 turns of growing rules the head moves at most once a step" do
      sizes = vector(200, integer(1, 60))

      for tokenizer <- [Tokenizer.Approximate, {Tokenizer.Bpe, encoding: :o200k_base}] do
        check_all({sizes, integer(40, 200), integer(5, 80)}, [tests: 12], fn {sizes, budget, step} ->
          rules =
            for {size, turn} <- Enum.with_index(sizes), do: bytes("r#{turn} ", div(size, 3) + 1)

          {_, moves, before} =
            Enum.reduce(1..200, {"", 0, 0}, fn turn, {sent, moves, _} ->
              assembly =
                PromptAssembler.assemble!([business_rules: Enum.take(rules, turn)],
                  budgets: [business_rules: budget],
                  step: [business_rules: step],
                  tokenizer: tokenizer
                )

              assert assembly.tokens <= budget
              moved = if String.starts_with?(assembly.prompt, sent), do: 0, else: 1
              {assembly.prompt, moves + moved, rules(assembly).tokens_before}
            end)

          assert moves <= div(max(before - budget, 0) + step - 1, step)
        end)
      end
    end

    test "is refused where it is none" do
      for step <- [0, -1, 1.5, nil, "20"] do
        assert raised(step: [task_state: step]) ==
                 "expected the step of layer :task_state to be a positive integer, got: #{inspect(step)}"
      end

      assert raised(step: [project_context: 20]) ==
               "layer :project_context can't be in step, expected one of: :instruction_files, " <>
                 ":business_rules, :task_state"

      assert raised(step: 20) =~ "expected step to be a map or a keyword list"
    end
  end

  describe "at" do
    # 8 tokens are 32 bytes, and the marker has 19 of them.
    @lines "alpha\nbeta\ngamma delta epsilon zeta eta"

    defp context(text, at, budget) do
      opts = [budgets: [project_context: budget], at: [project_context: at]]
      [project_context: text] |> PromptAssembler.assemble!(opts) |> layer(:project_context)
    end

    test "the last boundary, and the last line" do
      assert context(@lines, :grapheme, 8).text == "alpha\nbeta\nga" <> @marker
      assert context(@lines, :line, 8).text == "alpha\nbeta\n" <> @marker
      # 6 tokens are 24 bytes: 5 before the marker, where no line ends.
      assert context(@lines, :line, 6).text == "alpha" <> @marker
      assert context(@lines, :line, 10).text == @lines
    end

    test "a heading, a paragraph, a line in the last tenth" do
      # 100 tokens are 400 bytes: 381 before the marker, and the last tenth from 341 on.
      head = bytes("w", 345)
      tail = bytes("v", 300)

      for {text, cut_at} <- [
            {head <> "\n# Heading\n\nwords\n" <> tail, 346},
            {head <> "\n\nwords\n" <> tail, 347},
            {head <> "\nwords " <> tail, 346},
            {head <> " words " <> tail, 381}
          ] do
        assert context(text, :markdown, 100).cut_at == cut_at
      end
    end

    test "an open fence is closed by its own delimiter, and that is counted" do
      layer = context("~~~~ text\n" <> bytes("c", 600), :markdown, 100)
      assert layer.text =~ ~r/\A~~~~ text\nc+\n~~~~\n\[… truncated …\]\z/
      assert layer.tokens == div(byte_size(layer.text) + 3, 4)
      assert layer.tokens == 100
    end

    test "is refused where it is none" do
      assert raised(at: [project_context: :word]) ==
               "expected where to cut layer :project_context to be one of :grapheme, :line, " <>
                 ":markdown, got: :word"

      assert raised(at: [identity: :line]) ==
               "layer :identity can't be in at, expected one of: :project_context"
    end
  end

  describe "total_budget" do
    # 40, 80 and 38 + 2 + 40 bytes: 10, 20 and 20 tokens; with separators 204 bytes, 51.
    @contents [identity: String.duplicate("i", 40), project_context: String.duplicate("c", 80)] ++
                [business_rules: [String.duplicate("o", 38), String.duplicate("n", 40)]]

    test "leaves alone what fits it" do
      assembly = PromptAssembler.assemble!(@contents, total_budget: 51)
      assert {assembly.tokens, assembly.total_budget} == {51, 51}
      assert Enum.map(assembly.layers, & &1.status) == [:kept, :empty, :kept, :kept, :empty]
    end

    test "the first in the order gives way to what the others leave" do
      # Without it 122 bytes, 31 tokens; 19 are left: 76 bytes, 57 before the marker.
      assembly = PromptAssembler.assemble!(@contents, total_budget: 50)
      context = layer(assembly, :project_context)
      assert {context.tokens, context.limit, context.budget} == {19, 19, 4_000}
      assert context.cut_at == 57
      assert {assembly.tokens, byte_size(assembly.prompt)} == {50, 200}
      assert rules(assembly).status == :kept
    end

    test "in the order that is stated" do
      # 19 tokens are left of 20: the older rule goes.
      opts = [total_budget: 50, give_way: [:business_rules]]
      assembly = PromptAssembler.assemble!(@contents, opts)
      assert rules(assembly).dropped == [%{id: 0, tokens: 10}]
      assert layer(assembly, :project_context).status == :kept
      # 40 + 2 + 80 + 2 + 40 bytes.
      assert assembly.tokens == 41
    end

    test "one after the other: context, task state, instruction files, rules" do
      # 40 bytes each: with separators 208 bytes for all, 42 less for each that goes.
      contents =
        for name <- PromptAssembler.layers() do
          text = bytes("x", 40)
          {name, if(name in [:identity, :project_context], do: text, else: [text])}
        end

      for {total, sent} <- [
            {52, PromptAssembler.layers()},
            {51, PromptAssembler.layers() -- [:project_context]},
            {42, PromptAssembler.layers() -- [:project_context]},
            {41, [:identity, :instruction_files, :business_rules]},
            {31, [:identity, :instruction_files, :business_rules]},
            {30, [:identity, :business_rules]},
            {21, [:identity, :business_rules]},
            {20, [:identity]},
            {10, [:identity]}
          ] do
        assembly =
          PromptAssembler.assemble!(contents, total_budget: total, at: [project_context: :line])

        kept = for layer <- assembly.layers, layer.status == :kept, do: layer.name
        # 51 leaves the context 9 tokens: 36 bytes, 17 and the marker.
        cut =
          for layer <- assembly.layers, layer.status == :trimmed, do: {layer.name, layer.cut_at}

        assert {kept, cut} == {sent, if(total == 51, do: [project_context: 17], else: [])}
        assert assembly.tokens <= total
      end
    end

    test "less than what never gives way costs is an error with the numbers" do
      assert {:error, error} = PromptAssembler.assemble(@contents, total_budget: 9)
      assert error == %TotalBudgetError{total_budget: 9, tokens: 10, layers: [identity: 10]}

      assert Exception.message(error) ==
               "the total budget is 9 tokens, but what never gives way costs 10 (identity 10)"

      # 40 + 2 + 80 bytes.
      opts = [total_budget: 30, give_way: [:project_context]]
      assert {:error, error} = PromptAssembler.assemble(@contents, opts)

      assert Exception.message(error) ==
               "the total budget is 30 tokens, but what never gives way costs 31 " <>
                 "(identity 10, business_rules 20)"

      assert {:ok, %{prompt: ""}} = PromptAssembler.assemble([], total_budget: 0)
    end

    test "is refused where it is none" do
      for total <- [-1, 1.5, nil, "12"] do
        assert raised(total_budget: total) ==
                 "expected :total_budget to be a non-negative integer or :infinity, got: #{inspect(total)}"
      end

      for order <- [[:identity], [:rules], [:task_state, :task_state], :task_state, [:a | :b]] do
        assert raised(give_way: order) ==
                 "expected :give_way to be a list of distinct layers out of :instruction_files, " <>
                   ":project_context, :business_rules, :task_state, got: #{inspect(order)}"
      end
    end
  end

  describe "strict" do
    test "what would be lost is an error with the numbers" do
      opts = [budgets: [business_rules: 15], strict: [:business_rules, :project_context]]
      assert {:error, %StrictError{} = error} = PromptAssembler.assemble(@contents, opts)

      assert error.layers == [
               %{layer: :business_rules, tokens_before: 20, tokens: 10, budget: 15, limit: 15}
             ]

      assert Exception.message(error) ==
               "layer :business_rules is strict and would lose tokens: 10 of 20 fit its budget of 15"
    end

    test "to the total budget, too, and all layers are named" do
      opts = [budgets: [identity: 9], total_budget: 40, strict: [:identity, :project_context]]
      assert {:error, error} = PromptAssembler.assemble(@contents, opts)

      # The rules' 20 leave 20, but 80 + 2 + 80 bytes are 41: 19 tokens of the context are left.
      assert Exception.message(error) ==
               "layer :identity is strict and would lose tokens: 0 of 10 fit its budget of 9; " <>
                 "layer :project_context is strict and would lose tokens: 19 of 20 fit the 19 " <>
                 "that the total budget leaves (its own is 4000)"
    end

    test "changes nothing where nothing is lost" do
      strict = PromptAssembler.assemble!(@contents, strict: PromptAssembler.layers())
      assert %{strict | strict: []} == PromptAssembler.assemble!(@contents)
    end

    test "is refused where it is none" do
      assert raised(strict: [:rules]) =~ "expected :strict to be a list of distinct layers out of"
      assert raised(strict: true) =~ "got: true"
    end
  end

  describe "by Rust and by Elixir" do
    defp text do
      part = oneof(["word ", "\n", "\r\n", "漢", "👩‍👩‍👧", "# H\n", "```\n", "> ", "\n\n", "~~~\n", ""])
      :proper_types.bind(list(part), &Enum.join/1, false)
    end

    defp units, do: :proper_types.bind(list(text()), &Enum.reject(&1, fn u -> u == "" end), false)
    defp budget, do: oneof([integer(0, 60), :infinity])
    defp step, do: oneof([nil, integer(1, 30)])

    test "the plan is the same, whatever the options" do
      {:ok, native} = Tokenizer.new(Tokenizer.Approximate)
      {:ok, elixir} = Tokenizer.new(BytesByFour)
      at = oneof([:grapheme, :line, :markdown])
      order = oneof([[2, 4, 1, 3], [3], [], [1, 2], [4, 3, 2, 1]])

      input =
        {{budget(), text()}, {step(), budget(), units()}, {at, budget(), text()},
         {step(), budget(), units()}, {oneof([:infinity, integer(0, 80)]), order}}

      check_all(input, [tests: 1_500], fn {{b1, identity}, {s2, b2, files}, {at, b3, context},
                                           {s4, b4, rules}, {total, order}} ->
        layers = [
          {:keep_or_drop, nil, b1, identity},
          {:drop_whole_units, s2, b2, files},
          {:truncate_tail, at, b3, context},
          {:drop_whole_units, s4, b4, rules},
          {:drop_whole_units, nil, 20, Enum.take(files, 2)}
        ]

        plan = Plan.make(layers, {total, order}, native)
        assert plan == Plan.Bisection.make(layers, {total, order}, elixir)

        case plan do
          {:ok, _, tokens} -> assert tokens <= total
          {:error, {:over_total, tokens, _}} -> assert tokens > total
        end
      end)
    end

    test "without a step a larger budget drops nothing that a smaller one kept" do
      check_all({units(), text(), integer(0, 60), integer(0, 30)}, fn {rules, context, budget,
                                                                       more} ->
        kept = fn budget ->
          assembly =
            PromptAssembler.assemble!([business_rules: rules, project_context: context],
              budgets: [business_rules: budget, project_context: budget]
            )

          {length(rules(assembly).kept), assembly |> layer(:project_context) |> length_sent()}
        end

        {rules_of_less, context_of_less} = kept.(budget)
        {rules_of_more, context_of_more} = kept.(budget + more)
        assert rules_of_more >= rules_of_less and context_of_more >= context_of_less
      end)
    end
  end

  # Of the text itself; whole is more than any part.
  defp length_sent(%{status: :kept}), do: :whole
  defp length_sent(%{status: :trimmed, cut_at: at}), do: at
  defp length_sent(_dropped_or_empty), do: 0

  defp raised(opts) do
    assert_raise(ArgumentError, fn -> PromptAssembler.assemble([], opts) end).message
  end
end
