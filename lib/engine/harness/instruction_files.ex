defmodule Engine.Harness.InstructionFiles do
  @moduledoc """
  The instructions that a workspace holds for its agents: the root's `AGENTS.md`, those of its
  sub-directories, and the agent's row in the database.

      {:ok, files} = Engine.Harness.InstructionFiles.load("path/to/workspace")
      for source <- files.sources, do: {source.path, byte_size(source.text)}
      #=> [{"AGENTS.md", 1204}, {"web/AGENTS.md", 310}, {"web/api/AGENTS.md", 95}]

  ## Precedence

  Sources come in ascending precedence: the deeper a file, the stronger it is, and the last one
  wins (ADR 0006). Files of equal depth are ordered by the components of their paths, bytewise,
  never by the order in which a disk lists them. The row in the database is stronger than all files.
  `Engine.Harness.PromptAssembler` drops them in the
  same order, the weakest first.

  ## What is read

  All directories but `.git`. Links to directories are not followed. A link to a file is read when
  it is relative and leads to a regular file inside the workspace; a file that several names lead
  to counts once. What was seen and not used is in `unused`, each with its reason:

  | reason | what it is |
  |---|---|
  | `:not_regular` | a directory, FIFO, socket or device of that name; never opened |
  | `:unreadable` | a file or directory that may not be read |
  | `:not_utf8` | text in another encoding (`offset`: the first wrong byte) |
  | `:too_large` | a file over 1 MiB; not read |
  | `:empty` | nothing but white space |
  | `:dangling_link`, `:absolute_link`, `:escaping_link`, `:link_loop` | a link that is not followed |
  | `:duplicate` | another name of a file that is loaded (`of`: that file) |
  | `:superseded` | another name is preferred in its directory (`by`: that name) |
  | `:near_miss` | another spelling, such as `agents.md` (`expected`: the right one) |
  | `:too_deep` | a directory deeper than 128 |
  | `:nested_repository` | left out by `nested_repositories: :skip` |
  | `:vanished` | gone between the walk and the read |

  A row of the database whose content is nothing but white space is reported as `:empty` too, its
  path being the agent's slug.

  A leading byte order mark is removed; everything else is kept as it stands, line endings too.

  ## Cache

  What was loaded is kept in an ETS table (`Engine.Harness.InstructionFiles.Cache`) until
  `invalidate/1`, the row with the files. All reading happens in the calling process. Errors are
  not kept.
  """

  alias __MODULE__
  alias Engine.AgentInstructions.Reader
  alias Engine.Harness.{Boundary, Native, Options}
  alias Engine.Harness.InstructionFiles.{Cache, Error, Source}

  @typedoc """
  What was seen and not used: `origin`, `path` (relative to the workspace, raw bytes), `reason`,
  `message` (a sentence) and what the reason's row in the table names.
  """
  @type unused :: %{
          required(:origin) => :file | :database,
          required(:path) => binary,
          required(:reason) => atom,
          required(:message) => String.t(),
          optional(atom) => term
        }

  @typedoc """
    * `sources` - in ascending precedence
    * `unused` - in the same kind of order
    * `foreign` - how many of the sources lie in nested repositories and, where `:count_ignored` asks for
      it, in ignored directories: other people's, most likely
  """
  @type t :: %InstructionFiles{
          sources: [Source.t()],
          unused: [unused],
          foreign: %{nested: non_neg_integer, ignored: non_neg_integer}
        }

  @type option ::
          {:filenames, [String.t()]}
          | {:target, String.t() | [String.t()]}
          | {:gitignore, boolean}
          | {:nested_repositories, :include | :skip}
          | {:count_ignored, boolean}
          | {:agent, String.t()}
          | {:project_id, String.t()}
          | {:reader, Reader.spec()}
          | {:cache, :trust | :revalidate | :off}

  @enforce_keys [:sources, :unused, :foreign]
  defstruct @enforce_keys

  @options [
    :filenames,
    :target,
    :gitignore,
    :nested_repositories,
    :count_ignored,
    :agent,
    :project_id,
    :reader,
    :cache
  ]

  @doc """
  The options that `load/2` takes.
  """
  @spec options :: [atom]
  def options, do: @options

  @doc """
  Loads the instructions of a workspace.

  ## Options

    * `:filenames` - the names that count, in order of preference: in each directory the first that is
      there, even if it is empty or can't be read. Default `["AGENTS.md"]`.
    * `:target` - a path or a list of paths, relative to the workspace or absolute: only the files that
      apply to them are loaded, those of the root and of each directory down to the target's.
      By default all files are.
    * `:gitignore` - `true` leaves ignored directories out, by the rules of the workspace's `.gitignore`
      files and `.git/info/exclude`. Default `false`.
    * `:nested_repositories` - `:include` (default) or `:skip` directories with a `.git` of their own.
    * `:count_ignored` - `true` counts the sources that `gitignore: true` would leave out; default `false`.
    * `:project_id` - a UUID: the row of `:agent` in that project is read too. Without it no database
      is.
    * `:agent` - the agent's slug.
    * `:reader` - who reads the row, see `Engine.AgentInstructions.Reader`; the configured one by
      default.
    * `:cache` - `:trust` (default) answers from the cache until `invalidate/1`; `:revalidate` checks
      that no directory and no file changed since, and reads the row again; `:off` neither reads
      nor writes the cache.

  ## Errors

  `{:error, exception}` (`Engine.Harness.InstructionFiles.Error`) when the workspace is missing, not
  a directory or can't be read, when a target lies outside of it, and when there are more than
  10,000 files or 1,000,000 directories; and `Engine.AgentInstructions.Reader.Error` when the row
  can't be read: instructions of the highest authority are never left out in silence. Raises
  `ArgumentError` for options that are none.
  """
  @spec load(Path.t(), [option]) :: {:ok, t} | {:error, Exception.t()}
  def load(workspace, opts \\ []) do
    opts = Options.validate!(opts, @options)
    given = workspace!(workspace)
    walk = walk_options(opts)
    row = row_options(opts)

    case Options.one_of!(opts, :cache, [:trust, :revalidate, :off]) do
      :off -> with {:ok, files, _snapshot} <- read(given, walk, row), do: {:ok, files}
      mode -> cached(mode, given, walk, row)
    end
  end

  @doc """
  Forgets what was loaded of a workspace, with whatever options, on this node and on every connected
  one that runs the application.

  A load that began before this returned stores nothing; the next one reads the disk. The workspace
  is known by its expanded path: one that is loaded through a link is invalidated through that link.

  A node that does not answer within five seconds is named in the error
  (`Engine.Harness.InstructionFiles.Error`, reason `:nodes_did_not_answer`); on all others, this one
  included, it is done. A node that was not connected starts empty when it is.
  """
  @spec invalidate(Path.t()) :: :ok | {:error, Error.t()}
  def invalidate(workspace) do
    workspace |> workspace!() |> Path.expand() |> Cache.invalidate() |> invalidated(workspace)
  end

  @doc """
  Forgets what was loaded of all workspaces, as `invalidate/1` does of one.
  """
  @spec invalidate_all :: :ok | {:error, Error.t()}
  def invalidate_all, do: :all |> Cache.invalidate() |> invalidated(nil)

  defp invalidated(:ok, _workspace), do: :ok

  defp invalidated({:error, nodes}, workspace) do
    message =
      "invalidated here, but not known to be on nodes that did not answer: " <>
        Enum.map_join(nodes, ", ", &Atom.to_string/1)

    {:error, %Error{workspace: workspace, reason: :nodes_did_not_answer, message: message}}
  end

  # How a report names a source: a file by its path. No path begins with "database:", since its
  # last component is one of the file names.
  @doc false
  @spec id(Source.t()) :: String.t()
  def id(%Source{origin: :file, path: path}), do: path
  def id(%Source{origin: :database, path: agent}), do: "database:" <> agent

  defp cached(mode, given, walk, row) do
    workspace = Path.expand(given)
    generation = Cache.generation(workspace)
    key = {walk, cache_key(row)}

    case {mode, Cache.fetch(generation, workspace, key)} do
      {:trust, {:ok, {files, _snapshot}}} ->
        {:ok, files}

      {_mode, cached} ->
        with {:ok, files, snapshot} <- refresh(cached, given, walk, row) do
          Cache.store(generation, workspace, key, {files, snapshot})
          {:ok, files}
        end
    end
  end

  defp refresh(:error, given, walk, row), do: read(given, walk, row)

  defp refresh({:ok, {files, snapshot}}, given, walk, row) do
    if Native.instruction_files_unchanged(given, walk, snapshot) do
      of_files = &Enum.filter(&1, fn %{origin: origin} -> origin == :file end)
      files = %{files | sources: of_files.(files.sources), unused: of_files.(files.unused)}
      add_row(files, snapshot, row)
    else
      read(given, walk, row)
    end
  end

  defp read(workspace, walk, row) do
    case Native.instruction_files_load(workspace, walk) do
      {:ok, sources, unused, {nested, ignored}, snapshot} ->
        files = %InstructionFiles{
          sources: for({path, text} <- sources, do: Source.new(:file, path, text)),
          unused: Enum.map(unused, &Map.put(&1, :origin, :file)),
          foreign: %{nested: nested, ignored: ignored}
        }

        add_row(files, snapshot, row)

      {:error, reason, message} ->
        {:error, %Error{workspace: workspace, reason: reason, message: message}}
    end
  end

  defp add_row(files, snapshot, nil), do: {:ok, files, snapshot}

  defp add_row(files, snapshot, {project_id, agent, reader}) do
    with {:ok, row} <- Reader.fetch(reader, project_id, agent),
         {:ok, text} <- text(row, agent) do
      {:ok, add_text(files, row, agent, text), snapshot}
    end
  end

  defp add_text(files, nil, _agent, _text), do: files

  defp add_text(files, _row, agent, text) do
    if String.trim(text) == "" do
      empty = %{path: agent, origin: :database, reason: :empty, message: "empty"}
      %{files | unused: files.unused ++ [empty]}
    else
      %{files | sources: files.sources ++ [Source.new(:database, agent, text)]}
    end
  end

  # The database's text by the rules of a file's.
  defp text(nil, _agent), do: {:ok, ""}

  defp text(row, agent) do
    text = String.replace_prefix(row.content || "", "\uFEFF", "")

    case Boundary.invalid_at(text) do
      nil ->
        {:ok, text}

      offset ->
        message = "the instructions of agent #{inspect(agent)} are not UTF-8 at byte #{offset}"
        {:error, %Reader.Error{reason: :query, message: message}}
    end
  end

  # {project, agent, reader}, or nil where no database is asked.
  defp row_options(opts) do
    agent = Keyword.get(opts, :agent)
    project_id = Keyword.get(opts, :project_id)

    cond do
      agent != nil and not is_binary(agent) ->
        raise ArgumentError, "expected :agent to be an agent's slug, got: #{Options.show(agent)}"

      project_id == nil ->
        nil

      agent == nil ->
        raise ArgumentError, "option :project_id needs option :agent: whose row is read"

      true ->
        {project_id, agent, Keyword.get_lazy(opts, :reader, &Reader.configured/0)}
    end
  end

  # A reader's options may hold a password, which is not to lie in a public table.
  defp cache_key(nil), do: nil

  defp cache_key({project_id, agent, reader}) do
    {project_id, agent, :crypto.hash(:sha256, :erlang.term_to_binary(reader))}
  end

  # What the core takes, and what an entry of the cache is known by.
  defp walk_options(opts) do
    {
      filenames!(opts),
      Options.one_of!(opts, :gitignore, [false, true]),
      Options.one_of!(opts, :nested_repositories, [:include, :skip]),
      targets!(opts),
      Options.one_of!(opts, :count_ignored, [false, true])
    }
  end

  defp filenames!(opts) do
    names = Keyword.get(opts, :filenames, ["AGENTS.md"])
    if names != [] and strings?(names), do: names, else: raise(ArgumentError, filenames(names))
  end

  defp filenames(names) do
    "expected :filenames to be a non-empty list of file names, got: #{Options.show(names)}"
  end

  defp targets!(opts) do
    case Keyword.fetch(opts, :target) do
      :error ->
        nil

      {:ok, target} when is_binary(target) ->
        [target]

      {:ok, targets} ->
        if strings?(targets) and targets != [], do: targets, else: no_target!(targets)
    end
  end

  defp no_target!(value) do
    raise ArgumentError,
          "expected :target to be a path or a non-empty list of paths, got: #{Options.show(value)}"
  end

  defp strings?(list),
    do: is_list(list) and List.improper?(list) == false and Enum.all?(list, &is_binary/1)

  defp workspace!(workspace) when is_binary(workspace) and workspace != "", do: workspace

  defp workspace!(other) do
    raise ArgumentError,
          "expected a workspace to be the path of a directory, got: #{Options.show(other)}"
  end
end
