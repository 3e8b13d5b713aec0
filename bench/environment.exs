# Discovering the host, beside the same probes run one after another: git for the state of the
# repository, each tool that is there for its version, a listing of two levels.

Code.require_file("side_by_side.exs", __DIR__)

alias Engine.Harness.HostEnvironment
alias Engine.Harness.Middleware.LocalContext
alias Engine.Harness.Toolchain

defmodule Bench.Environment do
  def one_after_another(workspace) do
    git = &System.cmd("git", &1, cd: workspace, stderr_to_stdout: true)
    state = [git.(["branch", "--show-current"]), git.(["status", "--porcelain"])]

    versions =
      for name <- Toolchain.default(), path = System.find_executable(name) do
        System.cmd(path, ["--version"], cd: "/", stderr_to_stdout: true)
      end

    {state, versions, System.cmd("find", [workspace, "-maxdepth", "2"])}
  end

  # 10,000 committed files in 100 directories.
  def repository(root) do
    for directory <- 1..100, file <- 1..100 do
      path = Path.join([root, "d#{directory}", "f#{file}"])
      if file == 1, do: File.mkdir_p!(Path.dirname(path))
      File.write!(path, "#{directory} #{file}\n")
    end

    for arguments <- [~w(init -q), ~w(add -A), ~w(commit -q -m one)] do
      who = ["-c", "user.name=a", "-c", "user.email=a@b"]
      {_, 0} = System.cmd("git", who ++ arguments, cd: root)
    end
  end
end

root = Path.join(System.tmp_dir!(), "bench_environment_#{System.pid()}")
empty = Path.join(root, "empty")
repository = Path.join(root, "repository")
Enum.each([empty, repository], &File.mkdir_p!/1)

try do
  Bench.Environment.repository(repository)

  found = repository |> LocalContext.new() |> LocalContext.discover()
  available = for name <- found.tools, found.toolchains[name].available, do: name
  IO.puts("tools that are there: #{Enum.join(available, ", ")}")

  rows =
    for {name, workspace} <- [{"no repository", empty}, {"10,000 files", repository}] do
      context = LocalContext.new(workspace)

      {name, fn -> LocalContext.discover(context) end,
       fn -> Bench.Environment.one_after_another(workspace) end}
    end

  Bench.SideBySide.print("the host", {"LocalContext", "one by one"}, rows)

  text = &HostEnvironment.to_text/1

  IO.puts(
    "\nthe block: #{byte_size(text.(%{found | directory_tree_summary: ""}))} bytes " <>
      "and a tree of #{byte_size(found.directory_tree_summary)}"
  )
after
  File.rm_rf!(root)
end
