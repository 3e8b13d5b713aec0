# Our exact counts of the texts of a file that bench/peers/exactness.py wrote, against the counts of
# Python tiktoken that stand beside them. Ends with status 1 when there is any difference.

defmodule Bench.Exactness do
  alias Engine.Harness.Tokenizer.Bpe

  @encodings [:cl100k_base, :o200k_base]
  @shown 10

  def run(file, texts) do
    records = file |> File.read!() |> records([])
    ^texts = length(records)
    differences = Enum.flat_map(records, &differences/1)

    for {kind, of_kind} <- records |> Enum.group_by(& &1.kind) |> Enum.sort() do
      bytes = of_kind |> Enum.map(&byte_size(&1.text)) |> Enum.sum()
      IO.puts("  #{String.pad_trailing(kind, 16)} #{length(of_kind)} texts, #{bytes} bytes")
    end

    Enum.each(Enum.take(differences, @shown), &IO.puts/1)
    IO.puts("#{length(records)} texts, #{length(differences)} differences")
    if differences != [], do: System.halt(1)
  end

  defp records(<<>>, done), do: Enum.reverse(done)

  defp records(
         <<size::32, text::binary-size(size), length::32, kind::binary-size(length), cl100k::32,
           o200k::32, rest::binary>>,
         done
       ) do
    records(rest, [%{text: text, kind: kind, counts: [cl100k, o200k]} | done])
  end

  # Twice: from 64 bytes on, the second count is one that was remembered.
  defp differences(%{text: text, kind: kind, counts: counts}) do
    for {encoding, expected} <- Enum.zip(@encodings, counts),
        counted <- Enum.uniq([Bpe.count(text, encoding), Bpe.count(text, encoding)]),
        counted != expected do
      "#{encoding}, #{kind}: we count #{counted}, tiktoken #{expected}: " <>
        inspect(text, printable_limit: 500)
    end
  end
end

[file, texts] = System.argv()
Bench.Exactness.run(file, String.to_integer(texts))
