defmodule Engine.Harness.LintTest do
  use ExUnit.Case, async: true

  alias Engine.Harness.{Lint, PromptAssembler}

  doctest Lint

  defp warnings(contents, opts \\ []) do
    assembly = PromptAssembler.assemble!(contents, opts)

    for warning <- Lint.warnings(assembly) do
      found = binary_part(assembly.prompt, warning.offset, warning.length)
      {warning.layer, warning.kind, warning.count, found}
    end
  end

  test "values that change every time, in every layer but the last" do
    uuid = "123e4567-e89b-42d3-a456-426614174000"

    for {text, kind, found} <- [
          {"It is 04:55:14.", :clock_time, "04:55:14"},
          {"today: 2026-01-02T03:04:05Z", :clock_time, "2026-01-02T03:04:05"},
          {"timestamp: 1767323045", :clock_time, "timestamp: 1767323045"},
          {"for #{uuid} only", :uuid, uuid},
          {"session_id=ab12cd34", :session_id, "session_id=ab12cd34"},
          {"in sess_a1b2c3d4e5", :session_id, "sess_a1b2c3d4e5"}
        ] do
      for layer <- [:identity, :project_context] do
        assert warnings([{layer, text}]) == [{layer, kind, 1, found}]
      end

      for layer <- [:instruction_files, :business_rules] do
        assert warnings([{layer, ["rule", text, text]}]) == [{layer, kind, 2, found}]
      end

      assert warnings(task_state: [text]) == []
    end
  end

  test "what looks like one of them and is none" do
    for text <- [
          "opens at 9:30, closes at 17:00",
          "since 2026-01-02",
          "version 1.2.3, port 8080, 12:34:56:78:9a:bc",
          "the session id is in the header",
          "session_store is a table",
          "123e4567-e89b-42d3-a456",
          "order 1767323045"
        ] do
      assert warnings(identity: text) == []
    end
  end

  test "blobs over 512 characters, where tokens are an estimate" do
    base64 = fn size -> binary_part(String.duplicate("aGVsbG8gd29ybGQh", 60), 0, size) end
    assert warnings(task_state: [base64.(512)]) == []
    assert warnings(task_state: [base64.(513)]) == [{:task_state, :opaque_blob, 1, base64.(513)}]
    # Wrapped at 76 characters, as in MIME (RFC 2045).
    lines = for _ <- 1..8, do: base64.(76)
    wrapped = Enum.join(lines, "\n")
    assert [{:identity, :opaque_blob, 1, ^wrapped}] = warnings(identity: wrapped)
    assert warnings(identity: String.duplicate("-", 600)) == []
    assert warnings(identity: String.duplicate("word ", 200)) == []

    exact = [tokenizer: {Engine.Harness.Tokenizer.Bpe, encoding: :o200k_base}]
    assert warnings([task_state: [base64.(600)]], exact) == []
  end

  test "what was dropped is not warned of" do
    assert warnings([business_rules: ["04:55:14", "rule"]], budgets: [business_rules: 1]) == []
  end

  test "a hostile value can't break the sentence, nor a long one flood it" do
    id = "session_id='" <> String.duplicate("a1", 1_500)
    assembly = PromptAssembler.assemble!(identity: id)
    warnings = Lint.warnings(assembly)
    assert Enum.map(warnings, & &1.kind) == [:session_id, :opaque_blob]

    for %{message: message} <- warnings do
      refute message =~ "\n"
      assert byte_size(message) < 200
    end
  end
end
