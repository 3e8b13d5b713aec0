defmodule Engine.Harness.HostEnvironment.Git do
  @moduledoc """
  The state of the repository that a workspace lies in, read without running git.

      iex> root = Path.join(System.tmp_dir!(), "no_repository_#{System.unique_integer([:positive])}")
      iex> File.mkdir_p!(root)
      iex> Engine.Harness.HostEnvironment.Git.state(root)
      %Engine.Harness.HostEnvironment.Git{branch: nil, head: nil, dirty: false, reasons: %{}}
      iex> File.rmdir!(root)
      :ok

  `git status` runs programs that a repository's own configuration names (`core.fsmonitor`,
  filters), so it is not used: gitoxide reads the files, and nothing is run, fetched or written.
  The repository is looked for upwards, not past a mount point; `dirty` is about all of it, and is
  what `git status --porcelain` would show anything for. `GIT_DIR` and the like are not looked at.

  The directory, its `.git` and what that leads to belong to the user of this process (or to the
  one of `SUDO_UID`, for root), or the user's own configuration lists the directory under
  `safe.directory`; otherwise nothing of the repository is read. `%(prefix)/` and `~other/` name
  no path here, since only git knows its own prefix.

  ## Reasons

  What is not known is `nil`, and `reasons` says why, under `:branch` or `:dirty`:

  | reason | what it is |
  |---|---|
  | `:refused` | another user's repository |
  | `:bare` | there is no work tree |
  | `:filter` | a file that seems changed, and that only a program can compare |
  | `:config` | the user's own configuration, or a path that it names, can't be read |
  | `:include` | the repository's configuration includes other files |
  | `:worktree` | `core.worktree` names another directory than the one it was found in |
  | `:unsupported` | a format that is not read: reftable, SHA-256 |
  | `:submodule` | a submodule whose state is not known, or that is to be ignored in part |
  | `:missing` | objects are not there, as in a partial clone; they are not fetched |
  | `:corrupt`, `:unreadable` | damaged files; files that may not be read |
  | `:bound` | an index, configuration or object over its bound; more than 64 readings at once |
  | `:timeout` | the time was over; what was known by then stands |

  Sources: gitrepository-layout(5) for what is read, git-config(1) for what it means, and
  git-status(1) for what counts as a change.
  """

  alias __MODULE__
  alias Engine.Harness.{Native, Options}

  @allowed [:environment, :system_config, :max_index_bytes, :time_limit]

  defstruct branch: nil, head: nil, dirty: nil, reasons: %{}

  @typedoc """
    * `branch` - raw bytes, perhaps not UTF-8; `nil` when there is none or it is not known
    * `head` - seven digits of the commit, when `HEAD` is detached
    * `dirty` - `nil` when not known
    * `reasons` - a reason and a sentence for each fact that is not known
  """
  @type t :: %Git{
          branch: binary | nil,
          head: String.t() | nil,
          dirty: boolean | nil,
          reasons: %{optional(:branch | :dirty) => {reason :: atom, message :: String.t()}}
        }

  @doc """
  The state of the repository that `workspace` lies in; without one, no branch and not dirty.

  ## Options

    * `:environment` - a map of variables, by default this process's; `HOME`, `XDG_CONFIG_HOME` and
      `SUDO_UID` are looked at
    * `:system_config` - the system's git configuration, `"/etc/gitconfig"` by default, or `nil`
    * `:max_index_bytes` - the largest index that is read, 128 MiB by default
    * `:time_limit` - milliseconds, 2,000 by default
  """
  @spec state(Path.t(), keyword) :: t
  def state(workspace, opts \\ []) do
    opts = Options.validate!(opts, @allowed)
    environment = Keyword.get_lazy(opts, :environment, &System.get_env/0)

    options = {
      environment["HOME"],
      environment["XDG_CONFIG_HOME"],
      Keyword.get(opts, :system_config, "/etc/gitconfig"),
      sudo_uid(environment["SUDO_UID"]),
      natural!(opts, :max_index_bytes, 134_217_728),
      natural!(opts, :time_limit, 2_000)
    }

    {branch, head, dirty} = Native.git_state(IO.chardata_to_string(workspace), options)
    unknown = for {fact, {_, _} = reason} <- [branch: branch, dirty: dirty], do: {fact, reason}

    %Git{
      branch: known(branch),
      head: head,
      dirty: known(dirty),
      reasons: Map.new(unknown)
    }
  end

  defp known({_reason, _message}), do: nil
  defp known(value), do: value

  defp natural!(opts, key, default), do: Options.natural!(Map.new(opts), key, default)

  defp sudo_uid(text) do
    case Integer.parse(text || "") do
      {uid, ""} when uid in 0..0xFFFFFFFF -> uid
      _ -> nil
    end
  end
end
