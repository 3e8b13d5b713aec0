defmodule Engine.Harness.Hooks.Payload do
  # What each phase carries is said here and nowhere else: the types, the tables of the
  # documentation and the check are all made from these two lists.
  keys = [
    session_id: {quote(do: String.t()), "the session's id, the caller's own"},
    agent: {quote(do: String.t()), "slug of the agent, as in `Engine.Harness.Agents`"},
    reason:
      {quote(do: term()),
       "why the session ended: `:normal`, or what stopped it (see `Engine.Harness.Hooks.session/3`)"},
    model: {quote(do: String.t()), "name of the model"},
    prompt: {quote(do: String.t() | [map()]), "what is sent: a text, or a list of messages"},
    tools: {quote(do: [map()]), "definitions of the tools that the model may call"},
    completion: {quote(do: term()), "what came back: a text, a message, a provider's answer"},
    usage:
      {quote(do: %{optional(atom()) => non_neg_integer()}),
       "tokens as the provider counted them, e.g. `%{input_tokens: 9, output_tokens: 2}`"},
    timeout_ms:
      {quote(do: pos_integer()),
       "how long the call may take; a guard may put it in or shorten it, no limit when absent"},
    outcome:
      {quote(do: :success | :failure | :unknown),
       "how the call went, for what counts failures; `:success` when absent"},
    retry_after_ms:
      {quote(do: non_neg_integer()), "how long the provider asked to wait before the next call"},
    tool: {quote(do: String.t()), "name of the tool"},
    arguments:
      {quote(do: term()), "its arguments: decoded, or the JSON text that the model wrote"},
    call_id: {quote(do: String.t()), "the provider's id of the call"},
    batch_id:
      {quote(do: term()),
       "shared by the calls of one assistant message; a call without one is a batch of its own"},
    result: {quote(do: term()), "what the tool answered"},
    is_error: {quote(do: boolean()), "whether that answer is an error; `false` when absent"},
    now_ms: {quote(do: integer()), "the time in milliseconds, by the caller's clock"},
    assigns: {quote(do: map()), "the handlers' own state; `%{}` when absent"},
    events:
      {quote(do: [Engine.Harness.Hooks.Event.t()]),
       "what was decided so far, the newest first (see `Engine.Harness.Hooks.Event`)"}
  ]

  # What is the same for every phase.
  common = [:now_ms, :assigns, :events]

  phases = [
    pre_tool_use: [
      required: [:tool, :arguments],
      optional: [:call_id, :batch_id, :session_id]
    ],
    post_tool_use: [
      required: [:tool, :arguments, :result],
      optional: [:is_error, :call_id, :batch_id, :session_id]
    ],
    session_start: [
      required: [:session_id],
      optional: [:agent]
    ],
    session_end: [
      required: [:session_id, :reason],
      optional: [:agent]
    ],
    pre_model_call: [
      required: [:model, :prompt],
      optional: [:tools, :session_id, :timeout_ms]
    ],
    post_model_call: [
      required: [:model, :prompt, :completion],
      optional: [:usage, :outcome, :retry_after_ms, :tools, :session_id, :timeout_ms]
    ]
  ]

  phases =
    for {phase, [required: required, optional: optional]} <- phases do
      {phase, [required: required, optional: optional ++ common]}
    end

  code = fn names -> Enum.map_join(names, ", ", &"`#{inspect(&1)}`") end
  # A bar inside a cell of a Markdown table would end it.
  escape = &String.replace(&1, "|", "\\|")

  @moduledoc """
  What handlers get: a map, with the keys that its phase needs.

  | phase | required | optional |
  |---|---|---|
  #{for {phase, names} <- phases do
    "| `#{inspect(phase)}` | #{code.(names[:required])} | #{code.(names[:optional])} |\n"
  end}
  A key means the same in every phase that has it:

  | key | type | meaning |
  |---|---|---|
  #{for {key, {type, meaning}} <- keys do
    "| `#{inspect(key)}` | `#{escape.(Macro.to_string(type))}` | #{meaning} |\n"
  end}
  A payload may have more keys than these. They are passed along untouched, so a caller can
  tell its handlers whatever else it knows.

  `:assigns` is where handlers keep what they know from one run to the next: put the `assigns`
  that one run returned into the payload of the next one.

      iex> alias Engine.Harness.Hooks
      iex> count = fn payload ->
      ...>   {:cont, %{payload | assigns: Map.update(payload.assigns, :calls, 1, &(&1 + 1))}}
      ...> end
      iex> hooks = Hooks.register(Hooks.new(), :pre_tool_use, {"count", count})
      iex> call = %{tool: "ls", arguments: %{"dir" => "docs"}}
      iex> {:ok, first} = Hooks.run(hooks, :pre_tool_use, call)
      iex> {:ok, second} =
      ...>   Hooks.run(hooks, :pre_tool_use, Map.put(call, :assigns, first.assigns))
      iex> second.assigns
      %{calls: 2}
  """

  union = fn types -> Enum.reduce(types, &{:|, [], [&2, &1]}) end

  @typedoc "A point of the loop at which handlers run."
  @type phase :: unquote(union.(Keyword.keys(phases)))

  for {phase, names} <- phases do
    fields =
      for {need, names} <- names, name <- names do
        {type, _meaning} = keys[name]
        {quote(do: unquote(need)(unquote(name))), type}
      end

    @typedoc "The payload of `#{inspect(phase)}`."
    @type unquote(phase)() :: %{unquote_splicing(fields), optional(term()) => term()}
  end

  @typedoc "The payload of any phase."
  @type t :: unquote(union.(for {phase, _names} <- phases, do: quote(do: unquote(phase)())))

  @phases Keyword.keys(phases)
  @guarded Map.new([:pre_tool_use, :pre_model_call], fn phase ->
             {phase, Enum.concat(Keyword.values(phases[phase])) -- [:timeout_ms | common]}
           end)
  @required Map.new(phases, fn {phase, names} -> {phase, names[:required]} end)

  @doc """
  All phases.

  ## Examples

      iex> Engine.Harness.Hooks.Payload.phases()
      [:pre_tool_use, :post_tool_use, :session_start, :session_end, :pre_model_call, :post_model_call]

  """
  @spec phases() :: [phase, ...]
  def phases, do: @phases

  @doc """
  The keys that a payload of this phase can't do without.

  ## Examples

      iex> Engine.Harness.Hooks.Payload.required(:post_tool_use)
      [:tool, :arguments, :result]

  """
  @spec required(phase) :: [atom, ...]
  def required(phase), do: Map.fetch!(@required, phase)

  @doc """
  The keys that a guard of this phase may not change; `nil` where guards and transforms are alike.

  ## Examples

      iex> Engine.Harness.Hooks.Payload.guarded(:pre_model_call)
      [:model, :prompt, :tools, :session_id]
      iex> Engine.Harness.Hooks.Payload.guarded(:post_tool_use)
      nil

  """
  @spec guarded(phase) :: [atom, ...] | nil
  def guarded(phase), do: Map.get(@guarded, phase)

  @doc """
  Says what is wrong with a payload of which `:assigns` are filled in; `nil` when nothing is.

  ## Examples

      iex> alias Engine.Harness.Hooks.Payload
      iex> Payload.problem(:pre_tool_use, %{tool: "ls", arguments: %{}, assigns: %{}})
      nil
      iex> Payload.problem(:pre_tool_use, %{tool: "ls", assigns: %{}})
      "the payload of :pre_tool_use lacks :arguments"

  """
  @spec problem(phase, term) :: String.t() | nil
  def problem(phase, %{} = payload) do
    missing = Enum.reject(required(phase) ++ [:assigns], &is_map_key(payload, &1))

    cond do
      missing != [] ->
        "the payload of #{inspect(phase)} lacks #{Enum.map_join(missing, ", ", &inspect/1)}"

      not is_map(payload.assigns) ->
        "expected :assigns in the payload of #{inspect(phase)} to be a map, " <>
          "got: #{inspect(payload.assigns)}"

      not is_list(Map.get(payload, :events, [])) ->
        "expected :events in the payload of #{inspect(phase)} to be a list, " <>
          "got: #{inspect(payload.events)}"

      true ->
        nil
    end
  end

  def problem(phase, payload) do
    "expected the payload of #{inspect(phase)} to be a map, got: #{inspect(payload)}"
  end
end
