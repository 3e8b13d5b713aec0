defmodule Engine.Harness.Middleware.AIRateLimit.Error do
  @moduledoc """
  What can't be done. Nothing has changed then.

  | `:reason` | meaning |
  |---|---|
  | `:not_open` | no such lease is open: it is settled or released already, or it is another state's |
  | `:altered` | a lease of this id is open, but it is not this one: another key's, or another state's |
  | `:no_account` | there is no such account, or it is closed already |
  | `:not_owner` | the lease, or the account, belongs to another process |
  | `:unreachable` | the server did not answer; whether it did what was asked isn't known |
  | `:running` | a server of this name runs, so what is kept of it can't be forgotten |
  | `:other_limits` | what is kept under this server's name was counted against other limits |
  | `:no_lease` | a call came back through the hooks that never went out through them |

  `:subject` is the lease (of another owner, its number), the account, the server or the limits.
  """

  alias Engine.Harness.Middleware.AIRateLimit.Lease
  alias Engine.Harness.Options

  defexception [:reason, :subject]

  @typedoc "What went wrong."
  @type t :: %__MODULE__{
          reason:
            :not_open
            | :altered
            | :no_account
            | :not_owner
            | :unreachable
            | :running
            | :other_limits
            | :no_lease,
          subject: term
        }

  @impl true
  def message(%__MODULE__{reason: reason, subject: subject}) do
    case reason do
      :not_open ->
        "#{show(subject)} is not open: it is settled or released, or another state's"

      :altered ->
        "#{show(subject)} is not the one that is open under this number"

      :no_account ->
        "account #{show(subject)} is not open"

      :not_owner ->
        "#{show(subject)} belongs to another process"

      :unreachable ->
        "the server #{show(subject)} did not answer"

      :running ->
        "the server #{show(subject)} runs"

      :other_limits ->
        "what is kept under this name was counted against limits other than #{show(subject)}"

      :no_lease ->
        "the call of model #{show(subject)} was never admitted: :assigns must be handed on"
    end
  end

  defp show(%Lease{id: id, key: key}), do: "lease #{id} of key #{inspect(key)}"
  defp show(other), do: Options.show(other)
end
