defmodule Engine.Harness.Middleware.AIRateLimit.Rate do
  @moduledoc """
  How much may pass an interval: the generic cell rate algorithm (GCRA) on integers.

  Each key has one number, the theoretical arrival time: when all that was admitted would have
  been used up at the steady rate. One unit of work takes `interval_ms / limit` milliseconds,
  which is no whole number for a million tokens a minute; so this time is kept in units of
  `1 / limit` ms, where one unit of work takes `interval_ms` of them, and nothing is ever rounded
  but a wait, upwards.

  `n` units pass at `now` where `max(tat, now) + n · interval - now <= burst · interval`. So an
  instant admits at most `burst`, and any window of `w` ms at most
  `burst + floor(w · limit / interval_ms)` (ITU-T I.371, annex A).

  ## Giving back

  A lease holds the piece of time that it added. What it turns out not to use is taken out again,
  as far as that piece still lies ahead; the pieces behind it move up. A piece, or a part of it,
  that has gone by stays used: taking that back would let more pass later than the limit allows.
  What it uses beyond its estimate is added at the end.

  | field | meaning |
  |---|---|
  | `:limit` | units of work an interval; 0: nothing passes |
  | `:interval_ms` | the interval |
  | `:burst` | units that may pass in one instant |
  | `:tat` | the theoretical arrival time, in units of `1 / limit` ms; `nil` before the first |
  | `:open` | for each open lease's id where its piece ends, and the units of work in it |
  """

  @enforce_keys [:limit, :interval_ms, :burst]
  defstruct [:limit, :interval_ms, :burst, tat: nil, open: %{}]

  @typedoc "One rate, with what has passed."
  @type t :: %__MODULE__{
          limit: non_neg_integer,
          interval_ms: pos_integer,
          burst: pos_integer,
          tat: integer | nil,
          open: %{optional(pos_integer) => {integer, non_neg_integer}}
        }

  @doc """
  Whether `n` units pass now: `:ok`, `{:wait, ms}` where they pass after exactly that long if
  nothing else does, or `:never` where they are more than a burst.

      iex> alias Engine.Harness.Middleware.AIRateLimit.Rate
      iex> rate = %Rate{limit: 20, interval_ms: 1_000, burst: 5}
      iex> {Rate.check(rate, 0, 5), Rate.check(rate, 0, 6)}
      {:ok, :never}
      iex> rate |> Rate.take(0, 5, 1) |> Rate.check(0, 1)
      {:wait, 50}
  """
  @spec check(t, integer, non_neg_integer) :: :ok | {:wait, pos_integer} | :never
  def check(%__MODULE__{limit: 0}, _now, _n), do: :never
  def check(%__MODULE__{burst: burst}, _now, n) when n > burst, do: :never

  def check(%__MODULE__{} = rate, now, n) do
    # The first of the small units at which it passes.
    first = tat(rate, now) + (n - rate.burst) * rate.interval_ms
    if first <= now * rate.limit, do: :ok, else: {:wait, ceiling(first, rate.limit) - now}
  end

  @doc "Adds `n` units, which `check/3` let pass, for the lease of this id."
  @spec take(t, integer, non_neg_integer, pos_integer) :: t
  def take(%__MODULE__{} = rate, now, n, id) do
    tat = tat(rate, now) + n * rate.interval_ms
    %{rate | tat: tat, open: Map.put(rate.open, id, {tat, n})}
  end

  @doc "Ends the lease of this id, which used `n` units in the end."
  @spec finish(t, integer, non_neg_integer, pos_integer) :: t
  def finish(%__MODULE__{} = rate, now, n, id) do
    {{stop, asked}, open} = Map.pop!(rate.open, id)
    rate = %{rate | open: open}

    if n > asked do
      %{rate | tat: tat(rate, now) + (n - asked) * rate.interval_ms}
    else
      ahead = max(0, stop - now * rate.limit)
      give_back(rate, stop, min((asked - n) * rate.interval_ms, ahead))
    end
  end

  defp give_back(rate, _stop, 0), do: rate

  defp give_back(rate, stop, back) do
    open =
      Map.new(rate.open, fn
        {id, {later, n}} when later > stop -> {id, {later - back, n}}
        earlier -> earlier
      end)

    %{rate | tat: rate.tat - back, open: open}
  end

  @doc """
  What is taken of the burst at this moment, rounded up, and what would pass.

      iex> alias Engine.Harness.Middleware.AIRateLimit.Rate
      iex> rate = Rate.take(%Rate{limit: 20, interval_ms: 1_000, burst: 5}, 0, 5, 1)
      iex> {Rate.taken(rate, 0), Rate.taken(rate, 70)}
      {{5, 0}, {4, 1}}
  """
  @spec taken(t, integer | nil) :: {non_neg_integer, non_neg_integer}
  def taken(%__MODULE__{limit: 0}, _now), do: {0, 0}
  def taken(%__MODULE__{tat: nil} = rate, _now), do: {0, rate.burst}

  def taken(%__MODULE__{} = rate, now) do
    taken = ceiling(tat(rate, now) - now * rate.limit, rate.interval_ms)
    {taken, max(0, rate.burst - taken)}
  end

  @doc "The most that may pass in one instant: the burst, or 0 where nothing passes."
  @spec most(t) :: non_neg_integer
  def most(%__MODULE__{limit: 0}), do: 0
  def most(%__MODULE__{burst: burst}), do: burst

  defp tat(%{tat: nil} = rate, now), do: now * rate.limit
  defp tat(rate, now), do: max(rate.tat, now * rate.limit)

  # Rounds up below 0, too: monotonic clocks start there.
  defp ceiling(a, b), do: -Integer.floor_div(-a, b)
end
