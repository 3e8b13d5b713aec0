defmodule Engine.Harness.Debug do
  @moduledoc """
  Shows the prompt of a workspace: what each layer costs, what is not in it and why, and the
  prompt itself.

      iex> Engine.Harness.Debug.print("creative", workspace: ".")

  The output is a function of the workspace's content and of the options. It holds no time and no
  path besides the workspace's as it was typed, so it can be kept and compared.
  """

  alias Engine.Harness.{
    Assembly,
    ContextBuilder,
    Escape,
    InstructionFiles,
    Lint,
    Options,
    PromptAssembler,
    Tokenizer
  }

  @own_options [:io, :prompt, :compare]
  @bar_cells 10

  @doc """
  Prints the prompt that an agent would be given.

  First a table, one row a layer: name, strategy, tokens (`~` before an estimate), budget, how full
  it is, status, and how many of its units are in the prompt; then a column for each tokenizer that
  is compared, with what the same text costs by its count. Then what is not in the prompt, each
  with its tokens and the reason. Then what `Engine.Harness.Lint` warns of. Then the prompt. It is coloured on a terminal, where control
  characters in it are shown as `\\u{hex}`, unless `NO_COLOR` is set.

  ## Options

    * `:io` - the device to print to; by default the group leader's, and standard error for errors.
    * `:prompt` - `false` leaves the prompt itself out; default `true`.
    * `:compare` - tokenizers, as `:tokenizer` takes them, whose counts of the same prompt stand
      beside; default `[]`.
    * all options of `Engine.Harness.PromptAssembler.assemble/2`.
    * `:workspace` and all other options of `Engine.Harness.ContextBuilder.build/2`. What was
      loaded before is checked against the disk (`cache: :revalidate`) by default.

  Returns `:ok`; or prints what is wrong and returns `{:error, exception}`.
  """
  @spec print(String.t(), keyword) :: :ok | {:error, Exception.t()}
  def print(agent, opts \\ []) do
    {io, error_io} = devices(opts)

    case render(agent, opts, terminal?(io)) do
      {:ok, text} ->
        IO.write(io, text)

      {:error, error} ->
        IO.puts(error_io, Exception.message(error))
        {:error, error}
    end
  end

  defp devices(opts) do
    case Keyword.keyword?(opts) && Keyword.get(opts, :io) do
      nothing when nothing in [nil, false] -> {Process.group_leader(), :stderr}
      io -> {io, io}
    end
  end

  defp render(agent, opts, terminal?) do
    all = @own_options ++ PromptAssembler.options() ++ ContextBuilder.options()
    {own, opts} = opts |> Options.validate!(all) |> Keyword.split(@own_options)
    {assembler, builder} = Keyword.split(opts, PromptAssembler.options())
    builder = [count_ignored: true, cache: :revalidate] |> Keyword.merge(builder)

    with {:ok, contents, unused} <- ContextBuilder.build(agent, builder),
         {:ok, assembly} <- PromptAssembler.assemble(contents, assembler),
         {:ok, compared} <- compare(assembly, Keyword.get(own, :compare, [])),
         {:ok, foreign} <- foreign(agent, builder) do
      colour? = terminal? and System.get_env("NO_COLOR", "") == ""

      text = [
        heading(agent, builder, assembly),
        "\n",
        table(assembly, compared, colour?),
        absent(assembly, contents, unused),
        warnings(assembly),
        foreign,
        if(Keyword.get(own, :prompt, true), do: prompt(assembly, terminal?), else: [])
      ]

      {:ok, text}
    end
  rescue
    error in [ArgumentError, Tokenizer.Error] -> {:error, error}
  end

  ## The heading

  defp heading(agent, builder, assembly) do
    [
      ["agent      ", Escape.escape(agent), "\n"],
      ["workspace  ", Escape.escape(builder[:workspace]), "\n"],
      ["tokenizer  ", tokenizer(assembly), "\n"]
    ]
  end

  defp tokenizer(assembly) do
    kind = if assembly.estimated, do: "an estimate", else: "exact"

    ratio =
      case Assembly.bytes_per_token(assembly) do
        nil -> ""
        ratio -> ", #{hundredths(ratio)} bytes per token"
      end

    "#{Tokenizer.name(assembly.tokenizer)} (#{kind}#{ratio})"
  end

  defp hundredths(number) do
    "#{div(number, 100)}.#{number |> rem(100) |> Integer.to_string() |> String.pad_leading(2, "0")}"
  end

  ## What other tokenizers say

  # For each of them its name, and the tokens of each layer and of the prompt.
  defp compare(assembly, specs) when is_list(specs) do
    Enum.reduce_while(specs, {:ok, []}, fn spec, {:ok, compared} ->
      case Tokenizer.new(spec) do
        {:ok, tokenizer} ->
          texts = Enum.map(assembly.layers, & &1.text) ++ [assembly.prompt]

          counts =
            for text <- texts, do: tokens(Tokenizer.count(tokenizer, text), tokenizer.estimated)

          {:cont, {:ok, compared ++ [[Tokenizer.name(spec) | counts]]}}

        error ->
          {:halt, error}
      end
    end)
  end

  defp compare(_assembly, other) do
    raise ArgumentError,
          "expected :compare to be a list of tokenizers, got: #{Options.show(other)}"
  end

  ## The table

  @columns [:left, :left, :right, :right, :left, :left, :left]

  defp table(assembly, compared, colour?) do
    header = ["layer", "strategy", "tokens", "budget", "used", "status", "units"]
    rows = Enum.map(assembly.layers, &row/1)
    rows = [header | rows] ++ [total(assembly)]
    rows = Enum.zip_with([rows | compared], fn [row | counts] -> row ++ counts end)
    columns = @columns ++ Enum.map(compared, fn _ -> :right end)

    widths =
      for column <- 0..(length(columns) - 1) do
        rows |> Enum.map(&(&1 |> Enum.at(column) |> String.length())) |> Enum.max()
      end

    colours = [:bright] ++ Enum.map(assembly.layers, &colour(&1.status)) ++ [:bright]

    for {row, colour} <- Enum.zip(rows, colours) do
      cells =
        for {cell, width, side} <- Enum.zip([row, widths, columns]), do: pad(cell, width, side)

      line = cells |> Enum.join("  ") |> String.trim_trailing()
      [if(colour?, do: IO.ANSI.format([colour, line], true), else: line), "\n"]
    end
  end

  defp row(layer) do
    [
      Atom.to_string(layer.name),
      Atom.to_string(layer.strategy),
      tokens(layer.tokens, layer.estimated),
      number(layer.budget),
      bar(layer.tokens, layer.budget),
      Atom.to_string(layer.status),
      units(layer)
    ]
  end

  defp total(assembly) do
    [
      "prompt",
      "",
      tokens(assembly.tokens, assembly.estimated),
      number(min(assembly.budget, assembly.total_budget)),
      bar(assembly.tokens, min(assembly.budget, assembly.total_budget)),
      "",
      ""
    ]
  end

  defp pad(cell, width, :left), do: String.pad_trailing(cell, width)
  defp pad(cell, width, :right), do: String.pad_leading(cell, width)

  defp colour(:empty), do: :faint
  defp colour(:kept), do: :green
  defp colour(:trimmed), do: :yellow
  defp colour(:dropped), do: :red

  defp bar(tokens, budget) when is_integer(budget) and budget > 0 do
    full = min(@bar_cells, div(tokens * @bar_cells + budget - 1, budget))
    String.duplicate("█", full) <> String.duplicate("░", @bar_cells - full)
  end

  defp bar(_tokens, _budget), do: String.duplicate("░", @bar_cells)

  defp units(%Assembly.Layer{kept: [], dropped: []}), do: ""

  defp units(layer) do
    kept = length(layer.kept)
    "#{number(kept)} of #{number(kept + length(layer.dropped))}"
  end

  ## What is not in the prompt

  defp absent(assembly, contents, unused) do
    rows =
      Enum.flat_map(assembly.layers, &lost(&1, contents[&1.name])) ++ Enum.map(unused, &unused/1)

    width = rows |> Enum.map(fn {name, _, _} -> String.length(name) end) |> Enum.max(fn -> 0 end)
    number = rows |> Enum.map(fn {_, cost, _} -> String.length(cost) end) |> Enum.max(fn -> 0 end)

    lines =
      for {name, cost, words} <- rows do
        ["  ", pad(name, width, :left), "  ", pad(cost, number, :right), "  ", words, "\n"]
      end

    if rows == [], do: [], else: ["\nnot in the prompt\n", lines]
  end

  defp lost(%Assembly.Layer{strategy: :drop_whole_units} = layer, _content) do
    for %{id: id, tokens: tokens} <- layer.dropped do
      reason = "dropped, the layer is over #{limit(layer)} (#{first_to_go(layer.name)})"

      absent_row(layer, tokens, "#{shown(id)}: #{reason}")
    end
  end

  defp lost(%Assembly.Layer{status: :trimmed} = layer, text) do
    cut = "cut at byte #{number(layer.cut_at)} of #{number(byte_size(text))}"
    reason = "#{cut}, over #{limit(layer)}"
    absent_row(layer, layer.tokens_before, reason) |> List.wrap()
  end

  defp lost(%Assembly.Layer{status: :dropped} = layer, _text) do
    reason = "dropped, over #{limit(layer)}"
    absent_row(layer, layer.tokens_before, reason) |> List.wrap()
  end

  defp lost(_layer, _content), do: []

  defp limit(%{limit: budget, budget: budget}), do: "its budget of #{number(budget)}"
  defp limit(layer), do: "the #{number(layer.limit)} that the total budget leaves it"

  defp absent_row(layer, tokens, words) do
    {Atom.to_string(layer.name), tokens(tokens, layer.estimated), words}
  end

  defp unused(%{layer: layer, path: path, message: message}) do
    {Atom.to_string(layer), "", "#{Escape.escape(path)}: #{message}"}
  end

  defp first_to_go(:instruction_files), do: "lowest precedence goes first"
  defp first_to_go(_units), do: "oldest goes first"

  defp shown(id) when is_binary(id), do: Escape.escape(id)
  defp shown(id), do: id |> Options.show() |> Escape.escape()

  ## What it had better not hold

  defp warnings(assembly) do
    case Lint.warnings(assembly) do
      [] -> []
      found -> ["\nwarnings\n", for(%{message: message} <- found, do: ["  ", message, "\n"])]
    end
  end

  ## What others may have brought into the prompt

  # What was loaded a moment ago is asked once more, for what is no part of the contents.
  defp foreign(agent, builder) do
    {workspace, builder} = Keyword.pop!(builder, :workspace)
    {_layers, load} = Keyword.split(builder, [:business_rules, :task_state])
    load = if load[:cache] == :off, do: load, else: Keyword.put(load, :cache, :trust)

    with {:ok, files} <- InstructionFiles.load(workspace, [agent: agent] ++ load) do
      notes =
        for {count, where, option} <- [
              {files.foreign.nested, "nested repositories", "nested_repositories: :skip"},
              {files.foreign.ignored, "ignored directories", "gitignore: true"}
            ],
            count > 0,
            do: "  from #{where}: #{number(count)} (left out by #{option})\n"

      {:ok,
       if(notes == [], do: [], else: ["\ninstruction files that may be other people's\n", notes])}
    end
  end

  ## The prompt

  defp prompt(assembly, terminal?) do
    size = number(byte_size(assembly.prompt))
    text = if terminal?, do: harmless(assembly.prompt), else: assembly.prompt
    newline = if String.ends_with?(text, "\n") or text == "", do: "", else: "\n"
    ["\nprompt: #{size} bytes, sha256 #{assembly.sha256}\n", rule(), text, newline, rule()]
  end

  defp rule, do: [String.duplicate("─", 80), "\n"]

  # A file's escape sequences must not reach the terminal.
  defp harmless(text) do
    Regex.replace(~r/[\x{0}-\x{8}\x{b}-\x{1f}\x{7f}-\x{9f}]/u, text, &Escape.escape/1)
  end

  defp tokens(count, true), do: "~" <> number(count)
  defp tokens(count, false), do: number(count)

  defp number(:infinity), do: "∞"

  defp number(integer) do
    integer
    |> Integer.to_string()
    |> String.replace(~r/(?<=\d)(?=(\d{3})+\z)/, ",")
  end

  # Whether there is a terminal at the other end of the device. A VM without a shell can't say how
  # wide its own terminal is, so there its standard output is looked at.
  defp terminal?(io) do
    match?({:ok, _}, :io.columns(io)) or (io == Process.whereis(:user) and stdout_is_terminal?())
  end

  defp stdout_is_terminal? do
    case File.read_link("/proc/self/fd/1") do
      {:ok, path} -> path =~ ~r{\A/dev/(pts/|tty|console)}
      {:error, _no_proc} -> IO.ANSI.enabled?()
    end
  end
end
