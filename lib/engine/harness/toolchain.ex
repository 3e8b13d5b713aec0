defmodule Engine.Harness.Toolchain do
  @moduledoc """
  Developer tools of the host: where they are and which version they say they have.

  A tool is asked for its version by running it, so nothing runs that a repository could have
  brought: only absolute entries of `PATH` count, and a binary inside the workspace, or one that
  anyone may replace, is reported and not run. Every link and directory on the way to it is looked
  at; a directory that anyone may write counts as safe only above the binary's own, with its sticky
  bit set and an entry that belongs to root or to this process's user.

  `path` is what a shell would start; `version` is the tool's own line, raw, to be escaped where it
  is shown; `nil` when it is not known, and then `reason` says why:

    * `:not_found` - not on the path; the only reason with which `available` is false
    * `:inside_workspace`, `:world_writable` - found and not run
    * `:timeout`, `{:exit, n}`, `{:signal, n}` - it did not end well
    * `:no_output` - it said nothing
    * a text - it could not be started
  """
  import Bitwise
  alias Engine.Harness.{Exec, Native, Options}

  @enforce_keys [:name]
  defstruct [:name, :path, :version, :reason, available: false]

  @type reason ::
          :not_found
          | :inside_workspace
          | :world_writable
          | :timeout
          | :no_output
          | {:exit, pos_integer}
          | {:signal, pos_integer}
          | String.t()
  @type t :: %__MODULE__{
          name: String.t(),
          path: Path.t() | nil,
          version: String.t() | nil,
          available: boolean,
          reason: reason | nil
        }
  @type request :: String.t() | {String.t(), [String.t()]}

  @default ~w(git python3 pytest node npm docker)
  @arguments %{
    "elixir" => ["--short-version"],
    "go" => ["version"],
    "java" => ["-version"]
  }

  # What keeps a tool from downloading, paging or speaking another language. Nothing else is
  # passed on but HOME and the safe part of PATH, so no JAVA_TOOL_OPTIONS, NODE_OPTIONS or GIT_*.
  @environment [
    {"LANG", "C.UTF-8"},
    {"LC_ALL", "C.UTF-8"},
    {"PAGER", "cat"},
    {"GIT_PAGER", "cat"},
    {"RUSTUP_AUTO_INSTALL", "0"},
    {"COREPACK_DEFAULT_TO_LATEST", "0"},
    {"COREPACK_ENABLE_NETWORK", "0"},
    {"COREPACK_ENABLE_PROJECT_SPEC", "0"}
  ]

  @doc "The tools that are looked for by default."
  @spec default() :: [request]
  def default, do: @default

  @doc """
  Looks for tools and asks each for its version, all at once; they come back in the order given.

      iex> [tool] = Engine.Harness.Toolchain.discover(["no-such-tool"], "/srv/shop")
      iex> {tool.available, tool.reason}
      {false, :not_found}

  A tool is a name, or a name and the arguments that make it say its version.

  Tools look for their settings in the directory they start in and above it. They start in
  `engine/empty` of the user's cache directory (`$XDG_CACHE_HOME`, `~/.cache`), which is made when
  it is absent; where that can't be made, isn't empty, is inside the workspace or can be replaced
  by anyone, in `/`.

  ## Options

    * `:path` - a search path. Default: the VM's `PATH`.
    * `:home` - the tools' `HOME`. Default: the VM's.
    * `:timeout_ms` - for each tool. Default: 2,000.
  """
  @spec discover([request], Path.t(), keyword) :: [t]
  def discover(requests, workspace, opts \\ []) do
    opts = Options.validate!(opts, [:path, :home, :timeout_ms])
    requests = requests!(requests)
    {workspace, _entries} = workspace |> Path.expand() |> way()
    trust = {workspace, Native.host_environment_user()}

    directories =
      opts
      |> Keyword.get_lazy(:path, fn -> System.get_env("PATH", "") end)
      |> String.split(":")
      |> Enum.filter(&String.starts_with?(&1, "/"))

    safe = Enum.filter(directories, &safe_directory?(&1, trust))
    home = Keyword.get_lazy(opts, :home, fn -> System.get_env("HOME", "/") end)

    limits = [
      cd: start_directory(trust),
      env: [{"PATH", Enum.join(safe, ":")}, {"HOME", home} | @environment],
      timeout_ms: Keyword.get(opts, :timeout_ms, 2000)
    ]

    requests
    |> Enum.map(&Task.async(fn -> tool(&1, directories, trust, limits) end))
    |> Task.await_many(:infinity)
  end

  # The requests with the arguments of each, or an ArgumentError.
  @doc false
  @spec requests!(term) :: [{String.t(), [String.t()]}]
  def requests!(requests) when is_list(requests), do: Enum.map(requests, &request!/1)

  def requests!(other) do
    raise ArgumentError, "expected the tools to be a list, got: #{Options.show(other)}"
  end

  defp request!({name, arguments} = request) when is_binary(name) and is_list(arguments) do
    if name != "" and not String.contains?(name, ["/", "\0"]) and
         Enum.all?(arguments, &(is_binary(&1) and not String.contains?(&1, "\0"))) do
      request
    else
      invalid!(request)
    end
  end

  defp request!(name) when is_binary(name) do
    request!({name, Map.get(@arguments, name, ["--version"])})
  end

  defp request!(other), do: invalid!(other)

  defp invalid!(request) do
    raise ArgumentError,
          "expected a tool to be a name without \"/\", or a name and arguments, " <>
            "got: #{Options.show(request)}"
  end

  defp tool({name, arguments}, directories, trust, limits) do
    path = directories |> Enum.map(&Path.join(&1, name)) |> Enum.find(&executable?/1)

    {version, reason} =
      cond do
        path == nil -> {nil, :not_found}
        reason = refusal(path, trust) -> {nil, reason}
        true -> [path | arguments] |> Exec.run(limits) |> version()
      end

    %__MODULE__{
      name: name,
      path: path,
      version: version,
      available: path != nil,
      reason: reason
    }
  end

  defp executable?(path) do
    match?({:ok, %{type: :regular, mode: mode}} when (mode &&& 0o111) != 0, File.stat(path))
  end

  defp refusal(path, {workspace, user}) do
    {target, entries} = way = way(path)

    cond do
      inside?(path, way, workspace) -> :inside_workspace
      world_writable?(target) or replaceable?(entries, user) -> :world_writable
      true -> nil
    end
  end

  defp safe_directory?(path, {workspace, user}) do
    {target, entries} = way = way(path)
    above = for {entry, _} <- entries, do: {entry, false}

    not inside?(path, way, workspace) and
      not world_writable?(target) and not replaceable?(above, user)
  end

  defp start_directory({workspace, _user} = trust) do
    with "/" <> _ <- System.get_env("HOME"),
         "/" <> _ = cache <- to_string(:filename.basedir(:user_cache, "engine")),
         directory = Path.join(cache, "empty"),
         false <- inside?(directory, way(directory), workspace),
         :ok <- File.mkdir_p(directory),
         {:ok, []} <- File.ls(directory),
         true <- safe_directory?(directory, trust) do
      directory
    else
      _ -> "/"
    end
  end

  # As it is named and as it is: a link may lead out of the workspace or into it.
  defp inside?(path, {target, entries}, workspace) do
    top = Path.split(workspace)
    named = for {entry, _} <- entries, do: entry
    Enum.any?([path, target | named], &List.starts_with?(Path.split(&1), top))
  end

  # Whether somebody else may put another entry in the place of one on the way.
  defp replaceable?(entries, user) do
    Enum.any?(entries, fn {entry, last?} ->
      directory = Path.dirname(entry)

      world_writable?(directory) and
        (last? or not sticky?(directory) or not owned?(entry, [0, user]))
    end)
  end

  # What can't be looked at is not trusted either.
  defp world_writable?(path) do
    case File.stat(path) do
      {:ok, %{mode: mode}} -> (mode &&& 0o002) != 0
      {:error, _} -> true
    end
  end

  defp sticky?(path) do
    match?({:ok, %{mode: mode}} when (mode &&& 0o1000) != 0, File.stat(path))
  end

  defp owned?(entry, users) do
    case File.lstat(entry) do
      {:ok, %{uid: uid}} -> uid in users
      {:error, _} -> false
    end
  end

  # The file that a path leads to, and the entries on the way, links followed (at most 40, as
  # Linux does): each by a path whose directory holds no link, and whether it stands for the file.
  defp way(path), do: way(Path.split(path), "/", 40, [])

  defp way([], done, _left, entries), do: {done, entries}
  defp way(["/" | rest], _done, left, entries), do: way(rest, "/", left, entries)
  defp way(["." | rest], done, left, entries), do: way(rest, done, left, entries)
  defp way([".." | rest], done, left, entries), do: way(rest, Path.dirname(done), left, entries)

  defp way([name | rest], done, left, entries) do
    path = Path.join(done, name)
    entries = [{path, rest == []} | entries]

    case left > 0 && :file.read_link_all(path) do
      {:ok, to} -> way(Path.split(IO.chardata_to_string(to)) ++ rest, done, left - 1, entries)
      _ -> way(rest, path, left, entries)
    end
  end

  # Of the two streams the first that says something.
  defp version({:ok, %{status: {:exit, 0}} = result}) do
    case Enum.find_value([result.stdout, result.stderr], &line/1) do
      nil -> {nil, :no_output}
      line -> {line, nil}
    end
  end

  defp version({:ok, %{status: status}}), do: {nil, status}
  defp version({:error, error}), do: {nil, Exception.message(error)}

  defp line(output) do
    output
    |> String.split(["\r\n", "\n"])
    |> Enum.map(&String.trim/1)
    |> Enum.find(&(&1 != "" and not String.starts_with?(&1, "Picked up ")))
  end
end
