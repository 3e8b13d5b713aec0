# Assembling with the plan made by the native library, against the same plan made in Elixir (what
# serves tokenizers that are written in Elixir). Both count bytes/4, so both make the same prompt.

defmodule Bench.BytesByFour do
  @behaviour Engine.Harness.Tokenizer

  @impl true
  def count(text, _opts), do: div(byte_size(text) + 3, 4)

  @impl true
  def estimated?(_opts), do: true
end

Code.require_file("side_by_side.exs", __DIR__)

alias Engine.Harness.{PromptAssembler, Tokenizer}

unit = String.duplicate("A rule of the house. ", 20)
units = fn count -> [business_rules: List.duplicate(unit, count)] end

text = fn bytes ->
  [project_context: String.duplicate("Zwölf Boxkämpfer. ", div(bytes, 20) + 1)]
end

inputs = [
  {"10 units", units.(10)},
  {"1,000 units", units.(1_000)},
  {"100,000 units", units.(100_000)},
  {"a text of 1 MB", text.(1_000_000)},
  {"a text of 100 MB", text.(100_000_000)}
]

for {budget, words} <- [{4_000, "into 4,000 tokens"}, {:infinity, "whole"}] do
  budgets = [business_rules: budget, project_context: budget]

  rows =
    for {name, contents} <- inputs do
      assemble = fn tokenizer ->
        fn -> PromptAssembler.assemble!(contents, budgets: budgets, tokenizer: tokenizer) end
      end

      native = assemble.(Tokenizer.Approximate)
      elixir = assemble.(Bench.BytesByFour)
      if native.().prompt != elixir.().prompt, do: raise("the two prompts differ for #{name}")
      {name, native, elixir}
    end

  Bench.SideBySide.print("assembling, #{words}", {"native plan", "Elixir plan"}, rows)
end
