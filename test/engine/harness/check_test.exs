defmodule Engine.Harness.CheckTest do
  # Not async: captures standard error.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO
  import Engine.Workspace

  alias Engine.Harness.{Check, CLI}

  doctest Check

  # A unit is 30 bytes, its path and its text. The root's is 80 bytes, and with an empty line before
  # them a/'s and c/'s are 80 each, a/b/'s is 120.
  defp workspace do
    workspace!(%{
      "AGENTS.md" => String.duplicate("r", 41),
      "a/AGENTS.md" => String.duplicate("a", 37),
      "a/b/AGENTS.md" => String.duplicate("b", 75),
      "c/AGENTS.md" => String.duplicate("c", 37)
    })
  end

  @above ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"]
  @beside ["AGENTS.md", "c/AGENTS.md"]

  test "each chain from the root down, against the budget" do
    workspace = workspace()

    # {budget, the chain of two files, that of three, the worst}
    for {budget, beside, above, worst} <- [
          {39, :over, :over, :over},
          {40, :near, :over, :over},
          # 40 · 10 is 90 % of 44 and not of 45.
          {44, :near, :over, :over},
          {45, :ok, :over, :over},
          {69, :ok, :over, :over},
          {70, :ok, :near, :near},
          {77, :ok, :near, :near},
          {78, :ok, :ok, :ok},
          {0, :over, :over, :over},
          {:infinity, :ok, :ok, :ok}
        ] do
      assert {:ok, check} = Check.run(workspace, budget: budget)

      assert check.chains == [
               %{directory: "c", files: @beside, tokens: 40, status: beside},
               %{directory: "a/b", files: @above, tokens: 70, status: above}
             ]

      assert {check.status, check.budget, check.estimated} == {worst, budget, true}
    end
  end

  test "a workspace without any, and one with the root's alone" do
    assert {:ok, %{status: :ok, chains: []}} = Check.run(workspace!())
    assert {:ok, %{chains: [chain]}} = Check.run(workspace!(%{"AGENTS.md" => "x"}))
    # 40 bytes.
    assert chain == %{directory: ".", files: ["AGENTS.md"], tokens: 10, status: :ok}
  end

  test "by an exact tokenizer" do
    spec = {Engine.Harness.Tokenizer.Bpe, encoding: :o200k_base}
    assert {:ok, check} = Check.run(workspace(), tokenizer: spec)
    refute check.estimated
    assert Check.to_text(check) =~ ~r/^ok +\d+ of 8000  AGENTS.md \+ c\/AGENTS.md$/m
  end

  describe "bin/harness check" do
    defp run(argv) do
      {{status, out}, error} =
        with_io(:stderr, fn -> with_io(fn -> CLI.run(["check" | argv]) end) end)

      {status, out, error}
    end

    test "status 1 when a chain is over" do
      assert run([workspace(), "--budget", "69"]) ==
               {1,
                """
                ok           ~40 of 69  AGENTS.md + c/AGENTS.md
                error        ~70 of 69  AGENTS.md + a/AGENTS.md + a/b/AGENTS.md
                chains: 2, over the budget of 69: 1, at 90 % of it or more: 0
                """, ""}
    end

    test "a warning at 90 %, and status 0" do
      assert run([workspace(), "--budget", "77"]) ==
               {0,
                """
                ok           ~40 of 77  AGENTS.md + c/AGENTS.md
                warning      ~70 of 77  AGENTS.md + a/AGENTS.md + a/b/AGENTS.md
                chains: 2, over the budget of 77: 0, at 90 % of it or more: 1
                """, ""}
    end

    test "what is not read is named; a file that is too large is over any budget" do
      workspace = workspace!(%{"agents.md" => "x", "AGENTS.md" => {:sparse, 1_048_577}})
      assert {1, out, ""} = run([workspace])
      assert out =~ ~r/^error    not read: AGENTS.md: .*1048577/m
      assert out =~ ~r/^warning  not read: agents.md: /m
      assert {0, _, ""} = run([workspace!(%{"agents.md" => "x"})])
    end

    test "a hostile name stays in its line" do
      workspace = workspace!(%{"a\nerror/AGENTS.md" => "x"})
      assert {0, out, ""} = run([workspace])
      assert [_, summary, ""] = String.split(out, "\n")
      assert summary =~ "chains: 1"
    end

    @command Path.expand("../../../bin/harness", __DIR__)

    @tag timeout: 300_000
    test "as a process: its status, and the same bytes from every folder and locale" do
      workspace = workspace()

      # The chains cost 40 and 70: see above.
      for {argv, expected} <- [
            {[], 0},
            {~w(--budget 78), 0},
            {~w(--budget 77), 0},
            {~w(--budget 69), 1},
            {~w(--budget 0), 1},
            {~w(--budget infinity), 0},
            {~w(--budget 9999999999999999999999), 0},
            {~w(--budget -1), 2},
            {~w(--budgt 1), 2},
            {~w(--tokenizer gpt), 2},
            {[workspace], 2},
            {~w(--help), 0}
          ] do
        {out, status} = System.cmd(@command, ["check", workspace | argv], stderr_to_stdout: true)

        assert {argv, status} == {argv, expected}
        assert out =~ if(status == 2, do: ~r/\Aharness: .*\n\z/, else: ~r/^(chains: 2|usage)/m)
      end

      inside = Path.join(workspace, "a")
      argv = ~w(check .. --budget 69)
      {expected, 1} = System.cmd(@command, argv, cd: inside)
      env = [{"LC_ALL", "C"}, {"LANG", "C"}]
      assert System.cmd(@command, argv, cd: inside, env: env) == {expected, 1}
      assert System.cmd(@command, ["check", workspace | tl(tl(argv))]) == {expected, 1}
    end

    test "bad arguments are status 2, a workspace that is none status 1" do
      assert {2, "", error} = run([workspace!(), "--budget", "many"])
      assert error =~ "many"
      assert {2, "", _} = run(["a", "b"])
      gone = workspace!() <> "/gone"
      assert {1, "", error} = run([gone])
      assert error =~ gone
    end
  end
end
