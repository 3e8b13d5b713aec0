defmodule Engine.Harness.Middleware.AIRateLimit.Estimate do
  @moduledoc """
  What a call is expected to take, told before it is made.

  | key | default | meaning |
  |---|---|---|
  | `:key` | required | what rates, budgets and breakers of a key are counted by: a provider, a model, a customer; a string or an atom |
  | `:tokens` | required | the most that it may use (`Engine.Harness.Middleware.AIRateLimit.Usage`) |
  | `:model` | `nil` | the model, by which its price is looked up |
  | `:expected_ms` | 0 | how long it is expected to take |
  | `:account` | `:session` | whose budget pays: the session's, or an account's that was allotted |
  | `:session` | `nil` | the session that the call is made in (`Engine.Harness.Middleware.AIRateLimit.Server.abandon/3`) |
  """

  alias Engine.Harness.Middleware.AIRateLimit.{Accounts, Limits, Usage}
  alias Engine.Harness.Options

  @enforce_keys [:key, :tokens, :model, :expected_ms, :account, :session]
  defstruct @enforce_keys

  @typedoc "An estimate, as callers give it."
  @type given :: %{
          required(:key) => String.t() | atom,
          required(:tokens) => Usage.given(),
          optional(:model) => String.t(),
          optional(:expected_ms) => non_neg_integer,
          optional(:account) => Accounts.id(),
          optional(:session) => String.t() | nil
        }

  @typedoc "An estimate with all its keys."
  @type t :: %__MODULE__{
          key: String.t() | atom,
          tokens: Usage.t(),
          model: String.t() | nil,
          expected_ms: non_neg_integer,
          account: Accounts.id(),
          session: String.t() | nil
        }

  @doc """
  Checks an estimate; raises `ArgumentError` for what is none.

      iex> Engine.Harness.Middleware.AIRateLimit.Estimate.new!(%{key: "openai", tokens: 1.5})
      ** (ArgumentError) expected :tokens to be a non-negative integer or a map of them with keys among :input_tokens, :cached_input_tokens, :output_tokens, got: 1.5
  """
  @spec new!(given | t) :: t
  # Anyone can make a struct, so it is checked as a map is.
  def new!(%__MODULE__{} = given), do: given |> Map.from_struct() |> new!()

  def new!(given) do
    optional = [:model, :expected_ms, :account, :session]
    given = Options.map!(given, "an estimate", [:key, :tokens], optional)

    %__MODULE__{
      key: Options.value!(given, :key, "a string or an atom", &Limits.key?/1),
      tokens: Usage.new!(given.tokens, :tokens),
      model: Options.value!(given, :model, "a string", &(is_nil(&1) or is_binary(&1))),
      expected_ms: Options.natural!(given, :expected_ms, 0),
      account: Map.get(given, :account, :session),
      session: Options.value!(given, :session, "a string", &(is_nil(&1) or is_binary(&1)))
    }
  end
end
