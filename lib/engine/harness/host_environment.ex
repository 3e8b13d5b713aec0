defmodule Engine.Harness.HostEnvironment do
  @moduledoc """
  Facts about the host that an agent works on, and the text that tells a model of them.

  `Engine.Harness.Middleware.LocalContext` finds them. The struct holds raw values; `to_text/1`
  makes them safe to show. The same facts give the same bytes.

      iex> environment = %Engine.Harness.HostEnvironment{
      ...>   workspace_root: "/srv/shop",
      ...>   operating_system: "Linux",
      ...>   git_branch: "main",
      ...>   git_dirty: false,
      ...>   directory_tree_summary: "./\\n README.md",
      ...>   tools: ["git", "npm"],
      ...>   toolchains: %{
      ...>     "git" => %Engine.Harness.Toolchain{
      ...>       name: "git",
      ...>       path: "/usr/bin/git",
      ...>       version: "git version 2.47.3",
      ...>       available: true
      ...>     },
      ...>     "npm" => %Engine.Harness.Toolchain{name: "npm", reason: :not_found}
      ...>   },
      ...>   cpu_cores: 1.5,
      ...>   memory_limit_bytes: 25_769_803_776
      ...> }
      iex> environment |> Engine.Harness.HostEnvironment.to_text() |> String.split("\\n")
      [
        "<host_environment>",
        "Workspace Root: /srv/shop",
        "Operating System: Linux",
        "Hardware: 1.5 CPU cores, 24.0 GiB memory",
        "Git Status: Branch='main', Uncommitted Changes=False",
        "Available Developer Binaries:",
        "- git: /usr/bin/git (git version 2.47.3)",
        "Top-Level Directory Topology:",
        "./",
        " README.md",
        "</host_environment>"
      ]
  """

  alias Engine.Harness.{Escape, Toolchain}

  @enforce_keys [:workspace_root, :operating_system]
  defstruct [
    :workspace_root,
    :operating_system,
    :kernel,
    :git_branch,
    :git_head,
    :git_dirty,
    :directory_tree_summary,
    :cpu_cores,
    :memory_limit_bytes,
    tools: [],
    toolchains: %{},
    unknown: %{}
  ]

  @typedoc "A fact that may not be known."
  @type fact ::
          :git_branch | :git_dirty | :directory_tree_summary | :cpu_cores | :memory_limit_bytes

  @typedoc """
    * `workspace_root` - its absolute path, links resolved; raw bytes
    * `operating_system`, `kernel` - what `uname -s` and `uname -r` print
    * `git_branch`, `git_head`, `git_dirty` - see `Engine.Harness.HostEnvironment.Git`
    * `directory_tree_summary` - the topmost levels of the workspace, a line an entry, names escaped
    * `tools` - the names of what was looked for, in that order
    * `toolchains` - what was found of each, by name
    * `cpu_cores`, `memory_limit_bytes` - what this process may use: the least of the machine, the
      affinity and the control groups' limits; cores may be a fraction
    * `unknown` - for each fact that is not known, and so `nil`, a reason and a sentence. A tool has
      its own reason.
  """
  @type t :: %__MODULE__{
          workspace_root: binary,
          operating_system: String.t(),
          kernel: String.t() | nil,
          git_branch: binary | nil,
          git_head: String.t() | nil,
          git_dirty: boolean | nil,
          directory_tree_summary: String.t() | nil,
          tools: [String.t()],
          toolchains: %{optional(String.t()) => Toolchain.t()},
          cpu_cores: number | nil,
          memory_limit_bytes: non_neg_integer | nil,
          unknown: %{optional(fact) => {reason :: atom, message :: String.t()}}
        }

  @doc """
  The block for a prompt, one line a fact, without a newline at its end.

  Every value that somebody else chose is shown on one line, in at most 200 characters, as
  `Engine.Harness.Escape` writes it, so the tags stand in it once each. A quote in a branch's name is
  `\\u{27}`, since the name stands in quotes.
  """
  @spec to_text(t) :: String.t()
  def to_text(%__MODULE__{} = environment) do
    Enum.join(
      [
        "<host_environment>",
        "Workspace Root: #{Escape.short(environment.workspace_root)}",
        "Operating System: #{Escape.short(environment.operating_system)}",
        "Hardware: #{cores(environment.cpu_cores)}, #{memory(environment.memory_limit_bytes)}",
        "Git Status: Branch=#{branch(environment)}, " <>
          "Uncommitted Changes=#{dirty(environment.git_dirty)}",
        "Available Developer Binaries:"
      ] ++
        binaries(environment) ++
        [
          "Top-Level Directory Topology:",
          environment.directory_tree_summary || "Unknown",
          "</host_environment>"
        ],
      "\n"
    )
  end

  defp cores(nil), do: "Unknown CPU cores"

  defp cores(cores) do
    # A quota can be a thousandth of a core, which is not none.
    number = :erlang.float_to_binary(max(cores / 1, 0.01), [:compact, decimals: 2])
    number = String.replace_suffix(number, ".0", "")
    "#{number} CPU #{if number == "1", do: "core", else: "cores"}"
  end

  defp memory(nil), do: "Unknown memory"
  defp memory(bytes) when bytes >= 0x40000000, do: "#{tenths(bytes, 0x40000000)} GiB memory"
  defp memory(bytes), do: "#{tenths(bytes, 0x100000)} MiB memory"

  defp tenths(bytes, unit) do
    tenths = div(bytes * 10, unit)
    "#{div(tenths, 10)}.#{rem(tenths, 10)}"
  end

  defp branch(%{git_branch: nil, git_head: nil}), do: "'N/A'"
  defp branch(%{git_branch: nil, git_head: head}), do: "'N/A' (detached at #{Escape.short(head)})"

  defp branch(%{git_branch: branch}) do
    "'#{branch |> Escape.short() |> String.replace("'", "\\u{27}")}'"
  end

  defp dirty(nil), do: "Unknown"
  defp dirty(true), do: "True"
  defp dirty(false), do: "False"

  defp binaries(environment) do
    for name <- environment.tools, %{available: true} = tool <- [environment.toolchains[name]] do
      version = if tool.version, do: Escape.short(tool.version), else: "Unknown"
      "- #{Escape.short(name)}: #{Escape.short(tool.path)} (#{version})"
    end
  end
end
