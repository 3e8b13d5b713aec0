defmodule Engine.Harness.PlanTest do
  use ExUnit.Case, async: true

  alias Engine.Harness.{Plan, Tokenizer}

  test "the size decides where it runs, not what comes out" do
    {:ok, tokenizer} = Tokenizer.new(Tokenizer.Approximate)
    {:ok, elixir} = Tokenizer.new(Engine.Tokenizers.BytesByFour)

    for count <- [1, 999, 1_000, 1_001, 5_000], budget <- [0, 1, 700, :infinity] do
      units = Enum.map(1..count, &"unit #{&1}")
      layers = [{:drop_whole_units, budget, units}, {:truncate_tail, budget, Enum.join(units)}]
      assert {:ok, [_, _], _} = plan = Plan.make(layers, tokenizer)
      assert plan == Plan.Bisection.make(layers, elixir)
    end
  end
end
