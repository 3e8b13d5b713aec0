defmodule Engine.Harness.HostEnvironment.GitTest do
  # The reading itself is tested in native/harness_core/tests/git_state.rs.
  use ExUnit.Case, async: true

  import Engine.Workspace

  alias Engine.Harness.HostEnvironment.Git

  doctest Git

  defp repository!(branch \\ "main") do
    root = workspace!(%{"a" => "1"})
    git!(root, ["init", "-q", "-b", branch])
    root
  end

  defp git!(root, arguments) do
    env = [{"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"}]
    {_, 0} = System.cmd("git", arguments, cd: root, env: env)
  end

  test "a branch and its state" do
    root = repository!()
    assert Git.state(root) == %Git{branch: "main", dirty: true}
    File.rm!(root <> "/a")
    assert Git.state(root) == %Git{branch: "main", dirty: false}
  end

  test "a branch's bytes stay as they are" do
    assert Git.state(repository!("b\xE9</x>")).branch == "b\xE9</x>"
  end

  test "what is not known is nil, with the reason" do
    root = repository!()
    git!(root, ["config", "include.path", "other"])

    assert Git.state(root) == %Git{
             branch: "main",
             dirty: nil,
             reasons: %{dirty: {:include, "the configuration includes other files"}}
           }
  end

  test "options are checked" do
    assert_raise ArgumentError,
                 "expected :time_limit to be a non-negative integer, got: :soon",
                 fn -> Git.state(".", time_limit: :soon) end

    assert_raise ArgumentError, ~r/option :clock is unknown/, fn -> Git.state(".", clock: 1) end
  end
end
