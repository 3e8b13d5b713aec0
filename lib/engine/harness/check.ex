defmodule Engine.Harness.Check do
  @moduledoc """
  Checks that the instruction files of a workspace fit their budget, for the CI of repositories.

  Whoever works in a directory is given the instruction files from the root down to it: a chain. A
  chain that is over the layer's budget loses the root's instructions first, so it is better found
  when they are written. The chains that are looked at end in a directory below which there are no
  more of these files; all others are a part of one of them.

      iex> {:ok, check} = Engine.Harness.Check.run("examples/shop", budget: 45)
      iex> for chain <- check.chains, do: {chain.files, chain.tokens, chain.status}
      [{["AGENTS.md", "web/AGENTS.md"], 44, :near}]
  """

  alias Engine.Harness.{ContextBuilder, Escape, InstructionFiles, Options, PromptAssembler}

  @layer :instruction_files
  @own_options [:budget, :tokenizer]
  @walk_options [:filenames, :gitignore, :nested_repositories]

  @typedoc """
  `:over` the budget, `:near` it (90 % of it or more), or `:ok`.
  """
  @type status :: :ok | :near | :over

  @typedoc """
    * `directory` - where the chain ends, relative to the workspace, `"."` for the workspace itself
    * `files` - the paths, from the root down
    * `tokens` - what they cost as they are sent
    * `status` - see `t:status/0`
  """
  @type chain :: %{
          directory: binary,
          files: [binary],
          tokens: non_neg_integer,
          status: status
        }

  @typedoc """
    * `status` - the worst of the chains', and `:over` with a file that is too large to be read
    * `budget` - tokens, or `:infinity`
    * `estimated` - whether the tokens are an estimate
    * `chains` - in ascending precedence of their last files
    * `unused` - what was seen and not read, see `t:Engine.Harness.InstructionFiles.unused/0`
  """
  @type t :: %{
          status: status,
          budget: non_neg_integer | :infinity,
          estimated: boolean,
          chains: [chain],
          unused: [InstructionFiles.unused()]
        }

  @doc """
  Checks a workspace.

  ## Options

    * `:budget` - tokens that a chain may cost, or `:infinity`; the default of the layer
      `:instruction_files` in `Engine.Harness.PromptAssembler` by default.
    * `:tokenizer` - as `Engine.Harness.PromptAssembler.assemble/2` takes it.
    * `:filenames`, `:gitignore`, `:nested_repositories` - as
      `Engine.Harness.InstructionFiles.load/2` takes them.

  Errors are those of these two functions.
  """
  @spec run(Path.t(), keyword) :: {:ok, t} | {:error, Exception.t()}
  def run(workspace, opts \\ []) do
    {own, walk} =
      opts |> Options.validate!(@own_options ++ @walk_options) |> Keyword.split(@own_options)

    {budget, assembler} =
      Keyword.pop_lazy(own, :budget, fn -> PromptAssembler.default_budget(@layer) end)

    assembler = [budgets: [{@layer, budget}]] ++ assembler

    with {:ok, files} <- InstructionFiles.load(workspace, [cache: :off] ++ walk),
         # Nothing at all is assembled too, for what is wrong with the options.
         {:ok, %{estimated: estimated}} <- PromptAssembler.assemble(%{}, assembler),
         {:ok, chains} <- measure(chains(files.sources), assembler) do
      too_large = if Enum.any?(files.unused, &(&1.reason == :too_large)), do: [:over], else: []
      worst = Enum.max_by([:ok | Enum.map(chains, & &1.status)] ++ too_large, &severity/1)

      {:ok,
       %{
         status: worst,
         budget: budget,
         estimated: estimated,
         chains: chains,
         unused: files.unused
       }}
    end
  end

  @doc """
  A check as `bin/harness check` prints it.
  """
  @spec to_text(t) :: String.t()
  def to_text(check) do
    chains =
      for chain <- check.chains do
        files = Enum.map_join(chain.files, " + ", &Escape.escape/1)
        "#{word(chain.status)}  #{tokens(chain.tokens, check)}  #{files}\n"
      end

    unused =
      for unused <- check.unused do
        status = if unused.reason == :too_large, do: :over, else: :near
        "#{word(status)}  not read: #{Escape.escape(unused.path)}: #{unused.message}\n"
      end

    over = Enum.count(check.chains, &(&1.status == :over))
    near = Enum.count(check.chains, &(&1.status == :near))

    summary =
      "chains: #{length(check.chains)}, over the budget of #{limit(check)}: #{over}, " <>
        "at 90 % of it or more: #{near}\n"

    IO.iodata_to_binary([chains, unused, summary])
  end

  defp word(:ok), do: "ok     "
  defp word(:near), do: "warning"
  defp word(:over), do: "error  "

  defp tokens(tokens, check) do
    tokens = if check.estimated, do: "~#{tokens}", else: "#{tokens}"
    "#{String.pad_leading(tokens, 7)} of #{limit(check)}"
  end

  defp limit(%{budget: :infinity}), do: "infinity"
  defp limit(%{budget: budget}), do: Integer.to_string(budget)

  ## Chains

  # Of each directory with a file and none below it: the files from the root down.
  defp chains(sources) do
    by_directory = Map.new(sources, &{directory(&1), &1})

    inner =
      for {directory, _} <- by_directory, above <- above(directory), into: MapSet.new(), do: above

    for source <- sources, directory = directory(source), directory not in inner do
      chain = for above <- above(directory) ++ [directory], found = by_directory[above], do: found
      {directory, chain}
    end
  end

  # As a list of components, raw bytes: what is compared is a path, not a text.
  defp directory(source), do: source.path |> :binary.split("/", [:global]) |> Enum.drop(-1)

  # The directories above one, from the root down.
  defp above([]), do: []

  defp above(directory),
    do: for(depth <- 0..(length(directory) - 1), do: Enum.take(directory, depth))

  defp measure(chains, assembler) do
    Enum.reduce_while(chains, {:ok, []}, fn {directory, sources}, {:ok, measured} ->
      units = Enum.map(sources, &ContextBuilder.instruction_unit/1)

      case PromptAssembler.assemble([{@layer, units}], assembler) do
        {:ok, assembly} ->
          layer = Enum.find(assembly.layers, &(&1.name == @layer))
          {:cont, {:ok, [chain(directory, sources, layer) | measured]}}

        error ->
          {:halt, error}
      end
    end)
    |> case do
      {:ok, measured} -> {:ok, Enum.reverse(measured)}
      error -> error
    end
  end

  defp chain(directory, sources, layer) do
    %{
      directory: if(directory == [], do: ".", else: Enum.join(directory, "/")),
      files: Enum.map(sources, & &1.path),
      tokens: layer.tokens_before,
      status: status(layer)
    }
  end

  defp status(%{status: status}) when status in [:trimmed, :dropped], do: :over

  defp status(%{tokens_before: tokens, budget: budget})
       when is_integer(budget) and tokens * 10 >= budget * 9,
       do: :near

  defp status(_layer), do: :ok

  defp severity(:ok), do: 0
  defp severity(:near), do: 1
  defp severity(:over), do: 2
end
