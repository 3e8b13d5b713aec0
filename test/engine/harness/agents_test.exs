defmodule Engine.Harness.AgentsTest do
  # Not async: some tests set the application's configuration of :agents.
  use ExUnit.Case, async: false

  alias Engine.Harness.Agents
  alias Engine.Harness.Agents.UnknownError

  doctest Engine.Harness.Agents

  @known ["architect", "creative", "developer", "reviewer", "tester", "writer"]

  defp configure(agents) do
    before = Application.fetch_env(:engine, :agents)

    on_exit(fn ->
      case before do
        {:ok, agents} -> Application.put_env(:engine, :agents, agents)
        :error -> Application.delete_env(:engine, :agents)
      end
    end)

    Application.put_env(:engine, :agents, agents)
  end

  describe "without configuration" do
    test "each agent has an identity of one line" do
      assert Agents.slugs() == @known

      for slug <- @known do
        assert {:ok, identity} = Agents.fetch(slug)
        assert identity == Agents.fetch!(slug)
        assert String.starts_with?(identity, "You are the #{slug}: ")
        assert String.ends_with?(identity, ".")
        refute identity =~ "\n"
      end
    end

    test "an unknown slug is an error that lists the known ones" do
      assert {:error, error} = Agents.fetch("poet")
      assert error == %UnknownError{slug: "poet", known: @known}

      message =
        ~s(unknown agent "poet", known are: ) <>
          "architect, creative, developer, reviewer, tester, writer"

      assert Exception.message(error) == message
      assert_raise UnknownError, message, fn -> Agents.fetch!("poet") end
    end

    test "slugs are strings, exactly" do
      for {slug, shown} <- [
            {:developer, ":developer"},
            {"Developer", ~s("Developer")},
            {"developer ", ~s("developer ")},
            {"", ~s("")},
            {nil, "nil"}
          ] do
        assert {:error, error} = Agents.fetch(slug)

        assert Exception.message(error) ==
                 "unknown agent #{shown}, known are: " <>
                   "architect, creative, developer, reviewer, tester, writer"
      end
    end
  end

  describe "with configuration" do
    test "an identity is changed, another added, the others stay" do
      writer = Agents.fetch!("writer")
      configure(%{"developer" => "You are a developer.", "baker" => "You bake: 🥐."})

      assert Agents.fetch("developer") == {:ok, "You are a developer."}
      assert Agents.fetch("baker") == {:ok, "You bake: 🥐."}
      assert Agents.fetch("writer") == {:ok, writer}
      assert Agents.slugs() == List.insert_at(@known, 1, "baker")

      assert {:error, %UnknownError{known: ["architect", "baker", "creative" | _]}} =
               Agents.fetch("poet")
    end

    test "what is no map is refused" do
      for {agents, shown} <- [{nil, "nil"}, {[developer: "You …"], ~s([developer: "You …"])}] do
        configure(agents)

        message =
          "expected config :engine, :agents to be a map from slug to identity, got: #{shown}"

        assert_raise ArgumentError, message, fn -> Agents.fetch("developer") end
        assert_raise ArgumentError, message, fn -> Agents.slugs() end
      end
    end

    test "a slug or an identity that is no text is refused, whichever agent is asked for" do
      for {slug, identity, shown} <- [
            {:developer, "You are.", ~s(:developer => "You are.")},
            {"", "You are.", ~s("" => "You are.")},
            {"developer", nil, ~s("developer" => nil)},
            {"developer", "", ~s("developer" => "")},
            {"developer", <<"caf", 0xE9>>, ~s("developer" => <<99, 97, 102, 233>>)}
          ] do
        configure(%{slug => identity})

        message =
          "expected each slug and identity in config :engine, :agents to be a non-empty " <>
            "string, got: #{shown}"

        assert_raise ArgumentError, message, fn -> Agents.fetch!("writer") end
      end
    end
  end
end
