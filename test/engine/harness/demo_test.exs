defmodule Engine.Harness.DemoTest do
  use ExUnit.Case, async: true

  doctest Engine.Harness.Demo
end
