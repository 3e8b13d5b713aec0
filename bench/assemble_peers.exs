# 1,000 units of 434 bytes into 8,000 tokens, beside libraries that make the same selection; then
# what the same assembly costs again, and how the time grows. Arguments: Python, tiktoken's files,
# the folder of npm's packages.

Code.require_file("contestants.exs", __DIR__)

alias Bench.Contestants
alias Engine.Harness.{Native, PromptAssembler, Tokenizer}

[python, vocabularies, npm] = System.argv()
bpe = {Tokenizer.Bpe, encoding: :o200k_base}

unit = fn number ->
  head = "#{number}. A rule of the house: what was agreed with a customer is written down. "
  String.slice(head <> String.duplicate("Prices are net, #{number} of them. ", 20), 0, 434)
end

units = for number <- 1..1_000, do: unit.(number)
file = Path.join(System.tmp_dir!(), "engine-bench-units-#{System.pid()}.json")
File.write!(file, Engine.Harness.Json.encode(units))

assemble = fn units, tokenizer, budget ->
  PromptAssembler.assemble!(%{business_rules: units},
    budgets: [business_rules: budget],
    tokenizer: tokenizer
  )
end

kept = fn assembly -> length(Enum.find(assembly.layers, &(&1.name == :business_rules)).kept) end

ours = fn
  "bytes" -> kept.(assemble.(units, Tokenizer.Approximate, 8_000))
  _exact -> kept.(assemble.(units, bpe, 8_000))
end

peers = [
  {"langchain-core (PyPI)", [python, "bench/peers/assemble.py", vocabularies, file]},
  {"@langchain/core (npm)", ["node", "bench/peers/assemble.mjs", npm, "langchain", file]},
  {"promptrix (npm)", ["node", "bench/peers/assemble.mjs", npm, "promptrix", file]}
]

ms = &:erlang.float_to_binary(&1 / 1.0e6, decimals: 3)
times = &:erlang.float_to_binary(&1 / 1, decimals: 1)

row = fn [name | cells] ->
  IO.puts(
    "  " <> String.pad_trailing(name, 30) <> Enum.map_join(cells, &String.pad_leading(&1, 14))
  )
end

for {mode, title} <- [
      {"bytes", "bytes/4"},
      {"exact", "exact (o200k_base), nothing remembered"},
      {"warm", "exact, counts remembered"}
    ] do
  contestants = for {name, command} <- peers, do: {name, Contestants.start(command)}
  Native.tokens_remember(if mode == "warm", do: 65_536, else: 0)
  IO.puts("\n1,000 units into 8,000 tokens, #{title}")
  row.(["", "ms", "times ours", "units kept"])

  [{_, {:ok, time, _}} | _] =
    outcomes = Contestants.medians([{"harness", ours} | contestants], mode, 21)

  for {name, outcome} <- outcomes do
    case outcome do
      {:ok, other, kept} -> row.([name, ms.(other), times.(other / time), kept])
      {:error, reason} -> row.([name, reason])
    end
  end
end

File.rm!(file)

timed = fn run ->
  Contestants.medians([{"", fn _ -> run.() && 0 end}], "", 9) |> hd() |> elem(1) |> elem(1)
end

IO.puts("\nthe same assembly again, exact (whole: nothing is dropped)")
row.(["", "first, ms", "again, ms", "times"])

for {name, budget} <- [{"into 8,000 tokens", 8_000}, {"whole", :infinity}] do
  Native.tokens_remember(0)
  first = timed.(fn -> assemble.(units, bpe, budget) end)
  Native.tokens_remember(65_536)
  again = timed.(fn -> assemble.(units, bpe, budget) end)
  row.([name, ms.(first), ms.(again), times.(first / again)])
end

Native.tokens_remember(0)
IO.puts("\ngrowth, whole: ns a unit, and ns a byte")
row.(["", "bytes/4", "exact"])

for count <- [100, 1_000, 10_000, 100_000] do
  many = for number <- 1..count, do: unit.(number)

  row.([
    "#{count} units"
    | for(tokenizer <- [Tokenizer.Approximate, bpe]) do
        times.(timed.(fn -> assemble.(many, tokenizer, :infinity) end) / count)
      end
  ])
end

for megabytes <- [1, 10, 100] do
  text = String.duplicate("Zwölf Boxkämpfer jagen Viktor. ", div(megabytes * 1_000_000, 33))

  row.([
    "a text of #{megabytes} MB"
    | for(tokenizer <- [Tokenizer.Approximate, bpe]) do
        run = fn ->
          PromptAssembler.assemble!(%{project_context: text},
            budgets: [project_context: :infinity],
            tokenizer: tokenizer
          )
        end

        :erlang.float_to_binary(timed.(run) / byte_size(text), decimals: 2)
      end
  ])
end
