# Loading the instruction files of a tree through the library, against what Elixir has.

Code.require_file("side_by_side.exs", __DIR__)

alias Engine.Harness.InstructionFiles

[root] = System.argv()
load = fn opts -> fn -> {:ok, _} = InstructionFiles.load(root, opts) end end
{:ok, files} = InstructionFiles.load(root)
found = Path.wildcard(Path.join(root, "**/AGENTS.md"))
if length(files.sources) != length(found), do: raise("the two found different files")

Bench.SideBySide.print("loading", {"InstructionFiles", "Path.wildcard"}, [
  {"cold", load.(cache: :off), fn -> Path.wildcard(Path.join(root, "**/AGENTS.md")) end}
])

Bench.SideBySide.print("loading again", {"cached", "cold"}, [
  {"cache: :trust", load.(cache: :trust), load.(cache: :off)},
  {"cache: :revalidate", load.(cache: :revalidate), load.(cache: :off)}
])

scoped = [target: "package7/src/d3/d3/file1.ex", cache: :off]

Bench.SideBySide.print("one target", {"scoped", "all"}, [
  {"three files deep", load.(scoped), load.(cache: :off)}
])
