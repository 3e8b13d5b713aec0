defmodule Engine.Harness.MiddlewareTest do
  use ExUnit.Case, async: true

  alias Engine.Harness.{Hooks, Middleware}

  doctest Engine.Harness.Middleware

  defmodule Everywhere do
    @moduledoc "Has a callback for each phase, which notes phase and prefix."
    @behaviour Middleware

    @impl true
    def init(opts) do
      case Keyword.validate(opts, [:prefix]) do
        {:ok, opts} -> {:prepared, opts[:prefix]}
        {:error, keys} -> raise ArgumentError, "unknown: #{inspect(keys)}"
      end
    end

    @impl true
    def kind(:pre_model_call), do: :transform
    def kind(_phase), do: :guard

    for phase <- Hooks.phases() do
      @impl true
      def unquote(phase)(payload, {:prepared, prefix}) do
        {:cont, Middleware.note(payload, :seen, "#{prefix}#{unquote(phase)}")}
      end
    end
  end

  defmodule Broken do
    @moduledoc "Raises."
    @behaviour Middleware

    @impl true
    def init([]), do: nil

    @impl true
    def pre_tool_use(_payload, nil), do: raise("boom")
  end

  @payloads %{
    pre_tool_use: %{tool: "sh", arguments: "ls"},
    post_tool_use: %{tool: "sh", arguments: "ls", result: "a.md"},
    session_start: %{session_id: "s1"},
    session_end: %{session_id: "s1", reason: :normal},
    pre_model_call: %{model: "m", prompt: "Hello"},
    post_model_call: %{model: "m", prompt: "Hello", completion: "Hi"}
  }

  test "each callback runs in its phase, with what init/1 prepared" do
    hooks = Middleware.attach(Hooks.new(), {Everywhere, prefix: "in "})

    for phase <- Hooks.phases() do
      assert {:ok, payload} = Hooks.run(hooks, phase, @payloads[phase])
      kind = if phase == :pre_model_call, do: :transform, else: :guard

      assert [
               %{decision: :cont, reason: nil, kind: ^kind},
               %{decision: :seen, reason: reason, kind: ^kind} = note
             ] = payload.events

      assert reason == "in #{phase}"
      assert note.handler == inspect(Everywhere)
      assert note.phase == phase
    end
  end

  test "a phase without a callback has no handler" do
    hooks = Middleware.attach(Hooks.new(), Broken)

    assert Hooks.run(hooks, :session_start, %{session_id: "s1"}) ==
             {:ok, %{session_id: "s1", assigns: %{}}}
  end

  test "a failure halts, under the middleware's name, or is continued from" do
    hooks = Middleware.attach(Hooks.new(), Broken)

    assert {:halt, %Hooks.Error{handler: Broken, kind: :raise}, _payload} =
             Hooks.run(hooks, :pre_tool_use, @payloads.pre_tool_use)

    hooks = Middleware.attach(Hooks.new(), Broken, on_error: :continue, name: "broken")

    assert {:ok, %{events: [%{handler: "broken", decision: :raise}]}} =
             Hooks.run(hooks, :pre_tool_use, @payloads.pre_tool_use)
  end

  test "the same name is attached once" do
    hooks = Middleware.attach(Hooks.new(), Everywhere)

    assert_raise ArgumentError, "#{inspect(Everywhere)} is attached already", fn ->
      Middleware.attach(hooks, {Everywhere, prefix: "again "})
    end

    assert %Hooks{} = Middleware.attach(hooks, Everywhere, name: :second)
  end

  test "options are refused by the middleware's init/1 and by attach/3" do
    assert_raise ArgumentError, "unknown: [:suffix]", fn ->
      Middleware.attach(Hooks.new(), {Everywhere, suffix: "!"})
    end

    assert_raise ArgumentError,
                 "option :kind is unknown, expected any of: :name, :on_error",
                 fn -> Middleware.attach(Hooks.new(), Everywhere, kind: :guard) end
  end

  test "what is no middleware" do
    for {value, shown} <- [
          {Enum, "Enum"},
          {NoSuch.Module, "NoSuch.Module"},
          {{String, []}, "String"},
          {"guard", ~s("guard")},
          {nil, "nil"}
        ] do
      message =
        "expected a middleware to be a module with init/1 and a callback for a phase, " <>
          "got: #{shown}"

      assert_raise ArgumentError, message, fn -> Middleware.attach(Hooks.new(), value) end
    end
  end
end
