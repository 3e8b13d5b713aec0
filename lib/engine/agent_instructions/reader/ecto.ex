defmodule Engine.AgentInstructions.Reader.Ecto do
  @moduledoc """
  Reads through an application's own Repo.

      config :engine, :agent_instructions, {Engine.AgentInstructions.Reader.Ecto, repo: Engine.Repo}

  ## Options

    * `:repo` - an `Ecto.Repo` on PostgreSQL; required.
    * `:timeout` - milliseconds that the query may take; default 5,000.

  The query runs in the calling process, so it sees what that process sees in
  `Ecto.Adapters.SQL.Sandbox`.
  """
  @behaviour Engine.AgentInstructions.Reader

  # Compiled only where Ecto is there.
  @compile {:no_warn_undefined, Engine.AgentInstructions.Instruction}

  alias Engine.AgentInstructions.Instruction
  alias Engine.AgentInstructions.Reader.Error
  alias Engine.Harness.Options

  @doc """
  See `c:Engine.AgentInstructions.Reader.fetch/3`.
  """
  @impl true
  @spec fetch(String.t(), String.t(), keyword) :: {:ok, struct | nil} | {:error, Error.t()}
  def fetch(project_id, agent_slug, options) do
    options = Options.validate!(options, [:repo, :timeout])

    repo =
      Keyword.get(options, :repo) || raise ArgumentError, "option :repo is required: an Ecto.Repo"

    if Code.ensure_loaded?(Instruction) do
      get(repo, project_id, agent_slug, Keyword.get(options, :timeout, 5_000))
    else
      message =
        "Engine.AgentInstructions.Reader.Ecto was compiled without Ecto: compile :engine again"

      {:error, %Error{reason: :driver, message: message}}
    end
  end

  defp get(repo, project_id, agent_slug, timeout) do
    by = [project_id: project_id, agent_slug: agent_slug]
    {:ok, repo.get_by(Instruction, by, timeout: timeout)}
  rescue
    error -> {:error, %Error{reason: reason(error), message: message(error)}}
  catch
    :exit, reason ->
      {:error, %Error{reason: :unavailable, message: "the Repo exited: #{shown(reason)}"}}
  end

  # The structs are matched by shape: Postgrex and DBConnection may not be there.
  defp reason(%{postgres: %{code: code}}) when code in [:undefined_table, :undefined_column],
    do: :schema

  defp reason(%{postgres: %{code: :insufficient_privilege}}), do: :permission
  defp reason(%{postgres: %{code: :query_canceled}}), do: :timeout
  defp reason(%{postgres: %{}}), do: :query
  defp reason(%{__struct__: DBConnection.ConnectionError}), do: :unavailable
  defp reason(_other), do: :driver

  defp message(error), do: "agent_instructions can't be read: #{Exception.message(error)}"

  defp shown(reason), do: reason |> Exception.format_exit() |> String.slice(0, 200)
end
