defmodule Engine.Harness.ToolchainTest do
  use ExUnit.Case, async: true
  alias Engine.Harness.Toolchain

  doctest Toolchain

  setup do
    root =
      Path.join(
        System.tmp_dir!(),
        "toolchain_test_#{System.unique_integer([:positive])}_#{System.pid()}"
      )

    for part <- ["bin", "ws/bin", "open"], do: File.mkdir_p!(Path.join(root, part))
    on_exit(fn -> File.rm_rf!(root) end)
    {:ok, root: root, bin: Path.join(root, "bin"), workspace: Path.join(root, "ws")}
  end

  defp script(folder, name, text, mode \\ 0o755) do
    path = Path.join(folder, name)
    File.write!(path, "#!/bin/sh\n" <> text)
    File.chmod!(path, mode)
    path
  end

  # File.chmod/2 drops the sticky bit.
  defp sticky(folder), do: {"", 0} = System.cmd("chmod", ["1777", folder])

  defp discover(names, context, opts \\ []) do
    Toolchain.discover(names, context.workspace, [path: context.bin <> ":/usr/bin:/bin"] ++ opts)
  end

  test "each tool's line, in the order asked for", %{bin: bin} = context do
    script(bin, "python3", "echo 'not installed' >&2; exit 127")

    script(
      bin,
      "java",
      "[ \"$1\" = -version ] && printf 'Picked up X\\nopenjdk 17\\nmore\\n' >&2"
    )

    script(bin, "go", "printf '\\n\\n  %s go1.22  \\n' \"$1\"")
    script(bin, "node", "printf '\\033[31mv\\377'")
    script(bin, "npm", "cat; echo 10")
    script(bin, "cargo", "exit 0")
    script(bin, "mine", "echo \"$@\"")
    script(bin, "plain", "echo 1", 0o644)

    tools = discover(~w(python3 java go node npm cargo plain) ++ [{"mine", ["a", "b"]}], context)

    assert Enum.map(tools, &{&1.name, &1.version, &1.available, &1.reason}) == [
             {"python3", nil, true, {:exit, 127}},
             {"java", "openjdk 17", true, nil},
             {"go", "version go1.22", true, nil},
             {"node", "\e[31mv\uFFFD", true, nil},
             {"npm", "10", true, nil},
             {"cargo", nil, true, :no_output},
             {"plain", nil, false, :not_found},
             {"mine", "a b", true, nil}
           ]

    assert hd(tools).path == Path.join(bin, "python3")
  end

  test "what hangs is given up, all at once", %{bin: bin} = context do
    for n <- 1..6, do: script(bin, "t#{n}", "trap '' TERM; setsid sleep 61 & sleep 60")
    started = System.monotonic_time(:millisecond)
    home = Path.join(context.root, "home")
    tools = discover(Enum.map(1..6, &"t#{&1}"), context, home: home)
    assert System.monotonic_time(:millisecond) - started < 6000
    assert Enum.map(tools, & &1.reason) == List.duplicate(:timeout, 6)

    left =
      for pid <- File.ls!("/proc"),
          {:ok, text} <- [File.read("/proc/#{pid}/environ")],
          String.contains?(text, home),
          do: pid

    assert left == []
  end

  test "nothing of the workspace, and nothing that anyone may replace, is run", context do
    %{root: root, bin: bin, workspace: workspace} = context
    touch = "touch #{root}/ran; echo 1"
    script(workspace, "git", touch)
    script(Path.join(workspace, "bin"), "inner", touch)
    File.ln_s!(Path.join(workspace, "bin/inner"), Path.join(bin, "linked"))
    File.ln_s!(Path.join(workspace, "bin"), Path.join(root, "way"))
    open = Path.join(root, "open")
    script(open, "anyone", touch)
    sticky(open)
    script(bin, "soft", touch, 0o777)

    path = ":.:#{bin}:#{workspace}/bin:#{root}/way:#{open}"
    names = ~w(git inner linked anyone soft)

    assert File.cd!(workspace, fn ->
             Enum.map(Toolchain.discover(names, workspace, path: path), &{&1.name, &1.reason})
           end) == [
             {"git", :not_found},
             {"inner", :inside_workspace},
             {"linked", :inside_workspace},
             {"anyone", :world_writable},
             {"soft", :world_writable}
           ]

    refute File.exists?(Path.join(root, "ran"))
  end

  test "every directory and link on the way to a tool counts",
       %{root: root, bin: bin} = context do
    touch = "touch #{root}/ran; echo 1"
    # An ancestor that anyone may write; a link that lies where anyone may write.
    for folder <- ["any/own/bin", "hops", "sticky/own/bin"],
        do: File.mkdir_p!("#{root}/#{folder}")

    script("#{root}/any/own/bin", "beneath", touch)
    script("#{root}/sticky/own/bin", "kept", "echo 2")
    File.ln_s!("#{bin}/good", "#{root}/hops/good")
    File.ln_s!("../hops/good", "#{bin}/hop")
    File.ln_s!("../any/own/bin/beneath", "#{bin}/long")
    script(bin, "good", "echo 3")
    for folder <- ["any", "hops"], do: File.chmod!("#{root}/#{folder}", 0o777)
    sticky("#{root}/sticky")

    path = "#{bin}:#{root}/any/own/bin:#{root}/sticky/own/bin"
    names = ~w(beneath kept good hop long)

    assert Enum.map(Toolchain.discover(names, context.workspace, path: path), fn tool ->
             {tool.name, tool.version, tool.reason}
           end) == [
             {"beneath", nil, :world_writable},
             {"kept", "2", nil},
             {"good", "3", nil},
             {"hop", nil, :world_writable},
             {"long", nil, :world_writable}
           ]

    refute File.exists?(Path.join(root, "ran"))
  end

  if System.cmd("id", ["-u"]) != {"0\n", 0} do
    @tag skip: "only root can give a directory to another user"
  end

  test "another user's directory where anyone may write is not trusted", context do
    File.mkdir_p!("#{context.root}/open/theirs/bin")
    script("#{context.root}/open/theirs/bin", "tool", "touch #{context.root}/ran; echo 1")
    sticky("#{context.root}/open")
    File.chown!("#{context.root}/open/theirs", 12_345)
    path = "#{context.root}/open/theirs/bin"

    assert [%{reason: :world_writable, version: nil}] =
             Toolchain.discover(["tool"], context.workspace, path: path)

    refute File.exists?(Path.join(context.root, "ran"))
  end

  test "tools start in an empty directory outside the workspace", %{bin: bin} = context do
    script(bin, "look", "pwd; ls -A")
    home = System.user_home!()
    [%{version: directory}] = discover(["look"], context)
    assert directory == Path.join(to_string(:filename.basedir(:user_cache, "engine")), "empty")
    assert File.ls!(directory) == []

    # A home that is the workspace has no directory that is outside of it.
    assert [%{version: "/"}] =
             Toolchain.discover(["look"], home, path: context.bin <> ":/usr/bin:/bin")
  end

  test "tools get a stripped environment", %{bin: bin, root: root} = context do
    script(bin, "look", "env > #{root}/env; echo 1")
    assert [%{version: "1"}] = discover(["look"], context, home: "/nowhere")

    names =
      for line <- String.split(File.read!(Path.join(root, "env")), "\n", trim: true),
          do: hd(String.split(line, "="))

    assert Enum.sort(names) -- ~w(OLDPWD PWD SHLVL _) ==
             ~w(COREPACK_DEFAULT_TO_LATEST COREPACK_ENABLE_NETWORK COREPACK_ENABLE_PROJECT_SPEC GIT_PAGER HOME LANG LC_ALL
                PAGER PATH RUSTUP_AUTO_INSTALL)

    assert File.read!(Path.join(root, "env")) =~ "HOME=/nowhere\n"
  end

  test "a request of another shape raises" do
    assert_raise ArgumentError, ~r|got: {"a/b", |, fn -> Toolchain.discover(["a/b"], "/srv") end
    assert_raise ArgumentError, ~r/got: :git/, fn -> Toolchain.discover([:git], "/srv") end
  end
end
