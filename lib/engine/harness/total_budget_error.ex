defmodule Engine.Harness.TotalBudgetError do
  @moduledoc """
  A total budget that is less than what never gives way costs: the identity at least.

  Fields: `total_budget`, `tokens` (what that costs, separators included) and `layers` (of what:
  `[{name, tokens}]`).
  """
  defexception [:total_budget, :tokens, :layers]

  @type t :: %__MODULE__{
          total_budget: non_neg_integer,
          tokens: non_neg_integer,
          layers: [{atom, non_neg_integer}]
        }

  @impl true
  def message(error) do
    layers = Enum.map_join(error.layers, ", ", fn {name, tokens} -> "#{name} #{tokens}" end)

    "the total budget is #{error.total_budget} tokens, but what never gives way costs " <>
      "#{error.tokens} (#{layers})"
  end
end
