if Code.ensure_loaded?(Ecto.Adapters.SQL) do
  defmodule Engine.AgentInstructions.Reader.EctoTest.Repo do
    use Ecto.Repo, otp_app: :engine, adapter: Ecto.Adapters.Postgres
  end

  defmodule Engine.AgentInstructions.Reader.EctoTest do
    # Not async: the repositories are named.
    use ExUnit.Case, async: false

    use Engine.ReaderCases,
      reader:
        {Engine.AgentInstructions.Reader.Ecto,
         repo: Engine.AgentInstructions.Reader.EctoTest.Repo}

    import Engine.Workspace

    alias Ecto.Adapters.SQL.Sandbox
    alias Engine.AgentInstructions.Instruction
    alias Engine.AgentInstructions.Reader.EctoTest.Repo
    alias Engine.Harness.InstructionFiles

    setup_all do
      {:ok, _} = Application.ensure_all_started(:ecto_sql)
      {:ok, _} = Application.ensure_all_started(:postgrex)
      start_supervised!({Repo, url: Postgres.url(Postgres.shared()), log: false})
      :ok
    end

    test "the schema reads every column of the api's table" do
      project = Postgres.project!(Postgres.shared(), [{"developer", "text"}])
      assert {:ok, %Instruction{} = row} = read(project, "developer")
      assert row.project_id == project
      assert {row.agent_slug, row.content} == {"developer", "text"}
      assert %DateTime{time_zone: "Etc/UTC"} = row.updated_at
      assert row.id =~ ~r/\A[0-9a-f-]{36}\z/
      assert Instruction.__schema__(:prefix) == "public"
    end

    describe "what goes wrong is named:" do
      defp failing(options) do
        assert {:error, %Reader.Error{} = error} =
                 Reader.fetch({Reader.Ecto, options}, Postgres.uuid(), "developer")

        {error.reason, error.message}
      end

      # A Repo of its own, under the name that the calling process chooses.
      defp other_repo!(options) do
        options = Keyword.merge([name: nil, log: false, pool_size: 1, queue_target: 100], options)
        pid = start_supervised!({Repo, options}, id: make_ref())
        Repo.put_dynamic_repo(pid)
      end

      test "the Repo is not started, or none" do
        assert {:driver, message} = failing(repo: Engine.NoSuchRepo)
        assert message =~ "Engine.NoSuchRepo"

        assert_raise ArgumentError, "option :repo is required: an Ecto.Repo", fn ->
          Reader.fetch({Reader.Ecto, []}, Postgres.uuid(), "developer")
        end
      end

      @tag :capture_log
      test "the server is down" do
        other_repo!(url: Postgres.url(%{port: Postgres.free_port()}))
        assert {:unavailable, "agent_instructions can't be read: " <> _} = failing(repo: Repo)
      end

      test "the table is missing" do
        Postgres.sql!(Postgres.shared(), "CREATE DATABASE ecto_no_table")
        other_repo!(url: Postgres.url(Postgres.shared(), database: "ecto_no_table"))
        assert {:schema, message} = failing(repo: Repo)
        assert message =~ ~s(relation "public.agent_instructions" does not exist)
      end

      test "permission is denied" do
        Postgres.sql!(Postgres.shared(), "CREATE ROLE ecto_nobody LOGIN PASSWORD 'x'")
        other_repo!(url: Postgres.url(Postgres.shared(), user: "ecto_nobody", password: "x"))
        assert {:permission, message} = failing(repo: Repo)
        assert message =~ "permission denied for table agent_instructions"
      end

      @tag :capture_log
      test "no answer in time" do
        Postgres.sql!(Postgres.shared(), "CREATE DATABASE ecto_blocked")
        Postgres.sql!(Postgres.shared(), Postgres.fixture(), "ecto_blocked")
        other_repo!(url: Postgres.url(Postgres.shared(), database: "ecto_blocked"), pool_size: 2)
        owner = self()

        holder =
          spawn_link(fn ->
            Repo.put_dynamic_repo(owner |> dynamic_repo())

            Repo.transaction(fn ->
              Repo.query!("LOCK TABLE agent_instructions")
              send(owner, :locked)
              receive do: (:done -> :ok)
            end)
          end)

        assert_receive :locked, 5_000
        start = System.monotonic_time(:millisecond)
        assert {reason, _message} = failing(repo: Repo, timeout: 300)
        assert reason in [:timeout, :unavailable]
        assert System.monotonic_time(:millisecond) - start <= 3 * 300
        send(holder, :done)
      end

      defp dynamic_repo(owner) do
        {:dictionary, dictionary} = Process.info(owner, :dictionary)

        Enum.find_value(dictionary, fn {key, value} ->
          match?({Repo, :dynamic_repo}, key) && value
        end)
      end
    end

    test "sees what its process sees in the sandbox" do
      project = Postgres.project!(Postgres.shared())
      options = [url: Postgres.url(Postgres.shared()), pool: Sandbox, name: nil, log: false]
      Repo.put_dynamic_repo(start_supervised!({Repo, options}, id: :sandbox))
      :ok = Sandbox.checkout(Repo.get_dynamic_repo())

      {1, _} =
        Repo.insert_all("agent_instructions", [
          %{
            project_id: Ecto.UUID.dump!(project),
            agent_slug: "developer",
            content: "in the sandbox"
          }
        ])

      opts = [agent: "developer", project_id: project, reader: reader(), cache: :off]

      assert {:ok, %{sources: [%{text: "in the sandbox"}]}} =
               InstructionFiles.load(workspace!(), opts)

      # Nobody else does.
      assert Postgres.sql!(
               Postgres.shared(),
               "SELECT count(*) FROM agent_instructions WHERE project_id = '#{project}'"
             ) ==
               "0"
    end
  end
else
  IO.puts("The tests of Reader.Ecto are left out: Ecto is not on the code path.")

  defmodule Engine.AgentInstructions.Reader.EctoTest do
    use ExUnit.Case, async: true

    alias Engine.AgentInstructions.Reader

    @tag skip: "Ecto is not on the code path"
    test "reads through a Repo", do: flunk("never run")

    test "says that it was compiled without Ecto" do
      assert {:error, %Reader.Error{reason: :driver} = error} =
               Reader.fetch({Reader.Ecto, repo: Engine.Repo}, Engine.Postgres.uuid(), "developer")

      assert error.message ==
               "Engine.AgentInstructions.Reader.Ecto was compiled without Ecto: compile :engine again"
    end
  end
end
