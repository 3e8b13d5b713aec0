defmodule Engine.Harness.DiffTest do
  use ExUnit.Case, async: true

  import :proper_types, only: [integer: 2, list: 1, oneof: 1]
  import Engine.Property

  alias Engine.Harness.{Diff, PromptAssembler, Report, Tokenizer}

  doctest Diff

  defp assemble(contents, opts \\ []), do: PromptAssembler.assemble!(contents, opts)
  defp changes(diff), do: for(c <- diff.changes, do: {c.layer, c.id, c.change})

  test "the same prompt" do
    assembly = assemble(identity: "You sell.", business_rules: [{"a", "x"}])
    diff = Diff.between(assembly, assembly)

    assert {diff.same, diff.first_difference, diff.settings, diff.changes} == {true, nil, [], []}
    # "You sell." + "\n\n" + "x" are 12 bytes, 3 tokens.
    assert diff.common == %{bytes: 12, tokens: 3, layers: 5}
    assert Diff.between(Report.new(assembly), assembly) == diff
  end

  test "the first byte that differs, with its layer and unit on both sides" do
    # a: "id" 0-2, "\n\n" 2-4, "one" 4-7, "\n\n" 7-9, "two" 9-12
    a = assemble(identity: "id", business_rules: [{"a", "one"}, {"b", "two"}])

    for {contents, byte, before, now} <- [
          # inside a unit
          {[identity: "id", business_rules: [{"a", "one"}, {"b", "twO"}]], 11,
           %{layer: :business_rules, id: "b", byte: 2},
           %{layer: :business_rules, id: "b", byte: 2}},
          # another unit at that place
          {[identity: "id", business_rules: [{"b", "two"}]], 4,
           %{layer: :business_rules, id: "a", byte: 0},
           %{layer: :business_rules, id: "b", byte: 0}},
          # this one ends
          {[identity: "id", business_rules: [{"a", "one"}]], 7,
           %{layer: :business_rules, id: "b", byte: nil}, nil},
          # the other one ends; what follows begins with a separator
          {[identity: "id", business_rules: [{"a", "one"}, {"b", "two"}], task_state: ["s"]], 12,
           nil, %{layer: :task_state, id: "0", byte: nil}},
          # a text instead of a separator
          {[identity: "idle", business_rules: [{"a", "one"}, {"b", "two"}]], 2,
           %{layer: :business_rules, id: "a", byte: nil}, %{layer: :identity, id: nil, byte: 2}},
          # nothing in common
          {[task_state: ["x"]], 0, %{layer: :identity, id: nil, byte: 0},
           %{layer: :task_state, id: "0", byte: 0}},
          {[], 0, %{layer: :identity, id: nil, byte: 0}, nil}
        ] do
      diff = Diff.between(a, assemble(contents))
      assert diff.first_difference == %{byte: byte, before: before, after: now}
      assert diff.common.bytes == byte
      refute diff.same
    end
  end

  test "the tokens of the common prefix are those of its whole characters" do
    a = assemble(identity: "Grüße und é")
    b = assemble(identity: "Grüße und è")
    diff = Diff.between(a, b)
    # G r ü(2) ß(2) e space u n d space: 12 bytes; é and è share their first byte.
    assert diff.common == %{bytes: 13, tokens: 3, layers: 0}

    exact = {Tokenizer.Bpe, encoding: :o200k_base}
    b = assemble([identity: "Hello, world! Goodbye."], tokenizer: exact)
    a = assemble([identity: "Hello, world!"], tokenizer: exact)
    # As counted in the tokenizer's own doctest.
    assert Diff.between(a, b).common.tokens == 4
  end

  test "how many layers from the first on are the same" do
    contents = [identity: "id", project_context: "c", business_rules: [{"a", "x"}]]
    a = assemble(contents)
    assert Diff.between(a, assemble(contents ++ [task_state: ["s"]])).common.layers == 4
    # Files come second, so all but the first have something else before them.
    assert Diff.between(a, assemble(contents ++ [instruction_files: ["f"]])).common.layers == 1
  end

  test "added, dropped, changed, moved, unsent" do
    a =
      assemble(
        identity: "id",
        business_rules: [{"gone", "1"}, {"edited", "2"}, {"stays", "3"}, {"x", "4"}, {"y", "5"}],
        task_state: [{"head", "aaaa"}, {"tail", "bbbb"}]
      )

    b =
      assemble(
        [
          identity: "id",
          business_rules: [{"edited", "!"}, {"stays", "3"}, {"y", "5"}, {"x", "4"}, {"new", "6"}],
          task_state: [{"head", "aaaa"}, {"tail", "bbbb"}]
        ],
        budgets: [task_state: 1]
      )

    diff = Diff.between(a, b)

    assert changes(diff) == [
             {:business_rules, "gone", :dropped},
             {:business_rules, "edited", :changed},
             {:business_rules, "y", :moved},
             {:business_rules, "x", :moved},
             {:business_rules, "new", :added},
             {:task_state, "head", :dropped}
           ]

    assert diff.settings == [%{name: "budget of task_state", before: "4000", after: "1"}]

    dropped = List.last(diff.changes)
    assert {dropped.before, dropped.after} == {:kept, :dropped}
    assert {dropped.tokens_before, dropped.tokens} == {1, 0}

    assert dropped.message ==
             "dropped, the layer is over its budget of 1 (oldest goes first)"

    assert hd(diff.changes).message == "no longer there"
    assert hd(diff.changes).after == nil

    # The way back.
    assert changes(Diff.between(b, a)) == [
             {:business_rules, "new", :dropped},
             {:business_rules, "gone", :added},
             {:business_rules, "edited", :changed},
             {:business_rules, "x", :moved},
             {:business_rules, "y", :moved},
             {:task_state, "head", :added}
           ]
  end

  test "what neither prompt holds, and texts" do
    budgets = [budgets: [business_rules: 1, project_context: 10]]
    a = assemble([business_rules: [{"a", "old"}, {"b", "1"}]], budgets)
    b = assemble([business_rules: [{"a", "new"}, {"b", "1"}]], budgets)
    diff = Diff.between(a, b)
    assert diff.same
    assert changes(diff) == [{:business_rules, "a", :unsent}]

    # Cut at another place, and cut at the same place of another text.
    text = String.duplicate("x", 100)
    a = assemble([project_context: text], budgets)
    b = assemble([project_context: text], budgets: [project_context: 11])
    assert changes(Diff.between(a, b)) == [{:project_context, nil, :changed}]
    b = assemble([project_context: text <> "y"], budgets)
    assert Diff.between(a, b).same
    assert changes(Diff.between(a, b)) == []
    b = assemble([project_context: "y" <> text], budgets)
    assert changes(Diff.between(a, b)) == [{:project_context, nil, :changed}]
  end

  test "an id that stands more than once" do
    a = assemble(business_rules: [{"a", "1"}, {"a", "2"}])
    b = assemble(business_rules: [{"a", "1"}, {"a", "3"}, {"a", "4"}])

    assert changes(Diff.between(a, b)) == [
             {:business_rules, "a", :changed},
             {:business_rules, "a", :added}
           ]
  end

  test "a file that is not used any more says why" do
    a = assemble(instruction_files: [{"AGENTS.md", "x"}])
    b = assemble([])
    unused = %{layer: :instruction_files, path: "AGENTS.md", reason: :empty, message: "empty"}
    report = Report.new(b, unused: [unused], against: a)
    assert [%{change: :dropped, after: nil, message: "empty"}] = report.diff.changes
    # What was not used then and now is no change.
    assert Report.new(b, unused: [unused], against: report).diff.changes == []
  end

  test "another tokenizer is a setting" do
    a = assemble(identity: "id")
    b = assemble([identity: "id"], tokenizer: {Tokenizer.Bpe, encoding: :o200k_base})
    diff = Diff.between(a, b)
    assert diff.settings == [%{name: "tokenizer", before: "bytes/4", after: "o200k_base"}]
    assert diff.same and diff.estimated
    refute Diff.between(b, b).estimated
  end

  test "what can't be compared" do
    b = assemble(identity: "id")

    assert_raise ArgumentError,
                 "expected the earlier report to hold the prompt's text, got one without it",
                 fn -> Diff.between(Report.new(b, prompt: false), b) end

    assert_raise ArgumentError,
                 "expected an earlier assembly or report to compare with, got: %{}",
                 fn -> Diff.between(%{}, b) end
  end

  test "as text" do
    a = assemble(identity: "id", business_rules: [{"net", "Prices are net."}, {"b", "two"}])
    b = assemble(identity: "id", business_rules: [{"b", "two"}, {"c\n", "three"}])

    # a: 2 + 2 + 15 + 2 + 3 = 24 bytes; b: 2 + 2 + 3 + 2 + 5 = 14 bytes.
    assert Diff.to_text(Diff.between(a, b)) == """
           first difference  byte 4: before business_rules net at its byte 0, now business_rules b at its byte 0
           common prefix     ~1 of ~4 tokens, 4 bytes, whole layers: 3 (before: ~6 tokens)
           dropped  ~4 → ~0  business_rules net     no longer there
           added    ~0 → ~2  business_rules c\\u{a}  new
           """
  end

  defp units, do: list({oneof(["a", "b", "c", "d"]), oneof(["1", "22", "333", ""])})

  defp contents do
    {oneof(["", "id", "idle"]), units(), oneof(["", "context", "con"]), units(), integer(0, 5)}
  end

  defp assembled({identity, files, context, rules, budget}) do
    contents = [
      identity: identity,
      # An id that stands twice can't be followed when one of the two goes.
      instruction_files: Enum.uniq_by(files, &elem(&1, 0)),
      project_context: context,
      business_rules: Enum.uniq_by(rules, &elem(&1, 0))
    ]

    assemble(contents, budgets: [business_rules: budget, project_context: budget])
  end

  # What is sent, by layer and id, in order.
  defp sent(assembly) do
    for layer <- Report.new(assembly).layers, item <- layer.items, item.bytes > 0 do
      {layer.name, item.id, binary_part(assembly.prompt, item.offset, item.bytes)}
    end
  end

  test "for any two prompts" do
    check_all({contents(), contents()}, [tests: 1_000], fn {a, b} ->
      {a, b} = {assembled(a), assembled(b)}
      diff = Diff.between(a, b)

      # The first byte, by looking at them one after the other.
      {was, is} = {:binary.bin_to_list(a.prompt), :binary.bin_to_list(b.prompt)}
      alike = was |> Enum.zip(is) |> Enum.take_while(fn {x, y} -> x == y end) |> length()
      assert diff.common.bytes == alike
      assert diff.same == (a.prompt == b.prompt)
      assert diff.first_difference == nil == diff.same
      assert diff.common.tokens == div(alike + 3, 4)

      # Changes say exactly how what is sent differs.
      of = fn kind -> for %{change: ^kind} = c <- diff.changes, do: {c.layer, c.id} end
      ids = &for({layer, id, _} <- &1, do: {layer, id})
      {was, is} = {sent(a), sent(b)}
      assert Enum.sort(ids.(is) -- ids.(was)) == Enum.sort(of.(:added))
      assert Enum.sort(ids.(was) -- ids.(is)) == Enum.sort(of.(:dropped))

      if was == is, do: assert(diff.same)

      unless diff.same,
        do: assert(Enum.any?(diff.changes, &(&1.change != :unsent)))

      for %{change: kind} = change when kind in [:changed, :moved] <- diff.changes do
        assert change.before in [:kept, :cut] and change.after in [:kept, :cut]
      end
    end)
  end
end
