defmodule Engine.AgentInstructions.Reader.Postgres.Connection do
  # One query over one connection, within one bounded time, by the driver p1_pgsql.
  #
  # The driver is a gen_server, whose crash report would print its state, password included, and
  # which waits for ever after some errors. So its callbacks run in a worker process of ours
  # instead, by prepare and execute, which pass the server's errors on. A guard beside the worker
  # holds the time limit, and kills it when the limit is over or the caller is gone; the driver's
  # socket process is linked to the worker and goes with it.
  @moduledoc false

  alias Engine.AgentInstructions.Reader.Error
  alias Engine.AgentInstructions.Reader.Postgres.Address
  alias Engine.Harness.Escape

  # Debian's package, not a dependency of the project.
  @compile {:no_warn_undefined, :pgsql_proto}

  @typep failure ::
           {:connect, term} | {:server, keyword} | {:exit, term} | :timeout | :driver_missing

  @doc """
  The rows that a query of text columns gives, each a list of columns; text parameters only.
  """
  @spec query(Address.t(), String.t(), [String.t()], pos_integer) ::
          {:ok, [[String.t()]]} | {:error, Error.t()}
  def query(address, query, parameters, timeout) do
    if Code.ensure_loaded?(:pgsql_proto) do
      guarded(fn -> run(address, query, parameters, timeout) end, timeout)
    else
      {:error, :driver_missing}
    end
    |> case do
      {:ok, rows} -> {:ok, rows}
      {:error, failure} -> {:error, error(failure, address, timeout)}
    end
  end

  ## The guard

  defp guarded(work, timeout) do
    caller = self()
    answer = make_ref()
    {guard, monitor} = spawn_monitor(fn -> guard(caller, answer, work, timeout) end)

    receive do
      {^answer, result} ->
        Process.demonitor(monitor, [:flush])
        result

      {:DOWN, ^monitor, :process, ^guard, reason} ->
        {:error, {:exit, reason}}
    end
  end

  defp guard(caller, answer, work, timeout) do
    guard = self()
    gone = Process.monitor(caller)

    {worker, monitor} =
      spawn_monitor(fn ->
        # The driver prints to its group leader; the guard is one that swallows it.
        Process.group_leader(self(), guard)
        send(guard, {answer, attempt(work)})
        # To be killed, which takes the driver's socket process along; a normal end would not.
        Process.sleep(:infinity)
      end)

    result = wait(answer, worker, monitor, gone, System.monotonic_time(:millisecond) + timeout)
    Process.exit(worker, :kill)
    send(caller, {answer, result})
  end

  defp wait(answer, worker, monitor, gone, deadline) do
    left = max(0, deadline - System.monotonic_time(:millisecond))

    receive do
      {^answer, result} ->
        result

      {:DOWN, ^monitor, :process, ^worker, reason} ->
        {:error, {:exit, reason}}

      {:DOWN, ^gone, :process, _caller, _reason} ->
        {:error, :timeout}

      {:io_request, from, reply, _request} ->
        send(from, {:io_reply, reply, :ok})
        wait(answer, worker, monitor, gone, deadline)
    after
      left -> {:error, :timeout}
    end
  end

  ## The worker

  # Whatever the driver does, only its kind leaves the worker: values may hold the password.
  defp attempt(work) do
    work.()
  catch
    :error, {:badmatch, {:error, reason}} when is_atom(reason) -> {:error, {:connect, reason}}
    kind, _reason -> {:error, {:exit, kind}}
  end

  defp run(address, query, parameters, timeout) do
    # The library that prepares passwords for SCRAM, which the driver uses but does not start.
    {:ok, _} = Application.ensure_all_started(:stringprep)
    if address.ssl, do: {:ok, _} = Application.ensure_all_started(:ssl)

    with {:ok, state} <- connect(address, timeout),
         {:ok, _} <- squery(state, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
         {:ok, _} <- squery(state, "SET client_encoding TO 'UTF8'"),
         {:ok, _, _, _} <- call(state, {:prepare, {"", query}}),
         {:ok, {_command, rows}} <- call(state, {:execute, {"", parameters}}) do
      {:ok, Enum.map(rows, &columns/1)}
    end
  end

  defp connect(address, timeout) do
    options = [
      host: String.to_charlist(address.host),
      port: address.port,
      database: address.database,
      user: address.user,
      password: address.password,
      transport: if(address.ssl, do: :ssl, else: :tcp),
      connect_timeout: timeout,
      as_binary: true
    ]

    options = if address.ssl, do: [{:verify, :verify_none} | options], else: options

    case :pgsql_proto.init([self(), options]) do
      {:ok, state} -> {:ok, state}
      {:stop, {:init, {:error, reason}}} -> {:error, {:connect, reason}}
      {:stop, {where, fields}} when where in [:authentication, :error_response] -> server(fields)
      {:stop, {:starttls, :denied}} -> {:error, {:connect, :no_ssl}}
      {:stop, {:nyi, _method}} -> {:error, {:connect, :authentication_method}}
      {:stop, _other} -> {:error, {:exit, :protocol}}
    end
  end

  defp server(fields) when is_list(fields), do: {:error, {:server, fields}}
  defp server(_method), do: {:error, {:connect, :authentication_method}}

  defp squery(state, query) do
    case call(state, {:squery, query}) do
      {:ok, [{:error, fields} | _]} -> {:error, {:server, fields}}
      {:ok, results} -> {:ok, results}
      {:error, _} = error -> error
    end
  end

  defp call(state, request) do
    case :pgsql_proto.handle_call(request, self(), state) do
      {:reply, {:error, fields}, _state} -> {:error, {:server, fields}}
      {:reply, reply, _state} -> reply
      {:stop, _reason, _reply, _state} -> {:error, {:exit, :protocol}}
    end
  end

  defp columns(row), do: Enum.map(row, fn {_type, value} -> text(value) end)

  defp text(null) when null in [:null, nil], do: ""
  defp text(value), do: value

  ## What to do about it

  @spec error(failure, Address.t(), pos_integer) :: Error.t()
  defp error(:driver_missing, _address, _timeout) do
    %Error{
      reason: :driver,
      message:
        "the PostgreSQL driver p1_pgsql is not installed (Debian: apt-get install erlang-p1-pgsql)"
    }
  end

  defp error(:timeout, address, timeout) do
    %Error{
      reason: :timeout,
      message: "#{Address.show(address)} did not answer within #{timeout} ms"
    }
  end

  defp error({:connect, :no_ssl}, address, _timeout) do
    unavailable(address, "the server has no SSL, and the URL says sslmode=require")
  end

  defp error({:connect, :authentication_method}, address, _timeout) do
    %Error{
      reason: :login,
      message:
        "#{Address.show(address)} asks for a way of logging in that the driver does not know"
    }
  end

  defp error({:connect, reason}, address, _timeout) do
    unavailable(address, posix(reason))
  end

  defp error({:exit, _reason}, address, _timeout) do
    unavailable(address, "the connection was lost")
  end

  defp error({:server, fields}, address, _timeout) do
    code = fields |> field(:code) |> to_string()
    # A server may say anything, in any encoding.
    words = "#{fields |> field(:message) |> Escape.escape()} (SQLSTATE #{code})"

    %Error{
      reason: reason(code),
      message: "#{Address.show(address)}: #{words}#{advice(code, address)}"
    }
  end

  defp unavailable(address, words) do
    %Error{reason: :unavailable, message: "#{Address.show(address)} can't be reached: #{words}"}
  end

  defp posix(reason) do
    case :inet.format_error(reason) do
      'unknown POSIX error' ++ _ -> to_string(reason)
      words -> to_string(words)
    end
  end

  defp field(fields, name) do
    case List.keyfind(fields, name, 0) do
      {^name, value} -> to_string(value)
      nil -> ""
    end
  end

  # PostgreSQL documentation, appendix A: error codes.
  defp reason("28" <> _), do: :login
  defp reason("3D000"), do: :unknown_database
  defp reason(code) when code in ["42P01", "42703", "3F000"], do: :schema
  defp reason("42501"), do: :permission
  defp reason("57014"), do: :timeout
  defp reason(code) when code in ["57P01", "57P02", "57P03", "53300"], do: :unavailable
  defp reason(_code), do: :query

  defp advice("28" <> _, address),
    do: "; check the URL's user #{inspect(address.user)} and password"

  defp advice("3D000", _address), do: "; check the URL's database"

  defp advice(code, _address) when code in ["42P01", "42703", "3F000"] do
    "; the api's migrations have to run first"
  end

  defp advice("42501", address) do
    "; GRANT SELECT ON public.agent_instructions TO #{inspect(address.user)}"
  end

  defp advice(_code, _address), do: ""
end
