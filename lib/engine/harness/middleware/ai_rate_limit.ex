defmodule Engine.Harness.Middleware.AIRateLimit do
  @moduledoc """
  Calls to a model are admitted, made to wait or refused before money and time are spent.

  Limits and what is spent of them are one value. Its clock is passed in, integer milliseconds of
  a monotonic clock, and everything in it is an integer, so the same calls at the same times get
  the same answers.

      iex> alias Engine.Harness.Middleware.AIRateLimit
      iex> state = AIRateLimit.new(session_budget: [tokens: 1_000], requests: [limit: 60, interval_ms: 60_000, burst: 1])
      iex> {:ok, lease, state} = AIRateLimit.reserve(state, 0, %{key: "openai", tokens: 700})
      iex> {:wait, 1_000, refusal, state} = AIRateLimit.reserve(state, 0, %{key: "openai", tokens: 200})
      iex> Exception.message(refusal)
      ~s{key "openai", call rate: 1 asked, 0 of 1 left (1 used, 0 reserved); try again in 1000 ms}
      iex> {:ok, state} = AIRateLimit.settle(state, 900, lease, %{outcome: :success, usage: 900})
      iex> {:halt, refusal, _state} = AIRateLimit.reserve(state, 1_000, %{key: "openai", tokens: 200})
      iex> Exception.message(refusal)
      "session, tokens: 200 asked, 100 of 1000 left (900 used, 0 reserved)"

  What can be limited is in `Engine.Harness.Middleware.AIRateLimit.Limits`: rates, budgets, time,
  and calls of what keeps failing. `Engine.Harness.Middleware.AIRateLimit.Server` shares one such
  value between processes.

  ## A call's way

  `reserve/3` asks for admission, with what the call may take at most. Nothing of a call that isn't
  admitted stays behind. An admitted one has a lease, and its estimate is reserved until

    * `settle/4` tells what it really used, also when it failed; or
    * `release/3` says that it was never made.

  Of all calls that were admitted, each is settled, released or open.

  ## Sub-agents

  `allot/4` sets a part of a budget apart, under a number that estimates name as their `:account`.
  `close/3` gives back what is left of it. Rates, keys' budgets, breakers and the deadline hold for
  all accounts together.

  ## Time

  The state goes by the latest time that it has seen; one that steps back changes nothing. The
  deadline runs from the time given to `new/2`, or else from the first one seen.
  """

  alias Engine.Harness.Middleware.AIRateLimit.{
    Accounts,
    Actual,
    Admission,
    Breaker,
    Budget,
    Error,
    Estimate,
    Lease,
    Limits,
    Rate,
    Refusal,
    Report,
    Usage
  }

  alias Engine.Harness.Options

  @enforce_keys [:limits, :accounts]
  defstruct [
    :limits,
    :accounts,
    started: nil,
    now: nil,
    keys: %{},
    leases: %{},
    next_id: 1,
    totals: %{admitted: 0, settled: 0, released: 0, refused: 0, estimated: 0}
  ]

  @typedoc "Limits, and what is spent of them."
  @opaque t :: %__MODULE__{}

  @doc """
  Nothing spent; the limits are in `Engine.Harness.Middleware.AIRateLimit.Limits`.

  `started_ms` is when the session began, for its deadline.

      iex> Engine.Harness.Middleware.AIRateLimit.new(session_budget: [calls: 1.5])
      ** (ArgumentError) :session_budget: expected :calls to be a non-negative integer or :infinity, got: 1.5
  """
  @spec new(keyword, integer | nil) :: t
  def new(limits, started_ms \\ nil) do
    limits = Limits.new!(limits)
    state = %__MODULE__{limits: limits, accounts: Accounts.new(limits.session)}
    if started_ms, do: observe(state, started_ms), else: state
  end

  @doc """
  Asks for the admission of a call (`Engine.Harness.Middleware.AIRateLimit.Estimate`).

    * `{:ok, lease, state}` - it may be made, and has to be settled or released.
    * `{:wait, ms, refusal, state}` - not now. If nothing else happens, it passes after exactly so
      long; where a breaker waits for its probe, that is a guess.
    * `{:halt, refusal, state}` - it won't fit by waiting: it is over a budget, it is larger than a
      rate ever lets pass, or the deadline comes first.

  Raises `ArgumentError` for what is no estimate.
  """
  @spec reserve(t, integer, Estimate.given() | Estimate.t()) ::
          {:ok, Lease.t(), t}
          | {:wait, pos_integer, Refusal.t(), t}
          | {:halt, Refusal.t(), t}
  def reserve(%__MODULE__{} = state, now_ms, estimate) do
    estimate = Estimate.new!(estimate)
    state = observe(state, now_ms)
    key = key(state, estimate.key)

    case Admission.judge(state, key, estimate) do
      {:ok, amounts, timeout_ms} -> admit(state, key, estimate, amounts, timeout_ms)
      {:wait, ms, refusal} -> {:wait, ms, refusal, count(state, :refused)}
      {:halt, refusal} -> {:halt, refusal, count(state, :refused)}
    end
  end

  @doc """
  Tells what became of a call (`Engine.Harness.Middleware.AIRateLimit.Actual`): its estimate is no
  longer reserved, and what it used is spent.

  A usage that is missing, wholly or in part, is charged as it was estimated, and marked so. What
  was not used of its tokens goes back to the rate as well, as far as its time has not gone by.

  `{:error, error}` where the lease isn't open, with the state as it was. Raises `ArgumentError`
  for what is no outcome.
  """
  @spec settle(t, integer, Lease.t(), Actual.given() | Actual.t()) ::
          {:ok, t} | {:error, Error.t()}
  def settle(%__MODULE__{} = state, now_ms, lease, actual) do
    actual = Actual.new!(actual)

    with :ok <- open(state, lease) do
      {charged, estimated, complete?} = Usage.charge(lease.tokens, actual.usage)
      price = state.limits.prices[lease.model]
      used = Usage.amounts(charged, price)
      measured = charged |> minus(estimated) |> Usage.amounts(price)
      guessed = %{Budget.minus(used, measured) | calls: if(complete?, do: 0, else: 1)}

      state =
        state
        |> observe(now_ms)
        |> finish(lease, 1, used, guessed, actual.outcome)
        |> retry_after(lease.key, actual.retry_after_ms)
        |> count(:settled)

      {:ok, if(complete?, do: state, else: count(state, :estimated))}
    end
  end

  @doc """
  Says that an admitted call was never made: it is as if it had not been reserved.

  But a probe of a breaker that isn't made has failed, so that the breaker never waits for it
  forever. `{:error, error}` where the lease isn't open, with the state as it was.
  """
  @spec release(t, integer, Lease.t()) :: {:ok, t} | {:error, Error.t()}
  def release(%__MODULE__{} = state, now_ms, lease) do
    with :ok <- open(state, lease) do
      state = observe(state, now_ms)
      state = finish(state, lease, 0, Budget.nothing(), Budget.nothing(), :unknown)
      {:ok, count(state, :released)}
    end
  end

  @doc """
  Sets a part of an account's budget apart, for a sub-agent: `{:ok, account, state}`, or
  `{:halt, refusal, state}` where it has not that much left.

  `amounts` is a map with the keys `:calls`, `:tokens`, `:cost`, each optional. In a dimension that
  it doesn't have, calls are charged to the parent as they come.

      iex> alias Engine.Harness.Middleware.AIRateLimit
      iex> state = AIRateLimit.new(session_budget: [tokens: 100])
      iex> {:ok, child, state} = AIRateLimit.allot(state, 0, :session, %{tokens: 80})
      iex> {:halt, refusal, state} = AIRateLimit.allot(state, 0, :session, %{tokens: 40})
      iex> refusal.left
      20
      iex> {:ok, state} = AIRateLimit.close(state, 5, child)
      iex> {:ok, _child, _state} = AIRateLimit.allot(state, 5, :session, %{tokens: 40})
  """
  @spec allot(t, integer, Accounts.id(), %{optional(Budget.dimension()) => non_neg_integer}) ::
          {:ok, pos_integer, t} | {:halt, Refusal.t(), t}
  def allot(%__MODULE__{} = state, now_ms, parent, amounts) do
    check_grant!(amounts)
    state = observe(state, now_ms)

    with :ok <- Admission.account(state, parent),
         :ok <- Admission.session_budget(state.accounts, parent, amounts) do
      id = state.next_id
      accounts = Accounts.open(state.accounts, id, parent, amounts)
      {:ok, id, %{state | accounts: accounts, next_id: id + 1}}
    else
      {:halt, refusal} -> {:halt, refusal, count(state, :refused)}
    end
  end

  @doc """
  Ends an account that `allot/4` gave: nothing more is reserved in it, and what is neither used nor
  reserved goes back at once; the rest when its open leases end.

  `{:error, error}` where there is no such account, or it is closed.
  """
  @spec close(t, integer, pos_integer) :: {:ok, t} | {:error, Error.t()}
  def close(%__MODULE__{} = state, now_ms, account) do
    if account != :session and Accounts.open?(state.accounts, account) do
      {:ok, %{observe(state, now_ms) | accounts: Accounts.close(state.accounts, account)}}
    else
      {:error, %Error{reason: :no_account, subject: account}}
    end
  end

  @doc """
  What is used, reserved and left of each limit, as data that prints as a table.

      iex> alias Engine.Harness.Middleware.AIRateLimit
      iex> state = AIRateLimit.new(session_budget: [tokens: 1_000])
      iex> {:ok, lease, state} = AIRateLimit.reserve(state, 0, %{key: "openai", tokens: 300})
      iex> {:ok, state} = AIRateLimit.settle(state, 0, lease, %{outcome: :success, usage: 310})
      iex> {:ok, _lease, state} = AIRateLimit.reserve(state, 0, %{key: "openai", tokens: 200})
      iex> report = AIRateLimit.report(state, 0)
      iex> Enum.find(report.rows, &(&1.kind == :tokens)).left
      490
      iex> report |> to_string() |> String.split("\\n") |> Enum.at(2)
      "session  tokens               310       200   490  1,000  ████▒▒░░░░"
  """
  @spec report(t, integer) :: Report.t()
  def report(%__MODULE__{} = state, now_ms), do: state |> observe(now_ms) |> Report.new()

  ## Steps

  defp admit(state, key, estimate, amounts, timeout_ms) do
    id = state.next_id
    {generation, breaker} = if key.breaker, do: Breaker.admit(key.breaker), else: {nil, nil}

    lease = %Lease{
      id: id,
      key: estimate.key,
      model: estimate.model,
      account: estimate.account,
      tokens: estimate.tokens,
      amounts: amounts,
      admitted_ms: state.now,
      timeout_ms: timeout_ms,
      generation: generation
    }

    key = %{
      key
      | requests: key.requests && Rate.take(key.requests, state.now, 1, id),
        tokens: key.tokens && Rate.take(key.tokens, state.now, amounts.tokens, id),
        budget: Budget.reserve(key.budget, amounts),
        breaker: breaker
    }

    state = %{
      state
      | keys: Map.put(state.keys, estimate.key, key),
        accounts: Accounts.reserve(state.accounts, estimate.account, amounts),
        leases: Map.put(state.leases, id, lease),
        next_id: id + 1
    }

    {:ok, lease, count(state, :admitted)}
  end

  defp finish(state, lease, calls, used, estimated, outcome) do
    %Lease{id: id, amounts: reserved} = lease
    now = state.now
    key = Map.fetch!(state.keys, lease.key)

    key = %{
      key
      | requests: key.requests && Rate.finish(key.requests, now, calls, id),
        tokens: key.tokens && Rate.finish(key.tokens, now, used.tokens, id),
        budget: key.budget |> Budget.unreserve(reserved) |> Budget.use_up(used, estimated),
        breaker: key.breaker && Breaker.outcome(key.breaker, lease.generation, now, outcome)
    }

    %{
      state
      | keys: Map.put(state.keys, lease.key, key),
        accounts: Accounts.finish(state.accounts, lease.account, reserved, used, estimated),
        leases: Map.delete(state.leases, id)
    }
  end

  defp retry_after(state, _key, nil), do: state

  defp retry_after(state, key, ms) do
    update_in(state.keys[key].not_before, &max(&1 || state.now, state.now + ms))
  end

  defp open(state, %Lease{id: id} = lease) do
    case state.leases do
      %{^id => ^lease} -> :ok
      %{^id => _another} -> {:error, %Error{reason: :altered, subject: lease}}
      _closed -> {:error, %Error{reason: :not_open, subject: lease}}
    end
  end

  defp open(_state, other) do
    raise ArgumentError, "expected a lease, got: #{Options.show(other)}"
  end

  defp observe(state, now_ms) when is_integer(now_ms) do
    now = if state.now, do: max(state.now, now_ms), else: now_ms
    %{state | now: now, started: state.started || now}
  end

  defp observe(_state, other) do
    raise ArgumentError,
          "expected a time to be an integer of milliseconds, got: #{Options.show(other)}"
  end

  defp key(state, name) do
    case state.keys do
      %{^name => key} -> key
      _first_time -> Limits.for_key(state.limits, name)
    end
  end

  defp minus(charged, estimated) do
    Map.new(charged, fn {part, n} -> {part, n - Map.fetch!(estimated, part)} end)
  end

  defp count(state, total), do: update_in(state.totals[total], &(&1 + 1))

  @doc false
  @spec check_grant!(term) :: %{optional(Budget.dimension()) => non_neg_integer}
  def check_grant!(amounts) do
    Options.map!(amounts, "a part of a budget", [], Budget.dimensions())
    for {dimension, _amount} <- amounts, do: Options.natural!(amounts, dimension, 0)
    amounts
  end
end
