defmodule Engine.Harness.CLITest do
  # Not async: captures standard error.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO
  import Engine.Workspace

  alias Engine.Harness.CLI

  # {exit status, standard output, standard error}
  defp run(argv) do
    {{status, out}, error} = with_io(:stderr, fn -> with_io(fn -> CLI.run(argv) end) end)

    {status, out, error}
  end

  test "prints the prompt of a workspace" do
    workspace = workspace!(%{"AGENTS.md" => "Be brief."})
    assert {0, out, ""} = run(["debug", workspace])
    assert out =~ "agent      developer\nworkspace  #{workspace}\n"
    assert out =~ "```\nBe brief.\n```\n"
    assert out =~ "\n<host_environment>\nWorkspace Root: #{workspace}\n"

    assert {0, out, ""} = run(["debug", workspace, "--no-environment"])
    refute out =~ "host_environment"
  end

  test "takes options" do
    workspace = workspace!(%{"AGENTS.md" => "Be brief."})

    argv = ["debug", workspace, "--agent", "tester", "--no-prompt"]
    argv = argv ++ ["--budget", "instruction_files=3", "--budget=identity=infinity"]
    assert {0, out, ""} = run(argv)
    assert out =~ "agent      tester\n"
    assert out =~ ~r/^identity .* ∞ .* kept$/mu
    assert out =~ "AGENTS.md: dropped, the layer is over its budget of 3"
    refute out =~ "Be brief."
  end

  test "takes steps, places to cut, a total and strict layers" do
    # The developer's identity is 134 bytes, 34 tokens. The file's unit is 97 ("# Instructions from
    # AGENTS.md", a fence and 58 bytes), 25 tokens; both are 233, 59. The README's heading and lines
    # are 13 + 6 + 28 bytes.
    workspace =
      workspace!(%{
        "AGENTS.md" => String.duplicate("a", 58),
        "README.md" => "one\ntwo three four five six\n"
      })

    debug = fn argv -> run(["debug", workspace | argv]) end
    context = ~w(--budget project_context=10)

    # 40 bytes, 19 of them for the marker.
    assert {0, out, ""} = debug.(context)
    assert out =~ "# README.md\n\n> one\n> [… truncated …]\n"

    for place <- ["line", "markdown"] do
      assert {0, out, ""} = debug.(["--at", place | context])
      assert out =~ "# README.md\n\n> one\n[… truncated …]\n"
    end

    assert {0, out, ""} = debug.(~w(--total-budget 60 --step instruction_files=20 --no-prompt))
    assert out =~ ~r/^prompt +~59 +60 /m
    assert out =~ ~r/^project_context .* dropped$/m

    assert {0, out, ""} = debug.(~w(--total-budget 58 --step instruction_files=20 --no-prompt))

    assert out =~
             ~r/AGENTS.md: dropped, the layer is over the 24 that the total budget leaves it \(lowest precedence goes first, in steps of 20\)$/m

    assert debug.(~w(--total-budget 33)) ==
             {1, "",
              "the total budget is 33 tokens, but what never gives way costs 34 (identity 34)\n"}

    assert debug.(~w(--budget instruction_files=24 --strict instruction_files --strict identity)) ==
             {1, "",
              "layer :instruction_files is strict and would lose tokens: 0 of 25 fit its budget of 24\n"}

    assert {0, _, ""} = debug.(~w(--budget instruction_files=25 --strict instruction_files))
  end

  test "chooses the instruction files" do
    workspace =
      workspace!(%{
        ".git/HEAD" => "ref: refs/heads/main\n",
        ".gitignore" => "build/\n",
        "a/AGENTS.md" => "from a",
        "b/AGENTS.md" => "from b",
        "build/AGENTS.md" => "from build",
        "sub/.git" => "gitdir: elsewhere",
        "sub/AGENTS.md" => "from sub"
      })

    read = fn argv ->
      {0, out, ""} = run(["debug", workspace] ++ argv)
      ~r/^from .*/m |> Regex.scan(out) |> List.flatten()
    end

    assert read.([]) == ["from a", "from b", "from build", "from sub"]
    assert read.(["--gitignore", "--skip-nested"]) == ["from a", "from b"]
    assert read.(["--target", "a/x.ex"]) == ["from a"]
    assert read.(["--target", "a", "--target", "b/y/z.ex"]) == ["from a", "from b"]
  end

  test "counts by the tokenizer that is asked for" do
    workspace = workspace!(%{"README.md" => "Hello, world!"})
    debug = &run(["debug", workspace, "--no-environment" | &1])
    assert {0, out, ""} = debug.(["--tokenizer", "o200k_base"])
    assert out =~ ~r/^tokenizer  o200k_base \(exact, \d\.\d\d bytes per token\)$/m
    refute out =~ "~"
    assert {0, out, ""} = debug.(["--tokenizer", "approximate"])
    assert out =~ "~"

    assert {0, out, ""} = debug.(["--compare", "cl100k_base", "--compare", "approximate"])

    # "# README.md\n\n> Hello, world!" is 28 bytes.
    assert out =~ ~r/^layer .* units  cl100k_base  bytes\/4$/m
    assert out =~ ~r/^project_context .*  ~7 .* kept +\d+ +~7$/m
  end

  test "prints JSON and a page" do
    workspace = workspace!(%{"AGENTS.md" => "Be brief."})
    assert {0, json, ""} = run(["debug", workspace, "--format", "json", "--no-prompt"])

    assert %{"version" => 1, "prompt" => %{"text" => nil}} =
             :jiffy.decode(json, [:return_maps, :use_nil])

    assert {0, "<!DOCTYPE html>" <> _, ""} = run(["debug", workspace, "--format", "html"])
    assert {0, "agent      developer\n" <> _, ""} = run(["debug", workspace, "--format=table"])
  end

  test "says what changed since a report, and replays one" do
    workspace = workspace!(%{"AGENTS.md" => "Be brief."})
    folder = workspace!()
    file = Path.join(folder, "kept.json")
    assert {0, json, ""} = run(["debug", workspace, "--format", "json", "--inputs"])
    File.write!(file, json)
    assert {0, "the bytes are the same: " <> _, ""} = run(["replay", file])

    write!(workspace, "AGENTS.md", "Be long.")
    assert {0, out, ""} = run(["debug", workspace, "--against", file])

    assert out =~
             ~r/\nwhat changed\n  first difference .*\n.*\n  changed .* AGENTS.md  other bytes\n/

    File.write!(file, String.replace(json, ~r/("text": "# Inst.*)brief/, "\\1long"))
    assert {1, out, ""} = run(["replay", file])
    assert out =~ ~r/^changed .* instruction_files AGENTS.md  other bytes$/m

    assert {1, "", "not a report: " <> _} = run(["replay", Path.join(workspace, "AGENTS.md")])
    gone = Path.join(folder, "gone.json")
    no_file = ~s(could not read file "#{gone}": no such file or directory\n)
    assert run(["replay", gone]) == {1, "", no_file}
    assert run(["debug", workspace, "--against", gone]) == {1, "", no_file}
  end

  test "lists what there is" do
    assert {0, out, ""} = run(["--help"])
    assert {0, ^out, ""} = run(["debug", "--help"])

    assert {0, ^out, ""} = run(["replay", "--help"])

    for word <- [
          "debug",
          "replay FILE",
          "demo loops",
          "demo limits",
          "--format",
          "--against",
          "--inputs",
          "--agent",
          "check [WORKSPACE]",
          "--budget",
          "--total-budget N",
          "--step LAYER=N",
          "--at PLACE",
          "--strict LAYER",
          "--no-prompt",
          "--project-id"
        ],
        do: assert(out =~ word)

    assert run(["--version"]) == {0, "harness 0.1.0\n", ""}
  end

  test "shows how a loop is broken" do
    assert {0, out, ""} = run(["demo", "loops"])
    assert [story, trace] = String.split(out, "\ntrace (OTLP JSON, one span a line)\n")
    assert story =~ "the tool ran 5 times for 8 calls\n"
    assert length(Regex.scan(~r/^message \d+ /m, story)) == 8
    assert length(Regex.scan(~r/→ refused, not run$/m, story)) == 3

    for sentence <- [
          "told       The same call of sh gave the same result 3 times in a row. Try",
          "told       The same call of sh gave the same result 5 times in a row. It is not run",
          "halt       The same call of sh gave the same result 8 times in a row. The session"
        ],
        do: assert(story =~ sentence)

    assert {0, ^trace, ""} = run(["demo", "loops", "--json"])
    assert %{"resourceSpans" => [_]} = :jiffy.decode(trace, [:return_maps])
  end

  test "status 1 for what is wrong with the data" do
    assert {1, "", ~s(workspace "/no/such" does not exist; ) <> _} = run(["debug", "/no/such"])
    assert {1, "", ~s(unknown agent "poet", known are: ) <> _} = run(["debug", "--agent", "poet"])
  end

  test "status 2 for what is wrong with the command line" do
    budget =
      "is not LAYER=N, where LAYER is one of identity, instruction_files, project_context, " <>
        "business_rules, task_state and N a non-negative integer or infinity"

    step =
      "is not LAYER=N, where LAYER is one of instruction_files, business_rules, task_state " <>
        "and N a positive integer"

    for {argv, message} <- [
          {[], "a verb is missing"},
          {["debg"], ~s(unknown verb "debg")},
          {["debug", "--agnt", "x"], "option --agnt is unknown"},
          {["debug", "--agent"], "option --agent needs a value"},
          {["debug", "--tokenizer", "gpt"],
           ~s(--tokenizer "gpt" is not one of approximate, o200k_base, cl100k_base)},
          {["debug", "--compare", "gpt"],
           ~s(--compare "gpt" is not one of approximate, o200k_base, cl100k_base)},
          {["debug", "--format", "xml"], ~s(--format "xml" is not one of table, json, html)},
          {["replay"], "replay needs a file"},
          {["replay", "a", "b"], ~s(one file at a time, got also "b")},
          {["demo"], "the demo's name is missing; there are: loops, limits"},
          {["demo", "loop"], ~s(unknown demo "loop"; there are: loops, limits)},
          {["demo", "limits", "--json"], "--json goes with demo loops"},
          {["demo", "loops", "--jsn"], "option --jsn is unknown"},
          {["debug", "a", "b"], ~s(one workspace at a time, got also "b")},
          {["debug", "--budget", "identity"], ~s(--budget "identity" #{budget})},
          {["debug", "--budget", "identity=-1"], ~s(--budget "identity=-1" #{budget})},
          {["debug", "--budget", "identity=1.5"], ~s(--budget "identity=1.5" #{budget})},
          {["debug", "--budget", "rules=1"], ~s(--budget "rules=1" #{budget})},
          {["debug", "--budget", "identity=1", "--budget", "identity=2"],
           "--budget identity stands twice"},
          {["debug", "--total-budget", "1e3"],
           ~s(--total-budget "1e3" is not a non-negative integer or infinity)},
          {["debug", "--at", "word"], ~s(--at "word" is not one of grapheme, line, markdown)},
          {["debug", "--strict", "rules"],
           ~s(--strict "rules" is not one of identity, instruction_files, project_context, ) <>
             "business_rules, task_state"},
          {["debug", "--step", "identity=3"], ~s(--step "identity=3" #{step})},
          {["debug", "--step", "task_state=0"], ~s(--step "task_state=0" #{step})},
          {["debug", "--step", "task_state=infinity"], ~s(--step "task_state=infinity" #{step})},
          {["debug", "--step", "task_state=1", "--step", "task_state=1"],
           "--step task_state stands twice"}
        ] do
      assert run(argv) == {2, "", "harness: #{message}; bin/harness --help lists what there is\n"}
    end
  end

  describe "bin/harness" do
    @command Path.expand("../../../bin/harness", __DIR__)

    @tag timeout: 300_000
    test "is the same in every locale, from every folder" do
      workspace = workspace!(%{"web/AGENTS.md" => "Grüße.", "README.md" => "日本語"})
      {expected, 0} = System.cmd(@command, ["debug"], cd: workspace, env: [{"LC_ALL", "C.UTF-8"}])
      assert expected =~ "workspace  .\n"
      assert expected =~ "Grüße."

      for locale <- ["C", "POSIX"] do
        env = [{"LC_ALL", locale}, {"LANG", locale}]
        assert System.cmd(@command, ["debug"], cd: workspace, env: env) == {expected, 0}
      end

      web = Path.join(workspace, "web")
      {out, 0} = System.cmd(@command, ["debug", ".."], cd: web)
      assert out == String.replace(expected, "workspace  .\n", "workspace  ..\n")
    end

    test "runs nothing that the current folder holds" do
      workspace = workspace!(%{"README.md" => "a shop"})
      touch = "touch " <> Path.join(workspace, "RAN")

      # Erlang's code path begins with ".": each of these runs when it is loaded.
      for module <-
            ~w(crypto public_key ssl pgsql pgsql_proto pgsql_socket inet_res init code)a ++
              [:elixir, Enum, OptionParser, Engine.Harness.CLI, Engine.Harness.Debug] do
        forms = [
          {:attribute, 1, :module, module},
          {:attribute, 1, :on_load, {:run, 0}},
          {:function, 1, :run, 0,
           [
             {:clause, 1, [], [],
              [
                {:call, 1, {:remote, 1, {:atom, 1, :os}, {:atom, 1, :cmd}},
                 [{:string, 1, String.to_charlist(touch)}]},
                {:atom, 1, :ok}
              ]}
           ]}
        ]

        {:ok, ^module, beam} = :compile.forms(forms)
        File.write!(Path.join(workspace, "#{module}.beam"), beam)
      end

      for program <- ~w(readlink dirname iconv sed sort mix elixir erl erlexec cargo cc git touch) do
        write!(workspace, program, "#!/bin/sh\n/usr/bin/#{touch}\n")
        File.chmod!(Path.join(workspace, program), 0o755)
      end

      path = System.fetch_env!("PATH")
      server = Engine.Postgres.shared()
      project = Engine.Postgres.project!(server, [{"developer", "from the row"}])
      url = {"DATABASE_URL", Engine.Postgres.url(server)}

      for path <- [path, ":" <> path, ".:" <> path, "#{path}:"] do
        {out, 0} =
          System.cmd(@command, ["debug", ".", "--project-id", project],
            cd: workspace,
            env: [{"PATH", path}, url]
          )

        assert out =~ "> a shop\n"
        assert out =~ "from the row"
        refute File.exists?(Path.join(workspace, "RAN"))
      end
    end

    @tag timeout: 300_000
    test "says what is wrong where the VM could not start" do
      workspace = workspace!()

      # Through a shell, since what is no text can't be an argument from here.
      shell = fn script ->
        System.cmd("sh", ["-c", script],
          env: [{"HARNESS", @command}, {"W", workspace}],
          stderr_to_stdout: true
        )
      end

      not_utf8 =
        "harness: the current folder or an argument is not UTF-8; a link with another name will do\n"

      assert shell.(~S[cd "$W" && d=$(printf 'caf\351') && mkdir "$d" && "$HARNESS" debug "$d"]) ==
               {not_utf8, 2}

      assert shell.(~S[cd "$W"/caf* && "$HARNESS" debug]) == {not_utf8, 2}

      # The shell itself complains first.
      assert {out, 2} =
               shell.(~S[mkdir "$W/gone" && cd "$W/gone" && rmdir "$W/gone" && "$HARNESS" debug])

      assert String.ends_with?(out, "harness: the current folder does not exist\n")
    end

    @tag timeout: 300_000
    test "reads the database that DATABASE_URL names" do
      server = Engine.Postgres.shared()
      project = Engine.Postgres.project!(server, [{"developer", "from the row"}])
      args = ["debug", workspace!(), "--project-id", project]

      env = [{"DATABASE_URL", Engine.Postgres.url(server)}]
      assert {out, 0} = System.cmd(@command, args, env: env)
      assert out =~ "```\nfrom the row\n```\n"

      env = [{"DATABASE_URL", Engine.Postgres.url(server, password: "s3cret")}]
      assert {out, 1} = System.cmd(@command, args, env: env, stderr_to_stdout: true)
      assert out =~ ~s(password authentication failed for user "owner")
      refute out =~ "s3cret"

      env = [{"DATABASE_URL", nil}]
      assert {out, 1} = System.cmd(@command, args, env: env, stderr_to_stdout: true)
      assert out =~ "no database is configured"
      assert out =~ "DATABASE_URL"
    end
  end
end
