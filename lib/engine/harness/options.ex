defmodule Engine.Harness.Options do
  # How options are checked and how values appear in messages, in one place.
  @moduledoc false

  @spec validate!(term, [atom]) :: keyword
  def validate!(opts, allowed) do
    unless Keyword.keyword?(opts) do
      raise ArgumentError, "expected options to be a keyword list, got: #{show(opts)}"
    end

    case Keyword.keys(opts) -- allowed do
      [] ->
        opts

      [key | _] ->
        # Either unknown, or a known one that stands a second time.
        problem = if key in allowed, do: "stands twice", else: "is unknown"

        raise ArgumentError,
              "option #{inspect(key)} #{problem}, expected any of: #{list(allowed)}"
    end
  end

  @doc "A value as it appears in a message: bounded, whatever it is."
  @spec show(term) :: String.t()
  def show(value), do: inspect(value, limit: 5, printable_limit: 100)

  @spec list([term]) :: String.t()
  def list(values), do: Enum.map_join(values, ", ", &inspect/1)
end
