defmodule Engine.Harness.DebugTest do
  # Not async: stands in the workspace, and sets an environment variable.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO
  import Engine.Workspace

  alias Engine.AgentInstructions.Reader
  alias Engine.Harness.{Agents, Debug, InstructionFiles}
  alias Engine.Postgres

  # What is printed to a device that is no terminal.
  defp printed(agent, opts) do
    {:ok, io} = StringIO.open("")
    result = Debug.print(agent, Keyword.merge([io: io, environment: false], opts))
    {:ok, {"", text}} = StringIO.close(io)
    {result, text}
  end

  defp golden(name), do: File.read!(Path.expand("../../golden/#{name}", __DIR__))

  test "the golden file of a small repository" do
    workspace =
      workspace!(%{
        "AGENTS.md" => "Run the tests before you push.\n",
        "web/AGENTS.md" => "Use no framework.\n",
        "web/agents.md" => "nobody reads me",
        "lib/AGENTS.md" => "caf\xE9",
        "README.md" => "# Shop\n\n" <> String.duplicate("Sells things. ", 20) <> "\n"
      })

    opts = [
      workspace: ".",
      budgets: [instruction_files: 20, project_context: 40],
      business_rules: [{"net-prices", "Prices are net."}, "Orders can be cancelled for a day."],
      task_state: ["Open: the search."]
    ]

    File.cd!(workspace, fn -> assert printed("developer", opts) == {:ok, golden("debug.txt")} end)
  end

  test "the README shows what is printed" do
    root = Path.expand("../../..", __DIR__)
    readme = File.read!(Path.join(root, "README.md"))
    opts = [workspace: "examples/shop", budgets: [instruction_files: 30]]
    {:ok, text} = File.cd!(root, fn -> printed("developer", opts) end)
    assert readme =~ "````text\n" <> text <> "````\n"
  end

  test "the prompt may be left out" do
    opts = [workspace: workspace!()]
    {:ok, whole} = printed("tester", opts)
    {:ok, table} = printed("tester", [prompt: false] ++ opts)
    assert String.starts_with?(whole, table)
    assert whole =~ Agents.fetch!("tester")
    refute table =~ Agents.fetch!("tester")
  end

  test "the host's facts are shown, or why they are not" do
    workspace = workspace!(%{"README.md" => String.duplicate("x", 400)})
    {:ok, text} = printed("tester", workspace: workspace, environment: true)
    assert text =~ "\n<host_environment>\nWorkspace Root: #{workspace}\n"

    opts = [workspace: workspace, environment: true, budgets: [project_context: 30]]
    {:ok, text} = printed("tester", opts)
    refute text =~ "<host_environment>"

    assert text =~
             ~r/^  project_context +host environment: left out whole: the layer's budget of 30 does not hold it$/m
  end

  test "prints to the group leader, and errors to standard error" do
    workspace = workspace!(%{"AGENTS.md" => "Be brief."})

    assert capture_io(fn -> assert Debug.print("writer", workspace: workspace) == :ok end) =~
             "Be brief."

    error =
      capture_io(:stderr, fn ->
        assert {:error, %Agents.UnknownError{}} = Debug.print("poet", workspace: workspace)
      end)

    assert error ==
             ~s(unknown agent "poet", known are: architect, creative, developer, reviewer, tester, writer\n)
  end

  test "what is wrong is printed and returned" do
    assert {{:error, %InstructionFiles.Error{}}, text} =
             printed("tester", workspace: "/no/such/folder")

    assert text ==
             ~s(workspace "/no/such/folder" does not exist; expected an existing directory\n)

    assert {{:error, %ArgumentError{}}, text} =
             printed("tester", workspace: ".", budgets: [identity: -1])

    assert text ==
             "expected the budget of layer :identity to be a non-negative integer or :infinity, got: -1\n"

    assert {{:error, %ArgumentError{}}, "option :workspace is required" <> _} =
             printed("tester", [])

    assert {{:error, %ArgumentError{}}, "option :colour is unknown" <> _} =
             printed("tester", colour: 1)

    assert {{:error, %ArgumentError{}}, _} = printed("tester", workspace: ".", tokenizer: String)
  end

  test "shows what changed on the disk" do
    workspace = workspace!(%{"AGENTS.md" => "one"})
    assert {:ok, text} = printed("developer", workspace: workspace)
    assert text =~ "\none\n"
    write!(workspace, "AGENTS.md", "two")
    assert {:ok, text} = printed("developer", workspace: workspace)
    assert text =~ "\ntwo\n"
  end

  test "says how many files others may have brought" do
    workspace =
      workspace!(%{
        ".git/HEAD" => "ref: refs/heads/main\n",
        ".gitignore" => "node_modules/\n",
        "AGENTS.md" => "own",
        "node_modules/a/AGENTS.md" => "a",
        "node_modules/b/AGENTS.md" => "b",
        "vendor/c/.git" => "gitdir: elsewhere",
        "vendor/c/AGENTS.md" => "c"
      })

    {:ok, text} = printed("developer", workspace: workspace, prompt: false)

    assert text =~
             "\ninstruction files that may be other people's\n" <>
               "  from nested repositories: 1 (left out by nested_repositories: :skip)\n" <>
               "  from ignored directories: 2 (left out by gitignore: true)\n"

    opts = [workspace: workspace, gitignore: true, nested_repositories: :skip, prompt: false]
    {:ok, text} = printed("developer", opts)
    refute text =~ "other people's"
    assert text =~ "vendor/c: a repository of its own, left out by nested_repositories"
  end

  test "shows the database's row" do
    project = Postgres.project!(Postgres.shared(), [{"developer", "from the row"}])
    reader = {Reader.Postgres, url: Postgres.url(Postgres.shared(), password: "owner")}
    opts = [workspace: workspace!(), project_id: project, reader: reader]
    assert {:ok, text} = printed("developer", opts)

    assert text =~
             "# Instructions from the database for agent developer\n\n```\nfrom the row\n```\n"

    assert {:ok, text} = printed("developer", [budgets: [instruction_files: 3]] ++ opts)

    assert text =~
             "database:developer: dropped, the layer is over its budget of 3 (lowest precedence goes first)"
  end

  test "exact and unlimited numbers" do
    opts = [
      workspace: workspace!(),
      tokenizer: Engine.Tokenizers.Words,
      budgets: Map.new(Engine.Harness.PromptAssembler.layers(), &{&1, :infinity})
    ]

    {:ok, text} = printed("developer", opts)
    assert text =~ ~r/^identity +keep_or_drop +\d+ +∞ +░{10}  kept$/mu
    refute text =~ "~"
  end

  test "a hostile name stays on its line" do
    workspace = workspace!(%{"a\n\e[31m\u202E/agents.md" => "x"})
    {:ok, text} = printed("developer", workspace: workspace, prompt: false)
    assert text =~ "  a\\u{a}\\u{1b}[31m\\u{202e}/agents.md: spelt differently"
    refute text =~ "\e"
  end

  describe "a terminal" do
    # script(1) runs a command on a terminal of its own.
    defp on_a_terminal(workspace, env) do
      code = ~s|Engine.Harness.Debug.print("developer", workspace: #{inspect(workspace)})|
      ebin = Application.app_dir(:engine, "ebin")
      command = "elixir -pa '#{ebin}' -e '#{code}'"
      {text, 0} = System.cmd("script", ["-qec", command, "/dev/null"], env: env)
      text
    end

    test "is coloured, unless NO_COLOR is set, and gets no control characters of a file" do
      workspace = workspace!(%{"README.md" => "red \e[31m bell \a\n"})
      text = on_a_terminal(workspace, [{"NO_COLOR", nil}])
      assert text =~ "\e[32midentity"
      assert text =~ "> red \\u{1b}[31m bell \\u{7}"
      refute text =~ "\e[31m"

      refute on_a_terminal(workspace, [{"NO_COLOR", "1"}]) =~ "\e["
    end
  end
end
