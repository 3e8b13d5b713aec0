defmodule Engine.Harness.Middleware.AIRateLimit.Lease do
  @moduledoc """
  The right to make one call, and what is reserved for it until it is settled or released.

  | field | meaning |
  |---|---|
  | `:id` | a number, one lease's alone within its state |
  | `:key`, `:model`, `:account`, `:tokens`, `:session` | as estimated |
  | `:amounts` | what is reserved: calls, tokens, cost in micro-units |
  | `:admitted_ms` | when it was admitted |
  | `:timeout_ms` | how long the call may take: the limit of an attempt, or what the deadline leaves if that is less; `:infinity` without either |
  | `:generation` | the breaker's, `nil` without one |
  """

  alias Engine.Harness.Middleware.AIRateLimit.{Accounts, Budget, Usage}
  alias Engine.Harness.Options

  @enforce_keys [
    :id,
    :key,
    :model,
    :account,
    :tokens,
    :amounts,
    :admitted_ms,
    :timeout_ms,
    :generation,
    :session
  ]
  defstruct @enforce_keys

  @typedoc "A lease."
  @type t :: %__MODULE__{
          id: pos_integer,
          key: String.t() | atom,
          model: String.t() | nil,
          account: Accounts.id(),
          tokens: Usage.t(),
          amounts: Budget.amounts(),
          admitted_ms: integer,
          timeout_ms: pos_integer | :infinity,
          generation: non_neg_integer | nil,
          session: String.t() | nil
        }

  @doc false
  @spec check!(term) :: t
  def check!(%__MODULE__{} = lease), do: lease

  def check!(other) do
    raise ArgumentError, "expected a lease, got: #{Options.show(other)}"
  end
end
