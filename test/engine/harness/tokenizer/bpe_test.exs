defmodule Engine.Harness.Tokenizer.BpeTest do
  use ExUnit.Case, async: true

  alias Engine.Harness.{InvalidTextError, PromptAssembler, Tokenizer}
  alias Engine.Harness.Tokenizer.Bpe
  alias Engine.Tokenizers.Delegated

  doctest Bpe

  @encodings [:o200k_base, :cl100k_base]

  setup_all do
    [cases: Engine.Cases.json("tokens.json")]
  end

  test "the counts of tokens.json", %{cases: cases} do
    assert length(cases) == 64

    for %{"text" => text, "counts" => counts} <- cases, encoding <- @encodings do
      {:ok, tokenizer} = Tokenizer.new({Bpe, encoding: encoding})
      assert Tokenizer.count(tokenizer, text) == counts[Atom.to_string(encoding)]
    end
  end

  for module <- [Bpe, Delegated] do
    @module module

    test "the truncations of tokens.json, by #{inspect(module)}", %{cases: cases} do
      for %{"text" => text, "truncations" => truncations} <- cases,
          %{"encoding" => encoding, "budget" => budget, "min_cut_at" => least} <- truncations do
        encoding = String.to_existing_atom(encoding)
        opts = [tokenizer: {@module, encoding: encoding}, budgets: [project_context: budget]]
        assembly = PromptAssembler.assemble!([project_context: text], opts)
        layer = Enum.find(assembly.layers, &(&1.name == :project_context))

        {:ok, tokenizer} = Tokenizer.new({Bpe, encoding: encoding})
        assert layer.tokens == Tokenizer.count(tokenizer, layer.text)
        assert layer.tokens <= budget
        assert (layer.cut_at || 0) >= least
        refute layer.estimated
      end
    end
  end

  test "100 processes count at once, all the same" do
    text = String.duplicate("Zwölf Boxkämpfer 漢字 don't 12345\n", 2_000)
    {:ok, tokenizer} = Tokenizer.new({Bpe, encoding: :o200k_base})
    expected = Tokenizer.count(tokenizer, text)

    counts =
      1..100
      |> Enum.map(fn _ -> Task.async(fn -> Tokenizer.count(tokenizer, text) end) end)
      |> Task.await_many(60_000)

    assert Enum.uniq(counts) == [expected]
  end

  test "a text that was counted is looked up from then on" do
    text = "The nonce of this test is #{inspect(make_ref())}. " <> String.duplicate("net ", 20)
    before = Tokenizer.cache_info()
    count = Bpe.count(text, :cl100k_base)
    between = Tokenizer.cache_info()
    assert Bpe.count(text, :cl100k_base) == count
    later = Tokenizer.cache_info()

    # Other tests count at the same time.
    assert between.misses > before.misses
    assert later.hits > between.hits
    assert later.entries <= later.capacity
    assert later.capacity == 65_536
  end

  test "text that is not UTF-8 is named" do
    assert_raise InvalidTextError, "the text is not UTF-8 at byte 3", fn ->
      Bpe.count("caf\xE9", :o200k_base)
    end

    opts = [tokenizer: {Bpe, encoding: :o200k_base}]

    assert PromptAssembler.assemble([task_state: ["ok", "caf\xE9"]], opts) ==
             {:error, %InvalidTextError{layer: :task_state, unit: 1, offset: 3}}
  end

  test "options that are none raise" do
    for {opts, message} <- [
          {[], "expected :encoding to be one of :o200k_base, :cl100k_base, got: nil"},
          {[encoding: "o200k_base"],
           ~s(expected :encoding to be one of :o200k_base, :cl100k_base, got: "o200k_base")},
          {[model: "gpt-5"], "option :model is unknown, expected any of: :encoding"}
        ] do
      assert_raise ArgumentError, message, fn ->
        PromptAssembler.assemble(%{}, tokenizer: {Bpe, opts})
      end
    end
  end
end
