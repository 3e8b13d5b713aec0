defmodule Engine.Harness.CLI do
  # The verbs of bin/harness. Exit status: 0, 1 for what is wrong with the data, 2 for what is
  # wrong with the command line.
  @moduledoc false

  alias Engine.AgentInstructions.Reader
  alias Engine.Harness.{Debug, PromptAssembler, Tokenizer}

  @usage """
  usage: bin/harness VERB [OPTION ...]

  verbs:
    debug [WORKSPACE]      print the assembled prompt of a workspace (default: the current folder)
      --agent SLUG           whose prompt (default: developer)
      --budget LAYER=N       a layer's budget in tokens, or "infinity"; may be repeated; the layers are
                             identity, instruction_files, project_context, business_rules, task_state
      --tokenizer NAME       approximate (bytes/4, the default), o200k_base or cl100k_base (exact)
      --compare NAME         what the prompt costs by another tokenizer; may be repeated
      --target PATH          only the instruction files that apply to it; may be repeated
      --gitignore            leave out ignored directories
      --skip-nested          leave out nested repositories (submodules, work trees)
      --project-id UUID      read the agent's instructions in that project from the database, too
      --no-prompt            the table alone

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
      tokenizer: :string,
      compare: :keep,
      target: :keep,
      gitignore: :boolean,
      skip_nested: :boolean,
      project_id: :string,
      prompt: :boolean,
      help: :boolean
    ]

    with {:ok, switches, workspaces} <- parse(argv, strict),
         {:ok, workspace} <- workspace(workspaces),
         {:ok, tokenizer} <- tokenizers(switches, :tokenizer),
         {:ok, compared} <- tokenizers(switches, :compare),
         {:ok, budgets} <- budgets(Keyword.get_values(switches, :budget)) do
      opts =
        [workspace: workspace, budgets: budgets, reader: reader(), compare: compared] ++
          Enum.map(tokenizer, &{:tokenizer, &1}) ++
          Keyword.take(switches, [:prompt, :project_id, :gitignore]) ++
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
      {:error, message} -> wrong(message)
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

  defp budgets(given) do
    Enum.reduce_while(given, {:ok, %{}}, fn text, {:ok, budgets} ->
      case budget(text) do
        {:ok, layer, _budget} when is_map_key(budgets, layer) ->
          {:halt, {:error, "--budget #{layer} stands twice"}}

        {:ok, layer, budget} ->
          {:cont, {:ok, Map.put(budgets, layer, budget)}}

        :error ->
          layers = Enum.join(PromptAssembler.layers(), ", ")

          {:halt,
           {:error,
            "--budget #{inspect(text)} is not LAYER=N, where LAYER is one of #{layers} " <>
              "and N a non-negative integer or infinity"}}
      end
    end)
  end

  defp budget(text) do
    with [name, value] <- String.split(text, "=", parts: 2),
         layer when layer != nil <-
           Enum.find(PromptAssembler.layers(), &(Atom.to_string(&1) == name)),
         {:ok, budget} <- tokens(value) do
      {:ok, layer, budget}
    else
      _ -> :error
    end
  end

  defp tokens("infinity"), do: {:ok, :infinity}

  defp tokens(text) do
    case Integer.parse(text) do
      {tokens, ""} when tokens >= 0 -> {:ok, tokens}
      _ -> :error
    end
  end

  defp show(text) do
    IO.write(text)
    0
  end

  defp wrong(message) do
    IO.puts(:stderr, "harness: #{message}; bin/harness --help lists what there is")
    2
  end
end
