defmodule Engine.Harness.Hooks do
  @moduledoc """
  What runs before and after the steps of an agent's loop: to look, to change, to stop.

  Hooks are a value: a map from phase to handlers, in the order in which they were
  registered. There is no process, no registry, no time limit and no global state behind it;
  who runs the loop builds the value and passes it on.

      iex> alias Engine.Harness.Hooks
      iex> in_docs = fn payload -> {:cont, put_in(payload.arguments["dir"], "docs")} end
      iex> read_only = fn
      ...>   %{tool: "write_file"} -> {:halt, :read_only}
      ...>   _payload -> :ok
      ...> end
      iex> hooks =
      ...>   Hooks.new()
      ...>   |> Hooks.register(:pre_tool_use, {"read_only", read_only})
      ...>   |> Hooks.register(:pre_tool_use, {"in_docs", in_docs}, kind: :transform)
      iex> {:ok, payload} = Hooks.run(hooks, :pre_tool_use, %{tool: "ls", arguments: %{}})
      iex> payload.arguments
      %{"dir" => "docs"}
      iex> call = %{tool: "write_file", arguments: %{"name" => "a.md"}}
      iex> {:halt, :read_only, _payload} = Hooks.run(hooks, :pre_tool_use, call)

  On `{:ok, payload}` the caller takes the step, with what is now in the payload. On
  `{:halt, reason, payload}` it does not.

  ## Phases

  | phase | runs |
  |---|---|
  | `:session_start` | once, before a session's work |
  | `:pre_model_call` | before a prompt is sent to the model |
  | `:post_model_call` | when the completion is there |
  | `:pre_tool_use` | before a tool that the model called is run |
  | `:post_tool_use` | when its result is there |
  | `:session_end` | once, after the work, however it ended |

  The keys of each phase's payload are in `Engine.Harness.Hooks.Payload`.

  ## Handlers

  A handler is a function of one argument, the payload, or `{name, function}`; the name, a
  string or an atom, is what an error calls it. It returns

  | value | meaning |
  |---|---|
  | `:ok` | go on, nothing changed |
  | `{:cont, payload}` | go on with this payload |
  | `{:halt, reason}` | stop: no later handler runs |
  | `{:halt, reason, payload}` | stop, and keep this payload, with what was counted in it |

  Anything else, and a raise, a throw or an exit, stops too: with an
  `Engine.Harness.Hooks.Error` as the reason, and the payload as that handler got it. So a
  broken handler allows nothing, and is never taken for one that said no.

      iex> alias Engine.Harness.Hooks
      iex> hooks = Hooks.register(Hooks.new(), :pre_tool_use, {"guard", fn _payload -> true end})
      iex> {:halt, error, _payload} =
      ...>   Hooks.run(hooks, :pre_tool_use, %{tool: "ls", arguments: %{}})
      iex> error.kind
      :invalid_return

  ## Guards and transforms

  Each registration has a kind: `:guard`, the default, or `:transform`. In `:pre_tool_use` and
  `:pre_model_call` transforms run before guards, each kind in registration order, so that a
  guard judges what will really be run or sent. There a guard may change the payload's
  `:assigns` and what the caller added, but nothing of the step itself
  (`Engine.Harness.Hooks.Payload.guarded/1`): that is an invalid return. In the other phases
  both kinds run in registration order and may change what they like.

  A halt is final: no later handler runs that could undo it.

  ## Events

  Each handler's decision becomes an `Engine.Harness.Hooks.Event` in the payload's `:events`
  and, where the library `:telemetry` is loaded, one of its events around the handler's call:
  `[:engine, :harness, phase, :start]`, then `:stop` or, when the handler failed, `:exception`.
  Their metadata have the `:event`, with `:exception` also `:kind`, `:reason` and `:stacktrace`;
  measurements are `:system_time` (`:start`), `:duration` (`:stop`, `:exception`) and
  `:monotonic_time`, in native units.

  ## The end of a session

  In `:session_end` nothing is left to stop, and each handler may have something to close:
  there all of them run, whatever one of them does. The answer is still `{:halt, …}` if one
  halted or failed, with the first one's reason.
  """

  alias Engine.Harness.Hooks.{Error, Event, Payload, Telemetry}
  alias Engine.Harness.Options

  defstruct Enum.map(Payload.phases(), &{&1, []})

  @typedoc "Hooks: for each phase its handlers, in the order in which they run."
  @opaque t :: %__MODULE__{}

  @typedoc "What a handler may return."
  @type answer :: :ok | {:cont, map} | {:halt, reason :: term} | {:halt, reason :: term, map}

  @typedoc "A function of a payload, by itself or with a name."
  @type handler :: (map -> answer) | {String.t() | atom, (map -> answer)}

  @typedoc "What a handler is for: to let pass or stop, or to change what is run or sent."
  @type kind :: :guard | :transform

  @typedoc "What a run of one phase's handlers came to."
  @type outcome :: {:ok, map} | {:halt, reason :: Error.t() | term, map}

  @doc """
  Hooks without a handler.

  ## Examples

      iex> hooks = Engine.Harness.Hooks.new()
      iex> Engine.Harness.Hooks.run(hooks, :session_start, %{session_id: "s1"})
      {:ok, %{session_id: "s1", assigns: %{}}}

  """
  @spec new() :: t
  def new, do: %__MODULE__{}

  @doc """
  All phases.

  ## Examples

      iex> Engine.Harness.Hooks.phases()
      [:pre_tool_use, :post_tool_use, :session_start, :session_end, :pre_model_call, :post_model_call]

  """
  @spec phases() :: [Payload.phase(), ...]
  defdelegate phases, to: Payload

  @doc """
  Adds a handler, which runs after those of its kind that the phase already has.

  The same handler may be added again, and then runs again. Raises `ArgumentError` for an
  unknown phase or option and for what can't be a handler.

  ## Options

  | option | default | meaning |
  |---|---|---|
  | `:kind` | `:guard` | or `:transform`, which runs before the guards and may change the step |
  | `:on_error` | `:halt` | what a failure of this handler does; with `:continue` the next one gets the payload as this one got it, and the failure is in the events alone |

  ## Examples

      iex> alias Engine.Harness.Hooks
      iex> add = fn text -> fn payload -> {:cont, update_in(payload.prompt, &(&1 <> text))} end end
      iex> hooks =
      ...>   Hooks.new()
      ...>   |> Hooks.register(:pre_model_call, add.(" Be brief."), kind: :transform)
      ...>   |> Hooks.register(:pre_model_call, add.(" Answer in French."), kind: :transform)
      iex> {:ok, payload} =
      ...>   Hooks.run(hooks, :pre_model_call, %{model: "m", prompt: "You are kind."})
      iex> payload.prompt
      "You are kind. Be brief. Answer in French."

      iex> Engine.Harness.Hooks.register(Engine.Harness.Hooks.new(), :session_end, fn -> :ok end)
      ** (ArgumentError) expected a handler to be a function of one argument or {name, function}, the name a string or an atom, got: a function of 0 arguments

  """
  @spec register(t, Payload.phase(), handler, kind: kind, on_error: :halt | :continue) :: t
  def register(%__MODULE__{} = hooks, phase, handler, opts \\ []) do
    check_phase!(phase)
    {name, function} = named!(handler)
    Options.validate!(opts, [:kind, :on_error])

    handler = %{
      name: name,
      function: function,
      kind: Options.one_of!(opts, :kind, [:guard, :transform]),
      on_error: Options.one_of!(opts, :on_error, [:halt, :continue])
    }

    Map.update!(hooks, phase, &insert(&1, handler, Payload.guarded(phase)))
  end

  defp insert(handlers, %{kind: :transform} = handler, [_ | _] = _guarded) do
    {transforms, guards} = Enum.split_while(handlers, &(&1.kind == :transform))
    transforms ++ [handler | guards]
  end

  defp insert(handlers, handler, _guarded), do: handlers ++ [handler]

  @doc """
  Whether a phase has a handler of this name.

  ## Examples

      iex> alias Engine.Harness.Hooks
      iex> hooks = Hooks.register(Hooks.new(), :session_end, {"log", fn _payload -> :ok end})
      iex> {Hooks.registered?(hooks, "log"), Hooks.registered?(hooks, "count")}
      {true, false}

  """
  @spec registered?(t, String.t() | atom) :: boolean
  def registered?(%__MODULE__{} = hooks, name) do
    Enum.any?(phases(), fn phase -> Enum.any?(Map.fetch!(hooks, phase), &(&1.name == name)) end)
  end

  @doc """
  Runs the handlers of a phase, in their order, until one halts.

  Each handler gets the payload that the one before it left. `{:ok, payload}` means that all
  of them let the step pass; `{:halt, reason, payload}` that one did not, or failed, in which
  case `reason` is an `Engine.Harness.Hooks.Error`.

  In `:session_end` all handlers run. The payload goes from one to the next as elsewhere, a
  halt's own payload included; a handler that fails leaves the one it got. The answer is
  `{:halt, reason, payload}` if any halted or failed, with the first one's reason and the
  payload that the last handler left.

  The payload must have the keys that its phase requires, or `ArgumentError` is raised.
  `:assigns` is put in as `%{}` when it is absent. A handler's payload must have them too, and
  `:assigns` with them, so that no handler loses what another one keeps there. What the
  handlers decided is put in front of `:events`.

  There is no time limit: a handler that must not take long has to see to it itself.

  ## Examples

      iex> alias Engine.Harness.Hooks
      iex> spend = fn %{assigns: %{calls: calls}} = payload ->
      ...>   payload = put_in(payload.assigns.calls, calls + 1)
      ...>   if calls < 2, do: {:cont, payload}, else: {:halt, :too_many_calls, payload}
      ...> end
      iex> hooks = Hooks.register(Hooks.new(), :pre_tool_use, spend)
      iex> call = %{tool: "ls", arguments: %{}, assigns: %{calls: 1}}
      iex> {:ok, payload} = Hooks.run(hooks, :pre_tool_use, call)
      iex> {:halt, :too_many_calls, payload} = Hooks.run(hooks, :pre_tool_use, payload)
      iex> payload.assigns
      %{calls: 3}
      iex> Enum.map(payload.events, & &1.decision)
      [:halt, :cont]

      iex> Engine.Harness.Hooks.run(Engine.Harness.Hooks.new(), :session_start, %{})
      ** (ArgumentError) the payload of :session_start lacks :session_id

  """
  @spec run(t, Payload.phase(), map) :: outcome
  def run(%__MODULE__{} = hooks, phase, payload) do
    check_phase!(phase)
    hooks |> Map.fetch!(phase) |> run_all(phase, check_payload!(phase, payload))
  end

  @doc """
  Runs a session: the handlers of `:session_start`, the work, the handlers of `:session_end`.

  `work` gets the payload that `:session_start` left and returns `{value, payload}`; with the
  payload it hands on what `assigns` became. `:session_end` runs exactly once, whatever
  happens before it, and finds in its payload the `reason`:

  | what happened | `reason` | then |
  |---|---|---|
  | the work returned | `:normal` | `{:ok, value, ended}` |
  | `:session_start` halted, the work never began | `{:halt, reason}` | `{:halt, reason, ended}` |
  | the work raised, threw or exited | `{:raise, exception}`, `{:throw, value}`, `{:exit, reason}` | the failure goes on to the caller |

  `ended` is what `run/3` answered for `:session_end`: what happens there is beside the
  session's own result and never changes it. After a failure of the work nobody is left to
  hand it to, and `:session_end` sees the payload with which the work began.

  A process that is killed runs nothing any more: put into a process that watches this one
  what must happen even then.

  ## Examples

      iex> alias Engine.Harness.Hooks
      iex> log = fn payload -> {:cont, put_in(payload.assigns[:log], payload.reason)} end
      iex> hooks = Hooks.register(Hooks.new(), :session_end, {"log", log})
      iex> {:ok, 42, {:ok, payload}} =
      ...>   Hooks.session(hooks, %{session_id: "s1"}, fn payload -> {6 * 7, payload} end)
      iex> payload.assigns
      %{log: :normal}
      iex> Hooks.session(hooks, %{session_id: "s1"}, fn _payload -> raise "lost" end)
      ** (RuntimeError) lost

  """
  @spec session(t, Payload.session_start(), (map -> {value, map})) ::
          {:ok, value, ended :: outcome} | {:halt, reason :: term, ended :: outcome}
        when value: term
  def session(%__MODULE__{} = hooks, payload, work) when is_function(work, 1) do
    case run(hooks, :session_start, payload) do
      {:ok, payload} ->
        {value, payload} = attempt(hooks, payload, work)
        {:ok, value, session_end(hooks, payload, :normal)}

      {:halt, reason, payload} ->
        {:halt, reason, session_end(hooks, payload, {:halt, reason})}
    end
  end

  defp attempt(hooks, payload, work) do
    # The checks are inside: a work that returns rubbish has to end its session, too.
    case work.(payload) do
      {value, left} ->
        {value, check_payload!(:session_start, left)}

      other ->
        raise ArgumentError,
              "expected a session's work to return {value, payload}, got: #{inspect(other)}"
    end
  catch
    kind, reason ->
      session_end(hooks, payload, failure(kind, reason, __STACKTRACE__))
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp session_end(hooks, payload, reason) do
    run(hooks, :session_end, Map.put(payload, :reason, reason))
  end

  # Handlers don't get the events, so none of them can lose or change what others decided.
  defp run_all([], _phase, payload), do: {:ok, payload}

  defp run_all(handlers, phase, payload) do
    {events, payload} = Map.pop(payload, :events, [])

    {outcome, events} =
      Enum.reduce_while(handlers, {{:ok, payload}, events}, fn handler, {before, events} ->
        {outcome, events} = call(handler, phase, left(before), events)
        {next(phase, outcome), {first(before, outcome), events}}
      end)

    put_elem(outcome, tuple_size(outcome) - 1, Map.put(left(outcome), :events, events))
  end

  # At the session's end nothing is left to stop: the rest still runs, and the first halt's
  # reason is kept.
  defp next(:session_end, _outcome), do: :cont
  defp next(_phase, {:ok, _payload}), do: :cont
  defp next(_phase, _halt), do: :halt

  defp first({:halt, reason, _before}, outcome), do: {:halt, reason, left(outcome)}
  defp first({:ok, _before}, outcome), do: outcome

  defp left({:ok, payload}), do: payload
  defp left({:halt, _reason, payload}), do: payload

  defp call(handler, phase, payload, events) do
    event = Event.new(handler, phase, payload)
    started = Telemetry.start(event)
    {decision, outcome} = decide(handler, phase, payload)
    {notes, outcome} = take_notes(outcome)
    event = %{event | decision: decision, reason: reason(outcome)}
    Telemetry.stop(started, event, failed(decision, outcome))

    notes = Enum.map(notes, &Map.merge(event, &1))
    {go_on(handler, outcome, decision), [event | notes ++ events]}
  end

  defp decide(%{name: name, function: function, kind: kind}, phase, payload) do
    error = %Error{phase: phase, handler: name}

    try do
      function.(payload)
    catch
      kind, reason ->
        {kind, reason} = failure(kind, reason, __STACKTRACE__)
        error = %{error | kind: kind, reason: reason, stacktrace: __STACKTRACE__}
        {kind, {:halt, error, payload}}
    else
      answer ->
        case outcome(answer, payload) do
          nil ->
            {:invalid_return, {:halt, %{error | kind: :invalid_return, reason: answer}, payload}}

          outcome ->
            case problem(kind, phase, payload, left(outcome)) do
              nil ->
                {if(is_tuple(answer), do: elem(answer, 0), else: answer), outcome}

              problem ->
                error = %{error | kind: :invalid_return, reason: answer, problem: problem}
                {:invalid_return, {:halt, error, payload}}
            end
        end
    end
  end

  defp outcome(:ok, payload), do: {:ok, payload}
  defp outcome({:cont, payload}, _before), do: {:ok, payload}
  defp outcome({:halt, reason}, payload), do: {:halt, reason, payload}
  defp outcome({:halt, reason, payload}, _before), do: {:halt, reason, payload}
  defp outcome(_answer, _payload), do: nil

  defp problem(kind, phase, before, payload) do
    Payload.problem(phase, payload) || notes_problem(Map.get(payload, :events, [])) ||
      changed(kind, Payload.guarded(phase), before, payload)
  end

  # A handler got no events, so what it hands back are notes of its own.
  defp notes_problem([]), do: nil

  defp notes_problem([%{decision: decision, reason: reason} = note | rest])
       when is_atom(decision) and is_binary(reason) and map_size(note) == 2,
       do: notes_problem(rest)

  defp notes_problem(_other) do
    "expected :events to be left alone or added to by Engine.Harness.Middleware.note/3"
  end

  defp changed(:guard, [_ | _] = keys, before, payload) do
    # Strictly: 1 and 1.0 are not the same argument.
    case Enum.reject(keys, &(Map.fetch(before, &1) === Map.fetch(payload, &1))) do
      [] -> nil
      keys -> "a guard may not change #{Options.list(keys)}"
    end
  end

  defp changed(_kind, _keys, _before, _payload), do: nil

  defp take_notes(outcome) do
    {notes, payload} = Map.pop(left(outcome), :events, [])
    {notes, put_elem(outcome, tuple_size(outcome) - 1, payload)}
  end

  defp reason({:ok, _payload}), do: nil
  defp reason({:halt, reason, _payload}), do: Event.text(reason)

  defp failed(decision, _outcome) when decision in [:ok, :cont, :halt], do: nil
  defp failed(_decision, {:halt, error, _payload}), do: error

  defp go_on(%{on_error: :continue}, {:halt, _error, payload}, decision) when decision != :halt,
    do: {:ok, payload}

  defp go_on(_handler, outcome, _decision), do: outcome

  defp failure(:error, reason, stacktrace) do
    {:raise, Exception.normalize(:error, reason, stacktrace)}
  end

  defp failure(kind, reason, _stacktrace), do: {kind, reason}

  defp named!(function) when is_function(function, 1), do: {function, function}

  defp named!({name, function} = handler)
       when is_function(function, 1) and
              ((is_binary(name) and name != "") or (is_atom(name) and name != nil)),
       do: handler

  defp named!(other) do
    raise ArgumentError,
          "expected a handler to be a function of one argument or {name, function}, " <>
            "the name a string or an atom, got: #{shape(other)}"
  end

  # How a function prints differs between releases; its arity is what is wrong.
  defp shape({name, function}) when is_function(function) do
    "{#{inspect(name)}, #{shape(function)}}"
  end

  defp shape(function) when is_function(function) do
    {:arity, arity} = Function.info(function, :arity)
    "a function of #{arity} #{if arity == 1, do: "argument", else: "arguments"}"
  end

  defp shape(other), do: inspect(other)

  defp check_phase!(phase) do
    if phase not in phases() do
      raise ArgumentError,
            "expected a phase to be one of #{Enum.map_join(phases(), ", ", &inspect/1)}, " <>
              "got: #{inspect(phase)}"
    end
  end

  defp check_payload!(phase, payload) do
    payload = if is_map(payload), do: Map.put_new(payload, :assigns, %{}), else: payload
    problem = Payload.problem(phase, payload)
    if problem, do: raise(ArgumentError, problem), else: payload
  end
end
