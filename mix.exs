Code.require_file("native/mix_compiler.exs", __DIR__)

defmodule Engine.MixProject do
  use Mix.Project

  @version "0.1.0"

  def project do
    [
      app: :engine,
      version: @version,
      elixir: "~> 1.14",
      description:
        "A deterministic agent harness: prompt assembly, hooks and limits around a model",
      elixirc_paths: elixirc_paths(Mix.env()),
      compilers: [:engine_native] ++ Mix.compilers(),
      # Ecto may be on the code path without being a dependency (ERL_LIBS).
      xref: [exclude: [Ecto.Schema]],
      deps: deps()
    ]
  end

  def application do
    [
      mod: {Engine.Application, []},
      extra_applications: [:logger, :crypto] ++ system_libraries(Mix.env())
    ]
  end

  # Not dependencies: libraries of the system that are used where they are there.
  defp system_libraries(:test),
    do: [proper: :optional, jiffy: :optional] ++ system_libraries(:any)

  defp system_libraries(_env), do: [p1_pgsql: :optional, stringprep: :optional, ssl: :optional]

  defp elixirc_paths(:test), do: ["lib", "test/support"]
  defp elixirc_paths(_env), do: ["lib"]

  # A single Hex-style entry makes every mix command stop and ask for Hex where it is not
  # installed, so the optional libraries are declared only where they can be had.
  defp deps do
    if Code.ensure_loaded?(Hex) do
      [
        {:ecto_sql, "~> 3.12", optional: true},
        {:postgrex, "~> 0.19", optional: true},
        {:telemetry, "~> 1.3", optional: true}
      ]
    else
      []
    end
  end
end
