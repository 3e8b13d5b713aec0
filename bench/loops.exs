# Observations of the loop detection: a long stream of them, and large results beside what hashing
# them costs.

Code.require_file("side_by_side.exs", __DIR__)

alias Engine.Harness.Middleware.LoopDetection

defmodule Bench.Loops do
  @observations 1_000_000
  @parts 4

  # An agent that works: some calls come back with the same result, most don't, and now and then it
  # goes round in a circle for a while.
  def message(n) do
    {tool, arguments, result} =
      case rem(n, 40) do
        m when m < 12 -> {"sh", %{"command" => "make test"}, "ok #{div(n, 40)}"}
        m when m < 24 -> {"read_file", %{"path" => "lib/#{rem(n, 3)}.ex"}, "text"}
        m -> {"edit_file", %{"path" => "lib/#{m}.ex", "new" => "line #{n}"}, "done"}
      end

    call = %{tool: tool, arguments: arguments, result: result}
    %{text: "Step #{n}.", calls: [call]}
  end

  def stream do
    part = div(@observations, @parts)

    Enum.reduce(1..@parts, LoopDetection.new(), fn part_number, state ->
      start = System.monotonic_time(:microsecond)
      first = (part_number - 1) * part

      {state, verdicts} =
        Enum.reduce(first..(first + part - 1), {state, 0}, fn n, {state, verdicts} ->
          case LoopDetection.observe(state, message(n)) do
            {:ok, state} -> {state, verdicts}
            {_verdict, state} -> {state, verdicts + 1}
          end
        end)

      seconds = (System.monotonic_time(:microsecond) - start) / 1_000_000
      :erlang.garbage_collect()
      {:memory, memory} = Process.info(self(), :memory)

      IO.puts(
        "  #{String.pad_leading("#{first + part}", 9)} observed   " <>
          "#{String.pad_leading("#{round(part / seconds)}", 7)} a second   " <>
          "#{verdicts} verdicts   state #{byte_size(state.core)} bytes, " <>
          "process #{div(memory, 1024)} KiB, system #{system_kib()} KiB resident"
      )

      state
    end)
  end

  # Of the whole VM, the native library's memory included.
  defp system_kib do
    with {:ok, status} <- File.read("/proc/self/status"),
         [_, kib] <- Regex.run(~r/VmRSS:\s+(\d+) kB/, status) do
      kib
    else
      _ -> "?"
    end
  end
end

IO.puts("\na stream of 1,000,000 observations")
# In a process of its own, whose memory is nothing else's.
fn -> Bench.Loops.stream() end |> Task.async() |> Task.await(:infinity)

state = LoopDetection.new()

rows =
  for {name, bytes} <- [
        {"1 KB", 1_000},
        {"64 KB", 64_000},
        {"1 MB", 1_000_000},
        {"16 MB", 16_000_000}
      ] do
    result = String.duplicate("Zwölf Boxkämpfer jagen Viktor. ", div(bytes, 33))
    message = %{calls: [%{tool: "read_file", arguments: %{"path" => "a"}, result: result}]}

    {name, fn -> :crypto.hash(:sha256, result) end,
     fn -> LoopDetection.observe(state, message) end}
  end

Bench.SideBySide.print("a result of", {"SHA-256", "observation"}, rows)
