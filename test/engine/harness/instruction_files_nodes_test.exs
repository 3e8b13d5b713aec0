defmodule Engine.Harness.InstructionFilesNodesTest do
  # Not async: makes the VM a node, with further ones.
  use ExUnit.Case, async: false

  import Engine.Workspace

  alias Engine.Cluster
  alias Engine.Harness.InstructionFiles
  alias Engine.Harness.InstructionFiles.{Cache, Error}

  setup_all do
    stop = Cluster.start!()
    {one, node_one} = Cluster.peer!("one")
    {two, node_two} = Cluster.peer!("two")

    on_exit(fn ->
      Enum.each([one, two], &:peer.stop/1)
      stop.()
    end)

    [one: one, node_one: node_one, two: two, node_two: node_two]
  end

  setup %{node_one: one, node_two: two} do
    for node <- [one, two], do: true = Node.connect(node)
    :ok
  end

  # Through the peer's own channel, which needs no connection between the nodes.
  defp load(peer, workspace) do
    {:ok, files} = :peer.call(peer, InstructionFiles, :load, [workspace, []])
    Enum.map(files.sources, & &1.text)
  end

  defp load(workspace) do
    {:ok, files} = InstructionFiles.load(workspace)
    Enum.map(files.sources, & &1.text)
  end

  test "an invalidation reaches every connected node", %{one: one, two: two} do
    workspace = workspace!(%{"AGENTS.md" => "old"})
    settle([one, two])

    assert {load(workspace), load(one, workspace), load(two, workspace)} ==
             {["old"], ["old"], ["old"]}

    write!(workspace, "AGENTS.md", "new")

    assert {load(workspace), load(one, workspace), load(two, workspace)} ==
             {["old"], ["old"], ["old"]}

    assert InstructionFiles.invalidate(workspace) == :ok

    assert {load(workspace), load(one, workspace), load(two, workspace)} ==
             {["new"], ["new"], ["new"]}

    write!(workspace, "AGENTS.md", "newest")
    assert :peer.call(one, InstructionFiles, :invalidate_all, []) == :ok
    assert {load(workspace), load(one, workspace)} == {["newest"], ["newest"]}
  end

  test "a node without the application is none to wait for", %{one: one, node_one: node} do
    workspace = workspace!(%{"AGENTS.md" => "text"})
    assert load(workspace) == ["text"]
    :ok = :peer.call(one, :application, :stop, [:engine])
    assert node in Node.list()
    assert InstructionFiles.invalidate(workspace) == :ok
    {:ok, _} = :peer.call(one, :application, :ensure_all_started, [:engine])
  end

  test "a node that does not answer is named; here it is done", %{one: one, node_one: node} do
    workspace = workspace!(%{"AGENTS.md" => "old"})
    assert load(workspace) == ["old"]
    write!(workspace, "AGENTS.md", "new")
    :ok = :peer.call(one, :sys, :suspend, [Cache])
    start = System.monotonic_time(:millisecond)

    assert {:error, %Error{reason: :nodes_did_not_answer} = error} =
             InstructionFiles.invalidate(workspace)

    assert System.monotonic_time(:millisecond) - start <= 3 * 5_000
    :ok = :peer.call(one, :sys, :resume, [Cache])

    assert error.message ==
             "invalidated here, but not known to be on nodes that did not answer: #{node}"

    assert load(workspace) == ["new"]
  end

  test "a node that was disconnected starts empty when it is back", %{one: one, node_one: node} do
    workspace = workspace!(%{"AGENTS.md" => "old"})
    settle([one])
    assert load(one, workspace) == ["old"]
    true = Node.disconnect(node)
    write!(workspace, "AGENTS.md", "new")
    assert InstructionFiles.invalidate(workspace) == :ok
    assert load(one, workspace) == ["old"]

    true = Node.connect(node)
    settle([one])
    assert load(one, workspace) == ["new"]
  end

  # A connection's news has reached a cache when it answers what was asked after it.
  defp settle(peers) do
    :sys.get_state(Cache)

    for peer <- peers do
      # On the peer itself: its kernel has seen the connection once it lists the node.
      true = eventually(fn -> node() in :peer.call(peer, :erlang, :nodes, []) end)
      :peer.call(peer, :sys, :get_state, [Cache])
    end
  end

  defp eventually(condition, tries \\ 500) do
    cond do
      condition.() -> true
      tries == 0 -> false
      true -> Process.sleep(10) && eventually(condition, tries - 1)
    end
  end
end
