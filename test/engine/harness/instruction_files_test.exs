defmodule Engine.Harness.InstructionFilesTest do
  # Not async: stops the cache's process, and empties its table.
  use ExUnit.Case, async: false

  import Engine.Workspace

  alias Engine.AgentInstructions.Reader
  alias Engine.Harness.InstructionFiles
  alias Engine.Harness.InstructionFiles.{Cache, Error}
  alias Engine.Postgres

  defp load!(workspace, opts \\ []) do
    {:ok, files} = InstructionFiles.load(workspace, opts)
    files
  end

  defp paths(files), do: Enum.map(files.sources, & &1.path)
  defp texts(files), do: Enum.map(files.sources, & &1.text)
  defp unused(files), do: Enum.map(files.unused, &{&1.path, &1.reason})

  describe "the order" do
    test "F02: by depth, then by path components, bytewise" do
      directories = ["", "0a/", "AAA/", "Z/", "a b/", "a-b/", "a/", "a/b/", "zz/é/"]
      workspace = workspace!(Map.new(directories, &{&1 <> "AGENTS.md", "of " <> &1}))

      expected = ["", "0a/", "AAA/", "Z/", "a/", "a b/", "a-b/", "a/b/", "zz/é/"]
      assert paths(load!(workspace)) == Enum.map(expected, &(&1 <> "AGENTS.md"))
      assert texts(load!(workspace)) == Enum.map(expected, &("of " <> &1))
    end
  end

  describe "what is read" do
    test "F03: links to directories are not followed" do
      workspace =
        workspace!(%{
          "AGENTS.md" => "root",
          "a/AGENTS.md" => "a",
          "a/loop" => {:link, ".."},
          "self" => {:link, "."}
        })

      assert paths(load!(workspace)) == ["AGENTS.md", "a/AGENTS.md"]
    end

    test "F04: a workspace whose .git is a file" do
      workspace = workspace!(%{".git" => "gitdir: /elsewhere", "AGENTS.md" => "root"})
      assert texts(load!(workspace)) == ["root"]
    end

    test "F05: nothing in .git" do
      workspace = workspace!(%{".git/AGENTS.md" => "a", "sub/.git/AGENTS.md" => "b"})
      assert paths(load!(workspace)) == []
    end

    test "F06: one file by two names counts once" do
      workspace = workspace!(%{"AGENTS.md" => "text", "CLAUDE.md" => {:link, "AGENTS.md"}})
      files = load!(workspace, filenames: ["AGENTS.md", "CLAUDE.md"])
      assert paths(files) == ["AGENTS.md"]
      assert [%{path: "CLAUDE.md", reason: :duplicate, of: "AGENTS.md"}] = files.unused
    end

    test "F07: a link that leads out is refused, a directory outside not walked" do
      outside = workspace!(%{"secret.md" => "secret", "AGENTS.md" => "outside"})

      workspace =
        workspace!(%{
          "sub/AGENTS.md" => {:link, "../../#{Path.basename(outside)}/secret.md"},
          "ext" => {:link, outside},
          "abs/AGENTS.md" => {:link, Path.join(outside, "secret.md")}
        })

      files = load!(workspace)
      assert paths(files) == []

      assert unused(files) == [
               {"abs/AGENTS.md", :absolute_link},
               {"sub/AGENTS.md", :escaping_link}
             ]
    end

    test "F08: a workspace given through a link" do
      workspace = workspace!(%{"a/AGENTS.md" => "a"})
      link = workspace <> "_link"
      File.ln_s!(workspace, link)
      on_exit(fn -> File.rm!(link) end)

      assert paths(load!(link)) == ["a/AGENTS.md"]
      assert load!(link).sources == load!(workspace).sources
    end

    test "F09: a leading byte order mark is removed, an inner one kept" do
      plain = workspace!(%{"AGENTS.md" => "text"})
      marked = workspace!(%{"AGENTS.md" => "\uFEFFtext", "a/AGENTS.md" => "in\uFEFFner"})
      assert [source, inner] = load!(marked).sources
      assert [source] == load!(plain).sources
      assert inner.text == "in\uFEFFner"
      # printf text | sha256sum
      assert source.sha256 == "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
    end

    test "F10: text that is not UTF-8 is reported with its offset" do
      utf16 = "\xFF\xFE" <> :unicode.characters_to_binary("text", :utf8, {:utf16, :little})

      workspace =
        workspace!(%{"AGENTS.md" => "caf\xE9", "a/AGENTS.md" => utf16, "b/AGENTS.md" => "fine"})

      files = load!(workspace)
      assert texts(files) == ["fine"]

      assert [
               %{path: "AGENTS.md", reason: :not_utf8, offset: 3},
               %{path: "a/AGENTS.md", reason: :not_utf8, offset: 0}
             ] = files.unused
    end

    test "F11: a directory, a FIFO and a socket are reported, never opened" do
      workspace =
        workspace!(%{"d/AGENTS.md" => :directory, "f/AGENTS.md" => :fifo, "s/x" => "beside"})

      # A socket's address is at most 108 bytes long, so it is bound by a relative path.
      path = Path.join(workspace, "s/AGENTS.md")
      {:ok, socket} = :gen_tcp.listen(0, ifaddr: {:local, path})
      files = load!(workspace)
      :gen_tcp.close(socket)

      assert paths(files) == []

      assert [
               %{path: "d/AGENTS.md", reason: :not_regular, kind: :directory},
               %{path: "f/AGENTS.md", reason: :not_regular, kind: :fifo},
               %{path: "s/AGENTS.md", reason: :not_regular, kind: :socket}
             ] = files.unused
    end

    test "F12: an endless device and a huge file" do
      workspace =
        workspace!(%{
          "AGENTS.md" => {:link, "/dev/zero"},
          "a/AGENTS.md" => {:sparse, 5_368_709_120}
        })

      assert [
               %{path: "AGENTS.md", reason: :absolute_link},
               %{path: "a/AGENTS.md", reason: :too_large, bytes: 5_368_709_120, limit: 1_048_576}
             ] = load!(workspace).unused
    end

    test "a file of exactly 1 MiB is read, one byte more is not" do
      text = String.duplicate("x", 1_048_576)
      workspace = workspace!(%{"AGENTS.md" => text, "a/AGENTS.md" => text <> "x"})
      files = load!(workspace)
      assert texts(files) == [text]
      assert [%{path: "a/AGENTS.md", reason: :too_large, bytes: 1_048_577}] = files.unused
    end

    test "F13: another spelling is a near-miss" do
      workspace = workspace!(%{"agents.md" => "a", "b/agents.md" => "no", "b/AGENTS.md" => "yes"})

      files = load!(workspace)
      assert texts(files) == ["yes"]

      assert [
               %{path: "agents.md", reason: :near_miss, expected: "AGENTS.md"},
               %{path: "b/agents.md", reason: :near_miss, expected: "AGENTS.md"}
             ] = files.unused
    end

    test "F14: empty files" do
      workspace =
        workspace!(%{"AGENTS.md" => "", "a/AGENTS.md" => "\n \t\n", "b/AGENTS.md" => "\uFEFF"})

      files = load!(workspace)
      assert paths(files) == []

      assert unused(files) == [
               {"AGENTS.md", :empty},
               {"a/AGENTS.md", :empty},
               {"b/AGENTS.md", :empty}
             ]
    end

    test "a comment is a text like any other" do
      workspace = workspace!(%{"AGENTS.md" => "<!-- nothing yet -->\n"})
      assert texts(load!(workspace)) == ["<!-- nothing yet -->\n"]
    end

    test "a deeper empty file does not shadow its parent" do
      workspace = workspace!(%{"AGENTS.md" => "root", "a/AGENTS.md" => "\n"})
      files = load!(workspace, target: "a/x.ex")
      assert texts(files) == ["root"]
      assert unused(files) == [{"a/AGENTS.md", :empty}]
    end

    test "a dangling link" do
      workspace = workspace!(%{"AGENTS.md" => {:link, "nothing"}})
      assert unused(load!(workspace)) == [{"AGENTS.md", :dangling_link}]
    end

    test "F23: CRLF is kept" do
      workspace = workspace!(%{"AGENTS.md" => "one\r\ntwo\r\n"})
      assert texts(load!(workspace)) == ["one\r\ntwo\r\n"]
    end

    test "F24: what may not be read is reported, the others load" do
      workspace =
        workspace!(%{"AGENTS.md" => "a", "locked/AGENTS.md" => "b", "file/AGENTS.md" => "c"})

      File.chmod!(Path.join(workspace, "locked"), 0)
      File.chmod!(Path.join(workspace, "file/AGENTS.md"), 0)
      files = load!(workspace)
      File.chmod!(Path.join(workspace, "locked"), 0o700)

      if System.cmd("id", ["-u"]) == {"0\n", 0} do
        # Root may read everything. The core's test f24 drops that right for its own thread.
        assert paths(files) == ["AGENTS.md", "file/AGENTS.md", "locked/AGENTS.md"]
      else
        assert texts(files) == ["a"]
        assert unused(files) == [{"file/AGENTS.md", :unreadable}, {"locked", :unreadable}]
      end
    end

    test "the messages are what a user can act on" do
      workspace = workspace!(%{"AGENTS.md" => "", "a/AGENTS.md" => "\xFF", "b/agents.md" => "x"})

      assert Enum.map(load!(workspace).unused, & &1.message) == [
               "empty",
               "not UTF-8 (first bad byte at offset 0)",
               ~s(spelt differently from "AGENTS.md", so it isn't read)
             ]
    end
  end

  describe "the scope" do
    test "F18: a target beside the workspace is outside of it" do
      workspace = workspace!(%{"AGENTS.md" => "root"})

      assert {:error, %Error{reason: :target_outside}} =
               InstructionFiles.load(workspace, target: workspace <> "-x/a.ex")

      assert {:error, %Error{reason: :target_outside}} =
               InstructionFiles.load(workspace, target: ["ok.ex", "../b.ex"])
    end

    test "F19: only what applies to the targets" do
      workspace =
        workspace!(Map.new(["", "go/", "java/", "rust/"], &{&1 <> "AGENTS.md", "x" <> &1}))

      files = load!(workspace, target: ["go/a.go", "java/B.java"])
      assert paths(files) == ["AGENTS.md", "go/AGENTS.md", "java/AGENTS.md"]
      assert paths(load!(workspace, target: "no/such/dir/x.ex")) == ["AGENTS.md"]

      assert paths(load!(workspace, target: Path.join(workspace, "go"))) == [
               "AGENTS.md",
               "go/AGENTS.md"
             ]
    end

    test "F20: ignored directories, but not a personal file" do
      files = %{
        ".git/HEAD" => "ref: refs/heads/main\n",
        ".gitignore" => "AGENTS.md\nnode_modules/\n",
        "AGENTS.md" => "personal",
        "node_modules/dep/AGENTS.md" => "dep"
      }

      workspace = workspace!(files)
      assert texts(load!(workspace)) == ["personal", "dep"]
      assert texts(load!(workspace, gitignore: true)) == ["personal"]
      counted = load!(workspace, count_ignored: true)
      assert counted.foreign == %{nested: 0, ignored: 1}
    end
  end

  describe "a workspace that is none" do
    test "does not exist, is a file" do
      workspace = workspace!(%{"file" => "x"})

      for {path, reason} <- [{"none", :workspace_missing}, {"file", :workspace_not_a_directory}] do
        path = Path.join(workspace, path)
        assert {:error, %Error{reason: ^reason} = error} = InstructionFiles.load(path)
        assert error.message =~ inspect(path)
        assert error.workspace == path
      end
    end

    test "can't be a path" do
      for value <- [nil, :here, "", 1] do
        assert_raise ArgumentError,
                     "expected a workspace to be the path of a directory, got: #{inspect(value)}",
                     fn -> InstructionFiles.load(value) end
      end

      assert {:error, %Error{}} = InstructionFiles.load("a\0b")
    end
  end

  test "options that are none raise" do
    workspace = workspace!()

    for {opts, message} <- [
          {[file: "x"], ~r/\Aoption :file is unknown, expected any of: :filenames, /},
          {[filenames: []],
           ~r/\Aexpected :filenames to be a non-empty list of file names, got: \[\]/},
          {[filenames: "AGENTS.md"], ~r/\Aexpected :filenames to be a non-empty list/},
          {[filenames: ["a" | "b"]], ~r/\Aexpected :filenames to be a non-empty list/},
          {[target: []],
           ~r/\Aexpected :target to be a path or a non-empty list of paths, got: \[\]/},
          {[target: :x], ~r/\Aexpected :target to be a path/},
          {[cache: :maybe],
           ~r/\Aexpected :cache to be one of :trust, :revalidate, :off, got: :maybe\z/},
          {[gitignore: nil], ~r/\Aexpected :gitignore to be one of false, true, got: nil\z/},
          {[project_id: Postgres.uuid()], ~r/\Aoption :project_id needs option :agent/},
          {[agent: :developer], ~r/\Aexpected :agent to be an agent's slug, got: :developer\z/}
        ] do
      error = assert_raise ArgumentError, fn -> InstructionFiles.load(workspace, opts) end
      assert error.message =~ message
    end

    assert {:error, %Error{reason: :bad_filename} = error} =
             InstructionFiles.load(workspace, filenames: ["a/b"])

    assert error.message =~ ~s("a/b")
  end

  describe "the cache" do
    test "answers until invalidated" do
      workspace = workspace!(%{"AGENTS.md" => "one"})
      assert texts(load!(workspace)) == ["one"]
      write!(workspace, "AGENTS.md", "two")
      assert texts(load!(workspace)) == ["one"]
      assert texts(load!(workspace, cache: :off)) == ["two"]
      assert texts(load!(workspace)) == ["one"]
      assert InstructionFiles.invalidate(workspace) == :ok
      assert texts(load!(workspace)) == ["two"]

      write!(workspace, "AGENTS.md", "three")
      assert InstructionFiles.invalidate_all() == :ok
      assert texts(load!(workspace)) == ["three"]
    end

    test "F15: a rewrite of the same size with its time set back is seen" do
      workspace = workspace!(%{"AGENTS.md" => "one"})
      path = Path.join(workspace, "AGENTS.md")
      stat = File.stat!(path, time: :posix)
      assert texts(load!(workspace, cache: :revalidate)) == ["one"]
      File.write!(path, "two")
      File.touch!(path, stat.mtime)
      assert texts(load!(workspace, cache: :revalidate)) == ["two"]
    end

    test "F16: each load shows the disk" do
      workspace = workspace!(%{"AGENTS.md" => "one"})
      load = fn -> paths(load!(workspace, cache: :revalidate)) end
      assert load.() == ["AGENTS.md"]
      File.rm!(Path.join(workspace, "AGENTS.md"))
      assert load.() == []
      write!(workspace, "a/b/AGENTS.md", "deeper")
      assert load.() == ["a/b/AGENTS.md"]
    end

    test "F17: another workspace's entry stays" do
      one = workspace!(%{"AGENTS.md" => "one"})
      two = workspace!(%{"AGENTS.md" => "two"})
      assert {texts(load!(one)), texts(load!(two))} == {["one"], ["two"]}
      for root <- [one, two], do: write!(root, "AGENTS.md", "new")
      InstructionFiles.invalidate(one)
      assert {texts(load!(one)), texts(load!(two))} == {["new"], ["two"]}
    end

    test "different options have different entries" do
      workspace = workspace!(%{"AGENTS.md" => "a", "CLAUDE.md" => "c"})
      assert texts(load!(workspace)) == ["a"]
      assert texts(load!(workspace, filenames: ["CLAUDE.md"])) == ["c"]
      assert texts(load!(workspace)) == ["a"]
    end

    test "errors are not kept" do
      workspace = workspace!()
      path = Path.join(workspace, "later")
      assert {:error, %Error{reason: :workspace_missing}} = InstructionFiles.load(path)
      write!(workspace, "later/AGENTS.md", "there")
      assert texts(load!(path)) == ["there"]
    end

    test "its process may be killed, and nothing is lost" do
      workspace = workspace!(%{"AGENTS.md" => "text"})
      assert texts(load!(workspace)) == ["text"]
      cache = Process.whereis(Cache)
      monitor = Process.monitor(cache)
      Process.exit(cache, :kill)
      assert_receive {:DOWN, ^monitor, :process, ^cache, :killed}
      # Whether the supervisor has started the next one by now or not.
      assert texts(load!(workspace)) == ["text"]
      assert InstructionFiles.invalidate(workspace) == :ok
    end

    test "works where the application isn't running" do
      workspace = workspace!(%{"AGENTS.md" => "one"})
      ExUnit.CaptureLog.capture_log(fn -> Application.stop(:engine) end)
      on_exit(fn -> Application.ensure_all_started(:engine) end)
      assert texts(load!(workspace)) == ["one"]
      write!(workspace, "AGENTS.md", "two")
      assert texts(load!(workspace)) == ["two"]
      assert InstructionFiles.invalidate(workspace) == :ok
      assert InstructionFiles.invalidate_all() == :ok
    end

    test "a load that began before an invalidation stores nothing after it" do
      workspace = "/some/workspace"
      before = Cache.generation(workspace)
      Cache.store(before, workspace, :key, :old)
      assert Cache.fetch(before, workspace, :key) == {:ok, :old}

      Cache.invalidate(workspace)
      Cache.store(before, workspace, :key, :stale)
      now = Cache.generation(workspace)
      assert Cache.fetch(now, workspace, :key) == :error
      assert :ets.match_object(Cache, {{workspace, :_, :_}, :_}) == []

      Cache.store(now, workspace, :key, :new)
      Cache.invalidate(:all)
      assert Cache.fetch(Cache.generation(workspace), workspace, :key) == :error
    end

    test "100 processes load while one rewrites and invalidates: nobody sees what is older" do
      workspace = workspace!(%{"AGENTS.md" => "0"})
      # What every load that begins from now on has to see at least.
      least = :atomics.new(1, [])
      Cache.invalidate(:all)
      before = :ets.info(Cache, :size)

      loaders =
        for _ <- 1..100 do
          Task.async(fn ->
            for _ <- 1..100 do
              expected = :atomics.get(least, 1)
              [text] = texts(load!(workspace))
              assert String.to_integer(text) >= expected
            end
          end)
        end

      for round <- 1..100 do
        # In one step, so that no load finds an empty file.
        write!(workspace, "new", "#{round}")
        File.rename!(Path.join(workspace, "new"), Path.join(workspace, "AGENTS.md"))
        InstructionFiles.invalidate(workspace)
        :atomics.put(least, 1, round)
      end

      Task.await_many(loaders, 60_000)
      # This workspace's entry and its generation.
      assert :ets.info(Cache, :size) <= before + 2
    end
  end

  describe "the database's row" do
    setup do
      [reader: {Reader.Postgres, url: Postgres.url(Postgres.shared())}]
    end

    test "is the strongest source", %{reader: reader} do
      workspace = workspace!(%{"AGENTS.md" => "root", "a/b/AGENTS.md" => "deep"})
      project = Postgres.project!(Postgres.shared(), [{"developer", "\uFEFFrow"}])
      files = load!(workspace, agent: "developer", project_id: project, reader: reader)

      assert Enum.map(files.sources, &{&1.origin, &1.path, &1.text}) == [
               {:file, "AGENTS.md", "root"},
               {:file, "a/b/AGENTS.md", "deep"},
               {:database, "developer", "row"}
             ]

      files = load!(workspace, agent: "tester", project_id: project, reader: reader)
      assert Enum.map(files.sources, & &1.origin) == [:file, :file]
      assert files.unused == []
    end

    test "that is empty is reported", %{reader: reader} do
      workspace = workspace!()

      for content <- ["", " \n", "\uFEFF"] do
        project = Postgres.project!(Postgres.shared(), [{"developer", content}])
        files = load!(workspace, agent: "developer", project_id: project, reader: reader)
        assert files.sources == []

        assert files.unused == [
                 %{origin: :database, path: "developer", reason: :empty, message: "empty"}
               ]
      end
    end

    test "is kept with the files: trusted until invalidated, read again to revalidate", %{
      reader: reader
    } do
      workspace = workspace!(%{"AGENTS.md" => "root"})
      project = Postgres.project!(Postgres.shared(), [{"developer", "one"}])
      opts = [agent: "developer", project_id: project, reader: reader]
      assert texts(load!(workspace, opts)) == ["root", "one"]

      Postgres.write!(Postgres.shared(), project, "developer", "two")
      assert texts(load!(workspace, opts)) == ["root", "one"]
      assert texts(load!(workspace, [cache: :revalidate] ++ opts)) == ["root", "two"]
      # What was read again is what is trusted from then on.
      assert texts(load!(workspace, opts)) == ["root", "two"]

      Postgres.write!(Postgres.shared(), project, "developer", "three")
      InstructionFiles.invalidate(workspace)
      assert texts(load!(workspace, opts)) == ["root", "three"]
    end

    test "two agents and two projects have entries of their own", %{reader: reader} do
      workspace = workspace!()
      rows = [{"developer", "dev"}, {"tester", "test"}]
      one = Postgres.project!(Postgres.shared(), rows)
      two = Postgres.project!(Postgres.shared(), [{"developer", "other"}])
      load = &texts(load!(workspace, agent: &1, project_id: &2, reader: reader))

      for _cold_then_cached <- 1..2 do
        assert load.("developer", one) == ["dev"]
        assert load.("tester", one) == ["test"]
        assert load.("developer", two) == ["other"]
        assert load.("tester", two) == []
      end

      assert texts(load!(workspace, agent: "developer")) == []
    end

    test "that can't be read is an error, not left out, and not kept" do
      workspace = workspace!(%{"AGENTS.md" => "root"})
      port = Postgres.free_port()
      reader = {Reader.Postgres, url: Postgres.url(%{port: port})}
      opts = [agent: "developer", project_id: Postgres.uuid(), reader: reader]

      assert {:error, %Reader.Error{reason: :unavailable}} =
               InstructionFiles.load(workspace, opts)

      server = Postgres.start!(port)
      Postgres.sql!(server, Postgres.fixture())
      assert texts(load!(workspace, opts)) == ["root"]
      Postgres.stop(server)
      # Trusted while the server is down, but not when it is to be read again.
      assert texts(load!(workspace, opts)) == ["root"]

      assert {:error, %Reader.Error{reason: :unavailable}} =
               InstructionFiles.load(workspace, [cache: :revalidate] ++ opts)
    end

    test "can't be asked for where no reader is configured" do
      opts = [agent: "developer", project_id: Postgres.uuid()]

      assert {:error, %Reader.Error{reason: :no_reader}} =
               InstructionFiles.load(workspace!(), opts)
    end

    test "is read by 50 processes with an invalidation in between: nobody sees what is older", %{
      reader: reader
    } do
      workspace = workspace!()
      server = Postgres.shared()
      project = Postgres.project!(server, [{"developer", "1"}])
      opts = [agent: "developer", project_id: project, reader: reader]
      least = :atomics.new(1, [])

      loaders =
        for _ <- 1..50 do
          Task.async(fn ->
            for _ <- 1..10 do
              expected = :atomics.get(least, 1)
              [text] = texts(load!(workspace, opts))
              assert String.to_integer(text) >= expected
            end
          end)
        end

      Postgres.write!(server, project, "developer", "2")
      InstructionFiles.invalidate(workspace)
      :atomics.put(least, 1, 2)
      Task.await_many(loaders, 60_000)
    end

    test "no password lies in the table" do
      workspace = workspace!()
      server = Postgres.shared()
      project = Postgres.project!(server, [{"developer", "row"}])
      reader = {Reader.Postgres, url: Postgres.url(server), timeout: 4_999}
      load!(workspace, agent: "developer", project_id: project, reader: reader)
      refute inspect(:ets.tab2list(Cache), limit: :infinity) =~ "owner:owner"
    end
  end
end
