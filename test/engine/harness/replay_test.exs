defmodule Engine.Harness.ReplayTest do
  use ExUnit.Case, async: true

  import :proper_types, only: [binary: 0, integer: 2, list: 1, oneof: 1]
  import Engine.Property

  alias Engine.Harness.{PromptAssembler, Replay, Report, Tokenizer}
  alias Engine.Tokenizers.Words

  @contents [
    identity: "You sell.",
    instruction_files: [{"AGENTS.md", "Be brief."}, {"web/AGENTS.md", "Be briefer."}],
    project_context: "context",
    business_rules: ["", "one", {{:any, "term"}, "two"}]
  ]

  defp kept(contents \\ @contents, opts \\ []) do
    contents |> PromptAssembler.assemble!(opts) |> Report.to_json(inputs: true)
  end

  # JSON with one value changed.
  defp edited(json, path, value) do
    json
    |> :jiffy.decode([:return_maps, :use_nil])
    |> put_in(Enum.map(path, &if(is_integer(&1), do: Access.at(&1), else: &1)), value)
    |> :jiffy.encode([:use_nil])
    |> IO.iodata_to_binary()
  end

  test "the same bytes again" do
    json = kept(@contents, budgets: [instruction_files: 3, identity: :infinity])
    assert {:ok, replay} = Replay.run(json)
    assert replay.diff.same
    assert {replay.diff.settings, replay.diff.changes} == {[], []}
    assert Report.to_json(replay.assembly, inputs: true) == json

    assert Replay.to_text(replay) ==
             "the bytes are the same: 41 bytes, ~11 tokens\nsha256 #{replay.assembly.sha256}\n"
  end

  test "all settings" do
    code = "# Title\n\n```\n" <> String.duplicate("code\n", 20) <> "```\n"

    opts = [
      budgets: [project_context: 12, business_rules: 2],
      step: [business_rules: 2, task_state: 3],
      at: [project_context: :markdown],
      total_budget: 24,
      give_way: [:task_state, :instruction_files],
      strict: [:identity]
    ]

    contents = Keyword.merge(@contents, project_context: code, task_state: ["a", "b", "c"])
    json = kept(contents, opts)
    assert {:ok, %{report: report, assembly: assembly, diff: diff}} = Replay.run(json)
    assert {diff.same, diff.settings, diff.changes} == {true, [], []}
    assert assembly == PromptAssembler.assemble!(contents, opts) |> same_ids(assembly)

    assert report.prompt.total_budget == 24
    assert report.prompt.give_way == [:task_state, :instruction_files]
    assert report.prompt.strict == [:identity]
    assert Enum.map(report.layers, & &1.at) == [nil, nil, :markdown, nil, nil]
    assert Enum.map(report.layers, & &1.step) == [nil, nil, nil, 2, 3]

    for {path, value, name, before, now} <- [
          {["total_budget"], nil, "total_budget", "24", "infinity"},
          {["give_way"], [], "give_way", "task_state, instruction_files", "none"},
          {["strict"], [], "strict", "identity", "none"},
          {["layers", 3, "step"], nil, "step of business_rules", "2", "none"},
          {["layers", 2, "at"], "line", "at of project_context", "markdown", "line"}
        ] do
      # Without the total budget nothing stands in the way of the others.
      json = edited(json, ["inputs", "total_budget"], nil)
      assert {:ok, %{diff: diff}} = Replay.run(edited(json, ["inputs" | path], value))
      assert %{name: name, before: before, after: now} in diff.settings
    end
  end

  # A report names units by strings.
  defp same_ids(assembly, like) do
    layers =
      for {layer, like} <- Enum.zip(assembly.layers, like.layers) do
        %{layer | given: like.given, kept: like.kept, dropped: like.dropped}
      end

    %{assembly | layers: layers}
  end

  test "names the input that differs" do
    path = ["inputs", "layers", 1, "units", 0, "text"]
    assert {:ok, replay} = Replay.run(edited(kept(), path, "Be long."))
    refute replay.diff.same
    assert replay.diff.settings == []
    assert [%{layer: :instruction_files, id: "AGENTS.md", change: :changed}] = replay.diff.changes
    # "You sell.\n\nBe " are 14 bytes.
    assert replay.diff.first_difference.byte == 14

    # One that is not sent.
    json = kept(@contents, budgets: [instruction_files: 3])
    assert {:ok, replay} = Replay.run(edited(json, path, "Be long."))
    assert replay.diff.same
    assert [%{id: "AGENTS.md", change: :unsent}] = replay.diff.changes
  end

  test "names the setting that differs" do
    json = edited(kept(), ["inputs", "layers", 1, "budget"], 3)
    assert {:ok, replay} = Replay.run(json)
    refute replay.diff.same

    assert replay.diff.settings == [
             %{name: "budget of instruction_files", before: "8000", after: "3"}
           ]

    assert {:ok, replay} = Replay.run(edited(kept(), ["harness"], "0.0.9"))
    assert replay.diff.same
    assert replay.diff.settings == [%{name: "harness", before: "0.0.9", after: "0.1.0"}]

    json = edited(kept(), ["inputs", "tokenizer", "name"], "o200k_base")
    assert {:ok, replay} = Replay.run(json)
    assert replay.diff.settings == [%{name: "tokenizer", before: "bytes/4", after: "o200k_base"}]
  end

  test "says so when nothing but the code differs" do
    text = "another prompt"
    sha256 = Base.encode16(:crypto.hash(:sha256, text), case: :lower)

    json = kept() |> edited(["prompt", "text"], text) |> edited(["prompt", "sha256"], sha256)

    assert {:ok, replay} = Replay.run(json)

    assert Replay.to_text(replay) =~
             "no input and no setting differs: the code that assembles does\n"
  end

  test "tokenizers: this library's, and others that have to be given" do
    json = kept(@contents, tokenizer: {Tokenizer.Bpe, encoding: :cl100k_base})
    assert {:ok, %{assembly: assembly}} = Replay.run(json)
    assert assembly.tokenizer == {Tokenizer.Bpe, encoding: :cl100k_base}

    json = kept(@contents, tokenizer: Words)
    assert {:error, %Report.Error{} = error} = Replay.run(json)

    assert Exception.message(error) ==
             "the report's tokenizer, Engine.Tokenizers.Words, is not one of this library's and has to be given"

    assert {:ok, %{diff: %{same: true, settings: []}}} = Replay.run(json, tokenizer: Words)
  end

  test "what can't be replayed" do
    message = fn json ->
      assert {:error, error} = Replay.run(json)
      Exception.message(error)
    end

    assembly = PromptAssembler.assemble!(@contents)

    assert message.(Report.to_json(assembly)) ==
             "the report holds no inputs; it has to be written with them"

    assert message.(Report.to_json(assembly, inputs: true, prompt: false)) ==
             "the report was written without the prompt's text"

    assert message.(edited(kept(), ["prompt", "text"], "x")) =~
             ~r/^the report's prompt was edited: its sha256 is 2d711642.*, not /

    assert message.("\xFF") == "not a report: not UTF-8 at byte 0"
    assert message.("[]") =~ "not a report: "
    misplaced = edited(kept(), ["inputs", "layers", 0, "name"], "task_state")
    assert message.(misplaced) =~ "expected its inputs to be the five layers"
    # A text where units belong.
    text = kept() |> edited(["inputs", "layers", 1, "units"], nil)
    text = edited(text, ["inputs", "layers", 1, "text"], "x")
    assert message.(text) =~ "expected layer :instruction_files to be a list of units"
  end

  defp text,
    do:
      :proper_types.bind(
        list(oneof(["word ", "é", "漢", "\n", "\0", "<", ""])),
        &Enum.join/1,
        false
      )

  defp id, do: oneof([binary(), text(), integer(0, 3), {text(), integer(0, 3)}])

  test "whatever was assembled, names that are not UTF-8 too" do
    units = list(oneof([text(), {id(), text()}]))

    check_all({text(), units, text(), units, integer(0, 30)}, fn {a, b, c, d, budget} ->
      contents = [identity: a, instruction_files: b, project_context: c, business_rules: d]
      budgets = Enum.map(PromptAssembler.layers(), &{&1, budget})
      assert {:ok, replay} = Replay.run(kept(contents, budgets: budgets))
      assert {replay.diff.same, replay.diff.settings, replay.diff.changes} == {true, [], []}
    end)
  end
end
