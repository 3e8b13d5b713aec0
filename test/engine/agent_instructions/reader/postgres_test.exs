defmodule Engine.AgentInstructions.Reader.PostgresTest do
  # Not async: counts the processes of the VM.
  use ExUnit.Case, async: false

  use Engine.ReaderCases,
    reader:
      {Engine.AgentInstructions.Reader.Postgres,
       url: Engine.Postgres.url(Engine.Postgres.shared())}

  doctest Engine.AgentInstructions.Reader
  doctest Engine.AgentInstructions.Reader.Postgres.Address

  @password "s3cret/pass word%"
  @project "123e4567-e89b-12d3-a456-426614174000"

  # What the first connection and the first look-up of a host start, and leave running.
  setup_all do
    assert {:ok, nil} = Reader.fetch(reader(), @project, "a")
    _ = :inet.gethostbyname('host.invalid')
    :ok
  end

  defp failing(options) do
    before = MapSet.new(Process.list())

    assert {:error, %Reader.Error{} = error} =
             Reader.fetch({Reader.Postgres, options}, @project, "a")

    assert error.message not in [nil, ""]
    refute inspect(error) =~ "s3cret"
    # The guard is done when it has answered, and takes the worker and its socket with it.
    eventually(fn -> MapSet.subset?(MapSet.new(Process.list()), before) end)
    {error.reason, error.message}
  end

  defp database!(name, statements) do
    server = Postgres.shared()
    Postgres.sql!(server, "CREATE DATABASE #{name}")
    Postgres.sql!(server, statements, name)
    on_exit(fn -> Postgres.sql!(server, "DROP DATABASE #{name} WITH (FORCE)") end)
    Postgres.url(server, database: name)
  end

  # Waits for what is bound to happen, and fails when it does not.
  defp eventually(condition, tries \\ 500) do
    cond do
      condition.() -> :ok
      tries == 0 -> flunk("did not happen within ten seconds")
      true -> Process.sleep(20) && eventually(condition, tries - 1)
    end
  end

  defp at(database), do: ~s(database "#{database}" at 127.0.0.1:#{Postgres.shared().port})

  describe "what goes wrong is named:" do
    test "the server is down, and the next read works once it is back" do
      port = Postgres.free_port()
      options = [url: Postgres.url(%{port: port})]

      assert failing(options) ==
               {:unavailable,
                ~s(database "postgres" at 127.0.0.1:#{port} can't be reached: connection refused)}

      server = Postgres.start!(port)
      Postgres.sql!(server, Postgres.fixture())
      project = Postgres.project!(server, [{"developer", "back"}])

      assert {:ok, %{content: "back"}} =
               Reader.fetch({Reader.Postgres, options}, project, "developer")

      Postgres.stop(server)
      assert {:unavailable, _} = failing(options)
    end

    test "an unknown host" do
      assert {:unavailable, message} = failing(url: "postgres://u:p@host.invalid/db")
      assert message =~ ~s(database "db" at host.invalid:5432 can't be reached: )
    end

    test "a wrong password" do
      assert failing(url: Postgres.url(Postgres.shared(), password: @password)) ==
               {:login,
                at("postgres") <>
                  ~s(: password authentication failed for user "owner" \(SQLSTATE 28P01\); ) <>
                  ~s(check the URL's user "owner" and password)}
    end

    test "an unknown database" do
      assert failing(url: Postgres.url(Postgres.shared(), database: "nowhere")) ==
               {:unknown_database,
                at("nowhere") <>
                  ~s(: database "nowhere" does not exist \(SQLSTATE 3D000\); check the URL's database)}
    end

    test "the table is missing" do
      url = database!("no_table", "SELECT 1")

      assert failing(url: url) ==
               {:schema,
                at("no_table") <>
                  ~s(: relation "public.agent_instructions" does not exist \(SQLSTATE 42P01\); ) <>
                  "the api's migrations have to run first"}
    end

    test "a column is missing" do
      url =
        database!(
          "no_column",
          "CREATE TABLE agent_instructions (project_id uuid, agent_slug text)"
        )

      assert failing(url: url) ==
               {:schema,
                at("no_column") <>
                  ~s(: column "content" does not exist \(SQLSTATE 42703\); ) <>
                  "the api's migrations have to run first"}
    end

    test "permission is denied, and SELECT on the table is all that is needed" do
      server = Postgres.shared()

      Postgres.sql!(server, "CREATE ROLE reading LOGIN PASSWORD '#{@password}'")
      on_exit(fn -> Postgres.sql!(server, "DROP OWNED BY reading; DROP ROLE reading") end)
      url = Postgres.url(server, user: "reading", password: @password)

      assert failing(url: url) ==
               {:permission,
                at("postgres") <>
                  ": permission denied for table agent_instructions (SQLSTATE 42501); " <>
                  ~s(GRANT SELECT ON public.agent_instructions TO "reading")}

      Postgres.sql!(server, "GRANT SELECT ON public.agent_instructions TO reading")
      project = Postgres.project!(server, [{"developer", "granted"}])
      reader = {Reader.Postgres, url: url}
      assert {:ok, %{content: "granted"}} = Reader.fetch(reader, project, "developer")
    end

    test "a server that accepts and never answers" do
      {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
      {:ok, port} = :inet.port(socket)
      start = System.monotonic_time(:millisecond)

      assert failing(url: Postgres.url(%{port: port}), timeout: 300) ==
               {:timeout,
                ~s(database "postgres" at 127.0.0.1:#{port} did not answer within 300 ms)}

      assert System.monotonic_time(:millisecond) - start <= 3 * 300
    end

    test "a server that says what no PostgreSQL server says" do
      {:ok, socket} = :gen_tcp.listen(0, [:binary, active: false, ip: {127, 0, 0, 1}])
      {:ok, port} = :inet.port(socket)

      for answer <- [
            "HTTP/1.1 400 Bad Request\r\n\r\n",
            "R",
            <<"R", 8::32, 99::32>>,
            <<"E", 5::32, 0>>,
            ""
          ] do
        server =
          Task.async(fn ->
            {:ok, client} = :gen_tcp.accept(socket)
            :ok = :gen_tcp.send(client, answer)
            :gen_tcp.close(client)
          end)

        assert {reason, _message} = failing(url: Postgres.url(%{port: port}), timeout: 2_000)
        assert reason in [:unavailable, :login, :query]
        Task.await(server)
      end
    end

    test "a query that is blocked, and a connection that is dropped during the query" do
      server = Postgres.shared()
      url = database!("blocked", Postgres.fixture())
      {holder, line} = lock(server, "blocked")
      assert line == "locked"

      assert {:timeout, _} = failing(url: url, timeout: 300)

      reading =
        Task.async(fn ->
          Reader.fetch({Reader.Postgres, url: url, timeout: 30_000}, @project, "a")
        end)

      waiting = "FROM pg_stat_activity WHERE datname = 'blocked' AND wait_event_type = 'Lock'"
      eventually(fn -> Postgres.sql!(server, "SELECT count(*) #{waiting}") != "0" end)
      Postgres.sql!(server, "SELECT pg_terminate_backend(pid) #{waiting}")

      assert {:error, %Reader.Error{reason: :unavailable}} = Task.await(reading)
      Port.close(holder)

      # No connection is left behind.
      count = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'blocked'"
      eventually(fn -> Postgres.sql!(server, count) == "0" end)
    end

    test "the caller is gone in the middle" do
      {:ok, socket} = :gen_tcp.listen(0, [:binary, active: false, ip: {127, 0, 0, 1}])
      {:ok, port} = :inet.port(socket)
      reader = {Reader.Postgres, url: Postgres.url(%{port: port}), timeout: 60_000}
      {caller, monitor} = spawn_monitor(fn -> Reader.fetch(reader, @project, "a") end)

      {:ok, client} = :gen_tcp.accept(socket)
      Process.exit(caller, :kill)
      assert_receive {:DOWN, ^monitor, :process, ^caller, :killed}
      # The worker is killed long before its time is up: its end of the connection closes.
      assert :closed = last(client)
    end
  end

  test "the connection is read-only" do
    alias Engine.AgentInstructions.Reader.Postgres.{Address, Connection}
    {:ok, address} = Address.parse(Postgres.url(Postgres.shared()))

    assert {:error, error} = Connection.query(address, "CREATE TABLE intruder (a int)", [], 5_000)
    assert error.message =~ "cannot execute CREATE TABLE in a read-only transaction"
  end

  test "an address without its password in what is inspected" do
    alias Engine.AgentInstructions.Reader.Postgres.Address
    {:ok, address} = Address.parse("postgres://u:s3cret@h/db")
    refute inspect(address) =~ "s3cret"

    for {url, message} <- [
          {nil, "the database's URL is missing"},
          {"postgres://u:s3cret%zz@h/db", "the database's URL is not a URL"},
          {"postgres://u:s3cret@h:port/db", "the database's URL is not a URL"},
          {"http://u:s3cret@h/db",
           "the database's URL has to begin with postgres:// or postgresql://"},
          {"postgres://h/db", "the database's URL names no user"},
          {"postgres://u:s3cret@h", "the database's URL names no database"},
          {"postgres://u:s3cret@/db",
           "the database's URL names no host (Unix sockets are not supported)"},
          {"postgres://u:s3cret@h:99999/db", "the database's URL has a port that is none"},
          {"postgres://u:s3cret@h/db?sslmode=verify-full",
           "the database's URL may have sslmode=disable or sslmode=require, and no other parameter"}
        ] do
      assert {:error, %Reader.Error{message: ^message}} = Address.parse(url)
    end
  end

  test "an option that is none raises, without showing the others" do
    error =
      assert_raise ArgumentError, fn ->
        Reader.fetch(
          {Reader.Postgres, url: "postgres://u:s3cret@h/d", timeout: -1},
          @project,
          "a"
        )
      end

    assert error.message == "expected :timeout to be a positive number of milliseconds, got: -1"

    error =
      assert_raise ArgumentError, fn -> Reader.fetch({String, url: "s3cret"}, @project, "a") end

    refute error.message =~ "s3cret"
  end

  test "without a reader the missing setting is named" do
    assert {:error, %Reader.Error{reason: :no_reader} = error} = Reader.fetch(nil, @project, "a")

    assert error.message ==
             "the instructions of project #{@project} can't be read: no database is configured " <>
               "(config :engine, :agent_instructions, see Engine.AgentInstructions.Reader; " <>
               "for bin/harness DATABASE_URL)"
  end

  # What the other end sends is of no interest, only how it ends.
  defp last(client) do
    case :gen_tcp.recv(client, 0, 5_000) do
      {:ok, _startup} -> last(client)
      {:error, reason} -> reason
    end
  end

  # A session that holds the table until its port is closed.
  defp lock(server, database) do
    args = [
      "-X",
      "-q",
      "-A",
      "-t",
      "-h",
      "127.0.0.1",
      "-p",
      "#{server.port}",
      "-U",
      "owner",
      database
    ]

    holder =
      Port.open(
        {:spawn_executable, System.find_executable("psql")},
        [:binary, line: 1024, args: args, env: [{'PGPASSWORD', 'owner'}]]
      )

    Port.command(holder, "BEGIN; LOCK TABLE agent_instructions; SELECT 'locked';\n")

    receive do
      {^holder, {:data, {:eol, line}}} -> {holder, line}
    end
  end
end
