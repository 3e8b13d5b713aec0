defmodule Engine.Harness.Middleware.AIRateLimit.Usage do
  @moduledoc """
  Tokens of one call, as estimated or as the provider counted them, and what they cost.

  A usage is a map with the keys `:input_tokens`, `:cached_input_tokens` (read from the provider's
  cache; apart from `:input_tokens`, not a part of them) and `:output_tokens`; or an integer, which
  stands for so many input tokens.

  Prices are micro-units of the caller's currency for a million tokens, by model:
  `%{"small" => %{input: 3_000_000, cached_input: 300_000, output: 15_000_000}}`. A call's cost is
  rounded up to a whole micro-unit, once.
  """

  alias Engine.Harness.Middleware.AIRateLimit.Budget
  alias Engine.Harness.Options

  @parts [:input_tokens, :cached_input_tokens, :output_tokens]
  @nothing Map.new(@parts, &{&1, 0})

  @typedoc "Tokens, as callers give them."
  @type given ::
          non_neg_integer
          | %{
              optional(:input_tokens) => non_neg_integer,
              optional(:cached_input_tokens) => non_neg_integer,
              optional(:output_tokens) => non_neg_integer
            }

  @typedoc "Tokens by kind."
  @type t :: %{
          input_tokens: non_neg_integer,
          cached_input_tokens: non_neg_integer,
          output_tokens: non_neg_integer
        }

  @typedoc "A model's prices, in micro-units for a million tokens."
  @type price :: %{
          input: non_neg_integer,
          cached_input: non_neg_integer,
          output: non_neg_integer
        }

  @doc "The kinds of tokens."
  @spec parts() :: [atom, ...]
  def parts, do: @parts

  @doc """
  A usage with all its keys; raises `ArgumentError`, which calls it `name`, for what is none.

      iex> Engine.Harness.Middleware.AIRateLimit.Usage.new!(%{output_tokens: 2}, :tokens)
      %{input_tokens: 0, cached_input_tokens: 0, output_tokens: 2}
      iex> Engine.Harness.Middleware.AIRateLimit.Usage.new!(-1, :tokens)
      ** (ArgumentError) expected :tokens to be a non-negative integer or a map of them with keys among :input_tokens, :cached_input_tokens, :output_tokens, got: -1
  """
  @spec new!(given, atom) :: t
  def new!(given, name), do: Map.merge(@nothing, check!(given, name))

  @doc """
  What is charged for a call: its usage where that is known, else its estimate; which part of that
  is an estimate; and whether the usage was complete.

  A part that is missing is charged as it was estimated. Only cached tokens may be missing beside
  input tokens: there are none then.

      iex> alias Engine.Harness.Middleware.AIRateLimit.Usage
      iex> estimate = Usage.new!(%{input_tokens: 90, output_tokens: 10}, :tokens)
      iex> {_charged, estimated, false} = Usage.charge(estimate, %{input_tokens: 84})
      iex> estimated
      %{input_tokens: 0, cached_input_tokens: 0, output_tokens: 10}
  """
  @spec charge(t, given | nil) :: {charged :: t, estimated :: t, complete? :: boolean}
  def charge(estimate, nil), do: {estimate, estimate, false}
  def charge(_estimate, usage) when is_integer(usage), do: {new!(usage, :usage), @nothing, true}

  def charge(estimate, usage) do
    usage = if usage[:input_tokens], do: Map.put_new(usage, :cached_input_tokens, 0), else: usage
    known = Map.new(usage, fn {part, _tokens} -> {part, 0} end)
    {Map.merge(estimate, usage), Map.merge(estimate, known), map_size(usage) == length(@parts)}
  end

  @doc """
  What one call of this usage comes to; its cost in micro-units is 0 where the price is `nil`.

      iex> alias Engine.Harness.Middleware.AIRateLimit.Usage
      iex> price = %{input: 3_000_000, cached_input: 300_000, output: 15_000_000}
      iex> usage = Usage.new!(%{input_tokens: 1_000, output_tokens: 1}, :tokens)
      iex> Usage.amounts(usage, price)
      %{calls: 1, tokens: 1001, cost: 3015}
  """
  @spec amounts(t, price | nil) :: Budget.amounts()
  def amounts(usage, price), do: %{calls: 1, tokens: total(usage), cost: cost(usage, price)}

  defp total(usage), do: usage.input_tokens + usage.cached_input_tokens + usage.output_tokens

  defp cost(_usage, nil), do: 0

  defp cost(usage, price) do
    millionths =
      usage.input_tokens * price.input + usage.cached_input_tokens * price.cached_input +
        usage.output_tokens * price.output

    div(millionths + 999_999, 1_000_000)
  end

  defp check!(given, _name) when is_integer(given) and given >= 0, do: %{input_tokens: given}

  defp check!(given, name) do
    if is_map(given) and Enum.all?(given, fn {part, n} -> part in @parts and natural?(n) end) do
      given
    else
      raise ArgumentError,
            "expected #{inspect(name)} to be a non-negative integer or a map of them with keys " <>
              "among #{Options.list(@parts)}, got: #{Options.show(given)}"
    end
  end

  defp natural?(n), do: is_integer(n) and n >= 0
end
