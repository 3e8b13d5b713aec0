defmodule Engine.Harness.ContextBuilder do
  @moduledoc """
  Collects what the layers of a prompt hold: who the agent is, the instruction files of its
  workspace and the row in the database, the host that it works on, the project's README, business
  rules and task state.

      {:ok, contents, unused} = Engine.Harness.ContextBuilder.build("developer", workspace: ".")
      {:ok, assembly} = Engine.Harness.PromptAssembler.assemble(contents)

  ## Nothing in a repository can imitate the prompt's structure

  Whoever writes a file of the workspace writes into the prompt, but only inside of what was laid
  around it:

    * An instruction file is a unit of its own: a heading that names its path relative to the
      workspace, and a fence of backticks longer than any run of backticks in the file. A unit is sent
      whole or not at all, so the closing fence is always there.
    * The README, which may be cut anywhere, is quoted line by line (`> `), so that every prefix of it
      is still quoted.
    * The host's facts come first in their layer, in a block that is sent whole or left out: see the
      option `:assembler`.
    * A path is shown as `Engine.Harness.Escape` writes it: on one line, without `<` and `>`.

  All of it is a function of the content, so the same files give the same bytes; on two machines too,
  with `environment: false`.
  """

  alias Engine.Harness.{
    Agents,
    Escape,
    HostEnvironment,
    InstructionFiles,
    Options,
    PromptAssembler
  }

  alias Engine.Harness.Middleware.LocalContext

  # In order of preference; the first that is there is the workspace's README.
  @readmes ~w(README.md Readme.md readme.md README.markdown README README.rst README.adoc
              README.org README.txt readme.txt)

  @own_options [:workspace, :environment, :assembler, :business_rules, :task_state]

  @typedoc """
  What was seen and not used: the layer it would have been part of, and what
  `t:Engine.Harness.InstructionFiles.unused/0` says of it.
  """
  @type unused :: %{
          required(:layer) => PromptAssembler.layer(),
          required(:origin) => :file | :database | :host,
          required(:path) => binary,
          required(:reason) => atom,
          required(:message) => String.t(),
          optional(atom) => term
        }

  @doc """
  The options that `build/2` takes.
  """
  @spec options :: [atom]
  def options, do: @own_options ++ (InstructionFiles.options() -- [:agent])

  @doc """
  Builds the contents of a prompt for an agent.

  ## Options

    * `:workspace` - the path of the project's folder; required.
    * `:environment` - the block of `Engine.Harness.HostEnvironment` in front of the README: `true`
      (default) looks at the host, which takes as long as the slowest tool says its version; a
      struct that `Engine.Harness.Middleware.LocalContext` discovered, once a session, is told as it
      is; `false` leaves the block out.
    * `:assembler` - the options that the contents will be assembled with
      (`Engine.Harness.PromptAssembler.assemble/2`), `[]` by default. Where the layer would be cut
      within the block, the block is left out whole, and is part of `unused`.
    * `:business_rules`, `:task_state` - units, oldest first, as
      `Engine.Harness.PromptAssembler.assemble/2` takes them; none by default.
    * all options of `Engine.Harness.InstructionFiles.load/2` but `:agent`, which is the first argument.

  ## Result

  `{:ok, contents, unused}`: what `Engine.Harness.PromptAssembler.assemble/2` takes, and the list
  of all that was seen and is not part of it, with the reason of each.

  `{:error, exception}` when the agent is unknown (`Engine.Harness.Agents`), or what
  `Engine.Harness.InstructionFiles.load/2` says. Raises `ArgumentError` for an unknown option, a
  missing workspace, or an environment that is none.
  """
  @spec build(String.t(), keyword) ::
          {:ok, PromptAssembler.contents(), [unused]} | {:error, Exception.t()}
  def build(agent, opts) do
    {own, load} = opts |> Options.validate!(options()) |> Keyword.split(@own_options)
    workspace = workspace!(own)

    with {:ok, identity} <- Agents.fetch(agent),
         {:ok, files} <- InstructionFiles.load(workspace, Keyword.put(load, :agent, agent)),
         {:ok, readme} <- readme(workspace, load) do
      contents = %{
        identity: identity,
        instruction_files: Enum.map(files.sources, &instruction_unit/1),
        project_context: project_context(readme.sources),
        business_rules: Keyword.get(own, :business_rules, []),
        task_state: Keyword.get(own, :task_state, [])
      }

      block = block(Keyword.get(own, :environment, true), workspace)
      {contents, left_out} = put_block(contents, block, Keyword.get(own, :assembler, []))

      unused =
        Enum.map(files.unused, &Map.put(&1, :layer, :instruction_files)) ++
          Enum.map(left_out ++ readme.unused, &Map.put(&1, :layer, :project_context))

      {:ok, contents, unused}
    end
  end

  defp workspace!(opts) do
    case Keyword.fetch(opts, :workspace) do
      {:ok, workspace} -> workspace
      :error -> raise ArgumentError, "option :workspace is required: the path of a directory"
    end
  end

  defp block(false, _workspace), do: ""
  defp block(true, workspace), do: workspace |> LocalContext.new() |> LocalContext.inject("")

  defp block(%HostEnvironment{} = environment, _workspace),
    do: HostEnvironment.to_text(environment)

  defp block(other, _workspace) do
    raise ArgumentError,
          "expected :environment to be true, false or a HostEnvironment, got: #{Options.show(other)}"
  end

  # Whether the block would be cut depends on all layers where there is a total budget, so it is
  # tried.
  defp put_block(contents, "", _assembler), do: {contents, []}

  defp put_block(%{project_context: readme} = contents, block, assembler) do
    separator = if readme == "", do: "", else: "\n\n"
    with_block = %{contents | project_context: block <> separator <> readme}

    opts = assembler |> Options.validate!(PromptAssembler.options()) |> Keyword.delete(:strict)

    case PromptAssembler.assemble(with_block, opts) do
      {:ok, assembly} ->
        layer = Enum.find(assembly.layers, &(&1.name == :project_context))

        if layer.status == :dropped or (layer.cut_at != nil and layer.cut_at < byte_size(block)),
          do: {contents, [left_out(layer)]},
          else: {with_block, []}

      # The same error that the caller will get.
      {:error, _exception} ->
        {with_block, []}
    end
  end

  defp left_out(%{limit: limit}) do
    %{
      origin: :host,
      path: "host environment",
      reason: :over_budget,
      message: "left out whole: the layer's budget of #{limit} does not hold it"
    }
  end

  # The root's chain is the root alone, so this is the README by the rules of all files: nothing
  # that leads out of the workspace, nothing that is not regular, no endless read.
  defp readme(workspace, load) do
    opts = [filenames: @readmes, target: ".", cache: Keyword.get(load, :cache, :trust)]
    InstructionFiles.load(workspace, opts)
  end

  # A source as it stands in the prompt, with the id that the report names it by.
  @doc false
  @spec instruction_unit(InstructionFiles.Source.t()) :: {String.t(), String.t()}
  def instruction_unit(source) do
    fence = String.duplicate("`", fence_length(source.text))
    newline = if String.ends_with?(source.text, "\n"), do: "", else: "\n"
    text = "# #{heading(source)}\n\n#{fence}\n#{source.text}#{newline}#{fence}"
    {InstructionFiles.id(source), text}
  end

  defp heading(%{origin: :file, path: path}), do: "Instructions from #{Escape.escape(path)}"

  defp heading(%{origin: :database, path: agent}) do
    "Instructions from the database for agent #{Escape.escape(agent)}"
  end

  # CommonMark: a fence is closed by a run that is at least as long as the one that opened it.
  defp fence_length(text) do
    longest =
      ~r/`+/
      |> Regex.scan(text)
      |> Enum.reduce(0, fn [run], most -> max(most, byte_size(run)) end)

    max(3, longest + 1)
  end

  defp project_context([]), do: ""

  defp project_context([readme]) do
    text = String.replace(readme.text, ~r/\R\z/u, "")
    quoted = Regex.replace(line_break(), text, "\\0> ")
    "# #{Escape.escape(readme.path)}\n\n> #{quoted}"
  end

  # Whatever a reader may take for the end of a line: CommonMark's line endings (CR alone is one)
  # and Unicode's (Unicode Standard, section 5.8).
  defp line_break, do: ~r/\r\n|[\n\r\v\f\x{85}\x{2028}\x{2029}]/u
end
