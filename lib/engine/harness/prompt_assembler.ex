defmodule Engine.Harness.PromptAssembler do
  @moduledoc """
  Assembles a prompt from five layers, each with its own token budget and its own way of being
  trimmed. A pure function: the same input gives the same bytes on every node.

      iex> {:ok, assembly} =
      ...>   Engine.Harness.PromptAssembler.assemble(
      ...>     %{
      ...>       identity: "You are a careful reviewer.",
      ...>       business_rules: ["Prices are net.", "Prices are gross."]
      ...>     },
      ...>     budgets: [business_rules: 5]
      ...>   )
      iex> assembly.prompt
      "You are a careful reviewer.\\n\\nPrices are gross."
      iex> assembly.tokens
      12
      iex> rules = Enum.find(assembly.layers, &(&1.name == :business_rules))
      iex> {rules.status, rules.kept, rules.dropped}
      {:trimmed, [%{id: 1, tokens: 5}], [%{id: 0, tokens: 4}]}

  ## Layers

  In this order (ADR 0006):

  | layer | content | strategy | default budget | goes first |
  |---|---|---|---|---|
  | `:identity` | text | `:keep_or_drop` | 1,000 | |
  | `:instruction_files` | units | `:drop_whole_units` | 8,000 | lowest precedence |
  | `:project_context` | text | `:truncate_tail` | 4,000 | |
  | `:business_rules` | units | `:drop_whole_units` | 4,000 | oldest |
  | `:task_state` | units | `:drop_whole_units` | 4,000 | oldest |

  A text is a binary. Units are a list of binaries or `{id, binary}`, in the order in which they
  are sent, what may be dropped first at its head. Units are joined by an empty line, and so are
  layers that are not empty; empty units are left out.

  ## Strategies

  The budget is tested against the tokens of the layer's text as it will be sent, separators and
  marker included.

    * `:keep_or_drop` - all or nothing.
    * `:drop_whole_units` - whole units go from the head, one at a time, until the rest fits. None is
      split, none in the middle is skipped to keep an older one, and a unit that alone is larger than
      the budget goes too. With a step they go some at a time, see below.
    * `:truncate_tail` - a text over its budget is cut at a boundary (see `Engine.Harness.Boundary`)
      and followed by `[… truncated …]`, such that the whole fits. The option `:at` says where.

  ## A stable prefix

  A provider's prompt cache reuses what a prompt has in common with the one before it, up to the
  first byte that differs. Trimmed from the head by one unit a turn, a layer that grows loses that
  turn after turn. With `step: [business_rules: 500]` units are dropped from the head until at least
  ⌈(tokens − budget) / step⌉ · step of the layer's tokens are gone, so that the head moves once in
  500 tokens of growth and stands still in between. What units that go are worth is counted by
  themselves, in front of whatever follows, so the cut is a function of the content alone. A step
  larger than the budget may empty the layer.

      iex> rules = for turn <- 1..121, do: "r\#{rem(turn, 10)}"
      iex> kept = fn turn ->
      ...>   assembly =
      ...>     Engine.Harness.PromptAssembler.assemble!(
      ...>       [business_rules: Enum.take(rules, turn)],
      ...>       budgets: [business_rules: 100],
      ...>       step: [business_rules: 20]
      ...>     )
      ...>   hd(Enum.find(assembly.layers, &(&1.name == :business_rules)).kept).id
      ...> end
      iex> for turn <- [100, 101, 110, 120, 121], do: kept.(turn)
      [0, 20, 20, 20, 40]

  ## A total budget

  With `total_budget: 12_000` the whole prompt costs at most that, separators included. Layers keep
  their own budgets; where that is not enough, one layer after the other gives way, in the order of
  `:give_way`, to what the others leave of the total, each by its own strategy. The identity never
  gives way.
  """

  alias Engine.Harness.{
    Assembly,
    InvalidTextError,
    Markdown,
    Options,
    Plan,
    StrictError,
    Tokenizer,
    TotalBudgetError
  }

  # {name, strategy, default budget in tokens}
  @layers [
    {:identity, :keep_or_drop, 1_000},
    {:instruction_files, :drop_whole_units, 8_000},
    {:project_context, :truncate_tail, 4_000},
    {:business_rules, :drop_whole_units, 4_000},
    {:task_state, :drop_whole_units, 4_000}
  ]
  @names Enum.map(@layers, &elem(&1, 0))
  @stepping for {name, :drop_whole_units, _} <- @layers, do: name
  @cut for {name, :truncate_tail, _} <- @layers, do: name
  @give_way [:project_context, :task_state, :instruction_files, :business_rules]
  @places [:grapheme, :line, :markdown]

  @options [:budgets, :tokenizer, :step, :at, :total_budget, :give_way, :strict]

  @typedoc "One of `layers/0`."
  @type layer ::
          :identity | :instruction_files | :project_context | :business_rules | :task_state

  @typedoc "A unit, by itself or with an id that the report names it by."
  @type unit :: String.t() | {id :: term, String.t()}

  @typedoc "What each layer holds. A layer that is left out is empty."
  @type contents ::
          %{optional(layer) => String.t() | [unit]} | [{layer, String.t() | [unit]}]

  @type option ::
          {:budgets, by_layer(budget)}
          | {:tokenizer, Tokenizer.spec()}
          | {:step, by_layer(pos_integer)}
          | {:at, by_layer(:grapheme | :line | :markdown)}
          | {:total_budget, budget}
          | {:give_way, [layer]}
          | {:strict, [layer]}

  @typedoc "A map or a keyword list."
  @type by_layer(value) :: %{optional(layer) => value} | [{layer, value}]

  @typedoc "Tokens; 0 empties the layer."
  @type budget :: non_neg_integer | :infinity

  @doc """
  The layers' names, in the order they are sent.

      iex> Engine.Harness.PromptAssembler.layers()
      [:identity, :instruction_files, :project_context, :business_rules, :task_state]
  """
  @spec layers :: [layer]
  def layers, do: @names

  @doc """
  The names of the layers that are trimmed by one strategy.

      iex> Engine.Harness.PromptAssembler.layers(:drop_whole_units)
      [:instruction_files, :business_rules, :task_state]
  """
  @spec layers(:keep_or_drop | :drop_whole_units | :truncate_tail) :: [layer]
  def layers(strategy), do: for({name, ^strategy, _} <- @layers, do: name)

  @doc """
  The options that `assemble/2` takes.
  """
  @spec options :: [atom]
  def options, do: @options

  @doc """
  The budget that a layer has by default, in tokens.

      iex> Engine.Harness.PromptAssembler.default_budget(:instruction_files)
      8000
  """
  @spec default_budget(layer) :: non_neg_integer
  for {name, _, budget} <- @layers do
    def default_budget(unquote(name)), do: unquote(budget)
  end

  @doc """
  Assembles a prompt.

  ## Options

    * `:budgets` - a map or keyword list from layer to tokens, a non-negative integer or `:infinity`;
      layers that are left out have their default budget.
    * `:tokenizer` - a module or `{module, options}`, see `Engine.Harness.Tokenizer`; the configured
      one by default.
    * `:step` - from a layer of units to a positive number of tokens: its cut moves in steps, see "A
      stable prefix". None by default.
    * `:at` - from a layer of text that is cut (`:project_context`) to where: `:grapheme` (default), at
      the last boundary that fits; `:line`, after the last line that fits, or at the last boundary in
      the first line where that alone does not; `:markdown`, in the last tenth of the budget before
      the last heading, else between two paragraphs, else between two lines, else at the last
      boundary. A code fence that is open there is then closed before the marker, by a run like its
      own, and that counts.
    * `:total_budget` - tokens that the whole prompt may cost, `:infinity` by default; see "A total
      budget".
    * `:give_way` - the order in which layers give way to the total budget; one that is not in it never
      does, and `:identity` may not be. Default `#{inspect(@give_way)}`.
    * `:strict` - a list of layers of which nothing may be lost: if one of them would be trimmed or
      dropped, that is an error instead of a shorter prompt. Changes nothing else. None by default.

  ## Errors

  Raises `ArgumentError`, naming the layer, the value and what is allowed, for what a programmer got
  wrong: an unknown layer or option, content of the wrong shape, a budget that is none.

  Returns `{:error, exception}` for what is wrong with the data:

    * `Engine.Harness.InvalidTextError` - a text that is not UTF-8;
    * `Engine.Harness.TotalBudgetError` - a total budget that is less than what never gives way costs;
    * `Engine.Harness.StrictError` - a strict layer that would lose something;
    * `Engine.Harness.Tokenizer.Error` - a tokenizer that returned rubbish;
    * `Engine.Harness.Tokenizer.HuggingFace.Error` - a tokenizer's file that can't be used, or a text
      that it can't count;
    * whatever the tokenizer's own `c:Engine.Harness.Tokenizer.init/1` objects to.
  """
  @spec assemble(contents, [option]) :: {:ok, Assembly.t()} | {:error, Exception.t()}
  def assemble(contents, opts \\ []) do
    opts = Options.validate!(opts, @options)
    contents = named(contents, "contents", @names)
    budgets = opts |> Keyword.get(:budgets, []) |> named("budgets", @names)
    steps = opts |> Keyword.get(:step, []) |> named("step", @stepping)
    places = opts |> Keyword.get(:at, []) |> named("at", @cut)

    total = %{
      budget: opts |> Keyword.get(:total_budget, :infinity) |> total_budget!(),
      give_way:
        opts |> Keyword.get(:give_way, @give_way) |> names!(:give_way, @names -- [:identity]),
      strict: opts |> Keyword.get(:strict, []) |> names!(:strict, @names)
    }

    layers =
      for {name, strategy, default} <- @layers do
        %{
          name: name,
          strategy: strategy,
          option: option!(strategy, name, steps, places),
          budget: budgets |> Map.get(name, default) |> budget!(name),
          given: Map.get(contents, name),
          content: content(strategy, Map.get(contents, name), name)
        }
      end

    # An option that is given as nil is a mistake, not "the configured one".
    spec = Keyword.get_lazy(opts, :tokenizer, &Tokenizer.configured/0)

    with {:ok, tokenizer} <- Tokenizer.new(spec),
         {:ok, assembly} <- plan(layers, total, tokenizer) do
      strict(assembly)
    end
  rescue
    error in [Tokenizer.Error, Tokenizer.HuggingFace.Error] -> {:error, error}
  end

  @doc """
  Like `assemble/2`, but returns the assembly and raises what would be an error.
  """
  @spec assemble!(contents, [option]) :: Assembly.t()
  def assemble!(contents, opts \\ []) do
    case assemble(contents, opts) do
      {:ok, assembly} -> assembly
      {:error, error} -> raise error
    end
  end

  ## Validation

  defp named(given, what, allowed) do
    Enum.reduce(pairs(given, what), %{}, fn {name, value}, named ->
      cond do
        is_map_key(named, name) ->
          raise ArgumentError, "layer #{inspect(name)} stands twice in #{what}"

        name in allowed ->
          Map.put(named, name, value)

        true ->
          raise ArgumentError,
                "#{unknown(name)} in #{what}, expected one of: #{Options.list(allowed)}"
      end
    end)
  end

  defp unknown(name) when name in @names, do: "layer #{inspect(name)} can't be"
  defp unknown(name), do: "unknown layer #{inspect(name)}"

  defp pairs(given, _what) when is_map(given) and not is_struct(given), do: Map.to_list(given)

  defp pairs(given, what) do
    if Keyword.keyword?(given) do
      given
    else
      raise ArgumentError,
            "expected #{what} to be a map or a keyword list from layer names, " <>
              "got: #{Options.show(given)}"
    end
  end

  defp budget!(:infinity, _name), do: :infinity
  defp budget!(budget, _name) when is_integer(budget) and budget >= 0, do: budget

  defp budget!(budget, name) do
    raise ArgumentError,
          "expected the budget of layer #{inspect(name)} to be a non-negative integer " <>
            "or :infinity, got: #{Options.show(budget)}"
  end

  # Of each strategy the one there is.
  defp option!(:keep_or_drop, _name, _steps, _places), do: nil
  defp option!(:drop_whole_units, name, steps, _places), do: step!(steps, name)

  defp option!(:truncate_tail, name, _steps, places),
    do: place!(Map.get(places, name, :grapheme), name)

  defp step!(steps, name) do
    case steps do
      %{^name => step} when is_integer(step) and step > 0 ->
        step

      %{^name => other} ->
        raise ArgumentError,
              "expected the step of layer #{inspect(name)} to be a positive integer, " <>
                "got: #{Options.show(other)}"

      _ ->
        nil
    end
  end

  defp place!(place, _name) when place in @places, do: place

  defp place!(other, name) do
    raise ArgumentError,
          "expected where to cut layer #{inspect(name)} to be one of #{Options.list(@places)}, " <>
            "got: #{Options.show(other)}"
  end

  defp total_budget!(:infinity), do: :infinity
  defp total_budget!(budget) when is_integer(budget) and budget >= 0, do: budget

  defp total_budget!(other) do
    raise ArgumentError,
          "expected :total_budget to be a non-negative integer or :infinity, " <>
            "got: #{Options.show(other)}"
  end

  defp names!(names, key, allowed) do
    if is_list(names) and List.improper?(names) == false and names -- allowed == [] do
      names
    else
      raise ArgumentError,
            "expected #{inspect(key)} to be a list of distinct layers out of " <>
              "#{Options.list(allowed)}, got: #{Options.show(names)}"
    end
  end

  # A text, or the units that are not empty with their ids.
  defp content(:drop_whole_units, nil, _name), do: []
  defp content(:drop_whole_units, units, name), do: units(units, 0, units, name)
  defp content(_text, nil, _name), do: ""
  defp content(_text, text, _name) when is_binary(text), do: text

  defp content(_text, other, name) do
    raise ArgumentError,
          "expected layer #{inspect(name)} to be a binary, got: #{Options.show(other)}"
  end

  defp units([], _index, _given, _name), do: []
  defp units(["" | rest], index, given, name), do: units(rest, index + 1, given, name)
  defp units([{_id, ""} | rest], index, given, name), do: units(rest, index + 1, given, name)

  defp units([{id, unit} | rest], index, given, name) when is_binary(unit) do
    [{id, unit} | units(rest, index + 1, given, name)]
  end

  defp units([unit | rest], index, given, name) when is_binary(unit) do
    [{index, unit} | units(rest, index + 1, given, name)]
  end

  defp units([other | _rest], index, _given, name) do
    raise ArgumentError,
          "expected unit #{index} of layer #{inspect(name)} to be a binary or {id, binary}, " <>
            "got: #{Options.show(other)}"
  end

  defp units(_improper, _index, given, name) do
    raise ArgumentError,
          "expected layer #{inspect(name)} to be a list of units, a binary or {id, binary} each " <>
            "(their order matters), got: #{Options.show(given)}"
  end

  ## Planning and slicing

  defp plan(layers, total, tokenizer) do
    input =
      for layer <- layers,
          do: {layer.strategy, layer.option, layer.budget, texts(layer.content)}

    give_way = for name <- total.give_way, do: Enum.find_index(@names, &(&1 == name))

    case Plan.make(input, {total.budget, give_way}, tokenizer) do
      {:ok, plans, tokens} ->
        {:ok, assembly(layers, plans, tokens, total, tokenizer)}

      {:error, {:not_utf8, layer, unit, offset}} ->
        %{name: name, content: content} = Enum.at(layers, layer)
        unit = if is_list(content), do: content |> Enum.at(unit) |> elem(0)
        {:error, %InvalidTextError{layer: name, unit: unit, offset: offset}}

      {:error, {:over_total, tokens, each}} ->
        needed = for {name, tokens} when tokens > 0 <- Enum.zip(@names, each), do: {name, tokens}

        {:error, %TotalBudgetError{total_budget: total.budget, tokens: tokens, layers: needed}}

      {:error, {:vocabulary, message}} ->
        {:error, %Tokenizer.Bpe.VocabularyError{message: message}}
    end
  end

  defp strict(assembly) do
    lost =
      for layer <- assembly.layers,
          layer.name in assembly.strict,
          layer.status in [:trimmed, :dropped],
          do:
            layer
            |> Map.take([:tokens_before, :tokens, :budget, :limit])
            |> Map.put(:layer, layer.name)

    if lost == [], do: {:ok, assembly}, else: {:error, %StrictError{layers: lost}}
  end

  defp texts(text) when is_binary(text), do: text
  defp texts(units), do: for({_id, text} <- units, do: text)

  defp assembly(layers, plans, tokens, total, tokenizer) do
    separator = Plan.separator()
    sent = layers |> Enum.zip(plans) |> Enum.map(&sent(&1, separator))
    prompt = sent |> Enum.reject(&(&1 == [])) |> Enum.intersperse(separator)
    prompt = IO.iodata_to_binary(prompt)

    {places, _end} = sent |> Enum.map(&IO.iodata_length/1) |> Enum.map_reduce(0, &place/2)

    layers =
      [layers, plans, places, Assembly.hashes(prompt, places)]
      |> Enum.zip_with(fn [layer, plan, {offset, size}, hashes] ->
        text = binary_part(prompt, offset, size)
        layer(layer, plan, text, if(size > 0, do: offset), hashes, tokenizer.estimated)
      end)

    %Assembly{
      prompt: prompt,
      tokens: tokens,
      budget: layers |> Enum.map(& &1.budget) |> sum(),
      total_budget: total.budget,
      give_way: total.give_way,
      strict: total.strict,
      estimated: tokenizer.estimated,
      tokenizer: tokenizer.spec,
      sha256: List.last(layers).prefix_sha256,
      layers: layers
    }
  end

  # A layer's {offset, size} in the prompt, and the end of what is before the next one.
  defp place(0, behind), do: {{0, 0}, behind}
  defp place(size, 0), do: {{0, size}, size}

  defp place(size, behind) do
    offset = behind + byte_size(Plan.separator())
    {{offset, size}, offset + size}
  end

  # The layer's text as iodata, [] when nothing is sent.
  defp sent({_layer, plan}, _separator) when elem(plan, 0) in [:empty, :dropped], do: []

  defp sent({%{content: text}, plan}, _separator) when is_binary(text) do
    case elem(plan, 5) do
      nil -> text
      {at, _} = cut -> [binary_part(text, 0, at), Markdown.closing(text, cut), Plan.marker()]
    end
  end

  defp sent({%{content: units}, plan}, separator) do
    units |> Enum.drop(elem(plan, 4)) |> texts() |> Enum.intersperse(separator)
  end

  defp layer(%{content: content} = layer, plan, text, offset, hashes, estimated) do
    {status, tokens_before, tokens, limit, dropped, cut, unit_tokens} = plan
    {sha256, prefix_sha256} = hashes
    {dropped, kept} = content |> reports(unit_tokens) |> Enum.split(dropped)

    %Assembly.Layer{
      name: layer.name,
      strategy: layer.strategy,
      budget: layer.budget,
      limit: limit,
      step: if(layer.strategy == :drop_whole_units, do: layer.option),
      at: if(layer.strategy == :truncate_tail, do: layer.option),
      tokens_before: tokens_before,
      tokens: tokens,
      estimated: estimated,
      status: status,
      # A layer may be given as nil; its content is empty then.
      given: layer.given || content,
      text: text,
      kept: kept,
      dropped: dropped,
      cut_at: if(cut, do: elem(cut, 0)),
      closing: if(cut, do: Markdown.closing(content, cut), else: ""),
      offset: offset,
      sha256: sha256,
      prefix_sha256: prefix_sha256
    }
  end

  defp reports(text, _tokens) when is_binary(text), do: []
  defp reports([], []), do: []

  defp reports([{id, _text} | units], [tokens | rest]) do
    [%{id: id, tokens: tokens} | reports(units, rest)]
  end

  defp sum(budgets) do
    if :infinity in budgets, do: :infinity, else: Enum.sum(budgets)
  end
end
