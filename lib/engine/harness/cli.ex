defmodule Engine.Harness.CLI do
  # The verbs of bin/harness. Exit status: 0, 1 for what is wrong with the data, 2 for what is
  # wrong with the command line.
  @moduledoc false

  alias Engine.AgentInstructions.Reader
  alias Engine.Harness.{Check, Debug, Demo, PromptAssembler, Replay, Report, Tokenizer}

  @usage """
  usage: bin/harness VERB [OPTION ...]

  verbs:
    debug [WORKSPACE]      print the assembled prompt of a workspace (default: the current folder)
      --agent SLUG           whose prompt (default: developer)
      --budget LAYER=N       a layer's budget in tokens, or "infinity"; may be repeated; the layers are
                             identity, instruction_files, project_context, business_rules, task_state
      --total-budget N       what the whole prompt may cost in tokens; layers give way to it
      --step LAYER=N         drop at least N tokens at a time from a layer of units; may be repeated
      --at PLACE             where the project context is cut: grapheme (the default), line, markdown
      --strict LAYER         status 1 if anything of the layer is lost; may be repeated
      --tokenizer NAME       approximate (bytes/4, the default), o200k_base or cl100k_base (exact)
      --compare NAME         what the prompt costs by another tokenizer; may be repeated
      --target PATH          only the instruction files that apply to it; may be repeated
      --gitignore            leave out ignored directories
      --skip-nested          leave out nested repositories (submodules, work trees)
      --project-id UUID      read the agent's instructions in that project from the database, too
      --no-environment       without the facts about this host
      --no-prompt            the table alone
      --format FORMAT        table (the default), json or html (a page to open in a browser)
      --against FILE         what changed since an earlier prompt, kept by --format json
      --inputs               with json: all that is needed to assemble again, for replay
    check [WORKSPACE]      status 1 if the instruction files that apply to any one directory are over
                           their budget together; a warning from 90 % of it on
      --budget N             in tokens (default: #{PromptAssembler.default_budget(:instruction_files)})
      --tokenizer, --gitignore, --skip-nested as above
    replay FILE            assemble again from what --format json --inputs kept, and compare:
                             status 0 where the bytes are the same
    demo loops             a scripted session in which an agent loops, is nudged, blocked and halted,
                           and its trace
      --json                 the trace alone, as OTLP JSON
    demo limits            a scripted session that waits, is refused, and runs out of its budget

    --help                 this text
    --version              the library's version

  environment:
    DATABASE_URL           postgres://USER:PASSWORD@HOST:PORT/DATABASE, for --project-id
    NO_COLOR               set to anything: no colours
  """

  @doc """
  Runs the command line of this VM in the folder `HARNESS_FOLDER`, and halts it.

  No code is loaded from there: `bin/harness` starts the VM elsewhere, and Erlang's code path loses
  its `"."` here.
  """
  @spec main :: no_return
  def main do
    _ = :code.del_path('.')
    # What is printed must not depend on the locale.
    :ok = :io.setopts(:standard_io, encoding: :unicode)
    :ok = :io.setopts(:standard_error, encoding: :unicode)

    folder = System.fetch_env!("HARNESS_FOLDER")

    status =
      case File.cd(folder) do
        :ok ->
          run(System.argv())

        {:error, reason} ->
          wrong("the current folder can't be entered: #{:file.format_error(reason)}")
      end

    System.halt(status)
  end

  @doc "Runs the command line and returns its exit status."
  @spec run([String.t()]) :: 0 | 1 | 2
  def run(argv) do
    case argv do
      ["debug" | rest] -> debug(rest)
      ["check" | rest] -> check(rest)
      ["replay" | rest] -> replay(rest)
      ["demo" | rest] -> demo(rest)
      [help] when help in ["--help", "-h", "help"] -> show(@usage)
      ["--version"] -> show("harness #{Application.spec(:engine, :vsn)}\n")
      [] -> wrong("a verb is missing")
      [verb | _] -> wrong("unknown verb #{inspect(verb)}")
    end
  end

  defp debug(argv) do
    strict = [
      agent: :string,
      budget: :keep,
      total_budget: :string,
      step: :keep,
      at: :string,
      strict: :keep,
      tokenizer: :string,
      compare: :keep,
      target: :keep,
      gitignore: :boolean,
      skip_nested: :boolean,
      project_id: :string,
      prompt: :boolean,
      environment: :boolean,
      format: :string,
      against: :string,
      inputs: :boolean,
      help: :boolean
    ]

    with {:ok, switches, workspaces} <- parse(argv, strict),
         {:ok, workspace} <- workspace(workspaces),
         {:ok, tokenizer} <- tokenizers(switches, :tokenizer),
         {:ok, compared} <- tokenizers(switches, :compare),
         {:ok, budgets} <- by_layer(switches, :budget, PromptAssembler.layers(), &tokens/1),
         {:ok, steps} <-
           by_layer(switches, :step, PromptAssembler.layers(:drop_whole_units), &step/1),
         {:ok, total} <- one(switches, :total_budget, &tokens/1),
         {:ok, at} <- one(switches, :at, &place/1),
         {:ok, strict} <- strict(Keyword.get_values(switches, :strict)),
         {:ok, format} <- format(Keyword.get(switches, :format, "table")),
         {:ok, against} <- against(switches[:against]) do
      opts =
        [workspace: workspace, budgets: budgets, reader: reader(), compare: compared] ++
          [step: steps, strict: strict, format: format] ++
          against ++
          Enum.map(tokenizer, &{:tokenizer, &1}) ++
          Enum.map(total, &{:total_budget, &1}) ++
          Enum.map(at, &{:at, [project_context: &1]}) ++
          Keyword.take(switches, [:prompt, :environment, :inputs, :project_id, :gitignore]) ++
          if(switches[:skip_nested], do: [nested_repositories: :skip], else: []) ++
          case Keyword.get_values(switches, :target) do
            [] -> []
            targets -> [target: targets]
          end

      cond do
        switches[:help] -> show(@usage)
        Debug.print(Keyword.get(switches, :agent, "developer"), opts) == :ok -> 0
        true -> 1
      end
    else
      {:error, error} when is_exception(error) -> failed(error)
      {:error, message} -> wrong(message)
    end
  end

  defp replay(argv) do
    with {:ok, switches, files} <- parse(argv, help: :boolean),
         {:help, nil} <- {:help, switches[:help]},
         {:ok, file} <- file(files),
         {:ok, json} <- read(file),
         {:ok, replay} <- Replay.run(json) do
      IO.write(Replay.to_text(replay))
      if replay.diff.same, do: 0, else: 1
    else
      {:help, true} -> show(@usage)
      {:error, error} when is_exception(error) -> failed(error)
      {:error, message} -> wrong(message)
    end
  end

  defp demo(argv) do
    with {:ok, switches, names} <- parse(argv, json: :boolean, help: :boolean) do
      cond do
        switches[:help] ->
          show(@usage)

        names == ["loops"] ->
          demo_loops(Keyword.get(switches, :json, false))

        names == ["limits"] and switches[:json] ->
          wrong("--json goes with demo loops")

        names == ["limits"] ->
          show(Demo.Limits.story())

        names == [] ->
          wrong("the demo's name is missing; there are: loops, limits")

        true ->
          wrong("unknown demo #{Enum.map_join(names, " ", &inspect/1)}; there are: loops, limits")
      end
    else
      {:error, message} -> wrong(message)
    end
  end

  defp demo_loops(json?) do
    {story, trace} = Demo.loops()

    if json?,
      do: show([trace, "\n"]),
      else: show([story, "\ntrace (OTLP JSON, one span a line)\n", trace, "\n"])
  end

  defp file([file]), do: {:ok, file}
  defp file([]), do: {:error, "replay needs a file"}
  defp file([_, extra | _]), do: {:error, "one file at a time, got also #{inspect(extra)}"}

  defp read(file) do
    with {:error, reason} <- File.read(file) do
      {:error, %File.Error{reason: reason, action: "read file", path: file}}
    end
  end

  defp format("table"), do: {:ok, :table}
  defp format("json"), do: {:ok, :json}
  defp format("html"), do: {:ok, :html}
  defp format(other), do: {:error, "--format #{inspect(other)} is not one of table, json, html"}

  defp against(nil), do: {:ok, []}

  defp against(file) do
    with {:ok, json} <- read(file), {:ok, report} <- Report.from_json(json) do
      {:ok, [against: report]}
    end
  end

  # From the environment, since an argument shows in the process list.
  defp reader do
    case System.get_env("DATABASE_URL", "") do
      "" -> Reader.configured()
      url -> {Reader.Postgres, url: url}
    end
  end

  defp parse(argv, strict) do
    case OptionParser.parse(argv, strict: strict, aliases: [h: :help]) do
      {switches, rest, []} ->
        {:ok, switches, rest}

      {_, _, [{switch, nil} | _]} ->
        # A known switch that lacks its value comes back the same way as an unknown one.
        known =
          for {name, type} <- strict,
              type != :boolean,
              do: "--" <> (name |> Atom.to_string() |> String.replace("_", "-"))

        problem = if switch in known, do: "needs a value", else: "is unknown"
        {:error, "option #{switch} #{problem}"}

      {_, _, [{switch, value} | _]} ->
        {:error, "option #{switch} can't be #{inspect(value)}"}
    end
  end

  defp workspace([]), do: {:ok, "."}
  defp workspace([workspace]), do: {:ok, workspace}

  defp workspace([_, extra | _]),
    do: {:error, "one workspace at a time, got also #{inspect(extra)}"}

  @tokenizers %{
    "approximate" => Tokenizer.Approximate,
    "o200k_base" => {Tokenizer.Bpe, encoding: :o200k_base},
    "cl100k_base" => {Tokenizer.Bpe, encoding: :cl100k_base}
  }

  # A list, since without the switch the configured one counts.
  defp tokenizers(switches, switch) do
    names = Keyword.get_values(switches, switch)

    case Enum.reject(names, &is_map_key(@tokenizers, &1)) do
      [] ->
        {:ok, Enum.map(names, &@tokenizers[&1])}

      [unknown | _] ->
        {:error,
         "--#{switch} #{inspect(unknown)} is not one of approximate, o200k_base, cl100k_base"}
    end
  end

  # LAYER=VALUE for each of some layers, as a map.
  defp by_layer(switches, switch, layers, value) do
    switches
    |> Keyword.get_values(switch)
    |> Enum.reduce_while({:ok, %{}}, fn text, {:ok, found} ->
      case layer_value(text, layers, value) do
        {:ok, layer, _value} when is_map_key(found, layer) ->
          {:halt, {:error, "--#{switch} #{layer} stands twice"}}

        {:ok, layer, value} ->
          {:cont, {:ok, Map.put(found, layer, value)}}

        :error ->
          {:halt,
           {:error,
            "--#{switch} #{inspect(text)} is not LAYER=N, where LAYER is one of " <>
              "#{Enum.join(layers, ", ")} and N #{allowed(switch)}"}}
      end
    end)
  end

  defp layer_value(text, layers, value) do
    with [name, text] <- String.split(text, "=", parts: 2),
         {:ok, layer} <- layer(name, layers),
         {:ok, value} <- value.(text) do
      {:ok, layer, value}
    else
      _ -> :error
    end
  end

  defp layer(name, layers) do
    case Enum.find(layers, &(Atom.to_string(&1) == name)) do
      nil -> :error
      layer -> {:ok, layer}
    end
  end

  # A list, since without the switch there is a default.
  defp one(switches, switch, value) do
    with {:ok, text} <- Keyword.fetch(switches, switch),
         {:text, :error} <- {:text, value.(text)} do
      name = switch |> Atom.to_string() |> String.replace("_", "-")
      {:error, "--#{name} #{inspect(text)} is not #{allowed(switch)}"}
    else
      :error -> {:ok, []}
      {:text, {:ok, value}} -> {:ok, [value]}
    end
  end

  defp strict(names) do
    layers = PromptAssembler.layers()

    case Enum.find(names, &(layer(&1, layers) == :error)) do
      nil ->
        {:ok, for(name <- Enum.uniq(names), {:ok, layer} <- [layer(name, layers)], do: layer)}

      name ->
        {:error, "--strict #{inspect(name)} is not one of #{Enum.join(layers, ", ")}"}
    end
  end

  defp allowed(:step), do: "a positive integer"
  defp allowed(:at), do: "one of grapheme, line, markdown"
  defp allowed(_tokens), do: "a non-negative integer or infinity"

  defp tokens("infinity"), do: {:ok, :infinity}

  defp tokens(text) do
    case Integer.parse(text) do
      {tokens, ""} when tokens >= 0 -> {:ok, tokens}
      _ -> :error
    end
  end

  defp step(text) do
    with {:ok, step} when is_integer(step) and step > 0 <- tokens(text),
         do: {:ok, step},
         else: (_ -> :error)
  end

  defp place("grapheme"), do: {:ok, :grapheme}
  defp place("line"), do: {:ok, :line}
  defp place("markdown"), do: {:ok, :markdown}
  defp place(_other), do: :error

  defp check(argv) do
    strict = [
      budget: :string,
      tokenizer: :string,
      gitignore: :boolean,
      skip_nested: :boolean,
      help: :boolean
    ]

    with {:ok, switches, workspaces} <- parse(argv, strict),
         {:ok, workspace} <- workspace(workspaces),
         {:ok, tokenizer} <- tokenizers(switches, :tokenizer),
         {:ok, budget} <- one(switches, :budget, &tokens/1) do
      opts =
        Enum.map(budget, &{:budget, &1}) ++
          Enum.map(tokenizer, &{:tokenizer, &1}) ++
          Keyword.take(switches, [:gitignore]) ++
          if(switches[:skip_nested], do: [nested_repositories: :skip], else: [])

      if switches[:help], do: show(@usage), else: report(Check.run(workspace, opts))
    else
      {:error, message} -> wrong(message)
    end
  end

  defp report({:ok, check}) do
    show(Check.to_text(check))
    if check.status == :over, do: 1, else: 0
  end

  defp report({:error, error}) do
    IO.puts(:stderr, Exception.message(error))
    1
  end

  defp show(text) do
    IO.write(text)
    0
  end

  defp failed(error) do
    IO.puts(:stderr, Exception.message(error))
    1
  end

  defp wrong(message) do
    IO.puts(:stderr, "harness: #{message}; bin/harness --help lists what there is")
    2
  end
end
