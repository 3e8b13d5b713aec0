defmodule Engine.Harness.Trace do
  @moduledoc """
  A session's events as a trace: OTLP JSON, as any OpenTelemetry collector takes it.

  The events are those that `Engine.Harness.Hooks` puts into the payload. Spans are named after
  OpenTelemetry's semantic conventions for generative AI:

  | span | from | to |
  |---|---|---|
  | `invoke_agent AGENT` | the first event | `:session_end`, or the last event |
  | `chat MODEL` | `:pre_model_call` | `:post_model_call` |
  | `execute_tool TOOL` | `:pre_tool_use` | `:post_tool_use` of the same call |

  A step that a handler stopped ends at once, with an error status that says why; `error.type` is
  how it was stopped. What handlers decided are events of the span, `engine.harness.DECISION`.

  A phase without a handler leaves no event. Attach this module, a middleware that looks at every
  phase and does nothing, and each step is in the trace; with `:now_ms` in the payloads at its
  time.

      iex> alias Engine.Harness.{Hooks, Middleware, Trace}
      iex> hooks = Middleware.attach(Hooks.new(), Trace)
      iex> {:ok, payload} = Hooks.run(hooks, :pre_model_call, %{model: "m", prompt: "Hi", now_ms: 5})
      iex> payload = Map.merge(payload, %{completion: "Hello", now_ms: 7})
      iex> {:ok, payload} = Hooks.run(hooks, :post_model_call, payload)
      iex> json = Trace.otlp(payload.events, ids: fn bytes -> String.duplicate(<<171>>, bytes) end)
      iex> json =~ ~s("name":"chat m","kind":3,"startTimeUnixNano":"5000000","endTimeUnixNano":"7000000")
      true
  """

  @behaviour Engine.Harness.Middleware

  alias Engine.Harness.{Hooks, Json, Native, Options}

  @doc """
  The events, the newest first as the hooks leave them, as the JSON of an
  `ExportTraceServiceRequest`, one span a line.

  ## Options

  | option | default | meaning |
  |---|---|---|
  | `:ids` | required | a function from a number of bytes to as many: called for the trace's id (16), unless one is continued, then for each span's (8), in the order in which they begin, with one to spare for each event that begins none; `&:crypto.strong_rand_bytes/1` where ids have to be unique |
  | `:traceparent` | `nil` | an incoming W3C `traceparent`, which is continued; as that standard asks, a malformed one counts as absent |
  | `:unix_ms` | 0 | added to the events' `:now_ms` to make them Unix time, where the caller's clock is another one |
  | `:service` | `"engine"` | `service.name` |
  | `:provider` | `nil` | `gen_ai.provider.name`, e.g. `"anthropic"` |

  Raises `ArgumentError` for other options and for what is no list of events.

  ## Examples

      iex> Engine.Harness.Trace.otlp([], ids: fn bytes -> String.duplicate("x", bytes) end)
      ~s({"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"engine"}}]},"scopeSpans":[{"scope":{"name":"engine.harness","version":"0.1.0"},"spans":[\\n]}]}]})

  """
  @spec otlp([Hooks.Event.t()], keyword) :: String.t()
  def otlp(events, opts) when is_list(events) do
    Options.validate!(opts, [:ids, :traceparent, :unix_ms, :service, :provider])
    ids = ids!(Keyword.get(opts, :ids))

    context = {
      text!(opts, :service, "engine"),
      text!(opts, :provider, nil),
      unix_ms!(Keyword.get(opts, :unix_ms, 0)),
      id!(ids, 16),
      text!(opts, :traceparent, nil)
    }

    span_ids = for _ <- [:agent | events], into: "", do: id!(ids, 8)

    case Native.trace_otlp(IO.iodata_to_binary(Json.encode(events)), context, span_ids) do
      {:ok, json} -> json
      {:error, message} -> raise ArgumentError, message
    end
  end

  ## The middleware

  @impl true
  def init(opts) do
    Options.validate!(opts, [])
    nil
  end

  for phase <- Hooks.phases() do
    @impl true
    def unquote(phase)(_payload, nil), do: :ok
  end

  defp ids!(ids) when is_function(ids, 1), do: ids

  defp ids!(other) do
    raise ArgumentError,
          "expected :ids to be a function of one argument, got: #{Options.show(other)}"
  end

  defp id!(ids, bytes) do
    case ids.(bytes) do
      id when is_binary(id) and byte_size(id) == bytes ->
        id

      other ->
        raise ArgumentError, "expected :ids to give #{bytes} bytes, got: #{Options.show(other)}"
    end
  end

  defp text!(opts, key, default) do
    value = Keyword.get(opts, key, default)

    if value == default or (is_binary(value) and String.valid?(value)) do
      value
    else
      raise ArgumentError, "expected #{inspect(key)} to be a string, got: #{Options.show(value)}"
    end
  end

  defp unix_ms!(ms) when is_integer(ms) and abs(ms) < 0x8000_0000_0000, do: ms

  defp unix_ms!(other) do
    raise ArgumentError,
          "expected :unix_ms to be a number of milliseconds, got: #{Options.show(other)}"
  end
end
