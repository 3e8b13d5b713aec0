defmodule Engine.Harness.Middleware.AIRateLimit.Limits do
  @moduledoc """
  What is allowed, checked once.

  Every limit is a non-negative integer; `:infinity`, or leaving it out, means that there is none,
  and 0 that nothing passes. Anything else raises `ArgumentError`.

  | option | holds for | meaning |
  |---|---|---|
  | `:requests` | each key | a rate (see below) of calls |
  | `:tokens` | each key | a rate of tokens, all kinds together |
  | `:key_budget` | each key | a budget: `[calls: n, tokens: n, cost: micro_units]`, each optional |
  | `:breaker` | each key | `[failures: n, window_ms: ms, backoff_ms: ms, max_backoff_ms: ms]` (`Engine.Harness.Middleware.AIRateLimit.Breaker`), all positive |
  | `:keys` | the keys in it | a map from key to a list of the four options above, where a key's differ |
  | `:session_budget` | all together | a budget |
  | `:prices` | | a map from model to `%{input: …, cached_input: …, output: …}`, micro-units for a million tokens; `:cached_input` is `:input` when left out |
  | `:deadline_ms` | all together | how long the session may take |
  | `:attempt_ms` | each call | its time-out, where the deadline leaves as much |

  A rate is `[limit: n, interval_ms: ms]`, with `burst: n`, a positive integer, where it differs
  from the limit.
  """

  alias Engine.Harness.Middleware.AIRateLimit.{Breaker, Budget, Rate, Usage}
  alias Engine.Harness.Options

  @for_keys [:requests, :tokens, :key_budget, :breaker]
  @allowed @for_keys ++ [:keys, :session_budget, :prices, :deadline_ms, :attempt_ms]

  @enforce_keys [:key, :keys, :session, :prices, :deadline_ms, :attempt_ms]
  defstruct @enforce_keys

  @typedoc "A key's limits, with nothing spent: what a key starts with."
  @type key_limits :: %{
          requests: Rate.t() | nil,
          tokens: Rate.t() | nil,
          budget: Budget.t(),
          breaker: Breaker.t() | nil,
          not_before: integer | nil
        }

  @typedoc "Checked limits; `nil` where there is none."
  @type t :: %__MODULE__{
          key: key_limits,
          keys: %{optional(String.t() | atom) => key_limits},
          session: Budget.t(),
          prices: %{optional(String.t()) => Usage.price()},
          deadline_ms: non_neg_integer | nil,
          attempt_ms: non_neg_integer | nil
        }

  @doc "Checks limits, as the table above has them."
  @spec new!(keyword) :: t
  def new!(opts) do
    opts = Options.validate!(opts, @allowed)
    {for_keys, opts} = Keyword.split(opts, @for_keys)

    %__MODULE__{
      key: key!(for_keys),
      keys: keys!(Keyword.get(opts, :keys, %{}), for_keys),
      session: budget!(opts, :session_budget),
      prices: opts |> Keyword.get(:prices, %{}) |> prices!(),
      deadline_ms: limit!(opts, :deadline_ms),
      attempt_ms: limit!(opts, :attempt_ms)
    }
  end

  @doc "Whether a value can be a key: a string, or an atom other than `nil`."
  @spec key?(term) :: boolean
  def key?(key), do: is_binary(key) or (is_atom(key) and key != nil)

  @doc "The limits of this key."
  @spec for_key(t, String.t() | atom) :: key_limits
  def for_key(%__MODULE__{} = limits, key), do: Map.get(limits.keys, key, limits.key)

  defp key!(opts) do
    %{
      requests: rate!(opts, :requests),
      tokens: rate!(opts, :tokens),
      budget: budget!(opts, :key_budget),
      breaker: breaker!(opts),
      # Until when the provider asked to wait.
      not_before: nil
    }
  end

  defp keys!(keys, defaults) do
    unless is_map(keys) and Enum.all?(Map.keys(keys), &key?/1) do
      bad!(:keys, "a map from strings or atoms to limits", keys)
    end

    Map.new(keys, fn {key, opts} ->
      {key, defaults |> Keyword.merge(Options.validate!(opts, @for_keys)) |> key!()}
    end)
  end

  defp rate!(opts, name) do
    with {:ok, rate} <- Keyword.fetch(opts, name) do
      rate = within(name, fn -> Options.validate!(rate, [:limit, :interval_ms, :burst]) end)
      interval = within(name, fn -> positive!(rate, :interval_ms) end)

      case within(name, fn -> required_limit!(rate) end) do
        nil ->
          nil

        limit ->
          burst = Keyword.get(rate, :burst, max(limit, 1))
          burst = within(name, fn -> positive!([burst: burst], :burst) end)
          %Rate{limit: limit, interval_ms: interval, burst: burst}
      end
    else
      :error -> nil
    end
  end

  defp required_limit!(rate) do
    unless Keyword.has_key?(rate, :limit), do: bad!(:limit, "a non-negative integer", nil)
    limit!(rate, :limit)
  end

  defp budget!(opts, name) do
    limits =
      within(name, fn ->
        budget = opts |> Keyword.get(name, []) |> Options.validate!(Budget.dimensions())
        for {dimension, _} <- budget, limit = limit!(budget, dimension), do: {dimension, limit}
      end)

    %Budget{limits: Map.new(limits)}
  end

  defp breaker!(opts) do
    names = [:failures, :window_ms, :backoff_ms, :max_backoff_ms]

    with {:ok, breaker} <- Keyword.fetch(opts, :breaker) do
      within(:breaker, fn ->
        breaker = Options.validate!(breaker, names)
        breaker = struct!(Breaker, for(name <- names, do: {name, positive!(breaker, name)}))

        if breaker.max_backoff_ms < breaker.backoff_ms do
          bad!(
            :max_backoff_ms,
            "at least :backoff_ms, #{breaker.backoff_ms}",
            breaker.max_backoff_ms
          )
        end

        breaker
      end)
    else
      :error -> nil
    end
  end

  defp prices!(%{} = prices) when not is_struct(prices) do
    Map.new(prices, fn {model, price} ->
      unless is_binary(model), do: bad!(:prices, "a map whose keys are models' names", model)
      {model, price!(model, price)}
    end)
  end

  defp prices!(other), do: bad!(:prices, "a map from models to prices", other)

  defp price!(model, price) do
    with %{input: input, output: _output} <- price,
         price = Map.put_new(price, :cached_input, input),
         3 <- map_size(price),
         true <- Enum.all?(price, fn {_kind, n} -> is_integer(n) and n >= 0 end) do
      price
    else
      _wrong ->
        raise ArgumentError,
              "expected the price of #{inspect(model)} to be a map of non-negative integers with " <>
                "the keys :input, :output and, if it differs, :cached_input, " <>
                "got: #{Options.show(price)}"
    end
  end

  defp limit!(opts, name) do
    case Keyword.fetch(opts, name) do
      :error -> nil
      {:ok, :infinity} -> nil
      {:ok, limit} when is_integer(limit) and limit >= 0 -> limit
      {:ok, other} -> bad!(name, "a non-negative integer or :infinity", other)
    end
  end

  defp positive!(opts, name) do
    case Keyword.get(opts, name) do
      value when is_integer(value) and value > 0 -> value
      other -> bad!(name, "a positive integer", other)
    end
  end

  # The option that the wrong value stands in.
  defp within(name, fun) do
    fun.()
  rescue
    error in ArgumentError -> raise ArgumentError, "#{inspect(name)}: #{error.message}"
  end

  @spec bad!(atom, String.t(), term) :: no_return
  defp bad!(name, expected, got) do
    raise ArgumentError, "expected #{inspect(name)} to be #{expected}, got: #{Options.show(got)}"
  end
end
