defmodule Engine.Harness.Diff do
  @moduledoc """
  What changed from one prompt to the next: where their bytes part, how much of the earlier one a
  provider's prompt cache can reuse, and what was added, dropped and changed.

      iex> alias Engine.Harness.{Diff, PromptAssembler}
      iex> earlier = PromptAssembler.assemble!(identity: "You sell.", task_state: [{"a", "Open."}])
      iex> later = PromptAssembler.assemble!(identity: "You sell.", task_state: [{"a", "Closed."}])
      iex> diff = Diff.between(earlier, later)
      iex> {diff.first_difference.byte, diff.first_difference.after, diff.common.layers}
      {11, %{layer: :task_state, id: "a", byte: 0}, 4}
      iex> for change <- diff.changes, do: {change.layer, change.id, change.change}
      [{:task_state, "a", :changed}]

  Units are known by their ids. A unit without one is known by its index, so that after one was
  left out at the head of a list every later one counts as changed: give units ids.
  """

  alias __MODULE__
  import Engine.Harness.Table, only: [number: 1]

  alias Engine.Harness.{Assembly, Boundary, Options, Report, Tokenizer}

  @typedoc """
  A byte of a prompt: its layer, its unit's id (`nil` in a layer's text) and its offset in that
  (`nil` in a separator, which belongs to what follows it).
  """
  @type place :: %{layer: atom, id: String.t() | nil, byte: non_neg_integer | nil}

  @typedoc """
  How something changed in what is sent.

    * `:added` - it is sent, and was not
    * `:dropped` - it was sent, and is not
    * `:changed` - other bytes of it are sent
    * `:moved` - the same bytes are sent at another place among what both send
    * `:unsent` - it was given differently, but neither prompt holds it
  """
  @type kind :: :added | :dropped | :changed | :moved | :unsent

  @typedoc """
  One thing that is not as it was: `before` and `after` are its statuses
  (`t:Engine.Harness.Report.t/0`, `nil` where it was not given), `tokens_before` and `tokens` what
  was and is sent of it.
  """
  @type change :: %{
          layer: atom,
          id: String.t() | nil,
          change: kind,
          before: atom | nil,
          after: atom | nil,
          tokens_before: non_neg_integer,
          tokens: non_neg_integer,
          message: String.t()
        }

  @typedoc """
    * `same` - whether the bytes are the same
    * `first_difference` - `nil`, or the first byte that differs with what stands there in the
      earlier (`before`) and the later prompt (`after`), `nil` where a prompt ends
    * `common` - the longest common prefix: its bytes, the tokens of its whole characters, and how
      many layers from the first on it holds whole
    * `tokens_before`, `tokens` - of both prompts
    * `estimated` - whether the tokens of one of them are estimates
    * `settings` - the settings that differ
    * `changes` - by layer; what is no longer given first, then in the order given
  """
  @type t :: %Diff{
          same: boolean,
          first_difference:
            nil | %{byte: non_neg_integer, before: place | nil, after: place | nil},
          common: %{
            bytes: non_neg_integer,
            tokens: non_neg_integer,
            layers: non_neg_integer
          },
          tokens_before: non_neg_integer,
          tokens: non_neg_integer,
          estimated: boolean,
          settings: [%{name: String.t(), before: String.t(), after: String.t()}],
          changes: [change]
        }

  @enforce_keys [
    :same,
    :first_difference,
    :common,
    :tokens_before,
    :tokens,
    :estimated,
    :settings,
    :changes
  ]
  defstruct @enforce_keys

  @doc """
  What changed from an earlier prompt, or the report that was kept of one, to a later one.

  The tokens of the common prefix are counted by the later one's tokenizer.

  Raises `ArgumentError` for a report without the prompt's text.
  """
  @spec between(Assembly.t() | Report.t(), Assembly.t()) :: t
  def between(earlier, %Assembly{} = later), do: between(earlier, later, Report.new(later))

  # With a report of the later one that also knows what was seen and not used.
  @doc false
  @spec between(Assembly.t() | Report.t(), Assembly.t(), Report.t()) :: t
  def between(earlier, later, now) do
    before = report!(earlier)
    texts = {before.prompt.text, later.prompt}
    same_bytes = :binary.longest_common_prefix(Tuple.to_list(texts))

    %Diff{
      same: before.prompt.text == later.prompt,
      first_difference: first_difference(before, now, same_bytes, texts),
      common: %{
        bytes: same_bytes,
        tokens: tokens(later, same_bytes),
        layers: whole_layers(before, now)
      },
      tokens_before: before.prompt.tokens,
      tokens: now.prompt.tokens,
      estimated: before.tokenizer.estimated or now.tokenizer.estimated,
      settings: settings(before, now),
      changes: before.layers |> Enum.zip(now.layers) |> Enum.flat_map(&changes/1)
    }
  end

  defp report!(%Assembly{} = assembly), do: Report.new(assembly)
  defp report!(%Report{prompt: %{text: text}} = report) when is_binary(text), do: report

  defp report!(%Report{}) do
    raise ArgumentError,
          "expected the earlier report to hold the prompt's text, got one without it"
  end

  defp report!(other) do
    raise ArgumentError,
          "expected an earlier assembly or report to compare with, got: #{Options.show(other)}"
  end

  ## Where the bytes part

  defp first_difference(before, now, byte, {was, is}) do
    if byte < byte_size(was) or byte < byte_size(is) do
      %{byte: byte, before: place(before, byte), after: place(now, byte)}
    end
  end

  # The first thing that ends after the byte is the one that it is in, or in whose separator.
  defp place(report, byte) do
    sent =
      for layer <- report.layers,
          %{offset: offset} = item when offset != nil <- layer.items,
          do: {layer.name, item}

    case Enum.find(sent, fn {_layer, item} -> byte < item.offset + item.bytes end) do
      nil ->
        nil

      {layer, item} ->
        inside = if byte >= item.offset, do: byte - item.offset
        %{layer: layer, id: item.id, byte: inside}
    end
  end

  defp tokens(later, bytes) do
    {:ok, tokenizer} = Tokenizer.new(later.tokenizer)
    # Not inside of a character; a count does not care for clusters.
    whole = binary_part(later.prompt, 0, bytes)
    Tokenizer.count(tokenizer, binary_part(whole, 0, Boundary.invalid_at(whole) || bytes))
  end

  defp whole_layers(before, now) do
    before.layers
    |> Enum.zip(now.layers)
    |> Enum.take_while(fn {before, now} -> before.prefix_sha256 == now.prefix_sha256 end)
    |> length()
  end

  ## Settings

  defp settings(before, now) do
    for {{name, before}, {name, now}} <- Enum.zip(named(before), named(now)), before != now do
      %{name: name, before: value(before), after: value(now)}
    end
  end

  defp named(report) do
    of_layers =
      for field <- [:budget, :step, :at],
          layer <- report.layers,
          do: {"#{field} of #{layer.name}", {field, Map.fetch!(layer, field)}}

    [
      {"harness", report.harness},
      {"tokenizer", report.tokenizer.name},
      {"total_budget", {:budget, report.prompt.total_budget}},
      {"give_way", report.prompt.give_way},
      {"strict", report.prompt.strict}
    ] ++ of_layers
  end

  defp value({:budget, nil}), do: "infinity"
  defp value({_field, nil}), do: "none"
  defp value({_field, value}), do: to_string(value)
  defp value([]), do: "none"
  defp value(names) when is_list(names), do: Enum.join(names, ", ")
  defp value(text), do: text

  ## What changed in a layer

  defp changes({before, now}) do
    {was, is} = {known(before), known(now)}
    {earlier, later} = {Map.new(was), Map.new(is)}
    moved = moved(was, is)
    gone = for {key, item} <- was, not is_map_key(later, key), do: {key, item, nil}
    here = for {key, item} <- is, do: {key, earlier[key], item}
    why_not = for %{status: :unused} = item <- now.items, into: %{}, do: {item.id, item.message}

    for {key, old, new} <- gone ++ here,
        kind = kind(old, new, {before, now}, MapSet.member?(moved, key)) do
      %{
        layer: now.name,
        id: (new || old).id,
        change: kind,
        before: old && old.status,
        after: new && new.status,
        tokens_before: if(old, do: old.tokens, else: 0),
        tokens: if(new, do: new.tokens, else: 0),
        message: message(old, new, why_not)
      }
    end
  end

  # What was given: by id, and where an id stands more than once by which of them it is.
  defp known(layer) do
    {items, _seen} =
      Enum.map_reduce(given(layer), %{}, fn item, seen ->
        nth = Map.get(seen, item.id, 0)
        {{{item.id, nth}, item}, Map.put(seen, item.id, nth + 1)}
      end)

    items
  end

  defp given(layer), do: Enum.reject(layer.items, &(&1.status == :unused))

  defp kind(old, new, layers, moved?) do
    case {sent?(old), sent?(new)} do
      {false, true} -> :added
      {true, false} -> :dropped
      {true, true} -> if(same?(old, new, layers), do: moved? && :moved, else: :changed)
      {false, false} -> not_given_alike?(old, new) && :unsent
    end
  end

  defp sent?(item), do: item != nil and item.bytes > 0

  # A text that is cut is sent with more than a part of it: the layer is that text.
  defp same?(%{status: :kept} = old, %{status: :kept} = new, _), do: old.sha256 == new.sha256
  defp same?(_old, _new, {before, now}), do: before.sha256 == now.sha256

  defp not_given_alike?(nil, _new), do: true
  defp not_given_alike?(_old, nil), do: true

  defp not_given_alike?(old, new) do
    {old.sha256, old.status, old.reason} != {new.sha256, new.status, new.reason}
  end

  # What both send, without what they begin and end with alike.
  defp moved(was, is) do
    both = fn items, others ->
      others = MapSet.new(for {key, item} <- others, sent?(item), do: key)
      for {key, item} <- items, sent?(item), MapSet.member?(others, key), do: key
    end

    {was, is} = without_common_head(both.(was, is), both.(is, was))
    {_was, is} = without_common_head(Enum.reverse(was), Enum.reverse(is))
    MapSet.new(is)
  end

  defp without_common_head([key | was], [key | is]), do: without_common_head(was, is)
  defp without_common_head(was, is), do: {was, is}

  defp message(old, nil, why_not), do: Map.get(why_not, old.id, "no longer there")
  defp message(nil, %{status: :kept}, _), do: "new"
  defp message(nil, new, _), do: "new: #{new.message}"

  defp message(%{status: :kept} = old, %{status: :kept} = new, _) do
    if old.sha256 == new.sha256, do: "the same bytes at another place", else: "other bytes"
  end

  defp message(old, %{status: :kept}, _), do: "before, it was #{old.message}"
  defp message(_old, new, _), do: new.message

  ## As a table

  @doc """
  A diff, or that of a report, as lines of text for people.

      iex> alias Engine.Harness.{Diff, PromptAssembler}
      iex> assembly = PromptAssembler.assemble!(identity: "You sell.")
      iex> Diff.to_text(Diff.between(assembly, assembly))
      "the bytes are the same: 9 bytes, ~3 tokens\\n"
  """
  @spec to_text(t | map) :: String.t()
  def to_text(%{settings: _, changes: _} = diff) do
    IO.iodata_to_binary([bytes(diff), Enum.map(diff.settings, &setting/1), rows(diff)])
  end

  defp bytes(%{same: true, common: common} = diff) do
    tokens = counted(diff, common.tokens)
    "the bytes are the same: #{number(common.bytes)} bytes, #{tokens} tokens\n"
  end

  defp bytes(%{first_difference: difference, common: common} = diff) do
    [
      "first difference  byte #{number(difference.byte)}: before #{where(difference.before)}, ",
      "now #{where(difference.after)}\n",
      "common prefix     #{counted(diff, common.tokens)} of #{counted(diff, diff.tokens)} tokens, ",
      "#{number(common.bytes)} bytes, whole layers: #{number(common.layers)} ",
      "(before: #{counted(diff, diff.tokens_before)} tokens)\n"
    ]
  end

  defp where(nil), do: "the end"
  defp where(%{byte: nil} = place), do: "a separator before #{what(place)}"
  defp where(place), do: "#{what(place)} at its byte #{number(place.byte)}"

  defp what(%{layer: layer, id: nil}), do: "#{layer}"
  defp what(%{layer: layer, id: id}), do: "#{layer} #{id}"

  defp setting(setting) do
    "setting           #{setting.name}: #{setting.before} before, #{setting.after} now\n"
  end

  defp rows(diff) do
    rows =
      for change <- diff.changes do
        tokens = "#{counted(diff, change.tokens_before)} → #{counted(diff, change.tokens)}"
        [Atom.to_string(change.change), tokens, what(change), change.message]
      end

    widths = for column <- 0..2, do: rows |> Enum.map(&width(&1, column)) |> Enum.max(fn -> 0 end)

    for [kind, tokens, what, message] <- rows do
      [kind_width, tokens_width, what_width] = widths

      [
        String.pad_trailing(kind, kind_width),
        "  ",
        String.pad_leading(tokens, tokens_width),
        "  ",
        String.pad_trailing(what, what_width),
        "  ",
        message,
        "\n"
      ]
    end
  end

  defp width(row, column), do: row |> Enum.at(column) |> String.length()
  defp counted(diff, tokens), do: if(diff.estimated, do: "~", else: "") <> number(tokens)
end
