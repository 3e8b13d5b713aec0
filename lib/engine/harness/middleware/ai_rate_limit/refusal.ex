defmodule Engine.Harness.Middleware.AIRateLimit.Refusal do
  @moduledoc """
  Why a call was not admitted, with the numbers. It is an exception, so that it can be the reason
  of a halt and be raised as it is.

  | `:kind` | what refuses | unit of the numbers |
  |---|---|---|
  | `:calls`, `:tokens`, `:cost` | a budget | calls, tokens, micro-units |
  | `:request_rate`, `:token_rate` | a rate: `limit` is its burst | calls, tokens |
  | `:breaker` | the breaker: `limit` is its failures in a row | failures |
  | `:retry_after` | the provider asked to wait: `asked` is how much longer | ms |
  | `:deadline` | the session's deadline: `asked` is how long waiting and the call would take | ms |
  | `:attempt` | no call may take any time at all | ms |
  | `:price` | the cost is limited, and the price of the model not known | |
  | `:account` | there is no such account, or it is closed | |
  | `:unreachable` | the server did not answer | |

  | field | meaning |
  |---|---|
  | `:scope` | whose limit: `:session`, `{:account, id}`, `{:key, key}`, `{:model, model}`, `{:server, name}` |
  | `:limit`, `:used`, `:reserved`, `:asked`, `:left` | the numbers, `nil` where there is none |
  | `:retry` | when to try again: after so many ms, `:when_settled` where it may fit once open leases end, or `:never` |
  | `:cause` | for `:deadline`: the refusal that would have to be waited for, if any |
  """

  alias Engine.Harness.Options

  defexception [
    :kind,
    :scope,
    :limit,
    :used,
    :reserved,
    :asked,
    :left,
    :cause,
    retry: :never
  ]

  @typedoc "Why, and the numbers."
  @type t :: %__MODULE__{
          kind:
            :calls
            | :tokens
            | :cost
            | :request_rate
            | :token_rate
            | :breaker
            | :retry_after
            | :deadline
            | :attempt
            | :price
            | :account
            | :unreachable,
          scope: term,
          limit: non_neg_integer | nil,
          used: non_neg_integer | nil,
          reserved: non_neg_integer | nil,
          asked: non_neg_integer | nil,
          left: non_neg_integer | nil,
          retry: pos_integer | :when_settled | :never,
          cause: t | nil
        }

  @impl true
  def message(%__MODULE__{} = refusal) do
    "#{scope(refusal.scope)}, #{what(refusal.kind)}: #{numbers(refusal)}#{retry(refusal)}"
  end

  @doc false
  # What people call it.
  @spec what(atom) :: String.t()
  def what(:request_rate), do: "call rate"
  def what(:token_rate), do: "token rate"
  def what(:breaker), do: "circuit breaker"
  def what(:retry_after), do: "Retry-After"
  def what(:attempt), do: "time-out"
  def what(:cost), do: "cost (micro-units)"
  def what(:deadline), do: "time (ms)"
  def what(kind), do: Atom.to_string(kind)

  defp scope(:session), do: "session"
  defp scope({kind, name}), do: "#{kind} #{Options.show(name)}"

  defp numbers(%{kind: :price}), do: "it is not known, and the cost is limited"
  defp numbers(%{kind: :account}), do: "it is closed, or was never open"
  defp numbers(%{kind: :unreachable}), do: "it did not answer"
  defp numbers(%{kind: :attempt}), do: "0 ms"
  defp numbers(%{kind: :retry_after, asked: asked}), do: "#{asked} ms to wait"
  defp numbers(%{kind: :breaker, used: failures}), do: "open after #{failures} failures in a row"

  defp numbers(%{kind: :deadline} = refusal) do
    cause = if refusal.cause, do: " (#{message(refusal.cause)})", else: ""
    "#{refusal.asked} ms asked, #{refusal.left} of #{refusal.limit} ms left#{cause}"
  end

  defp numbers(refusal) do
    "#{refusal.asked} asked, #{refusal.left} of #{refusal.limit} left " <>
      "(#{refusal.used} used, #{refusal.reserved} reserved)"
  end

  defp retry(%{retry: ms}) when is_integer(ms), do: "; try again in #{ms} ms"
  defp retry(%{retry: :when_settled}), do: "; try again when an open call has ended"
  defp retry(%{retry: :never}), do: ""
end
