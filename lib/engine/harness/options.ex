defmodule Engine.Harness.Options do
  # How options are checked and how values appear in messages, in one place.
  @moduledoc false

  @spec validate!(term, [atom]) :: keyword
  def validate!(opts, allowed) do
    unless Keyword.keyword?(opts) do
      raise ArgumentError, "expected options to be a keyword list, got: #{show(opts)}"
    end

    case Keyword.keys(opts) -- allowed do
      [] ->
        opts

      [key | _] ->
        # Either unknown, or a known one that stands a second time.
        problem = if key in allowed, do: "stands twice", else: "is unknown"

        raise ArgumentError,
              "option #{inspect(key)} #{problem}, expected any of: #{list(allowed)}"
    end
  end

  @doc "An option's value, which is one of the allowed; the first of them when it is not given."
  @spec one_of!(keyword, atom, [term, ...]) :: term
  def one_of!(opts, key, [default | _] = allowed) do
    value = Keyword.get(opts, key, default)

    if value in allowed do
      value
    else
      raise ArgumentError,
            "expected #{inspect(key)} to be one of #{list(allowed)}, got: #{show(value)}"
    end
  end

  @doc "A map that has all the required keys and none besides the optional ones."
  @spec map!(term, String.t(), [atom], [atom]) :: map
  def map!(%{} = map, what, required, optional) when not is_struct(map) do
    missing = Enum.reject(required, &is_map_key(map, &1))
    unknown = map |> Map.keys() |> Enum.sort() |> Kernel.--(required ++ optional)

    cond do
      missing != [] ->
        raise ArgumentError, "#{what} lacks #{list(missing)}"

      unknown != [] ->
        raise ArgumentError,
              "key #{show(hd(unknown))} of #{what} is unknown, " <>
                "expected any of: #{list(required ++ optional)}"

      true ->
        map
    end
  end

  def map!(other, what, _required, _optional) do
    raise ArgumentError, "expected #{what} to be a map, got: #{show(other)}"
  end

  @doc "A map's value of which a test holds, also when it is absent and so `nil`."
  @spec value!(map, atom, String.t(), (term -> boolean)) :: term
  def value!(map, key, expected, test) do
    value = Map.get(map, key)

    if test.(value) do
      value
    else
      raise ArgumentError, "expected #{inspect(key)} to be #{expected}, got: #{show(value)}"
    end
  end

  @doc "A map's value that is a non-negative integer; the default where it is absent."
  @spec natural!(map, atom, default) :: non_neg_integer | default when default: term
  def natural!(map, key, default) do
    if is_map_key(map, key) do
      value!(map, key, "a non-negative integer", &(is_integer(&1) and &1 >= 0))
    else
      default
    end
  end

  @doc "A value as it appears in a message: bounded, whatever it is."
  @spec show(term) :: String.t()
  def show(value), do: inspect(value, limit: 5, printable_limit: 100)

  @spec list([term]) :: String.t()
  def list(values), do: Enum.map_join(values, ", ", &inspect/1)
end
