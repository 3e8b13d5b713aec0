defmodule Bench.Contestants do
  @moduledoc """
  Runs contestants in turn, round after round: functions of this VM, and processes that time
  themselves. A process prints `ready MILLISECONDS KILOBYTES` first, and `NANOSECONDS RESULT` for
  each line that it is given.
  """

  # A peer that takes longer for one answer has ended its part.
  @most_ms 20_000
  # One that takes longer than this is asked once.
  @slow_ns 2_000_000_000

  @doc "Starts a process; its cost as `{milliseconds, kilobytes}` with it."
  def start([program | args]) do
    port =
      Port.open({:spawn_executable, System.find_executable(program)}, [
        :binary,
        :exit_status,
        args: args,
        line: 1_000
      ])

    case answer(port, 120_000) do
      {:ok, "ready " <> cost} -> {port, cost |> String.split() |> Enum.map(&String.to_integer/1)}
      other -> raise "#{program} #{Enum.join(args, " ")} did not start: #{inspect(other)}"
    end
  end

  @doc """
  The median nanoseconds of each contestant and its result, or why it has none. The first round
  makes all warm and is not measured, but for a slow one.
  """
  def medians(contestants, input, rounds) do
    first = for {name, run} <- contestants, do: {name, run, once(run, input)}

    further =
      for _ <- 1..rounds//1, {name, run, {:ok, time, _}} <- first, time < @slow_ns do
        {:ok, time, _} = once(run, input)
        {name, time}
      end
      |> Enum.group_by(&elem(&1, 0), &elem(&1, 1))

    for {name, _run, outcome} <- first do
      case outcome do
        {:ok, time, result} -> {name, {:ok, median(Map.get(further, name, [time])), result}}
        {:error, reason} -> {name, {:error, reason}}
      end
    end
  end

  defp once(run, input) when is_function(run, 1) do
    start = System.monotonic_time(:nanosecond)
    result = run.(input)
    {:ok, System.monotonic_time(:nanosecond) - start, to_string(result)}
  end

  defp once({port, _cost}, input) do
    with true <- Port.info(port) != nil,
         true <- Port.command(port, [input, "\n"]),
         {:ok, line} <- answer(port, @most_ms) do
      [time, result] = String.split(line, " ", parts: 2)
      {:ok, String.to_integer(time), result}
    else
      {:error, reason} -> {:error, reason}
      _ended -> {:error, "ended"}
    end
  end

  defp answer(port, most_ms) do
    receive do
      {^port, {:data, {:eol, line}}} -> {:ok, line}
      {^port, {:exit_status, _status}} -> {:error, "fails"}
    after
      most_ms ->
        {:os_pid, pid} = Port.info(port, :os_pid)
        System.cmd("kill", ["-KILL", "#{pid}"])
        {:error, "> #{div(most_ms, 1000)} s"}
    end
  end

  defp median(times), do: times |> Enum.sort() |> Enum.at(div(length(times), 2))
end
