defmodule Engine.Harness.ExecTest do
  use ExUnit.Case, async: true
  alias Engine.Harness.Exec

  doctest Exec

  # Every process of a test carries a marker in its environment, which its children inherit.
  setup do
    {:ok, marker: "exec_test_#{System.unique_integer([:positive])}_#{System.pid()}"}
  end

  defp sh(script, marker, opts \\ []) do
    Exec.run(["/bin/sh", "-c", script, marker], [env: environment(marker)] ++ opts)
  end

  defp environment(marker), do: %{"PATH" => "/usr/bin:/bin", "MARKER" => marker}

  # Zombies have neither environment nor arguments; they are looked for beneath their parent.
  defp marked(marker) do
    for entry <- File.ls!("/proc"),
        entry =~ ~r/^\d+$/,
        file <- ["environ", "cmdline"],
        {:ok, text} <- [File.read("/proc/#{entry}/#{file}")],
        String.contains?(text, marker),
        uniq: true,
        do: String.to_integer(entry)
  end

  defp until(test, tries \\ 1500) do
    cond do
      value = test.() -> value
      tries == 0 -> flunk("it did not come about")
      true -> Process.sleep(10) && until(test, tries - 1)
    end
  end

  defp none_left(marker), do: until(fn -> marked(marker) == [] end)

  defp status(pid) do
    case File.read("/proc/#{pid}/stat") do
      {:ok, stat} -> stat |> String.split(") ") |> List.last() |> String.split(" ")
      _ -> nil
    end
  end

  defp parent(pid) do
    with [_state, parent | _] <- status(pid), do: String.to_integer(parent)
  end

  describe "a program" do
    test "ends with its status, by a signal, at the deadline", %{marker: marker} do
      assert {:ok, %{status: {:exit, 127}, stdout: "", stderr: "no\n", stderr_bytes: 3}} =
               sh("echo no >&2; exit 127", marker)

      assert {:ok, %{status: {:signal, 11}}} = sh("kill -SEGV $$", marker)

      assert {:ok, %{status: :timeout, stdout: "a\n"}} =
               sh("echo a; sleep 60", marker, timeout_ms: 300)

      assert marked(marker) == []
    end

    test "has nothing on standard input and no environment but the one given" do
      assert {:ok, %{status: {:exit, 0}, stdout: ""}} = Exec.run(["/bin/cat"])
      assert {:ok, %{stdout: "A=1\n"}} = Exec.run(["/usr/bin/env"], env: [{"A", "1"}])
    end

    test "has default signals and a session of its own", %{marker: marker} do
      {:ok, %{stdout: text}} = sh("cat /proc/self/status; echo $$; cat /proc/$$/stat", marker)
      assert text =~ ~r/^SigBlk:\t0+$/m
      assert text =~ ~r/^SigIgn:\t0+$/m
      assert [_, pid] = Regex.run(~r/^(\d+)$/m, text)
      assert text =~ ~r/^#{pid} \(sh\) \S \d+ #{pid} #{pid} /m
    end

    test "starts in the directory that is asked for, with bytes as they are" do
      assert {:ok, %{stdout: "/proc\n"}} = Exec.run(["/bin/pwd"], cd: "/proc")

      assert {:ok, %{stdout: "a\uFFFDb", stdout_bytes: 3}} =
               Exec.run(["/usr/bin/printf", "%s", "a\xFFb"])
    end

    test "that is absent or may not be executed is an error" do
      assert {:error, error} = Exec.run(["/nowhere/x"])
      assert Exception.message(error) =~ "can't run /nowhere/x in /: No such file"
      assert {:error, error} = Exec.run(["/etc/passwd"])
      assert Exception.message(error) =~ "Permission denied"
    end
  end

  test "output is bounded, valid UTF-8, and counted", %{marker: marker} do
    gigabyte = 1_073_741_824

    assert {:ok, %{status: {:exit, 0}, stdout_bytes: ^gigabyte} = result} =
             sh("head -c #{gigabyte} /dev/zero", marker, max_output_bytes: 100, timeout_ms: 60_000)

    assert byte_size(result.stdout) == 100

    assert {:ok, %{stdout: "a", stdout_bytes: 3}} =
             Exec.run(["/usr/bin/printf", "aé"], max_output_bytes: 2)

    assert {:ok, %{stdout: "\e[31mred\e[0m"}} = Exec.run(["/usr/bin/printf", "\e[31mred\e[0m"])
  end

  describe "no process is left of a program that" do
    for {name, script, expected} <- [
          {"ignores SIGTERM", "trap '' TERM HUP INT; while :; do sleep 60; done", :timeout},
          {"leaves a child with the pipe", "sleep 60 & echo x", {:exit, 0}},
          {"leaves a child in another session",
           "setsid --fork sh -c 'echo up; exec sleep 60' | read x; exit 5", {:exit, 5}},
          {"hangs above such a child", "setsid sh -c 'setsid sleep 60 &' & sleep 60", :timeout}
        ] do
      test name, %{marker: marker} do
        started = System.monotonic_time(:millisecond)

        assert {:ok, %{status: unquote(Macro.escape(expected))}} =
                 sh(unquote(script), marker, timeout_ms: 1000)

        assert System.monotonic_time(:millisecond) - started < 3000
        assert marked(marker) == []
      end
    end

    @hostile "setsid sh -c 'setsid sleep 60 & sleep 60' & sleep 60 & wait"

    test "loses its caller", %{marker: marker} do
      caller = spawn(fn -> sh(@hostile, marker, timeout_ms: 60_000) end)
      until(fn -> length(marked(marker)) >= 5 end)
      Process.exit(caller, :kill)
      none_left(marker)
    end

    test "loses either process of harness_exec", %{marker: marker} do
      for generation <- [1, 2] do
        task = Task.async(fn -> sh(@hostile, marker, timeout_ms: 60_000) end)
        until(fn -> length(marked(marker)) >= 5 end)

        worker =
          Enum.find_value(marked(marker), fn pid ->
            with parent when is_integer(parent) <- parent(pid),
                 {:ok, "harness_exec\n"} <- File.read("/proc/#{parent}/comm"),
                 grandparent = parent(parent),
                 {:ok, "harness_exec\n"} <- File.read("/proc/#{grandparent}/comm"),
                 do: {parent, grandparent},
                 else: (_ -> nil)
          end)

        {System.cmd("kill", ["-KILL", "#{elem(worker, generation - 1)}"])}
        assert {:error, error} = Task.await(task, 30_000)
        assert Exception.message(error) =~ "harness_exec ended with"
        none_left(marker)
        until(fn -> status(elem(worker, 0)) == nil and status(elem(worker, 1)) == nil end)
      end
    end

    test "stops either process of harness_exec", %{marker: marker} do
      worker = "setsid sleep 60 & kill -STOP $PPID; sleep 60"
      assert {:error, error} = sh(worker, marker, timeout_ms: 60_000)
      assert Exception.message(error) =~ "harness_exec ended with"
      none_left(marker)

      guardian = "kill -STOP $(cut -d ' ' -f 4 /proc/$PPID/stat); echo stopped"
      assert {:ok, %{status: {:exit, 0}, stdout: "stopped\n"}} = sh(guardian, marker)
      none_left(marker)
    end

    test "loses the VM", %{marker: marker} do
      code =
        ~s|Engine.Harness.Exec.run(["/bin/sh", "-c", #{inspect(@hostile)}, "#{marker}"], | <>
          ~s|env: #{inspect(environment(marker))}, timeout_ms: 60_000)|

      paths = Enum.flat_map(:code.get_path(), &["-pa", to_string(&1)])
      elixir = System.find_executable("elixir")

      vm =
        Port.open({:spawn_executable, elixir}, [
          :binary,
          :exit_status,
          args: paths ++ ["-e", "IO.puts(System.pid()); " <> code]
        ])

      assert_receive {^vm, {:data, text}}, 60_000
      pid = String.trim(text)
      # The VM's own arguments hold the marker too.
      until(fn -> length(marked(marker) -- [String.to_integer(pid)]) >= 5 end)
      System.cmd("kill", ["-KILL", pid])
      none_left(marker)
    end
  end

  test "orphans that end are reaped while the program runs", %{marker: marker} do
    children = "cat /proc/[0-9]*/stat 2>/dev/null | awk -v p=$PPID '$4 == p' | wc -l"
    script = "for i in $(seq 30); do (true &); done; until [ $(#{children}) = 1 ]; do :; done"
    assert {:ok, %{status: {:exit, 0}}} = sh(script, marker, timeout_ms: 30_000)
  end

  test "fifty at once", %{marker: marker} do
    results =
      1..50
      |> Task.async_stream(&sh("echo #{&1}; sleep 60 &", "#{marker}_#{&1}", timeout_ms: 30_000),
        max_concurrency: 50,
        timeout: 60_000
      )
      |> Enum.map(fn {:ok, {:ok, result}} -> {result.status, result.stdout} end)

    assert results == Enum.map(1..50, &{{:exit, 0}, "#{&1}\n"})
    assert marked(marker) == []
  end

  test "the caller's mailbox and links stay as they were" do
    Process.flag(:trap_exit, true)
    links = Process.info(self(), :links)
    assert {:ok, _} = Exec.run(["/bin/true"])
    assert Process.info(self(), :links) == links
    refute_receive _, 0
  end

  test "requests that make no sense get an error for an answer" do
    program = Application.app_dir(:engine, "priv/native/harness_exec")

    for {packet, message} <- [
          {"", "the request is cut short"},
          {<<1::32, 2::32, 9_999::32, "x">>, "the request is cut short"},
          {<<1::32, 2::32, 1::32, "/", 0xFFFFFFFF::32>>, "the request is cut short"},
          {<<1::32, 2::32, 1::32, "/", 0::32, 0::32>>, "the argument vector is empty"},
          {<<1::32, 2::32, 1::32, "/", 1::32, 1::32, "/", 1::32, 1::32, "A">>,
           "a variable has no value"},
          {<<1::32, 2::32, 1::32, "/", 1::32, 1::32, "/", 0::32, "zz">>,
           "the request has 2 bytes too many"}
        ] do
      port = Port.open({:spawn_executable, program}, [:binary, :exit_status, packet: 4])
      Port.command(port, packet)
      assert_receive {^port, {:data, <<3, ^message::binary>>}}, 10_000
      assert_receive {^port, {:exit_status, 0}}, 10_000
    end
  end

  test "arguments of the wrong shape raise" do
    for {argv, opts, message} <- [
          {["sh"], [], ~s(expected a list of an absolute path and arguments, got: ["sh"])},
          {["/bin/sh", "a\0"], [], ~S(expected an argument without NUL, got: <<97, 0>>)},
          {["/bin/sh"], [timeout_ms: 0],
           "expected :timeout_ms to be an integer of 1 to 86400000, got: 0"},
          {["/bin/sh"], [cd: "x"], ~s(expected :cd to be an absolute path, got: "x")},
          {["/bin/sh"], [env: [{"A=", "b"}]],
           ~s(expected :env to hold pairs of a name and a value, got: {"A=", "b"})}
        ] do
      assert_raise ArgumentError, message, fn -> Exec.run(argv, opts) end
    end
  end
end
