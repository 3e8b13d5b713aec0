defmodule Engine.AgentInstructions.Reader do
  @moduledoc """
  Reads an agent's row of the api's table `public.agent_instructions`.

  The table belongs to the api, which migrates it; the engine only reads (ADR 0006, "Ownership of
  agent_instructions"). Which way it reads is configuration, a module or `{module, options}`:

      # an engine that has a Repo
      config :engine, :agent_instructions, {Engine.AgentInstructions.Reader.Ecto, repo: Engine.Repo}

      # without Ecto, by Debian's erlang-p1-pgsql
      config :engine, :agent_instructions,
             {Engine.AgentInstructions.Reader.Postgres, url: System.fetch_env!("DATABASE_URL")}

  Without it no database is read, and a project's instructions can't be asked for.
  """

  alias Engine.AgentInstructions.Reader
  alias Engine.Harness.Options

  @typedoc "A reader as it is configured; `nil` where there is no database."
  @type spec :: module | {module, options :: keyword} | nil

  @typedoc "What of a row is used."
  @type row :: %{required(:content) => String.t(), optional(atom) => term}

  @doc """
  The row of an agent in a project, `nil` when there is none.

  `project_id` is a UUID in its canonical form. All reading happens in the calling process or is
  over, within a bounded time, when this returns.
  """
  @callback fetch(project_id :: String.t(), agent_slug :: String.t(), options :: keyword) ::
              {:ok, row | nil} | {:error, Reader.Error.t()}

  defmodule Error do
    @moduledoc """
    A row that could not be read.

    Fields: `reason`, an atom, and `message`, a sentence that says what to do about it. Never a
    password.

    | reason | meaning |
    |---|---|
    | `:no_reader` | no reader is configured |
    | `:invalid_project_id` | the project's id is no UUID |
    | `:unavailable` | no connection: server down, unknown host, refused, dropped |
    | `:timeout` | no answer in time |
    | `:login` | wrong password, user or authentication method |
    | `:unknown_database` | the server has no such database |
    | `:schema` | the table or a column of it is missing |
    | `:permission` | the role may not read the table |
    | `:query` | any other error of the server, with its words |
    | `:driver` | the library that should read is missing or failed |
    """
    defexception [:reason, :message]

    @type t :: %__MODULE__{reason: atom, message: String.t()}
  end

  @doc """
  The configured reader.

      iex> Engine.AgentInstructions.Reader.configured()
      nil
  """
  @spec configured :: spec
  def configured, do: Application.get_env(:engine, :agent_instructions)

  @doc """
  The row of an agent in a project, by a reader.

  The project's id is checked before anything is asked of the database. Raises `ArgumentError`
  for a value that is no reader.
  """
  @spec fetch(spec, String.t(), String.t()) :: {:ok, row | nil} | {:error, Error.t()}
  def fetch(spec, project_id, agent_slug) do
    with {:ok, project_id} <- canonical(project_id) do
      case split!(spec) do
        nil -> {:error, no_reader(project_id)}
        {module, options} -> module.fetch(project_id, agent_slug, options)
      end
    end
  end

  defp no_reader(project_id) do
    %Error{
      reason: :no_reader,
      message:
        "the instructions of project #{project_id} can't be read: no database is configured " <>
          "(config :engine, :agent_instructions, see Engine.AgentInstructions.Reader; " <>
          "for bin/harness DATABASE_URL)"
    }
  end

  # RFC 9562, section 4: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
  defp canonical(project_id) do
    if is_binary(project_id) and project_id =~ ~r/\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z/i do
      {:ok, String.downcase(project_id)}
    else
      {:error,
       %Error{
         reason: :invalid_project_id,
         message:
           "expected a project id to be a UUID such as 123e4567-e89b-12d3-a456-426614174000, " <>
             "got: #{Options.show(project_id)}"
       }}
    end
  end

  defp split!(nil), do: nil

  defp split!({module, options}) when is_atom(module) and is_list(options),
    do: {checked!(module), options}

  defp split!(module) when is_atom(module), do: {checked!(module), []}
  defp split!(other), do: raise(ArgumentError, expected(other))

  defp checked!(module) do
    if Code.ensure_loaded?(module) and function_exported?(module, :fetch, 3) do
      module
    else
      raise ArgumentError, expected(module)
    end
  end

  # Only the module is shown: options hold passwords.
  defp expected(value) do
    "expected a reader to be a module that implements Engine.AgentInstructions.Reader (fetch/3), " <>
      "or {module, options}, got: #{if is_atom(value), do: inspect(value), else: "something else"}"
  end
end
