# Required by mix.exs, since a compiler has to exist before anything is compiled. Required twice
# when another project and this one are loaded in one VM.
unless Code.ensure_loaded?(Mix.Tasks.Compile.EngineNative) do
  defmodule Mix.Tasks.Compile.EngineNative do
    @moduledoc """
    Builds the Rust library and the port program of `native/` with cargo and puts them into the
    build's `priv`.

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
    @sources ["Cargo.toml", "Cargo.lock", ".cargo/**", "native/**"]
    @environment [
      "CARGO_TARGET_DIR",
      "CARGO_BUILD_TARGET",
      "RUSTFLAGS",
      "CARGO_ENCODED_RUSTFLAGS"
    ]

    @impl true
    def run(argv) do
      fingerprint = fingerprint()

      if "--force" not in argv and File.read(manifest()) == {:ok, fingerprint} and
           Enum.all?(@packages, &File.regular?(installed(&1))) do
        {:noop, []}
      else
        build(fingerprint)
      end
    end

    @impl true
    def manifests, do: [manifest()]

    @impl true
    def clean do
      Enum.each(@packages, &File.rm(installed(&1)))
      File.rm(manifest())
    end

    defp build(fingerprint) do
      case System.find_executable("cargo") do
        nil ->
          failure("""
          cargo is not installed, and the Rust code of :engine has to be built: install Rust \
          1.91 or newer (on Debian: apt-get install cargo-web)\
          """)

        cargo ->
          Mix.shell().info("Compiling the Rust code (release)")
          _ = Mix.Project.build_structure()
          run_cargo(cargo, fingerprint)
      end
    end

    defp run_cargo(cargo, fingerprint) do
      arguments =
        ["build", "--release", "--locked", "--message-format", "json-render-diagnostics"] ++
          Enum.flat_map(@packages, fn {name, _, _} -> ["--package", name] end)

      target = System.get_env("CARGO_TARGET_DIR") || Path.join(build_root(), "native")
      environment = [{"CARGO_TARGET_DIR", Path.expand(target)}]

      # cargo's own words go to standard error as they come; standard output holds the messages.
      {messages, status} = System.cmd(cargo, arguments, cd: @root, env: environment)

      if status == 0 do
        Enum.each(@packages, &install(messages, &1))
        File.mkdir_p!(Path.dirname(manifest()))
        File.write!(manifest(), fingerprint)
        {:ok, []}
      else
        failure("cargo could not build the Rust code of :engine (its messages are above)")
      end
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
