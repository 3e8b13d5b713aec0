defmodule Engine.PropertyTest do
  use ExUnit.Case, async: true

  import Engine.Property
  import :proper_types, only: [integer: 0, list: 1]

  test "what holds passes, with as many values as asked for" do
    assert check_all(integer(), [tests: 50], &send(self(), {:value, &1})) == :ok

    for _ <- 1..50, do: assert_received({:value, _value})
    refute_received {:value, _value}
  end

  test "what fails is shrunk, and shown with its seed and the real failure" do
    error =
      assert_raise ExUnit.AssertionError, fn ->
        check_all(list(integer()), [seed: {1, 2, 3}], fn list -> assert length(list) < 3 end)
      end

    assert error.message ==
             "property failed for [0, 0, 0] (seed: {1, 2, 3})\n" <>
               "Assertion with < failed, both sides are exactly equal"

    assert error.left == 3
  end

  test "a raise, a throw and an exit are failures" do
    for {fun, banner} <- [
          {fn _ -> raise "boom" end, "** (RuntimeError) boom"},
          {fn _ -> throw(:boom) end, "** (throw) :boom"},
          {fn _ -> exit(:boom) end, "** (exit) :boom"}
        ] do
      message = "property failed for 0 (seed: {1, 2, 3})\n#{banner}"

      error =
        assert_raise ExUnit.AssertionError, fn ->
          check_all(integer(), [seed: {1, 2, 3}], fun)
        end

      assert error.message == message
    end
  end

  describe "the seed" do
    defp values(opts) do
      check_all(integer(), [tests: 20] ++ opts, &send(self(), {:value, &1}))
      for _ <- 1..20, do: assert_received({:value, _value})
    end

    test "decides which values are tried" do
      assert values(seed: {1, 2, 3}) == values(seed: {1, 2, 3})
      assert values(seed: {1, 2, 3}) != values(seed: {4, 5, 6})
    end

    test "follows from that of the test, and is another one each time" do
      run = fn ->
        :rand.seed(:exsss, 7)
        {values([]), values([])}
      end

      assert {first, second} = run.()
      assert first != second
      assert run.() == {first, second}
    end
  end
end
