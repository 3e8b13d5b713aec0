if Code.ensure_loaded?(Ecto.Schema) do
  defmodule Engine.AgentInstructions.Instruction do
    @moduledoc """
    A row of the api's table `public.agent_instructions`, to read.

    The api migrates the table and writes to it (ADR 0006), so there is no changeset here. One row for
    each project and agent.
    """
    use Ecto.Schema

    @primary_key {:id, :binary_id, autogenerate: false}
    @schema_prefix "public"
    schema "agent_instructions" do
      field(:project_id, :binary_id)
      field(:agent_slug, :string)
      field(:content, :string)
      field(:updated_at, :utc_datetime_usec)
    end

    @type t :: %__MODULE__{
            id: String.t(),
            project_id: String.t(),
            agent_slug: String.t(),
            content: String.t(),
            updated_at: DateTime.t()
          }
  end
end
