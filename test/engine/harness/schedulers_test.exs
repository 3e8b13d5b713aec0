defmodule Engine.Harness.SchedulersTest do
  # Not async: the VM's schedulers are what is looked at.
  use ExUnit.Case, async: false

  alias Engine.Harness.Tokenizer

  test "100 processes that count leave the normal schedulers free" do
    {:ok, tokenizer} = Tokenizer.new({Tokenizer.Bpe, encoding: :o200k_base})

    # Each its own text, so that nothing is remembered; a word is a token, and so are the blank and
    # the number at the end.
    texts = for n <- 100..199, do: String.duplicate(" word", 200_000) <> " #{n}"

    ticks = :counters.new(1, [])
    ticker = spawn_link(fn -> tick(ticks) end)

    {counts, meanwhile} =
      texts
      |> Enum.map(fn text ->
        Task.async(fn ->
          before = :counters.get(ticks, 1)
          count = Tokenizer.count(tokenizer, text)
          {count, :counters.get(ticks, 1) - before}
        end)
      end)
      |> Task.await_many(:infinity)
      |> Enum.unzip()

    Process.unlink(ticker)
    Process.exit(ticker, :kill)
    assert counts == List.duplicate(200_002, 100)
    # Counts on normal schedulers would occupy all of them while most of the processes wait for
    # theirs, and the ticker would stand still.
    assert meanwhile |> Enum.sort() |> Enum.at(50) > 1_000
  end

  # A process that goes through the run queue for each of its ticks.
  defp tick(ticks) do
    :counters.add(ticks, 1, 1)
    :erlang.yield()
    tick(ticks)
  end
end
