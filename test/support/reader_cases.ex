defmodule Engine.ReaderCases do
  @moduledoc """
  What holds for every reader of the api's table, on the shared PostgreSQL server.

      use Engine.ReaderCases, reader: {Reader, options}
  """

  defmacro __using__(reader: reader) do
    quote do
      alias Engine.AgentInstructions.Reader
      alias Engine.Postgres

      defp reader, do: unquote(reader)
      defp read(project, slug), do: Reader.fetch(reader(), project, slug)

      describe "a row" do
        test "is read by project and agent, and no other is" do
          one =
            Postgres.project!(Postgres.shared(), [
              {"developer", "one dev"},
              {"tester", "one test"}
            ])

          two = Postgres.project!(Postgres.shared(), [{"developer", "two dev"}])

          assert {:ok, %{content: "one dev"}} = read(one, "developer")
          assert {:ok, %{content: "one test"}} = read(one, "tester")
          assert {:ok, %{content: "two dev"}} = read(two, "developer")
          assert read(two, "tester") == {:ok, nil}
          assert read(Postgres.uuid(), "developer") == {:ok, nil}
        end

        test "is found by an id in upper case" do
          project = Postgres.project!(Postgres.shared(), [{"developer", "text"}])
          assert {:ok, %{content: "text"}} = read(String.upcase(project), "developer")
        end

        test "of a slug with quotes, wildcards and statements" do
          for slug <- [
                "o'neill",
                "100%",
                "a_b",
                ~s("x"),
                "'; DROP TABLE agent_instructions; --",
                "\\"
              ] do
            project = Postgres.project!(Postgres.shared(), [{slug, "of #{slug}"}])
            assert {:ok, %{content: content}} = read(project, slug)
            assert content == "of #{slug}"
            assert read(project, slug <> "%") == {:ok, nil}
            assert read(project, "%") == {:ok, nil}
          end
        end

        test "with empty content" do
          project = Postgres.project!(Postgres.shared(), [{"developer", ""}])
          assert {:ok, %{content: ""}} = read(project, "developer")
        end

        test "with content of 1 MB" do
          content = String.duplicate("zwölf Boxkämpfer\n", 62_500)
          project = Postgres.project!(Postgres.shared(), [{"developer", content}])
          assert {:ok, row} = read(project, "developer")
          assert row.content == content
        end

        test "with odd Unicode" do
          content = "\uFEFF\u202E\u0001\u{10FFFF}\uFFFE e\u0301 👩‍👩‍👧‍👦\r\n"
          project = Postgres.project!(Postgres.shared(), [{"developer", content}])
          assert {:ok, %{content: ^content}} = read(project, "developer")
        end
      end

      test "an id that is no UUID never reaches the database" do
        for id <- [
              "",
              "1",
              "g23e4567-e89b-12d3-a456-426614174000",
              "123e4567e89b12d3a456426614174000",
              nil,
              7
            ] do
          assert {:error, %Reader.Error{reason: :invalid_project_id} = error} =
                   read(id, "developer")

          assert error.message ==
                   "expected a project id to be a UUID such as " <>
                     "123e4567-e89b-12d3-a456-426614174000, got: #{inspect(id)}"
        end
      end

      test "a slug that the database can't hold is an error" do
        project = Postgres.project!(Postgres.shared())
        assert {:error, %Reader.Error{reason: :query}} = read(project, "a\0b")
      end
    end
  end
end
