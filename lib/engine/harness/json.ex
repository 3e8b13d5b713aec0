defmodule Engine.Harness.Json do
  # Any term as JSON text, the same for the same term: members are sorted, and what JSON has no
  # word for stands as what `inspect/1` shows.
  @moduledoc false

  @spec encode(term) :: iodata
  def encode(nil), do: "null"
  def encode(boolean) when is_boolean(boolean), do: Atom.to_string(boolean)
  def encode(atom) when is_atom(atom), do: string(Atom.to_string(atom))
  def encode(integer) when is_integer(integer), do: Integer.to_string(integer)
  def encode(float) when is_float(float), do: Float.to_string(float)
  def encode(text) when is_binary(text), do: string(text)

  def encode(%{} = map) when not is_struct(map) do
    members =
      map
      |> Enum.map(fn {key, value} -> {name(key), value} end)
      |> Enum.sort()
      |> Enum.map(fn {name, value} -> [string(name), ?:, encode(value)] end)

    [?{, Enum.intersperse(members, ?,), ?}]
  end

  def encode(list) when is_list(list) do
    if List.improper?(list) do
      inspected(list)
    else
      [?[, list |> Enum.map(&encode/1) |> Enum.intersperse(?,), ?]]
    end
  end

  def encode(other), do: inspected(other)

  defp name(key) when is_binary(key), do: key
  defp name(key) when is_atom(key), do: Atom.to_string(key)
  defp name(key), do: inspect(key, limit: :infinity)

  defp inspected(term), do: string(inspect(term, limit: :infinity, printable_limit: :infinity))

  defp string(text) do
    if String.valid?(text), do: [?", escape(text), ?"], else: inspected(text)
  end

  @special ["\"", "\\" | for(byte <- 0..0x1F, do: <<byte>>)]

  # Most strings have nothing to escape, and finding that out is cheaper than building the search.
  defp escape(text) do
    if plain?(text), do: text, else: String.replace(text, @special, &escaped/1)
  end

  defp plain?(<<byte, rest::binary>>) when byte >= 0x20 and byte != ?" and byte != ?\\,
    do: plain?(rest)

  defp plain?(rest), do: rest == ""

  defp escaped("\""), do: "\\\""
  defp escaped("\\"), do: "\\\\"

  defp escaped(<<byte>>) do
    "\\u00" <> (byte |> Integer.to_string(16) |> String.pad_leading(2, "0"))
  end
end
