defmodule Engine.Application do
  # Starts what has to outlive single calls. Everything works without it, only uncached.
  @moduledoc false
  use Application

  @impl true
  def start(_type, _args) do
    :ok = Engine.Harness.Tokenizer.configure_cache()

    children = [
      Engine.Harness.InstructionFiles.Cache,
      Engine.Harness.Middleware.AIRateLimit.Ledger
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Engine.Supervisor)
  end
end
