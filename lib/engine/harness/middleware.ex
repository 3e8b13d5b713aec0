defmodule Engine.Harness.Middleware do
  @moduledoc """
  A module's callbacks on `Engine.Harness.Hooks`: one for each phase that it cares about.

  `c:init/1` validates the options once, when the middleware is attached, and returns what the
  callbacks get as their second argument. A callback is named after its phase and answers as any
  handler does. Attaching registers the callbacks that the module has; the hooks are the only
  registry.

      iex> defmodule MaxCalls do
      ...>   @behaviour Engine.Harness.Middleware
      ...>
      ...>   @impl true
      ...>   def init(opts), do: Keyword.fetch!(opts, :calls)
      ...>
      ...>   @impl true
      ...>   def pre_tool_use(payload, max) do
      ...>     calls = Map.get(payload.assigns, __MODULE__, 0) + 1
      ...>     payload = put_in(payload.assigns[__MODULE__], calls)
      ...>     if calls <= max, do: {:cont, payload}, else: {:halt, {:max_calls, max}, payload}
      ...>   end
      ...> end
      iex> alias Engine.Harness.{Hooks, Middleware}
      iex> hooks = Middleware.attach(Hooks.new(), {MaxCalls, calls: 1})
      iex> {:ok, payload} = Hooks.run(hooks, :pre_tool_use, %{tool: "ls", arguments: %{}})
      iex> {:halt, {:max_calls, 1}, _payload} = Hooks.run(hooks, :pre_tool_use, payload)

  ## State

  What a middleware remembers is a value in the payload's `assigns`, under its own module's name;
  whoever runs the loop hands `assigns` on from one run to the next. Nothing is kept elsewhere, so
  the same payloads, run again through the same hooks, give the same decisions.

  ## Kinds

  The optional `c:kind/1` says for a phase whether the callback is a `:guard`, the default, or a
  `:transform`, the only kind that may change arguments and prompts.
  """

  alias Engine.Harness.Hooks
  alias Engine.Harness.Hooks.{Event, Payload}
  alias Engine.Harness.Options

  @typedoc "A middleware: its module, or the module with its options."
  @type t :: module | {module, keyword}

  @typedoc "What `c:init/1` made of the options."
  @type prepared :: term

  @doc "Validates the options, raising `ArgumentError`, and prepares what the callbacks get."
  @callback init(opts :: keyword) :: prepared

  @doc "The kind of this phase's callback; `:guard` where it is not implemented."
  @callback kind(Payload.phase()) :: Hooks.kind()

  for phase <- Payload.phases() do
    @doc "Runs in `#{inspect(phase)}`."
    @callback unquote(phase)(Payload.unquote(phase)(), prepared) :: Hooks.answer()
  end

  @optional_callbacks [kind: 1] ++ Enum.map(Payload.phases(), &{&1, 2})

  @doc """
  Attaches a middleware: registers each of its callbacks, in the order of attaching.

  Raises `ArgumentError` for what is no middleware, for options that its `c:init/1` refuses, and
  when the name is attached already, since two of a name would share one state.

  ## Options

  | option | default | meaning |
  |---|---|---|
  | `:name` | the module | what events and errors call it |
  | `:on_error` | `:halt` | as in `Engine.Harness.Hooks.register/4` |

  ## Examples

      iex> alias Engine.Harness.{Hooks, Middleware}
      iex> Middleware.attach(Hooks.new(), {Enum, []})
      ** (ArgumentError) expected a middleware to be a module with init/1 and a callback for a phase, got: Enum

  """
  @spec attach(Hooks.t(), t, name: String.t() | atom, on_error: :halt | :continue) :: Hooks.t()
  def attach(hooks, middleware, opts \\ []) do
    {module, options} = module!(middleware)
    Options.validate!(opts, [:name, :on_error])
    {name, opts} = Keyword.pop(opts, :name, module)

    if Hooks.registered?(hooks, name) do
      raise ArgumentError, "#{inspect(name)} is attached already"
    end

    prepared = module.init(options)

    for phase <- Hooks.phases(), function_exported?(module, phase, 2), reduce: hooks do
      hooks ->
        callback = fn payload -> apply(module, phase, [payload, prepared]) end
        Hooks.register(hooks, phase, {name, callback}, [kind: kind(module, phase)] ++ opts)
    end
  end

  @doc """
  Notes a decision that the answer of a callback does not show, such as a warning.

  The decision, an atom, and the reason become an event of their own
  (`Engine.Harness.Hooks.Event`), before the one of the callback whose payload this is.

  ## Examples

      iex> alias Engine.Harness.{Hooks, Middleware}
      iex> warn = fn payload -> {:cont, Middleware.note(payload, :warn, "half is spent")} end
      iex> hooks = Hooks.register(Hooks.new(), :pre_tool_use, {"budget", warn})
      iex> {:ok, payload} = Hooks.run(hooks, :pre_tool_use, %{tool: "ls", arguments: %{}})
      iex> for event <- payload.events, do: {event.handler, event.decision, event.reason}
      [{"budget", :cont, nil}, {"budget", :warn, "half is spent"}]

  """
  @spec note(payload, atom, reason :: term) :: payload when payload: Payload.t()
  def note(payload, decision, reason) when is_atom(decision) do
    note = %{decision: decision, reason: Event.text(reason)}
    Map.update(payload, :events, [note], &[note | &1])
  end

  @doc """
  Puts a sentence for the model at the end of the prompt, as a transform of `:pre_model_call` may:
  after a blank line in a text, as the user's message in a list, in the spelling of those that are
  there.

  ## Examples

      iex> alias Engine.Harness.Middleware
      iex> Middleware.tell(%{prompt: "Hi."}, "Be brief.").prompt
      "Hi.\\n\\nBe brief."
      iex> Middleware.tell(%{prompt: [%{"role" => "user", "content" => "Hi."}]}, "Be brief.").prompt
      [%{"role" => "user", "content" => "Hi."}, %{"role" => "user", "content" => "Be brief."}]

  """
  @spec tell(payload, String.t()) :: payload when payload: map
  def tell(%{prompt: prompt} = payload, sentence) when is_binary(prompt),
    do: %{payload | prompt: prompt <> "\n\n" <> sentence}

  def tell(%{prompt: prompt} = payload, sentence) when is_list(prompt) do
    message =
      if Enum.any?(prompt, &is_map_key(&1, "role")),
        do: %{"role" => "user", "content" => sentence},
        else: %{role: "user", content: sentence}

    %{payload | prompt: prompt ++ [message]}
  end

  defp kind(module, phase) do
    if function_exported?(module, :kind, 1), do: module.kind(phase), else: :guard
  end

  defp module!({module, options}) when is_atom(module), do: {check!(module), options}
  defp module!(module) when is_atom(module), do: {check!(module), []}
  defp module!(other), do: not_a_middleware!(other)

  defp check!(module) do
    if Code.ensure_loaded?(module) and function_exported?(module, :init, 1) and
         Enum.any?(Hooks.phases(), &function_exported?(module, &1, 2)) do
      module
    else
      not_a_middleware!(module)
    end
  end

  @spec not_a_middleware!(term) :: no_return
  defp not_a_middleware!(other) do
    raise ArgumentError,
          "expected a middleware to be a module with init/1 and a callback for a phase, " <>
            "got: #{Options.show(other)}"
  end
end
