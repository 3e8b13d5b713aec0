defmodule Engine.Harness.PromptAssemblerTest do
  use ExUnit.Case, async: true

  alias Engine.Harness.{Assembly, InvalidTextError, PromptAssembler, Tokenizer}
  alias Engine.Tokenizers.{BytesByFour, Jumpy, Returns, Words}

  doctest PromptAssembler

  @marker "[… truncated …]"

  setup_all do
    [cases: Map.new(Engine.Cases.json("trimming.json"), &{&1["name"], &1})]
  end

  defp layer(assembly, name), do: Enum.find(assembly.layers, &(&1.name == name))

  describe "the cases of trimming.json" do
    for %{"name" => name} <- Engine.Cases.json("trimming.json"),
        tokenizer <- [Tokenizer.Approximate, BytesByFour] do
      @id name
      @tokenizer tokenizer

      test "#{name}, by #{inspect(tokenizer)}", %{cases: cases} do
        assert_right(cases[@id], @tokenizer)
      end
    end

    defp assert_right(trimming, tokenizer) do
      %{"contents" => contents, "budgets" => budgets, "expected" => expected} = trimming
      contents = for {name, content} <- contents, do: {String.to_existing_atom(name), content}
      budgets = for {name, budget} <- budgets, do: {String.to_existing_atom(name), budget}
      opts = [budgets: budgets, tokenizer: tokenizer]

      assert {:ok, assembly} = PromptAssembler.assemble(contents, opts)
      assert assembly.prompt == expected["prompt"]
      assert assembly.tokens == expected["tokens"]
      assert assembly.budget == budgets |> Keyword.values() |> Enum.sum()

      for {name, expected} <- expected["layers"] do
        layer = layer(assembly, String.to_existing_atom(name))
        assert layer.text == expected["text"]
        assert layer.tokens_before == expected["tokens_before"]
        assert layer.tokens == expected["tokens"]
        assert layer.status == String.to_existing_atom(expected["status"])
        assert length(layer.dropped) == Map.get(expected, "dropped_units", 0)
        assert layer.cut_at == expected["cut_at"]
      end
    end
  end

  describe "the report" do
    test "names what was kept and dropped by id or index, empty units counted but left out" do
      rules = ["", "aaaa", {"rule-2", "bbbbbbbb"}, {:three, ""}, "cc"]
      # 4 + 2 + 8 + 2 + 2 = 18 bytes, 5 tokens; without the first unit 12 bytes, 3 tokens.
      assembly = PromptAssembler.assemble!([business_rules: rules], budgets: [business_rules: 3])
      layer = layer(assembly, :business_rules)

      assert %Assembly.Layer{
               strategy: :drop_whole_units,
               budget: 3,
               tokens_before: 5,
               tokens: 3,
               estimated: true,
               status: :trimmed,
               text: "bbbbbbbb\n\ncc",
               cut_at: nil,
               offset: 0
             } = layer

      assert layer.kept == [%{id: "rule-2", tokens: 2}, %{id: 4, tokens: 1}]
      assert layer.dropped == [%{id: 1, tokens: 1}]
    end

    test "has each layer's offset in the prompt, and the prompt's hash" do
      contents = %{identity: "id", project_context: "context", task_state: ["a", "b"]}
      assembly = PromptAssembler.assemble!(contents)

      assert assembly.prompt == "id\n\ncontext\n\na\n\nb"
      assert Enum.map(assembly.layers, & &1.offset) == [0, nil, 4, nil, 13]
      assert Enum.map(assembly.layers, & &1.text) == ["id", "", "context", "", "a\n\nb"]

      # printf 'id\n\ncontext\n\na\n\nb' | sha256sum
      assert assembly.sha256 ==
               "a99c47608dd3e812b37058a3db5522cf5cac6b552a571c57ec497960bcc28b60"
    end

    test "of an empty prompt" do
      assembly = PromptAssembler.assemble!(%{})
      assert {assembly.prompt, assembly.tokens, assembly.budget} == {"", 0, 21_000}
      assert Enum.map(assembly.layers, & &1.status) == List.duplicate(:empty, 5)
      # The SHA-256 of no bytes (FIPS 180-4 test vectors).
      assert assembly.sha256 ==
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    end

    test "a layer's text is a part of the prompt, not a copy" do
      text = String.duplicate("x", 1_000)
      assembly = PromptAssembler.assemble!(identity: text, project_context: text)
      layer = layer(assembly, :project_context)
      assert :binary.referenced_byte_size(layer.text) == 2_002
    end

    test "budgets of :infinity, and larger than any machine's integer" do
      contents = [identity: "text", business_rules: ["a", "b"]]

      for budget <- [:infinity, 0xFFFFFFFFFFFFFFFF, 1_000_000_000_000_000_000_000_000] do
        budgets = Map.new(PromptAssembler.layers(), &{&1, budget})

        for tokenizer <- [Tokenizer.Approximate, BytesByFour] do
          assembly = PromptAssembler.assemble!(contents, budgets: budgets, tokenizer: tokenizer)
          assert assembly.prompt == "text\n\na\n\nb"
          expected = if budget == :infinity, do: :infinity, else: 5 * budget
          assert assembly.budget == expected
        end
      end
    end
  end

  describe "the order of the input" do
    test "a map, a keyword list and shuffled ones give the same bytes" do
      contents = %{
        identity: "id",
        instruction_files: ["a", "b"],
        project_context: "context",
        business_rules: [{"r", "rule"}],
        task_state: ["state"]
      }

      expected = PromptAssembler.assemble!(contents)
      assert expected.prompt == "id\n\na\n\nb\n\ncontext\n\nrule\n\nstate"

      for seed <- 1..20 do
        :rand.seed(:exsss, {seed, seed, seed})
        assert PromptAssembler.assemble!(Enum.shuffle(contents)) == expected
      end
    end
  end

  describe "sizes" do
    test "a unit of 100 MB goes when it is over budget, and is sent when it is not" do
      unit = String.duplicate("0123456789", 10_000_000)

      assembly = PromptAssembler.assemble!(business_rules: [unit, "small"])
      assert assembly.prompt == "small"
      assert [%{id: 0, tokens: 25_000_000}] = layer(assembly, :business_rules).dropped

      assembly =
        PromptAssembler.assemble!([task_state: [unit]], budgets: [task_state: 25_000_000])

      assert assembly.tokens == 25_000_000
      assert assembly.prompt == unit
    end

    test "a text of 100 MB is cut" do
      # The emoji straddles the cut: 4 * 4,000 - 19 = 15,981 bytes are left for the prefix.
      text = String.duplicate("x", 15_979) <> "🙂" <> String.duplicate("y", 100_000_000)
      assembly = PromptAssembler.assemble!(project_context: text)
      assert layer(assembly, :project_context).cut_at == 15_979
      assert assembly.tokens == 4_000
      assert byte_size(assembly.prompt) == 15_979 + byte_size(@marker)
    end

    test "a million empty units cost nothing" do
      units = List.duplicate("", 1_000_000) ++ ["last"]
      assembly = PromptAssembler.assemble!(business_rules: units)
      assert assembly.prompt == "last"
      assert layer(assembly, :business_rules).kept == [%{id: 1_000_000, tokens: 1}]
    end
  end

  describe "a tokenizer written in Elixir" do
    test "trims by its own counts" do
      rules = ["one two three", "four five", "six"]
      opts = [tokenizer: Words, budgets: [business_rules: 3]]
      assembly = PromptAssembler.assemble!([business_rules: rules], opts)
      assert assembly.prompt == "four five\n\nsix"
      assert {assembly.tokens, assembly.estimated} == {3, false}
      assert layer(assembly, :business_rules).dropped == [%{id: 0, tokens: 3}]
    end

    test "cuts a text by its own counts" do
      # The marker is three words, the first of which is joined to the prefix's last.
      opts = [tokenizer: Words, budgets: [project_context: 5]]
      assembly = PromptAssembler.assemble!([project_context: "a b c d e f g"], opts)
      assert assembly.prompt == "a b c" <> @marker
      assert assembly.tokens == 5
    end

    test "is never asked about an empty text" do
      assembly = PromptAssembler.assemble!(%{}, tokenizer: {Words, minimum: 7})
      assert assembly.tokens == 0
      assert Enum.map(assembly.layers, & &1.tokens_before) == [0, 0, 0, 0, 0]
    end

    test "for which nothing fits leaves every layer empty" do
      opts = [
        tokenizer: {Words, minimum: 7},
        budgets: [identity: 6, project_context: 6, task_state: 6]
      ]

      contents = [identity: "i", project_context: "c", task_state: ["t", "u"]]
      assembly = PromptAssembler.assemble!(contents, opts)
      assert assembly.prompt == ""
      assert layer(assembly, :identity).status == :dropped
      assert layer(assembly, :project_context).status == :dropped
      assert layer(assembly, :task_state).status == :dropped
    end

    test "that counts nothing for a text still leaves a layer of budget 0 empty" do
      opts = [tokenizer: {Returns, count: 0}, budgets: [identity: 0, task_state: 0]]
      contents = [identity: "i", task_state: ["t"]]
      assert PromptAssembler.assemble!(contents, opts).prompt == ""
    end

    test "whose counts jump is never over budget by them" do
      for size <- 1..60, budget <- 0..20 do
        words = Enum.map(1..size, &"w#{&1}")

        opts = [
          tokenizer: Jumpy,
          budgets: [project_context: budget, task_state: budget, identity: budget]
        ]

        text = Enum.join(words, " ")
        contents = [identity: text, project_context: text, task_state: words]
        {:ok, assembly} = PromptAssembler.assemble(contents, opts)

        for %{text: text, tokens: tokens} <- assembly.layers, text != "" do
          assert tokens == Jumpy.count(text, [])
          assert tokens <= budget
        end
      end
    end

    test "that returns rubbish is named" do
      for rubbish <- [-1, 1.5, nil, :many, "3", {:ok, 3}] do
        opts = [tokenizer: {Returns, count: rubbish}]

        assert {:error, %Tokenizer.Error{} = error} =
                 PromptAssembler.assemble([identity: "a"], opts)

        assert Exception.message(error) ==
                 "tokenizer Engine.Tokenizers.Returns: expected count/2 to return " <>
                   "a non-negative integer, got: #{inspect(rubbish)}"
      end

      assert {:error, error} =
               PromptAssembler.assemble(%{}, tokenizer: {Returns, estimated?: "yes"})

      assert Exception.message(error) ==
               "tokenizer Engine.Tokenizers.Returns: expected estimated?/1 to return " <>
                 "a boolean, got: \"yes\""

      assert {:error, error} = PromptAssembler.assemble(%{}, tokenizer: {Returns, init: :fine})

      assert Exception.message(error) ==
               "tokenizer Engine.Tokenizers.Returns: expected init/1 to return " <>
                 "{:ok, prepared} or {:error, exception}, got: :fine"
    end

    test "may object to its options" do
      opts = [tokenizer: {Words, minimum: -1}]

      assert PromptAssembler.assemble(%{}, opts) ==
               {:error, %ArgumentError{message: "minimum: -1"}}

      assert_raise ArgumentError, "minimum: -1", fn -> PromptAssembler.assemble!(%{}, opts) end
    end

    test "that is none raises" do
      for value <- [String, {String, []}, NoSuchModule, nil, "o200k_base", {1, 2}] do
        message =
          "expected :tokenizer to be a module that implements Engine.Harness.Tokenizer " <>
            "(count/2 and estimated?/1), or {module, options}, got: "

        assert_raise ArgumentError, ~r/\A#{Regex.escape(message)}/, fn ->
          PromptAssembler.assemble(%{}, tokenizer: value)
        end
      end
    end
  end

  describe "text that is not UTF-8" do
    @latin1 "caf\xE9"

    for tokenizer <- [Tokenizer.Approximate, BytesByFour] do
      @tokenizer tokenizer

      test "is an error that names layer, unit and offset, by #{inspect(tokenizer)}" do
        for name <- [:identity, :project_context] do
          assert PromptAssembler.assemble([{name, @latin1}], tokenizer: @tokenizer) ==
                   {:error, %InvalidTextError{layer: name, unit: nil, offset: 3}}
        end

        for name <- [:instruction_files, :business_rules, :task_state] do
          units = ["", "fine", {"the third", @latin1}]

          assert PromptAssembler.assemble([{name, units}], tokenizer: @tokenizer) ==
                   {:error, %InvalidTextError{layer: name, unit: "the third", offset: 3}}
        end
      end
    end

    test "is raised by assemble!/2" do
      assert_raise InvalidTextError, "layer :identity is not UTF-8 at byte 3", fn ->
        PromptAssembler.assemble!(identity: @latin1)
      end

      assert_raise InvalidTextError, "unit 1 of layer :task_state is not UTF-8 at byte 0", fn ->
        PromptAssembler.assemble!(task_state: ["ok", "\xFF"])
      end

      hostile = ~S(unit "a\u{a}\u{202e}" of layer :task_state is not UTF-8 at byte 0)

      assert_raise InvalidTextError, hostile, fn ->
        PromptAssembler.assemble!(task_state: [{"a\n\u202E", "\xFF"}])
      end
    end
  end

  describe "what a programmer got wrong raises" do
    defp message(contents, opts \\ []) do
      error = assert_raise ArgumentError, fn -> PromptAssembler.assemble(contents, opts) end
      error.message
    end

    @layers ":identity, :instruction_files, :project_context, :business_rules, :task_state"

    test "an unknown layer" do
      assert message(rules: []) == "unknown layer :rules in contents, expected one of: #{@layers}"
      assert message(%{"identity" => ""}) =~ ~s(unknown layer "identity" in contents)

      assert message(%{}, budgets: [rules: 1]) ==
               "unknown layer :rules in budgets, expected one of: #{@layers}"
    end

    test "a layer that stands twice" do
      assert message(identity: "a", identity: "b") == "layer :identity stands twice in contents"
      assert message([], budgets: [identity: 1, identity: 2]) =~ "stands twice in budgets"
    end

    test "an unknown option" do
      assert message(%{}, budget: 1) ==
               "option :budget is unknown, expected any of: :budgets, :tokenizer, :step, :at, " <>
                 ":total_budget, :give_way, :strict"

      assert message(%{}, budgets: [], budgets: []) =~ "option :budgets stands twice"
      assert message(%{}, %{}) == "expected options to be a keyword list, got: %{}"
    end

    test "contents that are neither a map nor a keyword list" do
      expected = "expected contents to be a map or a keyword list from layer names, got: "
      assert message("text") == expected <> ~s("text")
      assert message(nil) == expected <> "nil"
      assert message([1]) == expected <> "[1]"
      assert message(~D[2026-01-01]) == expected <> "~D[2026-01-01]"
    end

    test "content of the wrong shape" do
      assert message(identity: ["a"]) == ~s(expected layer :identity to be a binary, got: ["a"])

      assert message(project_context: <<1::3>>) =~
               "expected layer :project_context to be a binary"

      assert message(business_rules: "rule") ==
               "expected layer :business_rules to be a list of units, a binary or {id, binary} " <>
                 ~s(each \(their order matters\), got: "rule")

      assert message(task_state: ["a", :b]) ==
               "expected unit 1 of layer :task_state to be a binary or {id, binary}, got: :b"

      assert message(task_state: ["a" | "b"]) =~
               "expected layer :task_state to be a list of units"

      assert message(task_state: [{"id", nil}]) =~ "expected unit 0 of layer :task_state"
    end

    test "F22: 40 business rules given as a map" do
      rules = Map.new(1..40, &{"rule #{&1}", "text"})

      assert message(business_rules: rules) =~
               ~r/\Aexpected layer :business_rules to be a list of units.*their order matters/
    end

    test "a budget that is none" do
      for budget <- [-1, 1.5, nil, "12", :none] do
        for name <- PromptAssembler.layers() do
          assert message(%{}, budgets: %{name => budget}) ==
                   "expected the budget of layer #{inspect(name)} to be a non-negative integer " <>
                     "or :infinity, got: #{inspect(budget)}"
        end
      end
    end
  end

  describe "instruction files (F23)" do
    test "F23: a cut that would fall between CR and LF" do
      # 19 bytes of marker and 5 of text are 6 tokens; the fifth byte would be the lone CR.
      for budget <- [6, 7] do
        opts = [budgets: [project_context: budget]]
        assembly = PromptAssembler.assemble!([project_context: "abcd\r\n" <> filler()], opts)
        expected = if budget == 6, do: "abcd", else: "abcd\r\nxxx"
        assert assembly.prompt == expected <> @marker
      end
    end

    defp filler, do: String.duplicate("x", 100)
  end
end
