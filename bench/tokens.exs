# Exact counts beside their peers: through the library, by the core from Rust alone, by two crates,
# by Python tiktoken and by npm's gpt-tokenizer. Arguments: the folder of the texts, the encoding,
# the program of the core and the crates, Python, tiktoken's files, the folder of npm's packages.

Code.require_file("contestants.exs", __DIR__)

alias Bench.Contestants
alias Engine.Harness.Tokenizer.Bpe

[folder, encoding_name, core, python, vocabularies, npm] = System.argv()
encoding = String.to_existing_atom(encoding_name)
# What is remembered would be looked up, not counted.
Engine.Harness.Native.tokens_remember(0)

commands = [
  {"core alone", [core, "harness", encoding_name]},
  {"bpe-openai", [core, "bpe-openai", encoding_name]},
  {"splintr", [core, "splintr", encoding_name]},
  {"tiktoken", [python, "bench/peers/tokens.py", vocabularies, encoding_name]},
  {"gpt-tokenizer", ["node", "bench/peers/tokens.mjs", npm, encoding_name]}
]

row = fn name, cells ->
  IO.puts(
    "  " <> String.pad_trailing(name, 18) <> Enum.map_join(cells, &String.pad_leading(&1, 15))
  )
end

ms = &:erlang.float_to_binary(&1 / 1.0e6, decimals: 1)
times = &:erlang.float_to_binary(&1 / 1, decimals: 2)

names = Enum.map(commands, &elem(&1, 0))
peers = for {name, command} <- commands, do: {name, Contestants.start(command)}
IO.puts("#{encoding_name}, the first use of it")
row.("", names)
row.("ms", for({_, {_, [ms, _]}} <- peers, do: "#{ms}"))
row.("MB", for({_, {_, [_, kb]}} <- peers, do: times.(kb / 1024)))

count = fn path -> Bpe.count(:persistent_term.get(path), encoding) end

table = fn title, texts, contestants, rounds ->
  IO.puts("\n#{title}")
  row.("", ["NIF, MB/s" | for({name, _} <- contestants, do: name)])

  for name <- texts, into: %{} do
    path = Path.join(folder, name)
    text = File.read!(path)
    :persistent_term.put(path, text)

    [{_, {:ok, time, tokens}} | others] =
      Contestants.medians([{"NIF", count} | contestants], path, rounds)

    :persistent_term.erase(path)

    cells =
      for {peer, outcome} <- others do
        case outcome do
          {:ok, other, ^tokens} ->
            times.(other / time)

          {:ok, other, differs} ->
            raise "#{name}: #{peer} counts #{differs}, not #{tokens}, in #{other} ns"

          {:error, reason} ->
            reason
        end
      end

    row.(name, [times.(byte_size(text) / 1.0e6 / (time / 1.0e9)) | cells])
    {name, time}
  end
end

table.(
  "texts of 2 MB and the mix of them, times ours",
  ~w(prose code cjk emoji base64 mix),
  peers,
  7
)

# Python and npm take minutes for some of these.
{crates, _slow} = Enum.split(peers, 3)

worst =
  ~w(one-letter spaces newlines carets random-letters random-latin-1 base64-line emoji-sequences)

one = table.("worst cases of 1 MB, times ours", Enum.map(worst, &"#{&1}.1"), crates, 3)
four = table.("and of 4 MB", Enum.map(worst, &"#{&1}.4"), crates, 3)

IO.puts("\nthe NIF's time from 1 MB to 4 MB (4 is linear)")
row.("", ["1 MB, ms", "4 MB, ms", "times"])

for name <- worst do
  {one, four} = {one["#{name}.1"], four["#{name}.4"]}
  row.(name, [ms.(one), ms.(four), times.(four / one)])
end
