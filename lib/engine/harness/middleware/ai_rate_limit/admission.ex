defmodule Engine.Harness.Middleware.AIRateLimit.Admission do
  # Whether a call may be made now. Changes nothing.
  #
  # What can't be waited for is looked at first: a call that is over its budget is refused, however
  # long a rate would have it wait. Of several waits the longest counts, and a wait that the
  # deadline doesn't leave is no wait but a refusal.
  @moduledoc false

  alias Engine.Harness.Middleware.AIRateLimit

  alias Engine.Harness.Middleware.AIRateLimit.{
    Accounts,
    Breaker,
    Budget,
    Estimate,
    Limits,
    Rate,
    Refusal,
    Usage
  }

  @spec judge(AIRateLimit.t(), Limits.key_limits(), Estimate.t()) ::
          {:ok, Budget.amounts(), timeout_ms :: pos_integer | :infinity}
          | {:wait, pos_integer, Refusal.t()}
          | {:halt, Refusal.t()}
  def judge(state, key, estimate) do
    with :ok <- account(state, estimate.account),
         {:ok, amounts} <- amounts(state, key, estimate),
         :ok <- session_budget(state.accounts, estimate.account, amounts),
         :ok <- key_budget(key.budget, estimate.key, amounts),
         :ok <- attempt(state.limits),
         {:ok, wait} <- waits(state, key, estimate, amounts.tokens),
         :ok <- deadline(state, estimate, wait) do
      if wait, do: {:wait, wait.retry, wait}, else: {:ok, amounts, timeout(state)}
    end
  end

  @doc false
  @spec left_ms(AIRateLimit.t()) :: integer | :infinity
  def left_ms(%{limits: %{deadline_ms: nil}}), do: :infinity
  def left_ms(state), do: state.limits.deadline_ms - (state.now - state.started)

  @doc false
  @spec account(AIRateLimit.t(), term) :: :ok | {:halt, Refusal.t()}
  def account(state, id) do
    if Accounts.open?(state.accounts, id) do
      :ok
    else
      {:halt, %Refusal{kind: :account, scope: {:account, id}}}
    end
  end

  @doc false
  @spec session_budget(Accounts.t(), Accounts.id(), map) :: :ok | {:halt, Refusal.t()}
  def session_budget(accounts, id, amounts) do
    case Accounts.over(accounts, id, amounts) do
      nil ->
        :ok

      {:session, dimension} ->
        over(accounts.session.budget, dimension, :session, amounts)

      {id, dimension} ->
        over(Map.fetch!(accounts, id).budget, dimension, {:account, id}, amounts)
    end
  end

  defp amounts(state, key, estimate) do
    price = state.limits.prices[estimate.model]

    if price == nil and cost_limited?(state, key, estimate.account) do
      {:halt, %Refusal{kind: :price, scope: {:model, estimate.model}}}
    else
      {:ok, Usage.amounts(estimate.tokens, price)}
    end
  end

  defp cost_limited?(state, key, account) do
    budgets =
      for id <- Accounts.lineage(state.accounts, account),
          do: Map.fetch!(state.accounts, id).budget

    Enum.any?([key.budget | budgets], &is_map_key(&1.limits, :cost))
  end

  defp key_budget(budget, key, amounts) do
    case Budget.over(budget, amounts) do
      nil -> :ok
      dimension -> over(budget, dimension, {:key, key}, amounts)
    end
  end

  defp over(budget, dimension, scope, amounts) do
    limit = Map.fetch!(budget.limits, dimension)
    used = Map.fetch!(budget.used, dimension)
    asked = Map.fetch!(amounts, dimension)
    fits_later? = limit > 0 and used + asked <= limit

    {:halt,
     %Refusal{
       kind: dimension,
       scope: scope,
       limit: limit,
       used: used,
       reserved: Map.fetch!(budget.reserved, dimension),
       asked: asked,
       left: Budget.left(budget, dimension),
       retry: if(fits_later?, do: :when_settled, else: :never)
     }}
  end

  defp attempt(%{attempt_ms: 0}) do
    {:halt, %Refusal{kind: :attempt, scope: :session, limit: 0, left: 0}}
  end

  defp attempt(_limits), do: :ok

  # The longest of what has to be waited for, or `nil`.
  defp waits(state, key, estimate, tokens) do
    scope = {:key, estimate.key}

    with {:ok, requests} <- rate(key.requests, state.now, 1, :request_rate, scope),
         {:ok, tokens} <- rate(key.tokens, state.now, tokens, :token_rate, scope) do
      waits = [
        retry_after(key, state.now, scope),
        breaker(key, state.now, scope),
        requests,
        tokens
      ]

      {:ok, waits |> Enum.reject(&is_nil/1) |> Enum.max_by(& &1.retry, fn -> nil end)}
    end
  end

  defp rate(nil, _now, _n, _kind, _scope), do: {:ok, nil}

  defp rate(rate, now, n, kind, scope) do
    case Rate.check(rate, now, n) do
      :ok -> {:ok, nil}
      {:wait, ms} -> {:ok, rate_refusal(rate, now, n, kind, scope, ms)}
      :never -> {:halt, rate_refusal(rate, now, n, kind, scope, :never)}
    end
  end

  defp rate_refusal(rate, now, n, kind, scope, retry) do
    {used, left} = Rate.taken(rate, now)

    %Refusal{
      kind: kind,
      scope: scope,
      limit: Rate.most(rate),
      used: used,
      reserved: 0,
      asked: n,
      left: left,
      retry: retry
    }
  end

  defp breaker(%{breaker: nil}, _now, _scope), do: nil

  defp breaker(%{breaker: breaker}, now, scope) do
    case Breaker.check(breaker, now) do
      :ok ->
        nil

      {:wait, ms} ->
        failed = length(breaker.failed)
        %Refusal{kind: :breaker, scope: scope, limit: breaker.failures, used: failed, retry: ms}
    end
  end

  defp retry_after(%{not_before: at}, now, scope) when is_integer(at) and at > now do
    %Refusal{kind: :retry_after, scope: scope, asked: at - now, retry: at - now}
  end

  defp retry_after(_key, _now, _scope), do: nil

  defp deadline(state, estimate, wait) do
    wait_ms = if wait, do: wait.retry, else: 0
    left = left_ms(state)

    # A number is less than any atom, so nothing is more than :infinity.
    if left > wait_ms and left >= wait_ms + estimate.expected_ms do
      :ok
    else
      {:halt,
       %Refusal{
         kind: :deadline,
         scope: :session,
         limit: state.limits.deadline_ms,
         used: state.now - state.started,
         reserved: 0,
         asked: wait_ms + estimate.expected_ms,
         left: max(0, left),
         cause: wait
       }}
    end
  end

  defp timeout(state), do: min(state.limits.attempt_ms || :infinity, left_ms(state))
end
