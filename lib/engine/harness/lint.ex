defmodule Engine.Harness.Lint do
  @moduledoc """
  Warns of what a prompt had better not hold.

    * `:clock_time`, `:uuid`, `:session_id` - values that change every time. A provider's prompt cache
      reuses a prompt up to the first byte that differs, so in an early layer (any but the last,
      `:task_state`) they cost all that follows: put them last, or leave them out.
    * `:opaque_blob` - over 512 characters of base64 or hex, where tokens are an estimate: bytes/4 takes
      a blob for text, and counts about half of what it costs.

  What is found is found by its form. An example in a document looks like the real thing.
  """

  alias Engine.Harness.{Assembly, Escape, Native, PromptAssembler}

  @typedoc """
    * `layer` - its name
    * `kind` - what was found
    * `count` - how many of them are in the layer
    * `offset`, `length` - of the first: its byte offset in the prompt, and its bytes
    * `message` - a sentence
  """
  @type warning :: %{
          layer: PromptAssembler.layer(),
          kind: :clock_time | :uuid | :session_id | :opaque_blob,
          count: pos_integer,
          offset: non_neg_integer,
          length: pos_integer,
          message: String.t()
        }

  # Of what was found, that much is shown.
  @shown 40

  @doc """
  What there is to warn of in an assembled prompt: one warning for each layer and kind, in the
  order in which the layers are sent.

      iex> contents = [identity: "It is 04:55:14. You are a tester.", task_state: ["now: 04:55:14"]]
      iex> assembly = Engine.Harness.PromptAssembler.assemble!(contents)
      iex> [warning] = Engine.Harness.Lint.warnings(assembly)
      iex> {warning.layer, warning.kind, warning.count, warning.offset, warning.length}
      {:identity, :clock_time, 1, 6, 8}
      iex> warning.message
      "identity holds a clock time, 04:55:14: it changes every time, and the cache loses all from there on"
  """
  @spec warnings(Assembly.t()) :: [warning]
  def warnings(%Assembly{} = assembly) do
    last = List.last(PromptAssembler.layers())

    for %{text: text} = layer when text != "" <- assembly.layers,
        {kind, count, offset, length} <- Native.lint_warnings(text),
        (kind == :opaque_blob and layer.estimated) or
          (kind != :opaque_blob and layer.name != last) do
      %{
        layer: layer.name,
        kind: kind,
        count: count,
        offset: layer.offset + offset,
        length: length,
        message: message(layer.name, kind, count, binary_part(text, offset, length))
      }
    end
  end

  defp message(layer, :opaque_blob, count, found) do
    blobs =
      if count == 1,
        do: "an opaque blob of #{byte_size(found)} bytes",
        else: "#{count} opaque blobs, the first of #{byte_size(found)} bytes"

    "#{layer} holds #{blobs}: bytes/4 counts about half of what that costs"
  end

  defp message(layer, kind, count, found) do
    {one, many} = words(kind)
    shown = Escape.escape(binary_part(found, 0, min(byte_size(found), @shown)))

    {values, change} =
      if count == 1,
        do: {"#{one}, #{shown}", "it changes"},
        else: {"#{count} #{many}, the first #{shown}", "they change"}

    "#{layer} holds #{values}: #{change} every time, and the cache loses all from there on"
  end

  defp words(:clock_time), do: {"a clock time", "clock times"}
  defp words(:uuid), do: {"a UUID", "UUIDs"}
  defp words(:session_id), do: {"a session id", "session ids"}
end
