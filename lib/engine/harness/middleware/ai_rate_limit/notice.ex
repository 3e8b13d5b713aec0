defmodule Engine.Harness.Middleware.AIRateLimit.Notice do
  @moduledoc """
  Tells the model what is left, once that falls below a share of its limit.

      hooks =
        Hooks.new()
        |> Middleware.attach({AIRateLimit.Notice, below: 20})
        |> Middleware.attach({AIRateLimit, model: limits, estimate: &AIRateLimit.estimate(&1, 1_000)})

  It is a middleware of its own since it changes the prompt, which only a transform may, while
  `Engine.Harness.Middleware.AIRateLimit` is a guard, which judges the prompt as it will be sent,
  notice included. The order in which the two are attached doesn't matter.

  | option | default | meaning |
  |---|---|---|
  | `:below` | 20 | the share in percent, from 1 to 100 |

  Told are calls, tokens, cost and time, of each what the model may still use: of the session's,
  the account's and the key's limit the one of which the least is left. Rates and breakers are not:
  they pass by themselves.

      iex> alias Engine.Harness.Middleware.AIRateLimit.Notice
      iex> Notice.text(calls: {2, 10}, tokens: {180, 1_000})
      "Left of what you may use: 2 of 10 calls, 180 of 1,000 tokens."

  ## When

  With the first call below the share, and again each time half of what was told last is gone. So a
  prompt is not given other bytes every turn for a number that hardly changed, and the sentence
  stands at the prompt's end, where nothing that a provider has in its cache comes after it. It is
  told once: whoever keeps the prompt that was sent keeps it in the history.

  A notice in a prompt that wasn't sent, since the call was refused or has to wait, is told again
  with the next one. So try again with the prompt as it was before the hooks ran.

  The sentence depends on the numbers alone. They are those before the call it stands in is
  reserved. In a session that didn't run `:session_start`, none are known before the first call.
  Where a server doesn't answer, nothing is told: the guard halts.
  """

  @behaviour Engine.Harness.Middleware

  alias Engine.Harness.{Middleware, Options, Table}
  alias Engine.Harness.Middleware.AIRateLimit
  alias Engine.Harness.Middleware.AIRateLimit.Source

  @units [
    calls: "calls",
    tokens: "tokens",
    cost: "micro-units of cost",
    deadline: "ms of time"
  ]

  @typedoc "What can be told of."
  @type kind :: :calls | :tokens | :cost | :deadline

  @impl true
  def init(opts) do
    Options.validate!(opts, [:below])

    case Keyword.get(opts, :below, 20) do
      below when below in 1..100 ->
        below

      other ->
        raise ArgumentError,
              "expected :below to be an integer of percent from 1 to 100, " <>
                "got: #{Options.show(other)}"
    end
  end

  @impl true
  def kind(_phase), do: :transform

  @impl true
  def pre_model_call(payload, below) do
    case payload.assigns do
      %{AIRateLimit => %{model: source} = session} when source != nil ->
        tell(payload, session, low(payload, session, below))

      _no_limits ->
        :ok
    end
  end

  @doc "The sentence for what is left of limits."
  @spec text([{kind, {left :: non_neg_integer, limit :: non_neg_integer}}, ...]) :: String.t()
  def text(low) do
    parts =
      for {kind, {left, limit}} <- low do
        "#{Table.number(left)} of #{Table.number(limit)} #{Keyword.fetch!(@units, kind)}"
      end

    "Left of what you may use: #{Enum.join(parts, ", ")}."
  end

  # What was told counts once a call was admitted after it.
  defp tell(payload, %{admitted: admitted}, low) do
    told =
      case Map.get(payload.assigns, __MODULE__) do
        %{admitted: before, new: new} when before < admitted -> new
        %{old: old} -> old
        nil -> %{}
      end

    # What is not low any more is told again once it is.
    told = Map.take(told, Keyword.keys(low))
    now = Map.new(low, fn {kind, {left, _limit}} -> {kind, left} end)
    news? = Enum.any?(now, fn {kind, left} -> news?(left, told[kind]) end)
    new = if news?, do: now, else: told
    payload = put_in(payload.assigns[__MODULE__], %{admitted: admitted, old: told, new: new})
    {:cont, if(news?, do: Middleware.tell(payload, text(low)), else: payload)}
  end

  defp news?(_left, nil), do: true
  defp news?(left, told), do: left < told and 2 * left <= told

  # Of each kind the row of which the least is left, where that is below the share.
  defp low(payload, %{model: source, asked: {key, account}}, below) do
    case Source.balance(source, Source.now!(source, payload), key, account) do
      {:ok, rows} ->
        for {kind, _unit} <- @units,
            row = least(rows, kind),
            row.left * 100 < row.limit * below,
            do: {kind, {row.left, row.limit}}

      {:error, _unreachable} ->
        []
    end
  end

  defp least(rows, kind) do
    rows
    |> Enum.filter(&(&1.kind == kind and &1.limit != :infinity))
    |> Enum.min_by(& &1.left, fn -> nil end)
  end
end
