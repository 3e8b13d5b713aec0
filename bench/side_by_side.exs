defmodule Bench.SideBySide do
  @moduledoc """
  Times two functions in turn, in one run, and prints the medians and their ratio: figures of one
  moment on one machine, so that the ratio holds where the single times drift.
  """

  # How long one row is measured, and how many rounds that gives at the least.
  @milliseconds 1_000
  @rounds 5

  def print(title, {a, b}, rows) do
    IO.puts("\n#{title}")
    IO.puts(line(["", a, b, "#{b} / #{a}"]))

    for {name, run_a, run_b} <- rows do
      {time_a, time_b} = medians(run_a, run_b)
      IO.puts(line([name, time(time_a), time(time_b), ratio(time_b / time_a)]))
    end
  end

  defp medians(run_a, run_b) do
    a = {run_a, repeats(run_a)}
    b = {run_b, repeats(run_b)}
    stop = System.monotonic_time(:millisecond) + @milliseconds
    {times_a, times_b} = stop |> rounds(a, b, []) |> Enum.unzip()
    {median(times_a), median(times_b)}
  end

  # Small work is repeated within a round, so that neither the clock's steps nor the start of the
  # measuring process matter.
  defp repeats(run), do: max(1, trunc(2_000_000 / max(1, measure({run, 1}))))

  defp rounds(stop, a, b, done) do
    if length(done) >= @rounds and System.monotonic_time(:millisecond) > stop do
      done
    else
      rounds(stop, a, b, [{measure(a), measure(b)} | done])
    end
  end

  # Nanoseconds, in a process of its own, so that no garbage of another round is collected in it.
  defp measure({run, repeat}) do
    Task.await(
      Task.async(fn ->
        start = System.monotonic_time(:nanosecond)
        for _ <- 1..repeat, do: run.()
        (System.monotonic_time(:nanosecond) - start) / repeat
      end),
      :infinity
    )
  end

  defp median(times), do: times |> Enum.sort() |> Enum.at(div(length(times), 2))

  defp time(ns) when ns < 1_000_000, do: "#{Float.round(ns / 1_000, 1)} µs"
  defp time(ns), do: "#{Float.round(ns / 1_000_000, 2)} ms"

  defp ratio(ratio), do: "#{Float.round(ratio, 2)}"

  defp line([name | cells]) do
    "  " <> String.pad_trailing(name, 20) <> Enum.map_join(cells, &String.pad_leading(&1, 34))
  end
end
