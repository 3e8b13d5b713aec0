defmodule Engine.Cluster do
  @moduledoc "Real nodes on this machine, for tests."

  @doc "Makes this VM a node, with epmd started if it wasn't; returns how to undo both."
  def start! do
    started_epmd = not epmd?()
    if started_epmd, do: {_, 0} = System.cmd(epmd(), ["-daemon"])
    await_epmd(200)

    name = :"engine_test_#{System.pid()}@127.0.0.1"
    {:ok, _} = :net_kernel.start([name, :longnames])

    fn ->
      :ok = :net_kernel.stop()
      if started_epmd, do: System.cmd(epmd(), ["-kill"], stderr_to_stdout: true)
    end
  end

  @doc """
  A further node that runs the application; its controlling process and its name.

  `args` are further arguments of its VM. By default it is no part of a fully connected network.
  """
  def peer!(name, args \\ ['-connect_all', 'false']) do
    {:ok, peer, node} =
      :peer.start(%{
        name: :"#{name}_#{System.pid()}",
        host: '127.0.0.1',
        longnames: true,
        connection: :standard_io,
        args: ['-setcookie', Atom.to_charlist(Node.get_cookie())] ++ args
      })

    :ok = :peer.call(peer, :code, :add_paths, [:code.get_path()])
    {:ok, _} = :peer.call(peer, :application, :ensure_all_started, [:engine])
    {peer, node}
  end

  defp epmd do
    erts = :erlang.system_info(:version)
    Path.join([:code.root_dir(), "erts-#{erts}", "bin", "epmd"])
  end

  defp epmd?, do: match?({:ok, _}, :gen_tcp.connect('127.0.0.1', 4369, [], 1_000))

  defp await_epmd(tries) do
    cond do
      epmd?() -> :ok
      tries == 0 -> raise "epmd did not start"
      true -> Process.sleep(25) && await_epmd(tries - 1)
    end
  end
end
