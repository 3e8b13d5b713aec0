defmodule Engine.Harness.Middleware.AIRateLimit.Breaker do
  @moduledoc """
  Stops calling what keeps failing, and tries it again now and then: a circuit breaker.

  | state | admits | left by |
  |---|---|---|
  | `:closed` | all | `failures` failures in a row, the first and the last at most `window_ms` apart: it opens |
  | `:open` | nothing until its back-off is over | the first call after that, the probe: half-open |
  | `:half_open` | nothing besides the probe | the probe: success closes it, all else opens it again, for twice as long, up to `max_backoff_ms` |

  Each change of state starts a new generation, and a call's outcome counts only in the one in
  which it was admitted. So calls that were under way when it opened, and fail a minute later,
  don't open it again.
  """

  @enforce_keys [:failures, :window_ms, :backoff_ms, :max_backoff_ms]
  defstruct [
    :failures,
    :window_ms,
    :backoff_ms,
    :max_backoff_ms,
    state: :closed,
    # Times of the failures in a row, the newest first, at most :failures of them.
    failed: [],
    generation: 0,
    # The back-off that is running, or that ran before the probe.
    backoff: nil,
    until: nil
  ]

  @typedoc "A breaker."
  @type t :: %__MODULE__{
          failures: pos_integer,
          window_ms: pos_integer,
          backoff_ms: pos_integer,
          max_backoff_ms: pos_integer,
          state: :closed | :open | :half_open,
          failed: [integer],
          generation: non_neg_integer,
          backoff: pos_integer | nil,
          until: integer | nil
        }

  @doc """
  Whether a call passes now; `{:wait, ms}` until the back-off is over.

  When a probe ends isn't known beforehand. Then the wait is the back-off that ran before it.
  """
  @spec check(t, integer) :: :ok | {:wait, pos_integer}
  def check(%__MODULE__{state: :closed}, _now), do: :ok
  def check(%__MODULE__{state: :half_open, backoff: backoff}, _now), do: {:wait, backoff}
  def check(%__MODULE__{until: until}, now) when now < until, do: {:wait, until - now}
  def check(%__MODULE__{}, _now), do: :ok

  @doc "Admits a call that `check/2` let pass; the generation is for `outcome/4`."
  @spec admit(t) :: {generation :: non_neg_integer, t}
  def admit(%__MODULE__{state: :closed} = breaker), do: {breaker.generation, breaker}

  def admit(%__MODULE__{state: :open} = breaker) do
    breaker = enter(breaker, :half_open)
    {breaker.generation, breaker}
  end

  @doc "What became of a call that was admitted in this generation."
  @spec outcome(t, non_neg_integer, integer, :success | :failure | :unknown) :: t
  def outcome(%__MODULE__{generation: generation} = breaker, generation, now, outcome) do
    case {breaker.state, outcome} do
      {:half_open, :success} ->
        %{enter(breaker, :closed) | failed: [], backoff: nil}

      {:half_open, _failed} ->
        open(breaker, now, min(breaker.backoff * 2, breaker.max_backoff_ms))

      {:closed, :success} ->
        %{breaker | failed: []}

      {:closed, :failure} ->
        failed(breaker, now)

      {:closed, :unknown} ->
        breaker
    end
  end

  def outcome(%__MODULE__{} = breaker, _earlier, _now, _outcome), do: breaker

  defp failed(breaker, now) do
    failed = Enum.take([now | breaker.failed], breaker.failures)
    breaker = %{breaker | failed: failed}

    if length(failed) == breaker.failures and now - List.last(failed) <= breaker.window_ms do
      open(breaker, now, breaker.backoff_ms)
    else
      breaker
    end
  end

  defp open(breaker, now, backoff) do
    %{enter(breaker, :open) | backoff: backoff, until: now + backoff}
  end

  defp enter(breaker, state), do: %{breaker | state: state, generation: breaker.generation + 1}
end
