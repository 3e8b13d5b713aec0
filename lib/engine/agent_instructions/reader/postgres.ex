defmodule Engine.AgentInstructions.Reader.Postgres do
  @moduledoc """
  Reads from PostgreSQL without Ecto, by the driver of Debian's package `erlang-p1-pgsql`.

      config :engine, :agent_instructions,
             {Engine.AgentInstructions.Reader.Postgres, url: System.fetch_env!("DATABASE_URL")}

  Each read makes a connection of its own, read-only, and closes it: what is read is kept by
  `Engine.Harness.InstructionFiles`, so this happens once a session. A role that may only SELECT
  from the table is enough.

  ## Options

    * `:url` - `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, parts percent-encoded where they hold
      reserved characters; the port is 5432 by default. `?sslmode=require` encrypts the connection
      without checking the server's certificate. Required.
    * `:timeout` - milliseconds for connecting, reading and closing together; default 5,000.
  """
  @behaviour Engine.AgentInstructions.Reader

  alias Engine.AgentInstructions.Reader.Error
  alias Engine.AgentInstructions.Reader.Postgres.{Address, Connection}
  alias Engine.Harness.Options

  # Text is cast here: a parameter of another type makes the driver wait for an answer that never
  # comes, and cast on this side the comparison still uses the index on project_id.
  @query "SELECT content FROM public.agent_instructions " <>
           "WHERE project_id = $1::text::uuid AND agent_slug = $2::text"

  @doc """
  See `c:Engine.AgentInstructions.Reader.fetch/3`.
  """
  @impl true
  @spec fetch(String.t(), String.t(), keyword) ::
          {:ok, %{content: String.t()} | nil} | {:error, Error.t()}
  def fetch(project_id, agent_slug, options) do
    options = Options.validate!(options, [:url, :timeout])

    with {:ok, address} <- Address.parse(options[:url]),
         {:ok, rows} <-
           Connection.query(address, @query, [project_id, agent_slug], timeout!(options)) do
      case rows do
        [] -> {:ok, nil}
        [[content]] -> {:ok, %{content: content}}
      end
    end
  end

  defp timeout!(options) do
    case Keyword.get(options, :timeout, 5_000) do
      timeout when is_integer(timeout) and timeout > 0 ->
        timeout

      other ->
        raise ArgumentError,
              "expected :timeout to be a positive number of milliseconds, got: #{Options.show(other)}"
    end
  end
end
