defmodule Engine.Property do
  @moduledoc """
  Property tests with PropEr.

      import Engine.Property
      import :proper_types, only: [integer: 0, list: 1]

      test "sorting twice is sorting once" do
        check_all(list(integer()), fn list ->
          assert list |> Enum.sort() |> Enum.sort() == Enum.sort(list)
        end)
      end
  """

  # PropEr comes with the system (Debian: erlang-proper), not as a dependency of the project.
  @compile {:no_warn_undefined, :proper}

  @doc """
  Fails the test with the smallest value of `type` that PropEr finds for which `fun` fails.

  `fun` fails by raising, throwing or exiting, as a test's body does; what it returns is not
  looked at. It runs in the test's process.

  | option | default | meaning |
  |---|---|---|
  | `:tests` | 200 | how many values are tried |
  | `:max_size` | 42 | bound to the size of a value, as PropEr grows it |
  | `:seed` | from ExUnit's seed | three integers, as a failure prints them |

  The values follow from the seed that ExUnit prints, so `mix test --seed` tries the same ones.
  """
  @spec check_all(term, keyword, (term -> term)) :: :ok
  def check_all(type, opts \\ [], fun) do
    opts = Keyword.validate!(opts, [:seed, tests: 200, max_size: 42])
    # ExUnit has seeded :rand for this test, from its own seed and the test's name.
    seed = opts[:seed] || {uniform(), uniform(), uniform()}
    options = [:quiet, :long_result, numtests: opts[:tests], max_size: opts[:max_size]]

    case quickcheck(:proper.forall(type, &holds?(fun, &1)), seed, options) do
      true -> :ok
      [value] -> fail(fun, value, seed)
      {:error, reason} -> raise ExUnit.AssertionError, "PropEr gave up: #{inspect(reason)}"
    end
  end

  # A seed is no option of PropEr's: it goes on with what the process has, and erases it then.
  defp quickcheck(property, seed, options) do
    before = :rand.export_seed()
    :rand.seed(:exsplus, seed)
    result = :proper.quickcheck(property, options)
    if before != :undefined, do: :rand.seed(before)
    result
  end

  # As an answer, not as an exception: PropEr shrinks on only while a failure stays the same,
  # and a failed assertion holds the values that it compared.
  defp holds?(fun, value) do
    fun.(value)
    true
  catch
    _kind, _reason -> false
  end

  # Once more with the smallest value, for the message and the stack trace of the real failure.
  defp fail(fun, value, seed) do
    found = "property failed for #{inspect(value, limit: :infinity)} (seed: #{inspect(seed)})"

    try do
      fun.(value)
    rescue
      error in ExUnit.AssertionError ->
        reraise %{error | message: found <> "\n" <> error.message}, __STACKTRACE__
    catch
      kind, reason ->
        banner = Exception.format_banner(kind, reason, __STACKTRACE__)
        reraise ExUnit.AssertionError, [message: found <> "\n" <> banner], __STACKTRACE__
    end

    raise ExUnit.AssertionError, found <> "\nbut held for it when tried again"
  end

  defp uniform, do: :rand.uniform(1_000_000)
end
