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
      the budget goes too.
    * `:truncate_tail` - a text over its budget is cut at a boundary (see `Engine.Harness.Boundary`)
      and followed by `[… truncated …]`, such that the whole fits.
  """

  alias Engine.Harness.{Assembly, InvalidTextError, Options, Plan, Tokenizer}

  # {name, strategy, default budget in tokens}
  @layers [
    {:identity, :keep_or_drop, 1_000},
    {:instruction_files, :drop_whole_units, 8_000},
    {:project_context, :truncate_tail, 4_000},
    {:business_rules, :drop_whole_units, 4_000},
    {:task_state, :drop_whole_units, 4_000}
  ]
  @names Enum.map(@layers, &elem(&1, 0))

  @typedoc "One of `layers/0`."
  @type layer ::
          :identity | :instruction_files | :project_context | :business_rules | :task_state

  @typedoc "A unit, by itself or with an id that the report names it by."
  @type unit :: String.t() | {id :: term, String.t()}

  @typedoc "What each layer holds. A layer that is left out is empty."
  @type contents ::
          %{optional(layer) => String.t() | [unit]} | [{layer, String.t() | [unit]}]

  @type option ::
          {:budgets, %{optional(layer) => budget} | [{layer, budget}]}
          | {:tokenizer, Tokenizer.spec()}

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
  Assembles a prompt.

  ## Options

    * `:budgets` - a map or keyword list from layer to tokens, a non-negative integer or `:infinity`;
      layers that are left out have their default budget.
    * `:tokenizer` - a module or `{module, options}`, see `Engine.Harness.Tokenizer`; the configured
      one by default.

  ## Errors

  Raises `ArgumentError`, naming the layer, the value and what is allowed, for what a programmer got
  wrong: an unknown layer or option, content of the wrong shape, a budget that is none.

  Returns `{:error, exception}` for what is wrong with the data:

    * `Engine.Harness.InvalidTextError` - a text that is not UTF-8;
    * `Engine.Harness.Tokenizer.Error` - a tokenizer that returned rubbish;
    * whatever the tokenizer's own `c:Engine.Harness.Tokenizer.init/1` objects to.
  """
  @spec assemble(contents, [option]) :: {:ok, Assembly.t()} | {:error, Exception.t()}
  def assemble(contents, opts \\ []) do
    opts = Options.validate!(opts, [:budgets, :tokenizer])
    budgets = opts |> Keyword.get(:budgets, []) |> named("budgets")
    contents = named(contents, "contents")

    layers =
      for {name, strategy, default} <- @layers do
        budget = budgets |> Map.get(name, default) |> budget!(name)
        {name, strategy, budget, content(strategy, Map.get(contents, name), name)}
      end

    # An option that is given as nil is a mistake, not "the configured one".
    spec = Keyword.get_lazy(opts, :tokenizer, &Tokenizer.configured/0)

    with {:ok, tokenizer} <- Tokenizer.new(spec) do
      plan(layers, tokenizer)
    end
  rescue
    error in Tokenizer.Error -> {:error, error}
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

  defp named(given, what) do
    pairs = pairs(given, what)

    Enum.reduce(pairs, %{}, fn
      {name, value}, named when name in @names and not is_map_key(named, name) ->
        Map.put(named, name, value)

      {name, _value}, _named when name in @names ->
        raise ArgumentError, "layer #{inspect(name)} stands twice in #{what}"

      {name, _value}, _named ->
        raise ArgumentError,
              "unknown layer #{inspect(name)} in #{what}, expected one of: #{Options.list(@names)}"
    end)
  end

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

  defp plan(layers, tokenizer) do
    input =
      for {_name, strategy, budget, content} <- layers, do: {strategy, budget, texts(content)}

    case Plan.make(input, tokenizer) do
      {:ok, plans, tokens} ->
        {:ok, assembly(layers, plans, tokens, tokenizer)}

      {:error, {:not_utf8, layer, unit, offset}} ->
        {name, _, _, content} = Enum.at(layers, layer)
        unit = if is_list(content), do: content |> Enum.at(unit) |> elem(0)
        {:error, %InvalidTextError{layer: name, unit: unit, offset: offset}}

      {:error, {:vocabulary, message}} ->
        {:error, %Tokenizer.Bpe.VocabularyError{message: message}}
    end
  end

  defp texts(text) when is_binary(text), do: text
  defp texts(units), do: for({_id, text} <- units, do: text)

  defp assembly(layers, plans, tokens, tokenizer) do
    separator = Plan.separator()
    sent = layers |> Enum.zip(plans) |> Enum.map(&sent(&1, separator))
    prompt = sent |> Enum.reject(&(&1 == [])) |> Enum.intersperse(separator)
    prompt = IO.iodata_to_binary(prompt)

    {layers, _offset} =
      [layers, plans, sent]
      |> Enum.zip()
      |> Enum.map_reduce(0, fn {layer, plan, sent}, offset ->
        size = IO.iodata_length(sent)
        text = if size == 0, do: "", else: binary_part(prompt, offset, size)
        next = if size == 0, do: offset, else: offset + size + byte_size(separator)
        {layer(layer, plan, text, if(size > 0, do: offset), tokenizer.estimated), next}
      end)

    %Assembly{
      prompt: prompt,
      tokens: tokens,
      budget: layers |> Enum.map(& &1.budget) |> total(),
      estimated: tokenizer.estimated,
      tokenizer: tokenizer.spec,
      sha256: :sha256 |> :crypto.hash(prompt) |> Base.encode16(case: :lower),
      layers: layers
    }
  end

  # The layer's text as iodata, [] when nothing is sent.
  defp sent({_layer, {status, _, _, _, _, _}}, _separator) when status in [:empty, :dropped],
    do: []

  defp sent({{_, _, _, text}, {_, _, _, _, nil, _}}, _separator) when is_binary(text), do: text

  defp sent({{_, _, _, text}, {_, _, _, _, cut_at, _}}, _separator) when is_binary(text) do
    [binary_part(text, 0, cut_at), Plan.marker()]
  end

  defp sent({{_, _, _, units}, {_, _, _, dropped, _, _}}, separator) do
    units |> Enum.drop(dropped) |> texts() |> Enum.intersperse(separator)
  end

  defp layer({name, strategy, budget, content}, plan, text, offset, estimated) do
    {status, tokens_before, tokens, dropped, cut_at, unit_tokens} = plan
    {dropped, kept} = content |> reports(unit_tokens) |> Enum.split(dropped)

    %Assembly.Layer{
      name: name,
      strategy: strategy,
      budget: budget,
      tokens_before: tokens_before,
      tokens: tokens,
      estimated: estimated,
      status: status,
      text: text,
      kept: kept,
      dropped: dropped,
      cut_at: cut_at,
      offset: offset
    }
  end

  defp reports(text, _tokens) when is_binary(text), do: []
  defp reports([], []), do: []

  defp reports([{id, _text} | units], [tokens | rest]) do
    [%{id: id, tokens: tokens} | reports(units, rest)]
  end

  defp total(budgets) do
    if :infinity in budgets, do: :infinity, else: Enum.sum(budgets)
  end
end
