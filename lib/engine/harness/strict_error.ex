defmodule Engine.Harness.StrictError do
  @moduledoc """
  Layers of which nothing may be lost, and something would be.

  `layers` has a map for each: `layer`, `tokens_before` (of all of it), `tokens` (of what is left),
  `budget` and `limit` (less than the budget where it gave way to the total budget).
  """
  defexception [:layers]

  @type t :: %__MODULE__{
          layers: [
            %{
              layer: atom,
              tokens_before: non_neg_integer,
              tokens: non_neg_integer,
              budget: non_neg_integer | :infinity,
              limit: non_neg_integer
            }
          ]
        }

  @impl true
  def message(error), do: Enum.map_join(error.layers, "; ", &lost/1)

  defp lost(layer) do
    "layer #{inspect(layer.layer)} is strict and would lose tokens: #{layer.tokens} of " <>
      "#{layer.tokens_before} fit #{limit(layer)}"
  end

  defp limit(%{budget: budget, limit: budget}), do: "its budget of #{budget}"

  defp limit(layer) do
    "the #{layer.limit} that the total budget leaves (its own is #{layer.budget})"
  end
end
