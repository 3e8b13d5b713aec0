# Required by mix.exs, since a compiler has to exist before anything is compiled. Required twice
# when another project and this one are loaded in one VM.
unless Code.ensure_loaded?(Mix.Tasks.Compile.EngineNative) do
  defmodule Mix.Tasks.Compile.EngineNative do
    @moduledoc """
    Builds the Rust library and the port program of `native/` with cargo and puts them into the
    build's `priv`.

    With `HARNESS_HF=1` the library of `Engine.Harness.Tokenizer.HuggingFace` is built too; without
    it, it is removed.

    Does nothing when no source changed since the last build, cargo's presence not being checked
    then. `CARGO_TARGET_DIR` is respected; otherwise cargo builds in `_build/native`, outside the
    folders of the single environments, so that they share one build.
    """
    use Mix.Task.Compiler

    @root Path.dirname(__DIR__)
    # Each with its file in priv/native, and what names that file in cargo's messages.
    @packages [
      {"harness_nif", "libharness_nif.so", ~S/"((?:[^"\\]|\\.)*\.(?:so|dylib))"/},
      {"harness_exec", "harness_exec", ~S/"executable":"((?:[^"\\]|\\.)*)"/}
    ]
    @hugging_face [
      {"harness_hf_nif", "libharness_hf_nif.so", ~S/"((?:[^"\\]|\\.)*\.(?:so|dylib))"/}
    ]
    @sources ["Cargo.toml", "Cargo.lock", ".cargo/**", "native/**"]
    @environment [
      "HARNESS_HF",
      "CARGO_TARGET_DIR",
      "CARGO_BUILD_TARGET",
      "RUSTFLAGS",
      "CARGO_ENCODED_RUSTFLAGS"
    ]

    @impl true
    def run(argv) do
      case wanted(System.get_env("HARNESS_HF", "")) do
        {:ok, wanted} -> run(argv, wanted)
        {:error, message} -> failure(message)
      end
    end

    defp run(argv, wanted) do
      fingerprint = fingerprint()

      if "--force" not in argv and File.read(manifest()) == {:ok, fingerprint} and
           wanted |> List.flatten() |> Enum.all?(&File.regular?(installed(&1))) do
        {:noop, []}
      else
        build(wanted, fingerprint)
      end
    end

    # The packages of each call of cargo. What is not always built has one of its own, so that
    # cargo settles the features of the others' dependencies without it.
    defp wanted(value) when value in ["", "0"], do: {:ok, [@packages]}
    defp wanted("1"), do: {:ok, [@packages, @hugging_face]}

    defp wanted(other) do
      {:error,
       "expected the environment variable HARNESS_HF to be 1, 0 or not set, got: #{inspect(other)}"}
    end

    @impl true
    def manifests, do: [manifest()]

    @impl true
    def clean do
      Enum.each(@packages ++ @hugging_face, &File.rm(installed(&1)))
      File.rm(manifest())
    end

    defp build(wanted, fingerprint) do
      case System.find_executable("cargo") do
        nil ->
          failure("""
          cargo is not installed, and the Rust code of :engine has to be built: install Rust \
          1.91 or newer (on Debian: apt-get install cargo-web)\
          """)

        cargo ->
          Mix.shell().info("Compiling the Rust code (release)")
          _ = Mix.Project.build_structure()
          finish(Enum.all?(wanted, &run_cargo(cargo, &1)), wanted, fingerprint)
      end
    end

    defp finish(true, wanted, fingerprint) do
      Enum.each((@packages ++ @hugging_face) -- List.flatten(wanted), &File.rm(installed(&1)))
      File.mkdir_p!(Path.dirname(manifest()))
      File.write!(manifest(), fingerprint)
      {:ok, []}
    end

    defp finish(false, _wanted, _fingerprint) do
      failure("cargo could not build the Rust code of :engine (its messages are above)")
    end

    defp run_cargo(cargo, packages) do
      arguments =
        ["build", "--release", "--locked", "--message-format", "json-render-diagnostics"] ++
          Enum.flat_map(packages, fn {name, _, _} -> ["--package", name] end)

      target = System.get_env("CARGO_TARGET_DIR") || Path.join(build_root(), "native")
      environment = [{"CARGO_TARGET_DIR", Path.expand(target)}]

      # cargo's own words go to standard error as they come; standard output holds the messages.
      {messages, status} = System.cmd(cargo, arguments, cd: @root, env: environment)
      if status == 0, do: Enum.each(packages, &install(messages, &1))
      status == 0
    end

    # A VM that has the old file mapped would crash if it were overwritten, and a program that runs
    # can't be; a removed one lives on.
    defp install(messages, package) do
      path = installed(package)
      File.mkdir_p!(Path.dirname(path))
      _ = File.rm(path)
      File.cp!(artefact(messages, package), path)
    end

    # Each message is a line of JSON. Elixir 1.14 has no JSON parser, and all that is needed is
    # one path in the artefact's message.
    defp artefact(messages, {name, _file, pattern}) do
      line =
        messages
        |> String.split("\n")
        |> Enum.find(&(&1 =~ ~s("reason":"compiler-artifact") and &1 =~ ~s("name":"#{name}")))

      [path] = Regex.run(Regex.compile!(pattern), line, capture: :all_but_first)
      String.replace(path, ~r/\\(.)/, "\\1")
    end

    defp installed({_name, file, _pattern}) do
      Path.join([Mix.Project.app_path(), "priv", "native", file])
    end

    defp manifest, do: Path.join(Mix.Project.manifest_path(), "compile.engine_native")

    defp build_root, do: Path.dirname(Mix.Project.build_path())

    # Paths, sizes and times of the sources: a removed file and an older one that was put back
    # change it too.
    defp fingerprint do
      files =
        for pattern <- @sources,
            path <- Path.wildcard(Path.join(@root, pattern), match_dot: true),
            {:ok, %{type: :regular} = stat} <- [File.stat(path, time: :posix)],
            do: {Path.relative_to(path, @root), stat.size, stat.mtime}

      :erlang.term_to_binary({files, Enum.map(@environment, &System.get_env/1)})
    end

    defp failure(message) do
      Mix.shell().error(message)

      diagnostic = %Mix.Task.Compiler.Diagnostic{
        compiler_name: "engine_native",
        file: Path.join(@root, "Cargo.toml"),
        message: message,
        position: nil,
        severity: :error
      }

      {:error, [diagnostic]}
    end
  end
end
