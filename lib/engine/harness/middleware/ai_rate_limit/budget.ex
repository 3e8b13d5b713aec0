defmodule Engine.Harness.Middleware.AIRateLimit.Budget do
  @moduledoc """
  How much may be spent in all: calls, tokens and money, each with what is used and reserved.

  A reservation fits where `used + reserved + asked <= limit`; a limit of 0 lets nothing pass, not
  even a call that asks for nothing; a dimension without a limit is counted all the same. What a
  call really uses may exceed its estimate, and then `used` exceeds the limit: money that was
  spent is spent.

  | field | meaning |
  |---|---|
  | `:limits` | amounts by dimension, only those that are limited |
  | `:used` | what settled calls cost |
  | `:reserved` | what open leases may cost |
  | `:estimated` | the part of `:used` that nobody measured |

  Amounts are maps with the keys `:calls`, `:tokens` and `:cost` (in micro-units).
  """

  @dimensions [:calls, :tokens, :cost]
  @nothing Map.new(@dimensions, &{&1, 0})

  defstruct limits: %{}, used: @nothing, reserved: @nothing, estimated: @nothing

  @typedoc "What is counted."
  @type dimension :: :calls | :tokens | :cost

  @typedoc "An amount of each dimension; negative where something is taken back."
  @type amounts :: %{calls: integer, tokens: integer, cost: integer}

  @typedoc "A budget, with what is spent of it."
  @type t :: %__MODULE__{
          limits: %{optional(dimension) => non_neg_integer},
          used: amounts,
          reserved: amounts,
          estimated: amounts
        }

  @doc "All dimensions, in the order in which they are tested."
  @spec dimensions() :: [dimension, ...]
  def dimensions, do: @dimensions

  @doc "Nothing of any dimension."
  @spec nothing() :: amounts
  def nothing, do: @nothing

  @doc """
  The first dimension in which an amount does not fit; `nil` where all do.

  Dimensions that `asked` doesn't have are not looked at.

      iex> alias Engine.Harness.Middleware.AIRateLimit.Budget
      iex> budget = %Budget{limits: %{calls: 1}}
      iex> {Budget.over(budget, %{calls: 1, tokens: 9}), Budget.over(budget, %{calls: 2})}
      {nil, :calls}
  """
  @spec over(t, %{optional(dimension) => non_neg_integer}) :: dimension | nil
  def over(%__MODULE__{limits: limits}, _asked) when limits == %{}, do: nil

  def over(%__MODULE__{} = budget, asked) do
    Enum.find(@dimensions, fn dimension ->
      case {budget.limits, asked} do
        {%{^dimension => limit}, %{^dimension => amount}} ->
          limit == 0 or taken(budget, dimension) + amount > limit

        _unlimited_or_not_asked ->
          false
      end
    end)
  end

  @doc "Adds amounts to what is reserved."
  @spec reserve(t, amounts) :: t
  def reserve(%__MODULE__{} = budget, amounts) do
    %{budget | reserved: plus(budget.reserved, amounts)}
  end

  @doc "Takes amounts from what is reserved."
  @spec unreserve(t, amounts) :: t
  def unreserve(%__MODULE__{} = budget, amounts) do
    %{budget | reserved: minus(budget.reserved, amounts)}
  end

  @doc "Adds amounts to what is used, and to the part of it that nobody measured."
  @spec use_up(t, amounts, amounts) :: t
  def use_up(%__MODULE__{} = budget, used, estimated) do
    %{budget | used: plus(budget.used, used), estimated: plus(budget.estimated, estimated)}
  end

  @doc "What is left of a dimension, never below 0; `:infinity` where it has no limit."
  @spec left(t, dimension) :: non_neg_integer | :infinity
  def left(%__MODULE__{limits: limits} = budget, dimension) do
    case limits do
      %{^dimension => limit} -> max(0, limit - taken(budget, dimension))
      _unlimited -> :infinity
    end
  end

  @doc "What is used and reserved of a dimension."
  @spec taken(t, dimension) :: non_neg_integer
  def taken(%__MODULE__{} = budget, dimension) do
    Map.fetch!(budget.used, dimension) + Map.fetch!(budget.reserved, dimension)
  end

  @doc "The sum of two amounts."
  @spec plus(amounts, amounts) :: amounts
  def plus(a, b) do
    %{calls: a.calls + b.calls, tokens: a.tokens + b.tokens, cost: a.cost + b.cost}
  end

  @doc "The difference of two amounts."
  @spec minus(amounts, amounts) :: amounts
  def minus(a, b) do
    %{calls: a.calls - b.calls, tokens: a.tokens - b.tokens, cost: a.cost - b.cost}
  end
end
