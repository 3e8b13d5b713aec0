defmodule Engine.Harness.Middleware.AIRateLimit.Actual do
  @moduledoc """
  What became of a call.

  | key | default | meaning |
  |---|---|---|
  | `:outcome` | required | `:success`, `:failure` or `:unknown`, for the breaker; which answers are failures is the caller's word (`outcome/1`) |
  | `:usage` | `nil` | what it used (`Engine.Harness.Middleware.AIRateLimit.Usage`), and 0 if it cost nothing; what is missing is charged as estimated |
  | `:retry_after_ms` | `nil` | how long the provider asked to wait: nothing passes for this key until then |
  """

  alias Engine.Harness.Middleware.AIRateLimit.Usage
  alias Engine.Harness.Options

  @outcomes [:success, :failure, :unknown]
  @expected "one of #{Options.list(@outcomes)}"

  @enforce_keys [:outcome, :usage, :retry_after_ms]
  defstruct @enforce_keys

  @typedoc "How it ended."
  @type outcome :: :success | :failure | :unknown

  @typedoc "What became of it, as callers tell it."
  @type given :: %{
          required(:outcome) => outcome,
          optional(:usage) => Usage.given() | nil,
          optional(:retry_after_ms) => non_neg_integer
        }

  @typedoc "The same, with all its keys."
  @type t :: %__MODULE__{
          outcome: outcome,
          usage: Usage.given() | nil,
          retry_after_ms: non_neg_integer | nil
        }

  @doc "Checks it; raises `ArgumentError`."
  @spec new!(given | t) :: t
  # Anyone can make a struct, so it is checked as a map is.
  def new!(%__MODULE__{retry_after_ms: nil} = given) do
    given |> Map.from_struct() |> Map.delete(:retry_after_ms) |> new!()
  end

  def new!(%__MODULE__{} = given), do: given |> Map.from_struct() |> new!()

  def new!(given) do
    given = Options.map!(given, "what became of a call", [:outcome], [:usage, :retry_after_ms])
    usage = Map.get(given, :usage)
    if usage != nil, do: Usage.new!(usage, :usage)

    %__MODULE__{
      outcome: Options.value!(given, :outcome, @expected, &(&1 in @outcomes)),
      usage: usage,
      retry_after_ms: Options.natural!(given, :retry_after_ms, nil)
    }
  end

  @doc """
  The usual reading of an HTTP status: too many requests (429) and the provider's own errors (5xx)
  are failures; an error that the request itself is to blame for is not.

      iex> alias Engine.Harness.Middleware.AIRateLimit.Actual
      iex> for status <- [200, 400, 429, 503], do: Actual.outcome(status)
      [:success, :success, :failure, :failure]
  """
  @spec outcome(pos_integer) :: outcome
  def outcome(status) when status == 429 or status in 500..599, do: :failure
  def outcome(status) when is_integer(status), do: :success
end
