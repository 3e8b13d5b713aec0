defmodule Engine.Harness.Middleware.AIRateLimit.Source do
  # Where limits are kept that hold on the hooks: in a value, or in a server. A server goes by its
  # own clock, a value by the payload's.
  @moduledoc false

  alias Engine.Harness.Middleware.AIRateLimit
  alias Engine.Harness.Middleware.AIRateLimit.{Actual, Error, Estimate, Lease, Refusal, Report}
  alias Engine.Harness.Middleware.AIRateLimit.Server

  @typedoc "A value, or the name of a server."
  @type t :: AIRateLimit.t() | {:server, Server.server()}

  @doc "From an option: limits, or `{:server, name}`."
  @spec new!(keyword | {:server, Server.server()}) :: t
  def new!({:server, name}) when name not in [nil, true, false], do: {:server, name}
  def new!(limits), do: AIRateLimit.new(limits)

  @doc "The time that a decision goes by."
  @spec now!(t, map) :: integer | nil
  def now!({:server, _name}, _payload), do: nil
  def now!(_state, %{now_ms: now}) when is_integer(now), do: now

  def now!(_state, _payload) do
    raise ArgumentError,
          "expected :now_ms in the payload, an integer: limits that are a value have no clock"
  end

  @doc "Begins the session, for its deadline."
  @spec start(t, integer | nil) :: t
  def start({:server, _name} = source, _now), do: source
  def start(state, now), do: AIRateLimit.observe(state, now)

  @spec reserve(t, integer | nil, Estimate.t()) ::
          {:ok, Lease.t(), t} | {:wait, pos_integer, Refusal.t(), t} | {:halt, Refusal.t(), t}
  def reserve({:server, name} = source, _now, estimate) do
    name |> Server.reserve(estimate) |> Tuple.append(source)
  end

  def reserve(state, now, estimate), do: AIRateLimit.reserve(state, now, estimate)

  @spec settle(t, integer | nil, Lease.t(), Actual.t()) :: {:ok, t} | {:error, Error.t()}
  def settle({:server, name} = source, _now, lease, actual) do
    with :ok <- Server.settle(name, lease, actual), do: {:ok, source}
  end

  def settle(state, now, lease, actual), do: AIRateLimit.settle(state, now, lease, actual)

  @doc "Settles at their estimates what this process left open in a session: how many."
  @spec abandon(t, String.t()) :: {:ok, non_neg_integer} | {:error, Error.t()}
  def abandon({:server, name}, session), do: Server.abandon(name, session)
  # Whoever has the value has all its leases.
  def abandon(_state, _session), do: {:ok, 0}

  @spec balance(t, integer | nil, String.t() | atom, term) ::
          {:ok, [Report.row()]} | {:error, Error.t()}
  def balance({:server, name}, _now, key, account), do: Server.balance(name, key, account)

  def balance(state, now, key, account) do
    {:ok, AIRateLimit.balance(state, now, key, account)}
  end
end
