defmodule Engine.Harness.Middleware.AIRateLimit.NodesTest do
  # Not async: makes the VM a node, with a further one.
  use ExUnit.Case, async: false

  alias Engine.Cluster
  alias Engine.Harness.{Hooks, Middleware}
  alias Engine.Harness.Middleware.AIRateLimit
  alias AIRateLimit.{Error, Notice, Refusal, Server}

  setup_all do
    stop = Cluster.start!()
    on_exit(stop)
  end

  # A peer that connects to nobody by itself, so that a split stays one.
  setup context do
    {peer, node} = Cluster.peer!("limits", ['-kernel', 'dist_auto_connect', 'never'])
    on_exit(fn -> Process.alive?(peer) && :peer.stop(peer) end)
    name = {:global, context.test}
    on_exit(fn -> Server.forget(name) end)
    connect(peer, node)
    [peer: peer, node: node, name: name]
  end

  defp connect(peer, node) do
    true = Node.connect(node)
    eventually(fn -> node() in :peer.call(peer, Node, :list, []) end)
    :global.sync()
    :ok = :peer.call(peer, :global, :sync, [])
  end

  defp call(tokens), do: %{key: "k", tokens: tokens}

  # A process on the peer, which knows the server's name and asks it.
  defp remote(peer, name) do
    {:ok, agent} = :peer.call(peer, Agent, :start, [Function, :identity, [name]])
    agent
  end

  # Through the peer's own channel, which needs no connection between the nodes.
  defp ask(peer, agent, function, args) do
    :peer.call(peer, Agent, :get, [agent, Server, function, args, 30_000], 30_000)
  end

  defp tokens(name) do
    {:ok, report} = Server.report(name)
    Enum.find(report.rows, &(&1.scope == :session and &1.kind == :tokens))
  end

  defp eventually(condition, tries \\ 1_000) do
    cond do
      condition.() -> true
      tries == 0 -> flunk("it did not happen")
      true -> Process.sleep(10) && eventually(condition, tries - 1)
    end
  end

  test "two nodes share one limit", %{peer: peer, name: name} do
    start_supervised!({Server, name: name, limits: [session_budget: [tokens: 100]]})
    agent = remote(peer, name)
    {:ok, lease} = ask(peer, agent, :reserve, [call(60)])
    assert {:halt, %Refusal{kind: :tokens, left: 40}} = Server.reserve(name, call(50))
    {:ok, _own} = Server.reserve(name, call(40))
    assert {:halt, %Refusal{left: 0}} = ask(peer, agent, :reserve, [call(1)])

    assert ask(peer, agent, :settle, [lease, %{outcome: :success, usage: 50}]) == :ok
    assert %{used: 50, reserved: 40, left: 10} = tokens(name)
  end

  test "when an owner's node is lost, its leases are settled at their estimates",
       %{peer: peer, name: name} do
    start_supervised!({Server, name: name, limits: [session_budget: [tokens: 100]]})
    agent = remote(peer, name)
    {:ok, _lease} = ask(peer, agent, :reserve, [call(60)])
    {:ok, _account} = ask(peer, agent, :allot, [:session, %{tokens: 30}])
    assert %{reserved: 90} = tokens(name)

    :peer.stop(peer)
    eventually(fn -> tokens(name).reserved == 0 end)
    assert %{used: 60, estimated: 60, left: 40} = tokens(name)
  end

  test "a split lets nothing pass on the side without the server; healed, nothing is free",
       %{peer: peer, node: node, name: name} do
    start_supervised!({Server, name: name, limits: [session_budget: [tokens: 100]]})
    agent = remote(peer, name)
    {:ok, lease} = ask(peer, agent, :reserve, [call(60)])

    true = Node.disconnect(node)
    assert {:halt, %Refusal{kind: :unreachable}} = ask(peer, agent, :reserve, [call(1)])
    actual = %{outcome: :success, usage: 10}
    assert {:error, %Error{reason: :unreachable}} = ask(peer, agent, :settle, [lease, actual])

    # This side has charged what the other may be spending, and goes on.
    eventually(fn -> tokens(name).reserved == 0 end)
    assert %{used: 60, estimated: 60} = tokens(name)
    {:ok, _own} = Server.reserve(name, call(40))

    connect(peer, node)
    assert {:error, %Error{reason: :not_open}} = ask(peer, agent, :settle, [lease, actual])
    assert {:halt, %Refusal{kind: :tokens, left: 0}} = ask(peer, agent, :reserve, [call(1)])
  end

  test "a session's hooks on another node share the limit, and let nothing pass in a split",
       %{peer: peer, node: node, name: name} do
    start_supervised!({Server, name: name, limits: [session_budget: [tokens: 150]]})
    # Evaluated, since the peer has no code of this module.
    {estimate, _} = Code.eval_string(~s|fn _ -> %{key: "k", tokens: 100} end|)
    options = [model: {:server, name}, tools: {:server, name}, estimate: estimate]
    hooks = Hooks.new() |> Middleware.attach({AIRateLimit, options}) |> Middleware.attach(Notice)
    call = %{model: "m", prompt: "Hi."}
    tool = %{tool: "ls", arguments: %{}}
    run = &:peer.call(peer, Hooks, :run, [hooks, &1, &2])

    # The process that runs it there ends with it, and leaves its lease open.
    {:ok, %{assigns: assigns}} = run.(:pre_model_call, call)
    eventually(fn -> match?(%{used: 100, estimated: 100, reserved: 0}, tokens(name)) end)

    assert {:halt, %Refusal{kind: :tokens, used: 100, left: 50}, _} =
             Hooks.run(hooks, :pre_model_call, call)

    true = Node.disconnect(node)
    call = Map.put(call, :assigns, assigns)
    assert {:halt, %Error{reason: :unreachable}, _} = run.(:pre_model_call, call)
    fresh = Map.delete(call, :assigns)
    assert {:halt, %Refusal{kind: :unreachable}, _} = run.(:pre_model_call, fresh)
    assert {:halt, %Refusal{kind: :unreachable}, _} = run.(:pre_tool_use, tool)
    assert %{used: 100, reserved: 0} = tokens(name)
  end

  test "when the server's node is lost, nothing passes", %{peer: peer, name: name} do
    options = [name: name, limits: [session_budget: [tokens: 100]]]
    {:ok, _pid} = :peer.call(peer, Server, :start_link, [options])
    eventually(fn -> is_pid(GenServer.whereis(name)) end)
    {:ok, lease} = Server.reserve(name, call(60))

    :peer.stop(peer)
    assert {:halt, %Refusal{kind: :unreachable}} = Server.reserve(name, call(1))

    assert {:error, %Error{reason: :unreachable}} =
             Server.settle(name, lease, %{outcome: :success, usage: 10})
  end
end
