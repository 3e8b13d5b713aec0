defmodule Engine.Harness.Middleware.LoopDetection do
  @moduledoc """
  Finds an agent that goes round in circles: tells it, refuses the calls, ends the session.

  It is a value, which `new/1` makes. `observe/2` takes in each assistant message, once the
  results of all its calls are there, and answers with the highest rung of the ladder that it
  reaches, every time:

      iex> alias Engine.Harness.Middleware.LoopDetection
      iex> message = %{calls: [%{tool: "sh", arguments: %{"command" => "make"}, result: "ok"}]}
      iex> {answers, _state} =
      ...>   Enum.map_reduce(1..8, LoopDetection.new(), fn _, state ->
      ...>     case LoopDetection.observe(state, message) do
      ...>       {:ok, state} -> {:ok, state}
      ...>       {{rung, _verdict}, state} -> {rung, state}
      ...>     end
      ...>   end)
      iex> answers
      [:ok, :ok, :nudge, :nudge, :block, :block, :block, :halt]

  | answer | what to do |
  |---|---|
  | `:ok` | go on |
  | `{:nudge, verdict}` | tell the model the verdict's message |
  | `{:block, verdict}` | tell it, and from now on run no call for which `check/2` says so |
  | `{:halt, verdict}` | end the session |

  A call that `check/2` refuses is answered with an error result, so that every call keeps one,
  and is observed with `refused: true`: an attempt like that is one more repetition of what the
  call came to before. With the default ladder the tool has run 5 times when the 8th attempt ends
  the session. The block holds as long as the loop does: any other message with calls ends both.

  ## What a loop is

  The same message over and over, or the same 2 to 8 messages in turn, where a message is the set
  of its calls and what came of them. Its text and the ids of its calls are no part of it, and
  messages of text alone in between neither add to a loop nor end it.

  - Calls are the same when tool and arguments are: the order of keys, white space and spelling
    of numbers (`1`, `1.0`, `1e0`) do not matter, nor whether the arguments are decoded or a JSON
    text. Integers count exactly, however large.
  - Results are the same when their bytes are. Errors are the same when their texts are with
    numbers, dates, times, addresses, random identifiers and paths below temporary folders taken
    out. Calls of a tool that fail and have no well-formed JSON as arguments are all the same.

  So different arguments are no loop, nor is polling while the result changes, nor the same test
  command between edits that change its outcome.

  Three things are only ever nudged: 8 messages in a row that differ by numbers alone, each within
  10 of the one before; a passage of at least 40 characters at least 8 times in a row inside one
  text (lines of tables, lists, code and JSON are left out); 3 messages in a row with neither a
  call nor a new text.

  A message of the user resets it: `reset/1`.

  ## On the hooks

      hooks = Middleware.attach(Hooks.new(), {LoopDetection, ladder: [nudge: 3, block: 5, halt: 8]})

  | phase | what it does |
  |---|---|
  | `:pre_model_call` | observes the message whose calls are done; a nudge or a block is told to the model at the end of the prompt; a halt halts |
  | `:post_model_call` | begins a message with the completion's text |
  | `:pre_tool_use` | halts for a call that is refused, with a verdict whose rung is `:block`: answer the call with its message as an error result, and go on |
  | `:post_tool_use` | takes in the result |
  | `:session_end` | observes what is left |

  A message's calls share a `:batch_id`; a call without one is a message of its own, observed at
  once. Calls of another batch, and the next call of the model, end a batch. The first three may
  also halt with a verdict whose rung is `:halt`: then the session is to end. The state is in
  `assigns` under this module's name. Nudges and blocks are noted in the events
  (`Engine.Harness.Middleware.note/3`).
  """

  @behaviour Engine.Harness.Middleware

  import Engine.Harness.Schedule, only: [is_small_to_count: 1]

  alias Engine.Harness.{Json, Middleware, Native, Options}
  alias Engine.Harness.Middleware.LoopDetection.Verdict

  @enforce_keys [:core, :ladder, :tools]
  defstruct [:core, :ladder, :tools, :blocking]

  @typedoc """
  The state: of constant size, however long the session gets.

  `:core` is what the native library remembers, as bytes; `:blocking` is the verdict on
  the loop whose calls are blocked.
  """
  @type t :: %__MODULE__{
          core: binary,
          ladder: {pos_integer | nil, pos_integer | nil, pos_integer | nil},
          tools: %{optional(String.t()) => keyword},
          blocking: Verdict.t() | nil
        }

  @typedoc """
  A call of a tool, and what came of it. Other keys are not looked at, so a payload of
  `:post_tool_use` is one.

  `:arguments` are decoded, or JSON text. `:result` is any term; `:is_error` says that it is an
  error. `:refused` is for a call that was not run because `check/2` said so; it needs no result.
  """
  @type call :: %{
          required(:tool) => String.t(),
          required(:arguments) => term,
          optional(:result) => term,
          optional(:is_error) => boolean,
          optional(:refused) => boolean,
          optional(term) => term
        }

  @typedoc "An assistant message, with its text and its calls; each may be left out."
  @type message :: %{optional(:text) => String.t(), optional(:calls) => [call]}

  @typedoc "What an observation came to."
  @type answer ::
          :ok | {:nudge, Verdict.t()} | {:block, Verdict.t()} | {:halt, Verdict.t()}

  @rungs [:nudge, :block, :halt]
  @ladder [nudge: 3, block: 5, halt: 8]

  @doc """
  A detection that has seen nothing.

  ## Options

  | option | default | meaning |
  |---|---|---|
  | `:ladder` | `[nudge: 3, block: 5, halt: 8]` | from how many repetitions on; each larger than the one before and at least 2; `nil` leaves a rung out, without `:nudge` nothing is nudged at all |
  | `:tools` | `%{}` | what tools declare: from name to a keyword list |

  A tool may declare

  | option | default | meaning |
  |---|---|---|
  | `:key` | all | names of the arguments by which it tells its calls apart |
  | `:polling` | 0 | so many repetitions are no loop; the ladder begins after them |
  | `:input` | `:json` | `:text` for a tool that takes a text as it is, not JSON |

  Raises `ArgumentError` for anything else.

  ## Examples

      iex> alias Engine.Harness.Middleware.LoopDetection
      iex> tools = %{"job_status" => [polling: 20], "read_file" => [key: ["path", "offset"]]}
      iex> LoopDetection.new(ladder: [nudge: 2, block: nil, halt: 4], tools: tools).ladder
      {2, nil, 4}

      iex> Engine.Harness.Middleware.LoopDetection.new(ladder: [nudge: 5, block: 3])
      ** (ArgumentError) expected each rung of :ladder to be larger than the one before, got: [nudge: 5, block: 3, halt: 8]

  """
  @spec new(ladder: keyword, tools: map) :: t
  def new(opts \\ []) do
    Options.validate!(opts, [:ladder, :tools])

    %__MODULE__{
      core: Native.loop_detection_new(),
      ladder: ladder!(Keyword.get(opts, :ladder, [])),
      tools: tools!(Keyword.get(opts, :tools, %{}))
    }
  end

  @doc """
  Takes in an assistant message, once the results of all its calls are there.

  ## Examples

      iex> alias Engine.Harness.Middleware.LoopDetection
      iex> state = LoopDetection.new(ladder: [nudge: 2])
      iex> message = %{text: "Let me look.", calls: [%{tool: "ls", arguments: "{}", result: "a"}]}
      iex> {:ok, state} = LoopDetection.observe(state, message)
      iex> {{:nudge, verdict}, _state} = LoopDetection.observe(state, message)
      iex> {verdict.kind, verdict.repetitions, verdict.first, verdict.last}
      {:repetition, 2, 1, 2}

  """
  @spec observe(t, message) :: {answer, t}
  def observe(%__MODULE__{} = state, message) do
    {text, calls} = message!(message)
    text = text(text)
    calls = Enum.map(calls, &native_call(&1, state.tools))

    observe =
      if is_small_to_count(byte_size(text) + bytes(calls)),
        do: &Native.loop_detection_observe/4,
        else: &Native.loop_detection_observe_dirty/4

    {verdict, core} = state.core |> observe.(state.ladder, text, calls) |> ok!()
    verdict = verdict && verdict(verdict)
    {answer(verdict), %{state | core: core, blocking: blocking(state, calls, verdict)}}
  end

  @doc """
  Whether a call may be run: `{:block, verdict}` when it is part of the loop that is blocked.

  It changes nothing. What the call comes to is not looked at.

  ## Examples

      iex> alias Engine.Harness.Middleware.LoopDetection
      iex> state = LoopDetection.new(ladder: [nudge: nil, block: 2])
      iex> call = %{tool: "ls", arguments: %{"dir" => "a"}, result: ""}
      iex> {:ok, state} = LoopDetection.observe(state, %{calls: [call]})
      iex> {{:block, _verdict}, state} = LoopDetection.observe(state, %{calls: [call]})
      iex> {:block, _verdict} = LoopDetection.check(state, call)
      iex> LoopDetection.check(state, %{tool: "ls", arguments: %{"dir" => "b"}})
      :ok

  """
  @spec check(t, call) :: :ok | {:block, Verdict.t()}
  def check(%__MODULE__{blocking: blocking} = state, call) do
    call!(call)

    if blocking != nil and blocked?(state, call),
      do: {:block, %{blocking | rung: :block}},
      else: :ok
  end

  @doc """
  Forgets what was seen, since the user said something. Messages are counted on.

  Takes a state, or the payload of a hook, in whose `assigns` the state is.

  ## Examples

      iex> alias Engine.Harness.Middleware.LoopDetection
      iex> state = LoopDetection.new(ladder: [nudge: 2])
      iex> message = %{calls: [%{tool: "ls", arguments: %{}, result: "a"}]}
      iex> {:ok, state} = LoopDetection.observe(state, message)
      iex> {:ok, _state} = state |> LoopDetection.reset() |> LoopDetection.observe(message)

  """
  @spec reset(t) :: t
  @spec reset(payload) :: payload when payload: map
  def reset(%__MODULE__{core: core} = state) do
    %{state | core: ok!(Native.loop_detection_reset(core)), blocking: nil}
  end

  def reset(%{assigns: %{__MODULE__ => session}} = payload) do
    put(payload, %{session | state: reset(session.state), message: nil, sentence: nil})
  end

  def reset(%{} = payload), do: payload

  ## On the hooks

  @impl true
  def init(opts), do: new(opts)

  @impl true
  def kind(:pre_model_call), do: :transform
  def kind(_phase), do: :guard

  @impl true
  def pre_model_call(payload, state) do
    with {:ok, payload} <- close(payload, state) do
      session = session(payload, state)
      payload = tell(payload, session.sentence)
      {:cont, put(payload, %{session | sentence: nil})}
    end
  end

  @impl true
  def post_model_call(payload, state) do
    with {:ok, payload} <- close(payload, state) do
      message = %{text: completion_text(payload.completion), calls: [], batch: nil}
      {:cont, put(payload, %{session(payload, state) | message: message})}
    end
  end

  @impl true
  def pre_tool_use(payload, state) do
    with {:ok, payload} <- close_other_batch(payload, state) do
      case check(session(payload, state).state, payload) do
        :ok ->
          {:cont, payload}

        {:block, verdict} ->
          with {:ok, payload} <- take_in(payload, state, %{refused: true}),
               do: {:halt, verdict, payload}
      end
    end
  end

  @impl true
  def post_tool_use(payload, state) do
    with {:ok, payload} <- close_other_batch(payload, state),
         {:ok, payload} <- take_in(payload, state, Map.take(payload, [:result, :is_error])),
         do: {:cont, payload}
  end

  @impl true
  def session_end(payload, state) do
    with {:ok, payload} <- close(payload, state), do: {:cont, payload}
  end

  # What is kept in assigns: the state, the message whose calls are not all done, and the sentence
  # that the model has to be told.
  defp session(payload, state) do
    Map.get(payload.assigns, __MODULE__, %{state: state, message: nil, sentence: nil})
  end

  defp put(payload, session), do: put_in(payload.assigns[__MODULE__], session)

  # Only `post_model_call` begins a message without a call, whatever batch its calls turn out to be.
  defp close_other_batch(payload, state) do
    case session(payload, state).message do
      %{calls: [_ | _], batch: batch} ->
        if batch == Map.get(payload, :batch_id), do: {:ok, payload}, else: close(payload, state)

      _none_yet ->
        {:ok, payload}
    end
  end

  defp take_in(payload, state, outcome) do
    session = session(payload, state)
    call = payload |> Map.take([:tool, :arguments]) |> Map.merge(outcome)
    batch = Map.get(payload, :batch_id)
    message = session.message || %{text: "", calls: [], batch: nil}
    message = %{message | calls: [call | message.calls], batch: batch}
    payload = put(payload, %{session | message: message})
    # A call without a batch is a message of its own, which is complete.
    if batch == nil, do: close(payload, state), else: {:ok, payload}
  end

  defp close(payload, state) do
    case session(payload, state) do
      %{message: nil} ->
        {:ok, payload}

      %{message: message} = session ->
        message = %{text: message.text, calls: Enum.reverse(message.calls)}
        {answer, state} = observe(session.state, message)
        session = %{session | state: state, message: nil}

        case answer do
          :ok ->
            {:ok, put(payload, session)}

          {:halt, verdict} ->
            {:halt, verdict, put(payload, session)}

          {rung, verdict} ->
            session = %{session | sentence: Exception.message(verdict)}
            {:ok, payload |> put(session) |> Middleware.note(rung, verdict)}
        end
    end
  end

  defp tell(payload, nil), do: payload
  defp tell(payload, sentence), do: Middleware.tell(payload, sentence)

  # The text of a completion in the shapes that are common; of any other one what it is as JSON,
  # which is the same for the same completion and is never taken for prose.
  defp completion_text(text) when is_binary(text), do: text
  defp completion_text(%{text: text}) when is_binary(text), do: text
  defp completion_text(%{"text" => text}) when is_binary(text), do: text
  defp completion_text(%{content: content}), do: completion_text(content)
  defp completion_text(%{"content" => content}), do: completion_text(content)
  defp completion_text(nil), do: ""

  defp completion_text([_ | _] = parts) do
    if List.improper?(parts),
      do: text(parts),
      else: parts |> Enum.filter(&text_part?/1) |> Enum.map_join("\n", &completion_text/1)
  end

  defp completion_text(other), do: text(other)

  defp text_part?(%{text: text}) when is_binary(text), do: true
  defp text_part?(%{"text" => text}) when is_binary(text), do: true
  defp text_part?(_part), do: false

  ## What the core takes and gives

  defp native_call(call, tools) do
    tool = text(call.tool)
    declared = Map.get(tools, tool, [])

    arguments =
      if is_binary(call.arguments) and Keyword.get(declared, :input, :json) == :json,
        do: call.arguments,
        else: IO.iodata_to_binary(Json.encode(call.arguments))

    outcome =
      cond do
        Map.get(call, :refused, false) == true -> :refused
        Map.get(call, :is_error, false) == true -> {:error, text(Map.get(call, :result))}
        true -> {:result, text(Map.get(call, :result))}
      end

    key = Keyword.get(declared, :key, [])
    {tool, arguments, key, Keyword.get(declared, :polling, 0), outcome}
  end

  defp text(text) when is_binary(text), do: text
  defp text(term), do: IO.iodata_to_binary(Json.encode(term))

  defp bytes(calls) do
    Enum.reduce(calls, 0, fn {tool, arguments, _key, _polling, outcome}, sum ->
      sum + byte_size(tool) + byte_size(arguments) + outcome_bytes(outcome)
    end)
  end

  defp outcome_bytes(:refused), do: 0
  defp outcome_bytes({_kind, text}), do: byte_size(text)

  defp blocked?(state, call) do
    call = native_call(Map.delete(call, :result), state.tools)

    is_blocked =
      if is_small_to_count(bytes([call])),
        do: &Native.loop_detection_is_blocked/2,
        else: &Native.loop_detection_is_blocked_dirty/2

    ok!(is_blocked.(state.core, call))
  end

  defp verdict({rung, kind, period, repetitions, tool, first, last}) do
    %Verdict{
      rung: rung,
      kind: kind,
      period: period,
      repetitions: repetitions,
      tool: if(tool != "", do: tool),
      first: first,
      last: last
    }
  end

  # A message of text alone ends no loop.
  defp blocking(state, [], _verdict), do: state.blocking
  defp blocking(_state, _calls, %Verdict{rung: :nudge}), do: nil
  defp blocking(_state, _calls, verdict), do: verdict

  defp answer(nil), do: :ok
  defp answer(%Verdict{rung: rung} = verdict), do: {rung, verdict}

  defp ok!({:ok, value}), do: value
  defp ok!({:error, message}), do: raise(ArgumentError, message)

  ## Checks

  defp ladder!(ladder) do
    Options.validate!(ladder, @rungs)

    for {rung, from} <- ladder, from != nil and not (is_integer(from) and from >= 2) do
      raise ArgumentError,
            "expected #{inspect(rung)} in :ladder to be an integer of at least 2 or nil, " <>
              "got: #{Options.show(from)}"
    end

    ladder = for {rung, default} <- @ladder, do: {rung, Keyword.get(ladder, rung, default)}
    steps = for {_rung, from} <- ladder, from != nil, do: from

    if steps != steps |> Enum.sort() |> Enum.dedup() do
      raise ArgumentError,
            "expected each rung of :ladder to be larger than the one before, " <>
              "got: #{inspect(ladder)}"
    end

    {ladder[:nudge], ladder[:block], ladder[:halt]}
  end

  defp tools!(%{} = tools) do
    for {name, declared} <- tools do
      unless is_binary(name) do
        raise ArgumentError,
              "expected a tool's name in :tools to be a string, got: #{Options.show(name)}"
      end

      Options.validate!(declared, [:key, :polling, :input])
      Options.one_of!(declared, :input, [:json, :text])
      key = Keyword.get(declared, :key, [""])

      unless is_list(key) and key != [] and Enum.all?(key, &(is_binary(&1) and String.valid?(&1))) do
        raise ArgumentError,
              "expected :key of #{inspect(name)} to be a list of arguments' names, " <>
                "got: #{Options.show(key)}"
      end

      polling = Keyword.get(declared, :polling, 0)

      unless is_integer(polling) and polling >= 0 do
        raise ArgumentError,
              "expected :polling of #{inspect(name)} to be a non-negative integer, " <>
                "got: #{Options.show(polling)}"
      end
    end

    tools
  end

  defp tools!(other) do
    raise ArgumentError,
          "expected :tools to be a map from tools' names to keyword lists, " <>
            "got: #{Options.show(other)}"
  end

  defp message!(%{} = message) do
    case Map.keys(message) -- [:text, :calls] do
      [] -> {Map.get(message, :text, ""), calls!(Map.get(message, :calls, []))}
      [key | _] -> raise ArgumentError, "unknown key #{inspect(key)} in a message"
    end
  end

  defp message!(other) do
    raise ArgumentError, "expected a message to be a map, got: #{Options.show(other)}"
  end

  defp calls!(calls) when is_list(calls), do: Enum.map(calls, &call!/1)

  defp calls!(other) do
    raise ArgumentError, "expected :calls to be a list, got: #{Options.show(other)}"
  end

  defp call!(%{tool: _, arguments: _} = call), do: call

  defp call!(other) do
    raise ArgumentError,
          "expected a call to be a map with :tool and :arguments, got: #{Options.show(other)}"
  end
end
