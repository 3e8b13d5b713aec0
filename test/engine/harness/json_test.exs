defmodule Engine.Harness.JsonTest do
  use ExUnit.Case, async: true

  import Engine.Property
  import :proper_types, only: [any: 0]

  alias Engine.Harness.Json

  defp encode(term), do: IO.iodata_to_binary(Json.encode(term))

  test "values that JSON has" do
    for {term, text} <- [
          {nil, "null"},
          {true, "true"},
          {:name, ~s("name")},
          {1_000_000_000_000_000_000_001, "1000000000000000000001"},
          {1.0e20, "1.0e20"},
          {"é\n\"\\\x01", ~S("é\u000A\"\\\u0001")},
          {[], "[]"},
          {[1, [2], %{}], "[1,[2],{}]"},
          {%{"b" => 1, a: 2}, ~S({"a":2,"b":1})},
          {%{2 => [1]}, ~S({"2":[1]})}
        ] do
      assert encode(term) == text
    end
  end

  test "other values stand as they are inspected" do
    for {term, text} <- [
          {{1, "a"}, ~S("{1, \"a\"}")},
          {[1 | 2], ~S("[1 | 2]")},
          {"caf\xE9", ~S("<<99, 97, 102, 233>>")},
          {~D[2024-01-02], ~S("~D[2024-01-02]")},
          {%{{1} => 2}, ~S({"{1}":2})}
        ] do
      assert encode(term) == text
    end
  end

  test "whatever the term, it is JSON" do
    check_all(any(), fn term -> :jiffy.decode(encode(%{value: term})) end)
  end
end
