defmodule Engine.Postgres do
  @moduledoc "Real PostgreSQL servers for tests, each in a temporary folder of its own."

  defstruct [:process, :port]

  @doc "Starts a server, which runs until `stop/1` or the VM's end."
  def start!(port \\ free_port()) do
    caller = self()
    process = spawn(fn -> hold(caller, port) end)

    receive do
      {^process, :ready} -> %__MODULE__{process: process, port: port}
      {^process, {:exit_status, status}} -> raise "PostgreSQL did not start (#{status})"
    end
  end

  @doc "Stops a server and waits until it is gone, its folder with it."
  def stop(%{process: process}) do
    send(process, {:stop, self()})

    receive do
      {^process, {:exit_status, _status}} -> :ok
    end
  end

  # A process of its own holds the port, so that any process may stop the server.
  defp hold(caller, port) do
    name = "engine_test_postgres_#{System.pid()}_#{port}"
    args = [Path.join(System.tmp_dir!(), name), Integer.to_string(port)]
    script = Path.expand("postgres.sh", __DIR__)

    server =
      Port.open({:spawn_executable, script}, [:binary, :exit_status, line: 1024, args: args])

    hold(caller, server, :starting)
  end

  defp hold(caller, server, state) do
    receive do
      {^server, {:data, {:eol, "ready"}}} ->
        send(caller, {self(), :ready})
        hold(caller, server, :running)

      {^server, {:exit_status, status}} ->
        send(caller, {self(), {:exit_status, status}})

      {:stop, stopper} when state == :running ->
        Port.command(server, "\n")
        hold(stopper, server, :stopping)
    end
  end

  @doc "The server that the whole suite shares, with the api's tables."
  def shared, do: :persistent_term.get(__MODULE__)

  def share(server), do: :persistent_term.put(__MODULE__, server)

  def url(server, opts \\ []) do
    opts = Keyword.merge([user: "owner", password: "owner", database: "postgres"], opts)
    password = URI.encode(opts[:password], &URI.char_unreserved?/1)
    "postgres://#{opts[:user]}:#{password}@127.0.0.1:#{server.port}/#{opts[:database]}"
  end

  @doc "Runs statements as the superuser."
  def sql!(server, statements, database \\ "postgres") do
    args = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]
    args = args ++ ["-p", "#{server.port}", "-U", "owner", "-d", database, "-c", statements]
    options = [env: [{"PGPASSWORD", "owner"}], stderr_to_stdout: true]

    case System.cmd("psql", args, options) do
      {out, 0} -> String.trim(out)
      {out, _} -> raise "psql: #{out}"
    end
  end

  @doc "The tables as the api's migration makes them."
  def fixture do
    """
    CREATE TABLE public.projects (id uuid PRIMARY KEY);
    CREATE TABLE public.agent_instructions (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      project_id uuid NOT NULL REFERENCES public.projects (id),
      agent_slug text NOT NULL,
      content text NOT NULL,
      updated_at timestamptz NOT NULL DEFAULT now(),
      UNIQUE (project_id, agent_slug)
    );
    """
  end

  @doc "A new project with the given rows, from slug to content; returns its id."
  def project!(server, rows \\ []) do
    id = uuid()
    sql!(server, "INSERT INTO projects VALUES ('#{id}')")
    for {slug, content} <- rows, do: write!(server, id, slug, content)
    id
  end

  def write!(server, project_id, slug, content) do
    # Through a file, since a command line can't hold a megabyte.
    path = Path.join(System.tmp_dir!(), "engine_test_#{uuid()}.sql")

    File.write!(path, """
    INSERT INTO agent_instructions (project_id, agent_slug, content)
    VALUES ('#{project_id}', #{literal(slug)}, #{literal(content)})
    ON CONFLICT (project_id, agent_slug) DO UPDATE SET content = excluded.content;
    """)

    sql!(server, "\\i #{path}")
    File.rm!(path)
  end

  def uuid do
    <<a::32, b::16, c::16, d::16, e::48>> = :crypto.strong_rand_bytes(16)

    [{a, 8}, {b, 4}, {c, 4}, {d, 4}, {e, 12}]
    |> Enum.map_join("-", fn {part, width} ->
      part |> Integer.to_string(16) |> String.downcase() |> String.pad_leading(width, "0")
    end)
  end

  def free_port do
    {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, port} = :inet.port(socket)
    :gen_tcp.close(socket)
    port
  end

  defp literal(text), do: "'" <> String.replace(text, "'", "''") <> "'"
end
