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

  ## Keys

  What is spent under a key is kept as long as the state. Keys are a list of the caller's own, such
  as providers or customers, not names that anyone can invent.

  ## Time

  The state goes by the latest time that it has seen; one that steps back changes nothing. The
  deadline runs from the time given to `new/2`, or else from the first one seen.

  ## On the hooks

      hooks =
        Middleware.attach(Hooks.new(), {AIRateLimit,
          model: [session_budget: [tokens: 200_000], deadline_ms: 600_000],
          estimate: &AIRateLimit.estimate(&1, 4_000),
          tools: [keys: %{"web_search" => [key_budget: [calls: 5]]}]})

  | option | default | meaning |
  |---|---|---|
  | `:model` | none | what holds for calls of the model: limits (`Engine.Harness.Middleware.AIRateLimit.Limits`), or `{:server, name}` |
  | `:estimate` | required with `:model` | a function from the payload of `:pre_model_call` to an estimate; `estimate/2` makes the usual one |
  | `:tools` | none | what holds for calls of tools, whose keys are the tools' names; likewise. A tool's name is what the model wrote, and each is kept: attach what refuses unknown tools before |

  | phase | what it does |
  |---|---|
  | `:session_start` | the deadline begins, where the limits are a value |
  | `:pre_model_call` | admits the call, and puts how long it may take into the payload's `:timeout_ms`; or halts |
  | `:post_model_call` | settles it with the payload's `:usage`, `:outcome` (`:success` when absent) and `:retry_after_ms`; a call that failed comes here, too |
  | `:pre_tool_use` | counts the call, or halts |
  | `:session_end` | settles what is still open at its estimate, since the money of a call in flight is spent |

  The reason of a halt is an `Engine.Harness.Middleware.AIRateLimit.Refusal` with the numbers. A
  wait is a halt whose `:retry` is a number of milliseconds, and noted as `:wait` in the events. No
  hook sleeps: whoever runs the loop decides whether to wait, and then runs the phase again, with
  the `assigns` of the halt and the prompt as it was before:

      case Hooks.run(hooks, :pre_model_call, call) do
        {:ok, payload} -> call_model(payload)
        {:halt, %Refusal{retry: ms}, payload} when is_integer(ms) -> wait(ms, payload.assigns)
        {:halt, reason, payload} -> give_up(reason, payload)
      end

  What can't be settled is a halt with an `Engine.Harness.Middleware.AIRateLimit.Error`; it is
  tried again before the next call is admitted, and at the session's end. A call that never came
  back is settled at its estimate then, and that is noted as `:estimated`. One of a server's that
  the server has settled itself, because it lost sight of its owner, is noted as `:not_open`.

  Attach it after other guards: a call that one after it stops is charged as if it had been made.

  Limits that are a value go by the payload's `:now_ms`, which every phase then needs, and are in
  `assigns` under this module's name (`t:session/0`). They end with `assigns`: a session whose work
  fails and hands nothing on takes them with it. A server keeps them, goes by its own clock, and
  settles at `:session_end` whatever the same process left open in the session of this
  `:session_id`, known to `assigns` or not; and when the process dies, all of it.

  `Engine.Harness.Middleware.AIRateLimit.Notice` tells the model what is left.
  """

  @behaviour Engine.Harness.Middleware

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
    Source,
    Usage
  }

  alias Engine.Harness.{Json, Middleware, Options}
  alias Engine.Harness.Tokenizer.Approximate

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

  @typedoc """
  What is kept in `assigns` on the hooks.

  `:model` and `:tools` are where the limits are: a value, the name of a server, or `nil`. `:open`
  is the call that is under way, with what became of it where that couldn't be settled; `:admitted`
  counts calls of the model; `:asked` is the key and the account of the last one that was asked for.
  """
  @type session :: %{
          model: t | {:server, GenServer.server()} | nil,
          tools: t | {:server, GenServer.server()} | nil,
          open: {Lease.t(), Actual.t() | nil} | nil,
          admitted: non_neg_integer,
          asked: {String.t() | atom | nil, Accounts.id()},
          session_id: String.t() | nil
        }

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

  @doc """
  The rows of `report/2` that a call of this key and account is charged to: the budgets of the
  session, of the account with those above it, and of the key; and the deadline.

  A key or an account that there is not has none.

      iex> alias Engine.Harness.Middleware.AIRateLimit
      iex> state = AIRateLimit.new(session_budget: [tokens: 1_000], key_budget: [calls: 3])
      iex> rows = AIRateLimit.balance(state, 0, "openai", :session)
      iex> for %{limit: limit} = row when is_integer(limit) <- rows, do: {row.scope, row.kind, row.left}
      [{:session, :tokens, 1_000}, {{:key, "openai"}, :calls, 3}]
  """
  @spec balance(t, integer, String.t() | atom, Accounts.id()) :: [Report.row()]
  def balance(%__MODULE__{} = state, now_ms, key, account) do
    state = observe(state, now_ms)

    Report.balance(
      state,
      {key, key(state, key).budget},
      Accounts.lineage(state.accounts, account)
    )
  end

  ## On the hooks

  @doc """
  The usual estimate of a model call, for the option `:estimate`: prompt and tools at 4 bytes a
  token, rounded up, and an answer of so many tokens. The key is the model's name.

      iex> alias Engine.Harness.Middleware.AIRateLimit
      iex> AIRateLimit.estimate(%{model: "small", prompt: "Hello"}, 500)
      %{key: "small", model: "small", tokens: %{input_tokens: 2, output_tokens: 500}}
  """
  @spec estimate(map, non_neg_integer) :: Estimate.given()
  def estimate(%{model: model, prompt: prompt} = payload, output_tokens) do
    text = if is_binary(prompt), do: prompt, else: json(prompt)
    tools = if payload[:tools] in [nil, []], do: "", else: json(payload.tools)
    input = Approximate.count(text, []) + Approximate.count(tools, [])
    tokens = %{input_tokens: input, output_tokens: output_tokens}
    %{key: model, model: model, tokens: tokens}
  end

  defp json(term), do: term |> Json.encode() |> IO.iodata_to_binary()

  @impl true
  def init(opts) do
    Options.validate!(opts, [:model, :estimate, :tools])
    sources = for name <- [:model, :tools], do: {name, source!(opts, name)}
    if Enum.all?(sources, &(elem(&1, 1) == nil)), do: raise(ArgumentError, "nothing is limited")

    Map.new([{:estimate, estimate!(opts, sources[:model])} | sources])
  end

  @impl true
  def session_start(payload, prepared) do
    session = %{session(payload, prepared) | session_id: payload.session_id}
    start = fn source -> source && Source.start(source, Source.now!(source, payload)) end
    {:cont, put(payload, %{session | model: start.(session.model), tools: start.(session.tools)})}
  end

  @impl true
  def pre_model_call(_payload, %{model: nil}), do: :ok

  def pre_model_call(payload, prepared) do
    with {:ok, payload, session} <- settle_open(payload, session(payload, prepared)) do
      estimate = Estimate.new!(prepared.estimate.(payload))
      estimate = %{estimate | session: Map.get(payload, :session_id, session.session_id)}
      session = %{session | asked: {estimate.key, estimate.account}}

      case Source.reserve(session.model, Source.now!(session.model, payload), estimate) do
        {:ok, lease, model} ->
          session = %{session | model: model, open: {lease, nil}, admitted: session.admitted + 1}
          {:cont, payload |> put(session) |> time_out(lease.timeout_ms)}

        refused ->
          refused(refused, payload, session, :model)
      end
    end
  end

  @impl true
  def post_model_call(_payload, %{model: nil}), do: :ok

  def post_model_call(payload, prepared) do
    case session(payload, prepared) do
      %{open: {lease, nil}} = session ->
        session = %{session | open: {lease, actual(payload)}}
        with {:ok, payload, _session} <- settle_open(payload, session), do: {:cont, payload}

      _not_under_way ->
        {:halt, %Error{reason: :no_lease, subject: payload.model}}
    end
  end

  @impl true
  def pre_tool_use(_payload, %{tools: nil}), do: :ok

  def pre_tool_use(payload, prepared) do
    session = session(payload, prepared)
    now = Source.now!(session.tools, payload)
    id = Map.get(payload, :session_id, session.session_id)
    estimate = Estimate.new!(%{key: payload.tool, tokens: 0, session: id})
    done = Actual.new!(%{outcome: :success, usage: 0})

    with {:ok, lease, tools} <- Source.reserve(session.tools, now, estimate),
         {:ok, tools} <- Source.settle(tools, now, lease, done) do
      {:cont, put(payload, %{session | tools: tools})}
    else
      {:error, error} -> {:halt, error}
      refused -> refused(refused, payload, session, :tools)
    end
  end

  @impl true
  def session_end(payload, prepared) do
    sources = Enum.uniq([prepared.model, prepared.tools]) -- [nil]
    outcome = settle_open(payload, session(payload, prepared))
    {errors, payload} = Enum.reduce(sources, {[], payload_of(outcome)}, &abandon/2)

    case {outcome, errors} do
      {{:halt, error, _payload}, _errors} -> {:halt, error, payload}
      {_settled, [error | _]} -> {:halt, error, payload}
      {_settled, []} -> {:cont, payload}
    end
  end

  defp payload_of({:ok, payload, _session}), do: payload
  defp payload_of({:halt, _error, payload}), do: payload

  defp abandon(source, {errors, payload}) do
    case Source.abandon(source, payload.session_id) do
      {:ok, 0} ->
        {errors, payload}

      {:ok, n} ->
        {errors, Middleware.note(payload, :estimated, "calls that never came back: #{n}")}

      {:error, error} ->
        {errors ++ [error], payload}
    end
  end

  # Settles the call that is under way: as it went, or, where it never came back, at its estimate.
  defp settle_open(payload, %{open: nil} = session), do: {:ok, payload, session}

  defp settle_open(payload, %{open: {lease, actual}} = session) do
    now = Source.now!(session.model, payload)
    settled = %{session | open: nil}

    case Source.settle(session.model, now, lease, actual || Actual.new!(%{outcome: :unknown})) do
      {:ok, model} ->
        settled = %{settled | model: model}
        payload = put(payload, settled)
        {:ok, if(actual, do: payload, else: note(payload, lease)), settled}

      {:error, %Error{reason: :not_open} = error} ->
        {:ok, payload |> put(settled) |> Middleware.note(:not_open, error), settled}

      {:error, error} ->
        {:halt, error, put(payload, session)}
    end
  end

  defp note(payload, lease) do
    text = "lease #{lease.id} never came back: #{lease.amounts.tokens} tokens are charged"
    Middleware.note(payload, :estimated, text)
  end

  defp refused({:wait, _ms, refusal, source}, payload, session, whose) do
    payload = payload |> put(Map.put(session, whose, source)) |> Middleware.note(:wait, refusal)
    {:halt, refusal, payload}
  end

  defp refused({:halt, refusal, source}, payload, session, whose) do
    {:halt, refusal, put(payload, Map.put(session, whose, source))}
  end

  defp session(payload, prepared) do
    Map.get_lazy(payload.assigns, __MODULE__, fn ->
      %{
        model: prepared.model,
        tools: prepared.tools,
        open: nil,
        admitted: 0,
        asked: {nil, :session},
        session_id: nil
      }
    end)
  end

  defp put(payload, session), do: put_in(payload.assigns[__MODULE__], session)

  defp time_out(payload, :infinity), do: payload
  # What the caller allows itself is never widened.
  defp time_out(payload, ms), do: Map.update(payload, :timeout_ms, ms, &min(&1, ms))

  # Providers count more kinds than are charged for here.
  defp actual(payload) do
    usage = payload |> Map.get(:usage) |> known()
    outcome = Map.get(payload, :outcome, :success)
    given = %{outcome: outcome, usage: usage}
    retry = Map.get(payload, :retry_after_ms)
    Actual.new!(if(retry == nil, do: given, else: Map.put(given, :retry_after_ms, retry)))
  end

  defp known(%{} = usage), do: Map.take(usage, Usage.parts())
  defp known(other), do: other

  defp source!(opts, name) do
    with {:ok, given} <- Keyword.fetch(opts, name) do
      source = Source.new!(given)
      if name == :tools, do: check_tools!(source)
      source
    else
      :error -> nil
    end
  end

  # What a tool's call comes to is not looked at.
  defp check_tools!(%__MODULE__{limits: limits}) do
    if Enum.any?([limits.key | Map.values(limits.keys)], & &1.breaker) do
      raise ArgumentError, "expected :tools to have no :breaker: their calls are only counted"
    end
  end

  defp check_tools!(_server), do: :ok

  defp estimate!(opts, model) do
    case Keyword.get(opts, :estimate) do
      nil when model == nil ->
        nil

      estimate when is_function(estimate, 1) and model != nil ->
        estimate

      other ->
        raise ArgumentError,
              "expected :estimate to be a function of one argument, beside :model, " <>
                "got: #{Options.show(other)}"
    end
  end

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
      generation: generation,
      session: estimate.session
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

  defp open(state, lease) do
    %Lease{id: id} = Lease.check!(lease)

    case state.leases do
      %{^id => ^lease} -> :ok
      %{^id => _another} -> {:error, %Error{reason: :altered, subject: lease}}
      _closed -> {:error, %Error{reason: :not_open, subject: lease}}
    end
  end

  @doc false
  @spec observe(t, integer) :: t
  def observe(state, now_ms) when is_integer(now_ms) do
    now = if state.now, do: max(state.now, now_ms), else: now_ms
    %{state | now: now, started: state.started || now}
  end

  def observe(_state, other) do
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
