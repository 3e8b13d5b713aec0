defmodule Engine.Harness.Hooks.Telemetry do
  # The events of `:telemetry`, where that library is. A module that nothing has loaded has no
  # listener either, so it is not looked for: asking costs nanoseconds.
  @moduledoc false

  @compile {:no_warn_undefined, :telemetry}

  @doc "Tells that a handler starts; what it returns is for `stop/3`."
  @spec start(map) :: integer | nil
  def start(event) do
    if function_exported?(:telemetry, :execute, 3) do
      now = System.monotonic_time()
      execute(event, :start, %{monotonic_time: now, system_time: System.system_time()}, %{})
      now
    end
  end

  @doc "Tells what the handler decided, and how it failed if it did."
  @spec stop(integer | nil, map, Engine.Harness.Hooks.Error.t() | nil) :: :ok
  def stop(nil, _event, _error), do: :ok

  def stop(started, event, error) do
    now = System.monotonic_time()
    measurements = %{monotonic_time: now, duration: now - started}

    if error do
      execute(event, :exception, measurements, Map.take(error, [:kind, :reason, :stacktrace]))
    else
      execute(event, :stop, measurements, %{})
    end
  end

  # The library detaches a listener that fails; its own failure changes nothing here either.
  defp execute(event, name, measurements, more) do
    metadata = Map.put(more, :event, event)
    :telemetry.execute([:engine, :harness, event.phase, name], measurements, metadata)
    :ok
  catch
    _kind, _reason -> :ok
  end
end
