defmodule Engine.Harness.Report do
  @moduledoc """
  What became of everything that was considered for a prompt, as plain data: for people, for
  programs, and to be kept and compared.

      {:ok, assembly} = Engine.Harness.PromptAssembler.assemble(contents)
      File.write!("prompt.json", Engine.Harness.Report.to_json(assembly))
      File.write!("prompt.html", Engine.Harness.Report.to_html(assembly))

  A report is a function of the assembly and the options: it holds no time, no host's name and no
  path besides the workspace's as it was given, so the same repository gives the same bytes
  wherever it lies.

  ## The JSON

  Its schema is `docs/report.schema.json` (JSON Schema 2020-12), which describes every field;
  `schema` and `version` say which it is. All keys are always there, in one order. Sizes are bytes,
  `tokens` are the tokenizer's, hashes are SHA-256 in lower-case hex.

  Everything that was considered is in the `items` of its layer exactly once: what was given, in
  that order, then what was seen in the workspace and not used. Each has one status with its reason.
  The parts add up to the whole, in bytes and in tokens, with `separators` as the part between them:

    * the `items` of a layer + its `separators` = the layer,
    * the layers + the prompt's `separators` = the prompt.

  `null` for a budget is no limit; so is one beyond 2^53 - 1, the largest integer that every reader
  of JSON gets right (RFC 8259, section 6).
  """

  alias __MODULE__

  import Engine.Harness.Table, only: [number: 1]

  alias Engine.Harness.{
    Assembly,
    Boundary,
    Diff,
    Escape,
    Lint,
    Native,
    Options,
    Plan,
    PromptAssembler,
    Tokenizer
  }

  @schema "engine.harness.report"
  @version 1
  @largest 0x1FFFFFFFFFFFFF

  @typedoc """
  The JSON's shape: maps with atoms for keys; names, strategies and statuses as atoms too.
  """
  @type t :: %Report{
          schema: String.t(),
          version: pos_integer,
          harness: String.t(),
          agent: String.t() | nil,
          workspace: String.t() | nil,
          tokenizer: map,
          prompt: map,
          layers: [map],
          compared: [map],
          foreign: map | nil,
          warnings: [map],
          diff: map | nil,
          inputs: map | nil
        }

  @type option ::
          {:agent, String.t()}
          | {:workspace, String.t()}
          | {:unused, [map]}
          | {:foreign, %{nested: non_neg_integer, ignored: non_neg_integer}}
          | {:compared, [map]}
          | {:prompt, boolean}
          | {:inputs, boolean}
          | {:against, Assembly.t() | t}

  @keys [
    :schema,
    :version,
    :harness,
    :agent,
    :workspace,
    :tokenizer,
    :prompt,
    :layers,
    :compared,
    :foreign,
    :warnings,
    :diff,
    :inputs
  ]
  @enforce_keys @keys
  defstruct @keys

  @options [:agent, :workspace, :unused, :foreign, :compared, :prompt, :inputs, :against]

  defmodule Error do
    @moduledoc """
    A text that is not a report, or a report that lacks what is asked of it.

    Field: `message`.
    """
    defexception [:message]
  end

  @doc """
  The report of an assembly.

  ## Options

    * `:agent`, `:workspace` - named in the report where they are given.
    * `:unused` - what `Engine.Harness.ContextBuilder.build/2` saw and did not use.
    * `:foreign` - how many instruction files may be other people's
      (`t:Engine.Harness.InstructionFiles.t/0`).
    * `:compared` - what `compare/2` made; `[]` by default.
    * `:prompt` - `false` leaves the prompt's text out; default `true`.
    * `:inputs` - `true` adds all that was given and all settings, so that the prompt can be
      assembled again (`Engine.Harness.Replay`); default `false`.
    * `:against` - an earlier assembly or report: adds what changed since (`Engine.Harness.Diff`).

  Raises `ArgumentError` for an option that is none, and what `Engine.Harness.Diff.between/2` raises.

      iex> assembly = Engine.Harness.PromptAssembler.assemble!(identity: "You sell.")
      iex> report = Engine.Harness.Report.new(assembly, agent: "seller")
      iex> {report.agent, report.prompt.tokens, hd(report.layers).status}
      {"seller", 3, :kept}
  """
  @spec new(Assembly.t(), [option]) :: t
  def new(%Assembly{} = assembly, opts \\ []) do
    opts = Options.validate!(opts, @options)
    unused = Keyword.get(opts, :unused, [])
    text? = Options.one_of!(opts, :prompt, [true, false])
    inputs? = Options.one_of!(opts, :inputs, [false, true])

    report = %Report{
      schema: @schema,
      version: @version,
      harness: to_string(Application.spec(:engine, :vsn)),
      agent: name(opts[:agent]),
      workspace: name(opts[:workspace]),
      tokenizer: tokenizer(assembly),
      prompt: prompt(assembly, text?),
      layers: for(layer <- assembly.layers, do: layer(layer, unused)),
      compared: Keyword.get(opts, :compared, []),
      foreign: opts[:foreign],
      warnings:
        for(found <- Lint.warnings(assembly), do: %{found | kind: Atom.to_string(found.kind)}),
      diff: nil,
      inputs: if(inputs?, do: inputs(assembly))
    }

    case opts[:against] do
      nil -> report
      earlier -> %{report | diff: Map.from_struct(Diff.between(earlier, assembly, report))}
    end
  end

  @doc """
  What an assembled prompt costs by other tokenizers, for the option `:compared` of `new/2`.

  `{:error, exception}` for what a tokenizer objects to; raises `ArgumentError` for what is none.

      iex> assembly = Engine.Harness.PromptAssembler.assemble!(identity: "You are careful.")
      iex> {:ok, [compared]} =
      ...>   Engine.Harness.Report.compare(assembly, [{Engine.Harness.Tokenizer.Bpe, encoding: :o200k_base}])
      iex> {compared.name, compared.layers, compared.separators, compared.tokens}
      {"o200k_base", [4, 0, 0, 0, 0], 0, 4}
  """
  @spec compare(Assembly.t(), [Tokenizer.spec()]) :: {:ok, [map]} | {:error, Exception.t()}
  def compare(%Assembly{} = assembly, specs) when is_list(specs) do
    Enum.reduce_while(specs, {:ok, []}, fn spec, {:ok, compared} ->
      case Tokenizer.new(spec) do
        {:ok, tokenizer} -> {:cont, {:ok, compared ++ [counts(assembly, tokenizer)]}}
        error -> {:halt, error}
      end
    end)
  end

  def compare(%Assembly{}, other) do
    raise ArgumentError,
          "expected :compare to be a list of tokenizers, got: #{Options.show(other)}"
  end

  defp counts(assembly, tokenizer) do
    layers = for layer <- assembly.layers, do: Tokenizer.count(tokenizer, layer.text)
    tokens = Tokenizer.count(tokenizer, assembly.prompt)

    %{
      name: Tokenizer.name(tokenizer.spec),
      estimated: tokenizer.estimated,
      layers: layers,
      separators: tokens - Enum.sum(layers),
      tokens: tokens
    }
  end

  @doc """
  A report as JSON: indented, one order of keys, a line feed at the end.

  Takes a report, or an assembly with the options of `new/2`.

      iex> assembly = Engine.Harness.PromptAssembler.assemble!(identity: "You sell.")
      iex> assembly |> Engine.Harness.Report.to_json() |> String.slice(0, 55)
      ~s({\\n  "schema": "engine.harness.report",\\n  "version": 1,\\n)
  """
  @spec to_json(Assembly.t() | t, [option]) :: String.t()
  def to_json(assembly_or_report, opts \\ []) do
    assembly_or_report |> report(opts) |> named() |> Native.report_to_json() |> ok!()
  end

  @doc """
  A report as a page: one HTML file that needs no network, and no script to be read.

  It shows the context by layer, budgets and use, everything that was considered with its reason,
  what changed, and the prompt coloured by layer. Takes a report, or an assembly with the options
  of `new/2`.

      iex> assembly = Engine.Harness.PromptAssembler.assemble!(identity: "<script>")
      iex> Engine.Harness.Report.to_html(assembly) =~ "&lt;script&gt;"
      true
  """
  @spec to_html(Assembly.t() | t, [option]) :: String.t()
  def to_html(assembly_or_report, opts \\ []) do
    assembly_or_report |> report(opts) |> named() |> Native.report_to_html() |> ok!()
  end

  @doc """
  Reads what `to_json/2` wrote.

  `{:error, exception}` (`Engine.Harness.Report.Error`) for what is not JSON, not a report or one
  of another version, and for missing, unknown or misshapen fields.

      iex> report = Engine.Harness.Report.new(Engine.Harness.PromptAssembler.assemble!(identity: "x"))
      iex> Engine.Harness.Report.from_json(Engine.Harness.Report.to_json(report)) == {:ok, report}
      true
  """
  @spec from_json(binary) :: {:ok, t} | {:error, Error.t()}
  def from_json(json) when is_binary(json) do
    case Boundary.invalid_at(json) do
      nil ->
        case Native.report_from_json(json) do
          {:ok, report} -> {:ok, struct!(Report, plain(report))}
          {:error, message} -> {:error, %Error{message: message}}
        end

      offset ->
        {:error, %Error{message: "not a report: not UTF-8 at byte #{offset}"}}
    end
  end

  @doc """
  What was given and how it was set, as `Engine.Harness.PromptAssembler.assemble/2` takes both.

  `{:error, exception}` (`Engine.Harness.Report.Error`) for a report that was written without
  `inputs: true`, and for a tokenizer that is not one of this library's, which has to be given as
  `tokenizer:`: a file can't name code to run.
  """
  @spec inputs(t, keyword) ::
          {:ok, PromptAssembler.contents(), keyword} | {:error, Error.t()}
  def inputs(report, opts)

  def inputs(%Report{inputs: nil}, _opts) do
    {:error, %Error{message: "the report holds no inputs; it has to be written with them"}}
  end

  def inputs(%Report{inputs: inputs}, opts) do
    opts = Options.validate!(opts, [:tokenizer])

    with {:ok, tokenizer} <- spec(inputs.tokenizer, opts) do
      contents = for layer <- inputs.layers, do: {layer.name, layer.text || units(layer.units)}
      budgets = for layer <- inputs.layers, do: {layer.name, layer.budget || :infinity}

      settings = [
        budgets: budgets,
        step:
          for(%{step: step} = layer when step != nil <- inputs.layers, do: {layer.name, step}),
        at: for(%{at: at} = layer when at != nil <- inputs.layers, do: {layer.name, at}),
        total_budget: inputs.total_budget || :infinity,
        give_way: inputs.give_way,
        strict: inputs.strict,
        tokenizer: tokenizer
      ]

      {:ok, contents, settings}
    end
  end

  defp units(units), do: for(%{id: id, text: text} <- units, do: {Escape.unescape(id), text})

  # The tokenizers that a report may name.
  @tokenizers [
    Tokenizer.Approximate,
    {Tokenizer.Bpe, encoding: :o200k_base},
    {Tokenizer.Bpe, encoding: :cl100k_base}
  ]

  defp spec(%{name: name}, opts) do
    ours = Enum.find(@tokenizers, &(Tokenizer.name(&1) == name))

    case Keyword.get(opts, :tokenizer, ours) do
      nil ->
        message =
          "the report's tokenizer, #{name}, is not one of this library's and has to be given"

        {:error, %Error{message: message}}

      spec ->
        {:ok, spec}
    end
  end

  defp ok!({:ok, text}), do: text
  defp ok!({:error, message}), do: raise(ArgumentError, "not a report: #{message}")

  defp report(%Report{} = report, []), do: report

  defp report(%Report{}, opts) do
    raise ArgumentError, "expected no options beside a report, got: #{Options.show(opts)}"
  end

  defp report(%Assembly{} = assembly, opts), do: new(assembly, opts)

  # As the core takes it: names are strings.
  defp named(%Report{} = report), do: report |> Map.from_struct() |> named()

  defp named(%{} = map) do
    for {key, value} <- map, into: %{}, do: {Atom.to_string(key), named(value)}
  end

  defp named(list) when is_list(list), do: Enum.map(list, &named/1)
  defp named(value), do: value

  # As the core gives it: each map has the name of its Rust type in it.
  defp plain(%{} = map) do
    for {key, value} <- Map.to_list(map), key != :__struct__, into: %{}, do: {key, plain(value)}
  end

  defp plain(list) when is_list(list), do: Enum.map(list, &plain/1)
  defp plain(value), do: value

  ## The whole

  defp tokenizer(assembly) do
    %{name: Tokenizer.name(assembly.tokenizer), estimated: assembly.estimated}
  end

  defp prompt(assembly, text?) do
    %{
      bytes: byte_size(assembly.prompt),
      tokens: assembly.tokens,
      budget: limit(assembly.budget),
      total_budget: limit(assembly.total_budget),
      give_way: assembly.give_way,
      strict: assembly.strict,
      bytes_per_100_tokens: Assembly.bytes_per_token(assembly),
      sha256: assembly.sha256,
      separators: Assembly.separators(assembly),
      text: if(text?, do: assembly.prompt)
    }
  end

  defp limit(tokens) when is_integer(tokens) and tokens <= @largest, do: tokens
  defp limit(_unlimited), do: nil

  ## Layers and what is in them

  defp layer(layer, unused) do
    items = Assembly.items(layer)
    given = Enum.reject(items, &(&1.status == :empty))
    joints = byte_size(Plan.separator()) * max(length(given) - 1, 0)

    %{
      name: layer.name,
      strategy: layer.strategy,
      status: layer.status,
      budget: limit(layer.budget),
      limit: limit(layer.limit),
      step: layer.step && limit(layer.step),
      at: layer.at,
      tokens_before: layer.tokens_before,
      tokens: layer.tokens,
      bytes_before: given |> Enum.map(& &1.bytes_before) |> Enum.sum() |> Kernel.+(joints),
      bytes: byte_size(layer.text),
      offset: layer.offset,
      cut_at: layer.cut_at,
      units: units(layer, given),
      separators: Assembly.separators(layer),
      sha256: layer.sha256,
      prefix_sha256: layer.prefix_sha256,
      items:
        for(item <- items, do: item(item, layer)) ++
          for(%{layer: name} = seen <- unused, name == layer.name, do: unused(seen))
    }
  end

  defp units(%{given: text}, _given) when is_binary(text), do: nil
  defp units(layer, given), do: %{kept: length(layer.kept), given: length(given)}

  defp item(item, layer) do
    item
    |> Map.from_struct()
    |> Map.merge(%{
      id: if(is_list(layer.given), do: shown(item.id)),
      reason: Atom.to_string(item.reason),
      message: message(item, layer)
    })
  end

  defp unused(%{path: path, reason: reason, message: message}) do
    %{
      id: name(path),
      index: nil,
      rank: nil,
      status: :unused,
      reason: Atom.to_string(reason),
      message: message,
      offset: nil,
      bytes_before: nil,
      bytes: 0,
      tokens_before: nil,
      tokens: 0,
      sha256: nil
    }
  end

  # A unit's id, which may be any term.
  defp shown(id) when is_binary(id), do: Escape.escape(id)
  defp shown(id), do: id |> Options.show() |> Escape.escape()

  defp name(nil), do: nil
  defp name(text), do: Escape.escape(text)

  defp message(%{status: :kept}, _layer), do: "fits into the budget"
  defp message(%{status: :empty}, _layer), do: "empty"

  defp message(%{status: :dropped}, %{given: units} = layer) when is_list(units) do
    steps = if layer.step, do: ", in steps of #{number(layer.step)}", else: ""
    "dropped, the layer is over #{allowance(layer, "its")} (#{goes_first(layer.name)}#{steps})"
  end

  defp message(%{status: :dropped}, layer), do: "dropped, over #{allowance(layer, "the")}"

  defp message(%{status: :cut} = item, layer) do
    "cut at byte #{number(layer.cut_at)} of #{number(item.bytes_before)}, " <>
      "over #{allowance(layer, "the")}"
  end

  defp allowance(%{limit: limit, budget: budget}, _whose) when limit < budget do
    "the #{number(limit)} that the total budget leaves it"
  end

  defp allowance(layer, whose), do: "#{whose} budget of #{number(layer.budget)}"

  defp goes_first(:instruction_files), do: "lowest precedence goes first"
  defp goes_first(_units), do: "oldest goes first"

  ## What is needed to assemble again

  defp inputs(assembly) do
    %{
      tokenizer: tokenizer(assembly),
      total_budget: limit(assembly.total_budget),
      give_way: assembly.give_way,
      strict: assembly.strict,
      layers:
        for layer <- assembly.layers do
          text? = is_binary(layer.given)

          %{
            name: layer.name,
            budget: limit(layer.budget),
            step: layer.step && limit(layer.step),
            at: layer.at,
            text: if(text?, do: layer.given),
            units: unless(text?, do: given(layer))
          }
        end
    }
  end

  defp given(layer) do
    for {unit, item} <- Enum.zip(layer.given, Assembly.items(layer)) do
      %{id: shown(item.id), text: if(is_binary(unit), do: unit, else: elem(unit, 1))}
    end
  end
end
