alias Engine.Harness.Tokenizer.HuggingFace

if HuggingFace.available?() do
  defmodule Engine.Harness.Tokenizer.HuggingFaceTest do
    use ExUnit.Case, async: true

    import Engine.Workspace
    alias Engine.Harness.{InvalidTextError, PromptAssembler, Report, Tokenizer}
    alias Engine.Harness.Tokenizer.HuggingFace

    @folder Path.expand("../../../cases/hugging_face", __DIR__)

    # What a model of bytes, one of words and one of scored pieces is called in test/cases.
    @models ["bpe", "word_piece", "unigram"]

    defp path(model), do: Path.join(@folder, model <> ".json")

    defp tokenizer!(model) do
      {:ok, tokenizer} = Tokenizer.new({HuggingFace, path: path(model)})
      tokenizer
    end

    defp texts, do: for(%{"text" => text} <- Engine.Cases.json("tokens.json"), do: text)

    # counts.json is what the Python package counts.
    test "the counts of the Python package" do
      counts = Engine.Cases.json("hugging_face/counts.json")

      for model <- @models do
        tokenizer = tokenizer!(model)
        assert length(counts[model]) == 64

        for {text, count} <- Enum.zip(texts(), counts[model]) do
          assert Tokenizer.count(tokenizer, text) == count
          assert Tokenizer.count_up_to(tokenizer, text, count) == count
          if count > 0, do: assert(Tokenizer.count_up_to(tokenizer, text, count - 1) >= count)
        end
      end
    end

    test "a cut text is within its budget by its own count, and no shorter than it must be" do
      for model <- @models, text <- texts(), budget <- [20, 60] do
        opts = [tokenizer: {HuggingFace, path: path(model)}, budgets: [project_context: budget]]
        assembly = PromptAssembler.assemble!([project_context: text], opts)
        layer = Enum.find(assembly.layers, &(&1.name == :project_context))
        tokens = Tokenizer.count(tokenizer!(model), layer.text)
        assert layer.tokens == tokens and tokens <= budget
        refute layer.estimated
        if Tokenizer.count(tokenizer!(model), text) <= budget, do: assert(layer.text == text)
      end
    end

    test "units are dropped whole, and the rest is within its budget" do
      units = for n <- 1..200, do: "rule #{n}: prices are net, and delivered the next day"
      opts = [tokenizer: {HuggingFace, path: path("bpe")}, budgets: [business_rules: 500]]
      assembly = PromptAssembler.assemble!([business_rules: units], opts)
      layer = Enum.find(assembly.layers, &(&1.name == :business_rules))
      kept = Enum.take(units, -(200 - length(layer.dropped)))
      count = &Tokenizer.count(tokenizer!("bpe"), Enum.join(&1, "\n\n"))
      assert layer.text == Enum.join(kept, "\n\n")
      assert count.(kept) <= 500
      assert count.(Enum.take(units, -(length(kept) + 1))) > 500
    end

    test "text that spells a special token is ordinary text; one added as a word is found" do
      tokenizer = tokenizer!("bpe")
      assert Tokenizer.count(tokenizer, "<|endoftext|>") > 1
      assert Tokenizer.count(tokenizer, "<think>") == 1
    end

    test "the report names the file" do
      opts = [tokenizer: {HuggingFace, path: path("bpe")}]
      assembly = PromptAssembler.assemble!([identity: "You sell."], opts)
      assert Report.new(assembly).tokenizer.name == "hugging_face/bpe.json"
    end

    test "a file that can't be used is an error that names it" do
      root =
        workspace!(%{
          "no.json" => "{}",
          "cut.json" => binary_part(File.read!(path("bpe")), 0, 5000)
        })

      {_, 0} = System.cmd("mkfifo", [root <> "/pipe"])
      {_, 0} = System.cmd("truncate", ["-s", "134217729", root <> "/huge.json"])

      for {name, reason} <- [
            {"absent.json", :missing},
            {"", :not_regular},
            {"pipe", :not_regular},
            {"huge.json", :too_large},
            {"no.json", :damaged},
            {"cut.json", :damaged}
          ] do
        path = Path.join(root, name)
        opts = [tokenizer: {HuggingFace, path: path}]

        assert {:error, %HuggingFace.Error{reason: ^reason, path: ^path} = error} =
                 PromptAssembler.assemble([identity: "You sell."], opts)

        assert Exception.message(error) =~ path
      end
    end

    test "a file that changed is read again" do
      root = workspace!()
      path = root <> "/tokenizer.json"

      count = fn ->
        {:ok, tokenizer} = Tokenizer.new({HuggingFace, path: path})
        Tokenizer.count(tokenizer, "a a a a a a a")
      end

      [seven_words, pieces] =
        for model <- ["word_piece", "bpe"] do
          File.cp!(path(model), path)
          count.()
        end

      assert seven_words == 7
      assert pieces == Tokenizer.count(tokenizer!("bpe"), "a a a a a a a")
    end

    test "what is not UTF-8, and a text that is too long" do
      tokenizer = tokenizer!("bpe")
      assert %InvalidTextError{offset: 1} = catch_error(Tokenizer.count(tokenizer, "a\xFF"))
      long = String.duplicate(" ", 16 * 1024 * 1024 + 1)

      assert %HuggingFace.Error{reason: :text_too_large} =
               catch_error(Tokenizer.count(tokenizer, long))

      opts = [tokenizer: {HuggingFace, path: path("bpe")}]

      assert {:error, %HuggingFace.Error{reason: :text_too_large}} =
               PromptAssembler.assemble([project_context: long], opts)
    end

    test "twenty processes at once" do
      text = Enum.join(texts())
      count = Tokenizer.count(tokenizer!("unigram"), text)

      tasks =
        for _ <- 1..20, do: Task.async(fn -> Tokenizer.count(tokenizer!("unigram"), text) end)

      assert Task.await_many(tasks, :infinity) == List.duplicate(count, 20)
    end

    test "a path of another kind raises" do
      for path <- [nil, "", "a\0b", :file] do
        assert_raise ArgumentError,
                     ~r/expected :path to be the path of a tokenizer.json, got: /,
                     fn ->
                       HuggingFace.init(path: path)
                     end
      end
    end
  end
else
  IO.puts(
    "The tests of Tokenizer.HuggingFace are left out: :engine was compiled without HARNESS_HF=1."
  )

  defmodule Engine.Harness.Tokenizer.HuggingFaceTest do
    use ExUnit.Case, async: true
    alias Engine.Harness.PromptAssembler
    alias Engine.Harness.Tokenizer.HuggingFace

    @tag skip: ":engine was compiled without HARNESS_HF=1"
    test "counts by a tokenizer.json", do: flunk("never run")

    test "says that it was compiled without it, and how to get it" do
      opts = [tokenizer: {HuggingFace, path: "/srv/qwen3/tokenizer.json"}]

      assert {:error, %HuggingFace.Error{reason: :not_compiled} = error} =
               PromptAssembler.assemble([identity: "You sell."], opts)

      assert Exception.message(error) ==
               ~s(tokenizer "/srv/qwen3/tokenizer.json": a tokenizer.json needs :engine to be ) <>
                 "compiled with the environment variable HARNESS_HF=1: HARNESS_HF=1 mix compile"
    end
  end
end
