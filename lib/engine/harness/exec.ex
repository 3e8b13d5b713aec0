defmodule Engine.Harness.Exec do
  @moduledoc """
  Runs a program within limits and leaves no process behind.

  The program is started by the port program `harness_exec`: in a session of its own, with default
  signal handling, nothing on its standard input and no environment but the one given. When the
  program ends, what it left running is killed at once, children that left its process group
  included; the same happens at the deadline, when the calling process or the VM dies, and when a
  process of `harness_exec` dies or is stopped. (That needs Linux; on other systems the process
  group is killed, and only while `harness_exec` lives. A program that kills or stops both of its
  processes at once, which any program of the same user may do, outlives them.) A process that can't be killed, since it is another
  user's, holds the answer up for at most two seconds.

  `run/2` blocks the caller, and may be called by many processes at once.
  """
  alias Engine.Harness.{ExecError, Options}

  defmodule Result do
    @moduledoc """
    How a program ended and what it said.

    `stdout` and `stderr` are valid UTF-8 of at most `:max_output_bytes`: the beginning, cut
    between characters, with U+FFFD for what was not UTF-8. `stdout_bytes` and `stderr_bytes` count
    all that was written.
    """
    @enforce_keys [:status, :stdout, :stdout_bytes, :stderr, :stderr_bytes]
    defstruct @enforce_keys

    @type status :: {:exit, 0..255} | {:signal, pos_integer} | :timeout
    @type t :: %__MODULE__{
            status: status,
            stdout: String.t(),
            stdout_bytes: non_neg_integer,
            stderr: String.t(),
            stderr_bytes: non_neg_integer
          }
  end

  # Beyond the program's own time: starting, killing (2 s for each process of harness_exec).
  @grace_ms 10_000
  @max_timeout_ms 86_400_000
  @max_output_bytes 64 * 1024 * 1024

  @doc """
  Runs a program, given as its absolute path and its arguments.

      iex> {:ok, result} = Engine.Harness.Exec.run(["/bin/sh", "-c", "echo $A; exit 3"], env: %{"A" => "b"})
      iex> {result.status, result.stdout, result.stdout_bytes}
      {{:exit, 3}, "b\\n", 2}

  ## Options

    * `:env` - the whole environment, a map or a list of pairs of binaries; nothing is inherited.
      Default: empty.
    * `:cd` - the directory to start in. Default: `"/"`.
    * `:timeout_ms` - after this time all is killed. 1 to 86,400,000; default 10,000.
    * `:max_output_bytes` - what is kept of each stream. 0 to 67,108,864; default 65,536. The rest
      is read and counted.

  A program that can't be started is `{:error, exception}`; arguments of the wrong shape raise
  `ArgumentError`.
  """
  @spec run([binary, ...], keyword) :: {:ok, Result.t()} | {:error, ExecError.t()}
  def run(argv, opts \\ []) do
    opts = Options.validate!(opts, [:env, :cd, :timeout_ms, :max_output_bytes])
    timeout_ms = integer!(opts, :timeout_ms, 10_000, 1..@max_timeout_ms)
    max_output = integer!(opts, :max_output_bytes, 65_536, 0..@max_output_bytes)

    request = [
      <<timeout_ms::32, max_output::32>>,
      text(directory!(Keyword.get(opts, :cd, "/"))),
      texts(argv!(argv)),
      texts(Enum.flat_map(environment!(Keyword.get(opts, :env, [])), &Tuple.to_list/1))
    ]

    ask(request, timeout_ms + @grace_ms)
  end

  defp integer!(opts, key, default, range) do
    value = Keyword.get(opts, key, default)

    if is_integer(value) and value in range do
      value
    else
      raise ArgumentError,
            "expected #{inspect(key)} to be an integer of #{range.first} to #{range.last}, " <>
              "got: #{Options.show(value)}"
    end
  end

  defp argv!([<<"/", _::binary>> | _] = argv) do
    case Enum.find(argv, &(not text?(&1))) do
      nil ->
        argv

      value ->
        raise ArgumentError, "expected an argument without NUL, got: #{Options.show(value)}"
    end
  end

  defp argv!(other) do
    raise ArgumentError,
          "expected a list of an absolute path and arguments, got: #{Options.show(other)}"
  end

  defp directory!(<<"/", _::binary>> = path) do
    if text?(path), do: path, else: raise(ArgumentError, "expected :cd to hold no NUL")
  end

  defp directory!(other) do
    raise ArgumentError, "expected :cd to be an absolute path, got: #{Options.show(other)}"
  end

  defp environment!(environment) when is_map(environment) or is_list(environment) do
    for variable <- environment do
      with {name, value} <- variable,
           true <- text?(name) and name != "" and text?(value),
           :nomatch <- :binary.match(name, "=") do
        variable
      else
        _ ->
          raise ArgumentError,
                "expected :env to hold pairs of a name and a value, got: #{Options.show(variable)}"
      end
    end
  end

  defp environment!(other) do
    raise ArgumentError, "expected :env to be a map or a list, got: #{Options.show(other)}"
  end

  defp text?(value), do: is_binary(value) and :binary.match(value, <<0>>) == :nomatch

  defp text(text), do: [<<byte_size(text)::32>>, text]
  defp texts(texts), do: [<<length(texts)::32>> | Enum.map(texts, &text/1)]

  defp ask(request, patience_ms) do
    # The port is linked to this process and closes with it; harness_exec then kills everything.
    port = Port.open({:spawn_executable, program()}, [:binary, :exit_status, packet: 4])
    true = Port.command(port, request)
    answer = wait(port, nil, System.monotonic_time(:millisecond) + patience_ms)
    close(port)
    answer
  rescue
    error in [ErlangError, ArgumentError] ->
      {:error, %ExecError{message: "can't start harness_exec: #{Exception.message(error)}"}}
  end

  # The exit status is waited for too: after it, harness_exec is gone as well.
  defp wait(port, answer, deadline) do
    receive do
      {^port, {:data, packet}} -> wait(port, decode(packet), deadline)
      {^port, {:exit_status, _}} when answer != nil -> answer
      {^port, {:exit_status, status}} -> failure("harness_exec ended with #{status}")
    after
      max(deadline - System.monotonic_time(:millisecond), 0) ->
        answer || failure("harness_exec did not answer")
    end
  end

  defp close(port) do
    Process.unlink(port)
    if Port.info(port), do: Port.close(port)
    flush(port)
  rescue
    # It closed between the two calls.
    ArgumentError -> flush(port)
  end

  defp flush(port) do
    receive do
      {^port, _} -> flush(port)
      {:EXIT, ^port, _} -> flush(port)
    after
      0 -> :ok
    end
  end

  defp decode(
         <<kind, value::32, stdout_bytes::64, size::32, stdout::binary-size(size),
           stderr_bytes::64, size2::32, stderr::binary-size(size2)>>
       )
       when kind in 0..2 do
    {:ok,
     %Result{
       status: status(kind, value),
       stdout: stdout,
       stdout_bytes: stdout_bytes,
       stderr: stderr,
       stderr_bytes: stderr_bytes
     }}
  end

  defp decode(<<3, message::binary>>), do: failure(message)

  defp status(0, code), do: {:exit, code}
  defp status(1, signal), do: {:signal, signal}
  defp status(2, _), do: :timeout

  defp failure(message), do: {:error, %ExecError{message: message}}

  defp program, do: Application.app_dir(:engine, "priv/native/harness_exec")
end
