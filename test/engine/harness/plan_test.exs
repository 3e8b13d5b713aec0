defmodule Engine.Harness.PlanTest do
  use ExUnit.Case, async: true

  import :proper_types, only: [integer: 2, list: 1, oneof: 1, binary: 0]
  import Engine.Property

  alias Engine.Harness.{Boundary, Plan, PromptAssembler, Tokenizer, TotalBudgetError}
  alias Engine.Tokenizers.{BytesByFour, Delegated, Jumpy, Words}

  doctest Boundary
  doctest Engine.Harness.Escape
  doctest Tokenizer.Approximate

  @unlimited {:infinity, []}

  defp tokenizer!(spec) do
    {:ok, tokenizer} = Tokenizer.new(spec)
    tokenizer
  end

  # What clusters, lines and our own marker are made of.
  defp text do
    part =
      oneof(["word ", "\r\n", "é", "\u0301", "漢", "👩‍👩‍👧", "🇧🇷", "क्ष", "[… truncated …]", "\n\n", ""])

    :proper_types.bind(list(part), &Enum.join/1, false)
  end

  defp budget, do: oneof([integer(0, 60), :infinity])

  defp contents do
    {text(), budget(), list(text()), budget(), text(), budget(), list(text()), budget()}
  end

  defp layers({identity, b1, files, b2, context, b3, rules, b4}) do
    [
      {:keep_or_drop, nil, b1, identity},
      {:drop_whole_units, nil, b2, Enum.reject(files, &(&1 == ""))},
      {:truncate_tail, :grapheme, b3, context},
      {:drop_whole_units, nil, b4, Enum.reject(rules, &(&1 == ""))}
    ]
  end

  defp assemble({identity, b1, files, b2, context, b3, rules, b4}, tokenizer) do
    PromptAssembler.assemble!(
      [
        identity: identity,
        instruction_files: files,
        project_context: context,
        business_rules: rules
      ],
      budgets: [identity: b1, instruction_files: b2, project_context: b3, business_rules: b4],
      tokenizer: tokenizer
    )
  end

  test "Rust and Elixir make the same plan" do
    native = tokenizer!(Tokenizer.Approximate)
    elixir = tokenizer!(BytesByFour)

    check_all(contents(), [tests: 500], fn contents ->
      layers = layers(contents)
      assert {:ok, [_, _, _, _], _} = plan = Plan.make(layers, @unlimited, native)
      assert plan == Plan.Bisection.make(layers, @unlimited, elixir)
    end)
  end

  test "the size decides where it runs, not what comes out" do
    native = tokenizer!(Tokenizer.Approximate)
    elixir = tokenizer!(BytesByFour)

    for count <- [1, 999, 1_000, 1_001, 5_000], budget <- [0, 1, 700, :infinity] do
      units = Enum.map(1..count, &"unit #{&1}")

      layers = [
        {:drop_whole_units, nil, budget, units},
        {:truncate_tail, :grapheme, budget, Enum.join(units)}
      ]

      assert {:ok, [_, _], _} = plan = Plan.make(layers, @unlimited, native)
      assert plan == Plan.Bisection.make(layers, @unlimited, elixir)
    end
  end

  test "Rust and Elixir find the same fault" do
    native = tokenizer!(Tokenizer.Approximate)
    elixir = tokenizer!(BytesByFour)

    check_all({list(binary()), binary()}, fn {units, text} ->
      units = Enum.reject(units, &(&1 == ""))
      layers = [{:drop_whole_units, nil, 9, units}, {:truncate_tail, :grapheme, 9, text}]

      assert Plan.make(layers, @unlimited, native) ==
               Plan.Bisection.make(layers, @unlimited, elixir)
    end)
  end

  @exact for module <- [Tokenizer.Bpe, Delegated],
             encoding <- [:o200k_base, :cl100k_base],
             do: {module, encoding: encoding}

  for tokenizer <- [Tokenizer.Approximate, Words, Jumpy] ++ @exact do
    @tokenizer tokenizer

    test "by #{inspect(tokenizer)}: never over budget, and the report is what is sent" do
      tokenizer = tokenizer!(@tokenizer)

      check_all(contents(), [tests: 300], fn contents ->
        assembly = assemble(contents, @tokenizer)
        sent = Enum.reject(assembly.layers, &(&1.text == ""))
        assert assembly.prompt == Enum.map_join(sent, "\n\n", & &1.text)
        assert assembly.tokens == Tokenizer.count(tokenizer, assembly.prompt)
        assert assembly == assemble(contents, @tokenizer)

        for layer <- assembly.layers do
          assert layer.tokens == Tokenizer.count(tokenizer, layer.text)
          # Integers sort before atoms, so nothing is over :infinity.
          assert layer.tokens <= layer.budget

          if layer.offset do
            assert binary_part(assembly.prompt, layer.offset, byte_size(layer.text)) == layer.text
          else
            assert layer.text == ""
          end

          if layer.cut_at do
            text = elem(contents, 4)
            assert layer.text == binary_part(text, 0, layer.cut_at) <> "[… truncated …]"
            assert Boundary.at_or_before(text, layer.cut_at) == layer.cut_at
          end
        end
      end)
    end
  end

  # Markdown with fences of both kinds and several lengths, quoted ones too.
  defp markdown do
    part =
      oneof([
        ["word ", "漢", "👩‍👩‍👧", "\n", "\r\n", "\n\n", "# H\n", "H\n===\n"],
        ["```\n", "````\n", "~~~ elixir\n", "~~~~~\n", "> ```\n", "> quoted\n", "- ```\n  "]
      ])

    one = :proper_types.bind(part, &oneof/1, false)
    :proper_types.bind(list(one), &Enum.join/1, false)
  end

  for tokenizer <- [Tokenizer.Approximate, Words, Jumpy] ++ @exact do
    @tokenizer tokenizer

    test "by #{inspect(tokenizer)}: never over limits and total, whatever the options" do
      tokenizer = tokenizer!(@tokenizer)
      at = oneof([:line, :markdown])
      total = oneof([:infinity, integer(0, 120)])
      options = {budget(), budget(), integer(1, 20), at, total}

      check_all({markdown(), list(text()), options}, [tests: 200], fn {context, rules, options} ->
        {b1, b2, step, at, total} = options

        assembled =
          PromptAssembler.assemble([project_context: context, business_rules: rules],
            budgets: [project_context: b1, business_rules: b2],
            step: [business_rules: step],
            at: [project_context: at],
            total_budget: total,
            tokenizer: @tokenizer
          )

        case assembled do
          {:ok, assembly} ->
            assert assembly.tokens == Tokenizer.count(tokenizer, assembly.prompt)
            assert assembly.tokens <= total

            for layer <- assembly.layers do
              assert layer.tokens == Tokenizer.count(tokenizer, layer.text)
              assert layer.tokens <= layer.limit and layer.limit <= layer.budget
            end

            assembly.layers
            |> Enum.find(&(&1.name == :project_context))
            |> cut(context, at, tokenizer)

          # All layers but the identity, which is empty, gave way: nothing is left, and that is over
          # what a tokenizer may count for nothing at all.
          {:error, %TotalBudgetError{} = error} ->
            assert error.tokens == Tokenizer.count(tokenizer, "")
            assert error.tokens > total
        end
      end)
    end
  end

  # A prefix of the text, what closes its fence, and the marker.
  defp cut(%{cut_at: nil} = layer, _context, _at, _tokenizer), do: assert(layer.closing == "")

  defp cut(layer, context, at, tokenizer) do
    prefix = binary_part(context, 0, layer.cut_at)
    assert layer.text == prefix <> layer.closing <> "[… truncated …]"
    assert Boundary.at_or_before(context, layer.cut_at) == layer.cut_at

    case {at, layer.closing} do
      {:line, closing} ->
        assert closing == ""
        # After a line, or in the first, or where what is before the last line counts more.
        lines = Regex.replace(~r/[^\n]*\z/, prefix, "")
        ends? = lines in ["", prefix]
        assert ends? or Tokenizer.count(tokenizer, lines <> "[… truncated …]") > layer.limit

      {:markdown, ""} ->
        :ok

      {:markdown, closing} ->
        # On a line of its own, the run of an opening line, in the quotes or items that it stands in.
        [_, run] = Regex.run(~r/\A\n?(?:> | )*(`{3,}|~{3,})\n\z/, closing)
        assert prefix =~ ~r/^(?:> |- | )*#{run}(?!#{String.first(run)})/m
        assert String.starts_with?(closing, "\n") or String.ends_with?(prefix, "\n")
    end
  end

  test "exact plans of Rust and of Elixir keep the same bounds" do
    check_all(contents(), [tests: 200], fn contents ->
      for module <- [Tokenizer.Bpe, Delegated] do
        {:ok, tokenizer} = Tokenizer.new({module, encoding: :o200k_base})
        assembly = assemble(contents, {module, encoding: :o200k_base})

        for {layer, units} <- [
              {Enum.at(assembly.layers, 1), elem(contents, 2)},
              {Enum.at(assembly.layers, 3), elem(contents, 6)}
            ],
            layer.dropped != [] do
          # One unit more than what is kept would not have fitted.
          units = Enum.reject(units, &(&1 == ""))
          more = Enum.take(units, -length(layer.kept) - 1)
          assert Tokenizer.count(tokenizer, Enum.join(more, "\n\n")) > layer.budget
        end
      end
    end)
  end

  test "no term makes a boundary crash the VM, only raise" do
    for text <- [nil, :a, 1, [], %{}, <<1::3>>, {}], offset <- [0, -1, 1.5, nil, 2 ** 80] do
      assert_raise FunctionClauseError, fn -> Boundary.at_or_before(text, offset) end
    end

    for offset <- [-1, 1.5, nil, "1"] do
      assert_raise FunctionClauseError, fn -> Boundary.at_or_before("text", offset) end
    end

    assert Boundary.at_or_before("text", 2 ** 80) == 4
  end
end
