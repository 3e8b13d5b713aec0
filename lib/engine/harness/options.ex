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

  @doc "An option's value, which is one of the allowed; the first of them when it is not given."
  @spec one_of!(keyword, atom, [term, ...]) :: term
  def one_of!(opts, key, [default | _] = allowed) do
    value = Keyword.get(opts, key, default)

    if value in allowed do
      value
    else
      raise ArgumentError,
            "expected #{inspect(key)} to be one of #{list(allowed)}, got: #{show(value)}"
    end
  end

  @doc "A value as it appears in a message: bounded, whatever it is."
  @spec show(term) :: String.t()
  def show(value), do: inspect(value, limit: 5, printable_limit: 100)

  @spec list([term]) :: String.t()
  def list(values), do: Enum.map_join(values, ", ", &inspect/1)
end
