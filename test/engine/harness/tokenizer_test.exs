defmodule Engine.Harness.TokenizerTest do
  # Not async: changes the application's environment, and the table that all tests share.
  use ExUnit.Case, async: false

  alias Engine.Harness.{PromptAssembler, Tokenizer}

  doctest Tokenizer

  setup do
    on_exit(fn ->
      Application.put_env(:engine, :remembered_counts, 65_536)
      :ok = Tokenizer.configure_cache()
      Application.delete_env(:engine, :remembered_counts)
    end)
  end

  test "with remembered counts off everything is the same" do
    contents = [
      project_context: String.duplicate("Zwölf Boxkämpfer. ", 200),
      task_state: for(n <- 1..50, do: "#{n}: " <> String.duplicate("漢字 ", 20))
    ]

    opts = [
      tokenizer: {Tokenizer.Bpe, encoding: :o200k_base},
      budgets: [project_context: 100, task_state: 500]
    ]

    first = PromptAssembler.assemble!(contents, opts)
    hits = Tokenizer.cache_info().hits
    assert PromptAssembler.assemble!(contents, opts) == first
    assert Tokenizer.cache_info().hits >= hits + 50

    Application.put_env(:engine, :remembered_counts, 0)
    assert Tokenizer.configure_cache() == :ok
    assert %{capacity: 0, entries: 0, hits: hits} = Tokenizer.cache_info()
    assert PromptAssembler.assemble!(contents, opts) == first
    assert %{capacity: 0, entries: 0, hits: ^hits} = Tokenizer.cache_info()
  end

  test "a size that is none is named when the application starts" do
    for size <- [-1, 16_777_217, 1.5, nil, :infinity] do
      Application.put_env(:engine, :remembered_counts, size)

      assert_raise ArgumentError,
                   "expected :remembered_counts of application :engine to be an integer from 0 to " <>
                     "16777216, got: #{inspect(size)}",
                   &Tokenizer.configure_cache/0
    end
  end
end
