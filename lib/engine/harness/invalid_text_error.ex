defmodule Engine.Harness.InvalidTextError do
  @moduledoc """
  A text that is not UTF-8.

  Fields: `layer` (`nil` for a text by itself), `unit` (the unit's id, `nil` for a layer of text) and
  `offset` (the byte at which it stops being UTF-8).
  """
  alias Engine.Harness.{Escape, Options}

  defexception [:layer, :unit, :offset]

  @type t :: %__MODULE__{layer: atom | nil, unit: term, offset: non_neg_integer}

  @impl true
  def message(%{layer: nil} = error), do: "the text is not UTF-8 at byte #{error.offset}"

  def message(%{unit: nil} = error) do
    "layer #{inspect(error.layer)} is not UTF-8 at byte #{error.offset}"
  end

  def message(error) do
    "unit #{shown(error.unit)} of layer #{inspect(error.layer)} is not UTF-8 " <>
      "at byte #{error.offset}"
  end

  # A name that a repository may have chosen, or any other term.
  defp shown(id) when is_binary(id), do: ~s("#{Escape.escape(id)}")
  defp shown(id), do: id |> Options.show() |> Escape.escape()
end
