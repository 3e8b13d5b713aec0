defmodule Engine.PathDependencyTest do
  # Not async: shares cargo's folder with whoever else builds.
  use ExUnit.Case, async: false

  import Engine.Workspace

  @root Path.expand("..", __DIR__)

  # Without the parent's variables, which name its own environment and build.
  defp mix(directory, args, env \\ []) do
    inherited =
      for name <- ["MIX_ENV", "MIX_TARGET", "MIX_BUILD_PATH", "MIX_EXS"], do: {name, nil}

    target = System.get_env("CARGO_TARGET_DIR") || Path.join(@root, "_build/native")
    env = inherited ++ [{"CARGO_TARGET_DIR", target}] ++ env
    System.cmd("mix", args, cd: directory, env: env, stderr_to_stdout: true)
  end

  defp project! do
    workspace!(%{
      "mix.exs" => """
      defmodule Shop.MixProject do
        use Mix.Project
        def project, do: [app: :shop, version: "1.0.0", deps: [{:engine, path: #{inspect(@root)}}]]
        def application, do: [extra_applications: [:logger]]
      end
      """,
      "lib/shop.ex" => """
      defmodule Shop do
        def prompt do
          contents = %{identity: "You sell.", business_rules: ["Prices are net."]}
          Engine.Harness.PromptAssembler.assemble!(contents).prompt
        end
      end
      """
    })
  end

  @tag timeout: 300_000
  test "another project compiles the library and assembles" do
    project = project!()
    assert {out, 0} = mix(project, ["run", "-e", "IO.puts(Shop.prompt())"])
    assert out =~ "You sell.\n\nPrices are net.\n"

    # A second run builds nothing.
    assert mix(project, ["run", "-e", "IO.puts(Shop.prompt())"]) ==
             {"You sell.\n\nPrices are net.\n", 0}
  end

  @tag timeout: 300_000
  test "a library that can't be loaded says so, with the reason, at the first call" do
    project = project!()
    assert {_out, 0} = mix(project, ["compile"])
    library = Path.join(project, "_build/dev/lib/engine/priv/native/libharness_nif.so")
    File.write!(library, "no library")

    assert {out, 1} = mix(project, ["run", "--no-compile", "-e", "Shop.prompt()"])
    assert out =~ ":nif_not_loaded"
    assert out =~ "libharness_nif"
    refute out =~ "UndefinedFunctionError"
  end

  @tag timeout: 300_000
  test "where cargo is missing, one line says what to install" do
    project = project!()
    # Everything that is on PATH but cargo.
    tools = workspace!()
    link = fn name -> File.ln_s!(System.find_executable(name), Path.join(tools, name)) end

    for name <- ~w(erl elixir mix sh env dirname readlink sed basename expr),
        System.find_executable(name),
        do: link.(name)

    assert {out, 1} = mix(project, ["compile"], [{"PATH", tools}])

    assert out =~
             "cargo is not installed, and the Rust code of :engine has to be built: install Rust " <>
               "1.91 or newer (on Debian: apt-get install cargo-web)\n"
  end
end
