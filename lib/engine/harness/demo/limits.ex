defmodule Engine.Harness.Demo.Limits do
  @moduledoc """
  A scripted session that comes up against each of its limits: a rate, failures in a row, a call that
  never comes back, a tool's number of calls, a budget.

  Clock and model are scripted, so the story is the same each time.
  """

  alias Engine.Harness.{Hooks, Middleware, Table}
  alias Engine.Harness.Middleware.AIRateLimit
  alias Engine.Harness.Middleware.AIRateLimit.{Actual, Notice, Refusal}

  @model "scripted-1"
  @prompt "Find out what the shop's competitors charge for delivery."

  @limits [
    session_budget: [tokens: 8_000, cost: 60_000],
    requests: [limit: 2, interval_ms: 20_000],
    breaker: [failures: 2, window_ms: 30_000, backoff_ms: 30_000, max_backoff_ms: 120_000],
    prices: %{@model => %{input: 3_000_000, cached_input: 300_000, output: 15_000_000}},
    deadline_ms: 300_000,
    attempt_ms: 30_000
  ]
  @tools [keys: %{"web_search" => [key_budget: [calls: 2]]}]
  @estimate %{
    key: @model,
    model: @model,
    tokens: %{input_tokens: 1_000, output_tokens: 500},
    expected_ms: 2_000
  }

  # What the model does in turn: the status that it answers with or that it never does, after how
  # many milliseconds, and its usage as input, cached input and output.
  @script [
    {200, 2_000, {900, 0, 300}},
    {200, 2_200, {150, 900, 400}},
    {503, 1_000, {0, 0, 0}},
    {429, 300, {0, 0, 0}},
    {200, 2_500, {100, 1_000, 350}},
    {:lost, 30_000, nil},
    {200, 2_100, {150, 1_000, 300}},
    {200, 2_100, {150, 1_000, 300}}
  ]

  # What the tool takes, and what the provider that answers 429 asks to wait.
  @tool_ms 250
  @retry_after_ms 15_000

  @doc """
  What happened, as text, with the limits in the end as tables.

      iex> story = Engine.Harness.Demo.Limits.story()
      iex> story =~ "halt     session, tokens: 1500 asked, 950 of 8000 left"
      true
  """
  @spec story() :: String.t()
  def story do
    hooks =
      Hooks.new()
      |> Middleware.attach({Notice, below: 35})
      |> Middleware.attach(
        {AIRateLimit, model: @limits, tools: @tools, estimate: fn _payload -> @estimate end}
      )

    {:ok, story, {:ok, ended}} =
      Hooks.session(hooks, %{session_id: "demo", now_ms: 0}, fn payload ->
        {story, last} = turns(hooks, carried(payload), @script, 1, [])
        {story, Map.merge(payload, last)}
      end)

    %{model: model, tools: tools} = ended.assigns[AIRateLimit]

    IO.iodata_to_binary([
      introduction(),
      story,
      "\nthe model's limits\n#{AIRateLimit.report(model, ended.now_ms)}\n",
      "\nthe tools' limits\n#{AIRateLimit.report(tools, ended.now_ms)}\n"
    ])
  end

  defp introduction do
    """
    A scripted agent calls a model and a search, each time with 1,000 tokens of prompt expected and 500 of answer.
    The harness admits calls with Engine.Harness.Middleware.AIRateLimit: 8,000 tokens, 2 calls in 20 s,
    a breaker that opens after 2 failures, 300 s in all, 30 s for each call; 2 searches.

    """
  end

  # A wait is waited for, by moving the scripted clock; any other refusal ends the session.
  defp turns(hooks, carried, [step | rest] = script, number, story) do
    call = Map.merge(carried, %{model: @model, prompt: @prompt})

    case Hooks.run(hooks, :pre_model_call, call) do
      {:halt, %Refusal{retry: ms} = refusal, payload} when is_integer(ms) ->
        line = line(carried.now_ms, "wait", Exception.message(refusal))
        later = Map.update!(carried(payload), :now_ms, &(&1 + ms))
        turns(hooks, later, script, number, [story, line])

      {:halt, refusal, payload} ->
        line = line(carried.now_ms, "halt", Exception.message(refusal))
        {[story, charged(payload, carried.now_ms), line], carried(payload)}

      {:ok, payload} ->
        told = [charged(payload, carried.now_ms), told(payload)]
        {line, payload} = answer(hooks, payload, step, number)
        {did, carried} = search(hooks, carried(payload), step)
        turns(hooks, carried, rest, number + 1, [story, told, line, did])
    end
  end

  defp answer(_hooks, payload, {:lost, ms, nil}, number) do
    text = "admitted for #{seconds(payload.timeout_ms)}; it never comes back"
    {line(payload.now_ms, "call #{number}", text), later(payload, ms)}
  end

  defp answer(hooks, payload, {status, ms, {input, cached, output}}, number) do
    usage = %{input_tokens: input, cached_input_tokens: cached, output_tokens: output}
    actual = %{completion: "", usage: usage, outcome: Actual.outcome(status)}
    actual = if status == 429, do: Map.put(actual, :retry_after_ms, @retry_after_ms), else: actual
    {:ok, settled} = Hooks.run(hooks, :post_model_call, payload |> later(ms) |> Map.merge(actual))
    tokens = Table.number(input + cached + output)
    text = "admitted for #{seconds(payload.timeout_ms)}; answers #{status}, #{tokens} tokens"
    {line(payload.now_ms, "call #{number}", text), settled}
  end

  defp search(hooks, carried, {200, _ms, _usage}) do
    call = Map.merge(carried, %{tool: "web_search", arguments: %{"query" => "delivery"}})

    case Hooks.run(hooks, :pre_tool_use, call) do
      {:ok, payload} ->
        {line(carried.now_ms, "search", "run"), payload |> later(@tool_ms) |> carried()}

      {:halt, refusal, payload} ->
        {line(carried.now_ms, "search", "not run: #{Exception.message(refusal)}"),
         carried(payload)}
    end
  end

  defp search(_hooks, carried, _failed), do: {"", carried}

  defp charged(payload, now) do
    for %{decision: :estimated, reason: reason} <- payload.events,
        do: line(now, "charged", reason)
  end

  defp told(%{prompt: @prompt}), do: ""

  defp told(payload),
    do: line(payload.now_ms, "told", String.slice(payload.prompt, byte_size(@prompt) + 2, 200))

  # Without events: those of a payload are then its own run's.
  defp carried(payload), do: Map.take(payload, [:assigns, :now_ms])
  defp later(payload, ms), do: Map.update!(payload, :now_ms, &(&1 + ms))

  defp line(now, what, text) do
    "#{Table.pad(seconds(now), 8, :right)}  #{Table.pad(what, 7, :left)}  #{text}\n"
  end

  # Integers alone, so that no rounding of floats shows.
  defp seconds(ms) do
    tenths = div(ms, 100)
    "#{div(tenths, 10)}.#{rem(tenths, 10)} s"
  end
end
