defmodule Engine.Harness.Table do
  # How figures are laid out where people look at them.
  @moduledoc false

  @cells 10

  @doc """
  Rows of cells as lines of text: each column as wide as its widest cell, on its own side.

      iex> Engine.Harness.Table.lines([["a", "1"], ["bcd", "20"]], [:left, :right])
      ["a     1", "bcd  20"]
  """
  @spec lines([[String.t()]], [:left | :right]) :: [String.t()]
  def lines(rows, sides) do
    widths =
      Enum.zip_with(rows, fn column -> column |> Enum.map(&String.length/1) |> Enum.max() end)

    for row <- rows do
      [row, widths, sides]
      |> Enum.zip_with(fn [cell, width, side] -> pad(cell, width, side) end)
      |> Enum.join("  ")
      |> String.trim_trailing()
    end
  end

  @doc "A cell made this wide."
  @spec pad(String.t(), non_neg_integer, :left | :right) :: String.t()
  def pad(cell, width, :left), do: String.pad_trailing(cell, width)
  def pad(cell, width, :right), do: String.pad_leading(cell, width)

  @doc """
  How full something is, in ten cells: each part with its own sign, the least part of a cell whole.

      iex> Engine.Harness.Table.bar([{"█", 21}, {"▒", 9}], 100)
      "███░░░░░░░"
      iex> Engine.Harness.Table.bar([{"█", 20}, {"▒", 10}], 100)
      "██▒░░░░░░░"
  """
  @spec bar([{String.t(), non_neg_integer}], non_neg_integer | nil | :infinity) :: String.t()
  def bar(parts, limit) when is_integer(limit) and limit > 0 do
    {bar, filled, _sum} =
      Enum.reduce(parts, {"", 0, 0}, fn {sign, amount}, {bar, filled, sum} ->
        sum = sum + amount
        full = min(@cells, div(sum * @cells + limit - 1, limit))
        {bar <> String.duplicate(sign, full - filled), full, sum}
      end)

    bar <> String.duplicate("░", @cells - filled)
  end

  def bar(_parts, _limit), do: String.duplicate("░", @cells)

  @doc """
  A number as people read it: a comma between thousands, `∞` for no limit.

      iex> Enum.map([1234567, -8, nil, :infinity], &Engine.Harness.Table.number/1)
      ["1,234,567", "-8", "∞", "∞"]
  """
  @spec number(integer | nil | :infinity) :: String.t()
  def number(unlimited) when unlimited in [nil, :infinity], do: "∞"

  def number(integer) do
    integer
    |> Integer.to_string()
    |> String.replace(~r/(?<=\d)(?=(\d{3})+\z)/, ",")
  end
end
