defmodule Engine.Harness.Debug do
  @moduledoc """
  Shows the prompt of a workspace: what each layer costs, what is not in it and why, and the
  prompt itself.

      iex> Engine.Harness.Debug.print("creative", workspace: ".")

  The output is a function of the workspace's content and of the options, the host's facts aside
  (`environment: false` leaves them out). Without them it holds no time and no path besides the
  workspace's as it was typed, so it can be kept and compared.
  """

  import Engine.Harness.Table, only: [number: 1, pad: 3]

  alias Engine.Harness.{
    ContextBuilder,
    Diff,
    Escape,
    InstructionFiles,
    Options,
    PromptAssembler,
    Report,
    Table,
    Tokenizer
  }

  @own_options [:io, :prompt, :format, :compare, :against, :inputs]

  @doc """
  Prints the prompt that an agent would be given.

  First a table, one row a layer: name, strategy, tokens (`~` before an estimate), budget, how full
  it is, status, and how many of its units are in the prompt; then a column for each tokenizer that
  is compared, with what the same text costs by its count. Then what is not in the prompt, each
  with its tokens and the reason. Then what `Engine.Harness.Lint` warns of. Then the prompt. It is
  coloured on a terminal, where control characters in it are shown as `\\u{hex}`, unless `NO_COLOR`
  is set.

  Or the same as JSON or as a page (`Engine.Harness.Report`).

  ## Options

    * `:format` - `:table` (default), `:json` or `:html`.
    * `:against` - an earlier assembly or report: adds what changed since.
    * `:inputs` - `true` adds to JSON what is needed to assemble again; default `false`.
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
    format = Options.one_of!(own, :format, [:table, :json, :html])
    builder = Keyword.merge([count_ignored: true, cache: :revalidate], builder)
    builder = Keyword.put_new(builder, :assembler, assembler)

    with {:ok, contents, unused} <- ContextBuilder.build(agent, builder),
         {:ok, assembly} <- PromptAssembler.assemble(contents, assembler),
         {:ok, compared} <- Report.compare(assembly, Keyword.get(own, :compare, [])),
         {:ok, foreign} <- foreign(agent, builder) do
      report =
        Report.new(
          assembly,
          [agent: agent, workspace: builder[:workspace], unused: unused, foreign: foreign] ++
            [compared: compared] ++ Keyword.take(own, [:prompt, :inputs, :against])
        )

      {:ok, format(format, report, terminal?)}
    end
  rescue
    error in [ArgumentError, Tokenizer.Error] -> {:error, error}
  end

  defp format(:json, report, _terminal?), do: Report.to_json(report)
  defp format(:html, report, _terminal?), do: Report.to_html(report)

  defp format(:table, report, terminal?) do
    [
      heading(report),
      "\n",
      table(report, terminal? and System.get_env("NO_COLOR", "") == ""),
      absent(report),
      warnings(report.warnings),
      foreign_notes(report.foreign),
      changed(report.diff),
      if(report.prompt.text, do: prompt(report.prompt, terminal?), else: [])
    ]
  end

  ## The heading

  defp heading(report) do
    [
      ["agent      ", report.agent, "\n"],
      ["workspace  ", report.workspace, "\n"],
      ["tokenizer  ", tokenizer(report), "\n"]
    ]
  end

  defp tokenizer(%{tokenizer: tokenizer, prompt: prompt}) do
    kind = if tokenizer.estimated, do: "an estimate", else: "exact"

    ratio =
      case prompt.bytes_per_100_tokens do
        nil -> ""
        ratio -> ", #{hundredths(ratio)} bytes per token"
      end

    "#{tokenizer.name} (#{kind}#{ratio})"
  end

  defp hundredths(number) do
    "#{div(number, 100)}.#{number |> rem(100) |> Integer.to_string() |> String.pad_leading(2, "0")}"
  end

  ## The table

  @columns [:left, :left, :right, :right, :left, :left, :left]

  defp table(report, colour?) do
    header = ["layer", "strategy", "tokens", "budget", "used", "status", "units"]
    rows = Enum.map(report.layers, &row(&1, report.tokenizer.estimated))
    rows = [header | rows] ++ totals(report)
    compared = Enum.map(report.compared, &column/1)
    rows = Enum.zip_with([rows | compared], fn [row | counts] -> row ++ counts end)
    columns = @columns ++ Enum.map(compared, fn _ -> :right end)

    colours = [:bright] ++ Enum.map(report.layers, &colour(&1.status)) ++ [:faint, :bright]

    for {line, colour} <- Enum.zip(Table.lines(rows, columns), colours) do
      [if(colour?, do: IO.ANSI.format([colour, line], true), else: line), "\n"]
    end
  end

  defp row(layer, estimated) do
    [
      Atom.to_string(layer.name),
      Atom.to_string(layer.strategy),
      tokens(layer.tokens, estimated),
      number(layer.budget),
      bar(layer.tokens, layer.budget),
      Atom.to_string(layer.status),
      units(layer.units)
    ]
  end

  # What stands between the layers, and the whole.
  defp totals(%{prompt: prompt, tokenizer: %{estimated: estimated}}) do
    # No limit, nil, is more than any number.
    budget = min(prompt.budget, prompt.total_budget)

    [
      ["separators", "", tokens(prompt.separators.tokens, estimated), "", "", "", ""],
      [
        "prompt",
        "",
        tokens(prompt.tokens, estimated),
        number(budget),
        bar(prompt.tokens, budget),
        "",
        ""
      ]
    ]
  end

  # What another tokenizer says, from the header down.
  defp column(compared) do
    counts = compared.layers ++ [compared.separators, compared.tokens]
    [compared.name | Enum.map(counts, &tokens(&1, compared.estimated))]
  end

  defp colour(:empty), do: :faint
  defp colour(:kept), do: :green
  defp colour(:trimmed), do: :yellow
  defp colour(:dropped), do: :red

  defp bar(tokens, budget), do: Table.bar([{"█", tokens}], budget)

  defp units(nil), do: ""
  defp units(%{given: 0}), do: ""
  defp units(%{kept: kept, given: given}), do: "#{number(kept)} of #{number(given)}"

  ## What is not in the prompt

  defp absent(report) do
    # What was given comes first, then what was not used of any layer.
    {unused, lost} =
      for(layer <- report.layers, item <- layer.items, do: {layer.name, item})
      |> Enum.filter(fn {_layer, item} -> item.status in [:cut, :dropped, :unused] end)
      |> Enum.split_with(fn {_layer, item} -> item.status == :unused end)

    rows = for {layer, item} <- lost ++ unused, do: absent_row(layer, item, report.tokenizer)
    width = rows |> Enum.map(fn {name, _, _} -> String.length(name) end) |> Enum.max(fn -> 0 end)
    number = rows |> Enum.map(fn {_, cost, _} -> String.length(cost) end) |> Enum.max(fn -> 0 end)

    lines =
      for {name, cost, words} <- rows do
        ["  ", pad(name, width, :left), "  ", pad(cost, number, :right), "  ", words, "\n"]
      end

    if rows == [], do: [], else: ["\nnot in the prompt\n", lines]
  end

  defp absent_row(layer, item, tokenizer) do
    cost = if item.tokens_before, do: tokens(item.tokens_before, tokenizer.estimated), else: ""
    words = if item.id, do: "#{item.id}: #{item.message}", else: item.message
    {Atom.to_string(layer), cost, words}
  end

  defp changed(nil), do: []

  defp changed(diff),
    do: ["\nwhat changed\n", diff |> Diff.to_text() |> String.replace(~r/^(?=.)/m, "  ")]

  ## What it had better not hold

  defp warnings([]), do: []

  defp warnings(found) do
    ["\nwarnings\n", for(%{message: message} <- found, do: ["  ", message, "\n"])]
  end

  ## What others may have brought into the prompt

  # What was loaded a moment ago is asked once more, for what is no part of the contents.
  defp foreign(agent, builder) do
    {workspace, builder} = Keyword.pop!(builder, :workspace)
    load = Keyword.take(builder, InstructionFiles.options())
    load = if load[:cache] == :off, do: load, else: Keyword.put(load, :cache, :trust)

    with {:ok, files} <- InstructionFiles.load(workspace, [agent: agent] ++ load) do
      {:ok, files.foreign}
    end
  end

  defp foreign_notes(foreign) do
    notes =
      for {count, where, option} <- [
            {foreign.nested, "nested repositories", "nested_repositories: :skip"},
            {foreign.ignored, "ignored directories", "gitignore: true"}
          ],
          count > 0,
          do: "  from #{where}: #{number(count)} (left out by #{option})\n"

    if notes == [], do: [], else: ["\ninstruction files that may be other people's\n", notes]
  end

  ## The prompt

  defp prompt(prompt, terminal?) do
    text = if terminal?, do: harmless(prompt.text), else: prompt.text
    newline = if String.ends_with?(text, "\n") or text == "", do: "", else: "\n"
    size = number(prompt.bytes)
    ["\nprompt: #{size} bytes, sha256 #{prompt.sha256}\n", rule(), text, newline, rule()]
  end

  defp rule, do: [String.duplicate("─", 80), "\n"]

  # A file's escape sequences must not reach the terminal.
  defp harmless(text) do
    Regex.replace(~r/[\x{0}-\x{8}\x{b}-\x{1f}\x{7f}-\x{9f}]/u, text, &Escape.escape/1)
  end

  defp tokens(count, true), do: "~" <> number(count)
  defp tokens(count, false), do: number(count)

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
