defmodule Engine.Harness.InvalidTextError do
  @moduledoc """
  A layer's text that is not UTF-8.

  Fields: `layer`, `unit` (the unit's id, `nil` for a layer of text) and `offset` (the byte at
  which it stops being UTF-8).
  """
  defexception [:layer, :unit, :offset]

  @type t :: %__MODULE__{layer: atom, unit: term, offset: non_neg_integer}

  @impl true
  def message(%{unit: nil} = error) do
    "layer #{inspect(error.layer)} is not UTF-8 at byte #{error.offset}"
  end

  def message(error) do
    "unit #{inspect(error.unit)} of layer #{inspect(error.layer)} is not UTF-8 " <>
      "at byte #{error.offset}"
  end
end
