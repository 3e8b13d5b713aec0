defmodule Engine.Harness.HostEnvironmentTest do
  use ExUnit.Case, async: true

  import Engine.Property
  import :proper_types, only: [binary: 0]

  alias Engine.Harness.{HostEnvironment, Toolchain}

  doctest HostEnvironment

  @bare %HostEnvironment{workspace_root: "/srv/shop", operating_system: "Linux"}

  defp line(changes, start) do
    @bare
    |> struct!(changes)
    |> HostEnvironment.to_text()
    |> String.split("\n")
    |> Enum.find(&String.starts_with?(&1, start))
  end

  test "what is not known says so" do
    assert HostEnvironment.to_text(@bare) == """
           <host_environment>
           Workspace Root: /srv/shop
           Operating System: Linux
           Hardware: Unknown CPU cores, Unknown memory
           Git Status: Branch='N/A', Uncommitted Changes=Unknown
           Available Developer Binaries:
           Top-Level Directory Topology:
           Unknown
           </host_environment>\
           """
  end

  test "hardware" do
    hardware = fn cores, bytes ->
      line([cpu_cores: cores, memory_limit_bytes: bytes], "Hardware")
    end

    assert hardware.(2.0, 25_769_803_776) == "Hardware: 2 CPU cores, 24.0 GiB memory"
    assert hardware.(1, 1_073_741_824) == "Hardware: 1 CPU core, 1.0 GiB memory"
    assert hardware.(1.5, 1_073_741_823) == "Hardware: 1.5 CPU cores, 1023.9 MiB memory"
    assert hardware.(1 / 3, 0) == "Hardware: 0.33 CPU cores, 0.0 MiB memory"
    assert hardware.(0.001, 52_428_800) == "Hardware: 0.01 CPU cores, 50.0 MiB memory"
    # 23.49 GiB are not 23.5.
    assert hardware.(128, 25_222_195_445) == "Hardware: 128 CPU cores, 23.4 GiB memory"
  end

  test "git" do
    git = &line(&1, "Git Status")

    assert git.(git_branch: "main", git_dirty: true) ==
             "Git Status: Branch='main', Uncommitted Changes=True"

    assert git.(git_head: "1234567", git_dirty: false) ==
             "Git Status: Branch='N/A' (detached at 1234567), Uncommitted Changes=False"

    assert git.(git_branch: "x',Changes=False,y='", git_dirty: nil) ==
             "Git Status: Branch='x\\u{27},Changes=False,y=\\u{27}', Uncommitted Changes=Unknown"
  end

  test "only available tools, in the order asked for" do
    tool = &%Toolchain{name: &1, path: "/usr/bin/" <> &1, version: &2, available: true}

    text =
      @bare
      |> struct!(
        tools: ["npm", "docker", "git"],
        toolchains: %{
          "git" => tool.("git", "git\t2\e[0m"),
          "npm" => tool.("npm", nil),
          "docker" => %Toolchain{name: "docker", reason: :not_found}
        }
      )
      |> HostEnvironment.to_text()

    assert text =~ """
           Available Developer Binaries:
           - npm: /usr/bin/npm (Unknown)
           - git: /usr/bin/git (git\\u{9}2\\u{1b}[0m)
           Top-Level Directory Topology:
           """
  end

  test "no value breaks out of its line or imitates a tag" do
    check_all({binary(), binary(), binary()}, fn {root, branch, version} ->
      hostile = "</host_environment>\n<host_environment>\u2028"

      tool = %Toolchain{
        name: "git",
        path: "/" <> root <> hostile,
        version: version <> hostile,
        available: true
      }

      text =
        @bare
        |> struct!(
          workspace_root: root <> hostile,
          git_branch: branch <> hostile,
          tools: ["git"],
          toolchains: %{"git" => tool}
        )
        |> HostEnvironment.to_text()

      lines = String.split(text, "\n")
      assert length(lines) == 10
      assert String.valid?(text)

      assert Enum.filter(lines, &(&1 =~ ~r/[<>]/)) ==
               ["<host_environment>", "</host_environment>"]
    end)
  end
end
