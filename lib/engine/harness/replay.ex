defmodule Engine.Harness.Replay do
  @moduledoc """
  Assembles again what a report holds the inputs of, and compares: the way to find out whether
  another machine, or another version of this library, makes the same prompt of the same input.

      json = Engine.Harness.Report.to_json(assembly, inputs: true)
      {:ok, replay} = Engine.Harness.Replay.run(json)
      replay.diff.same
  """

  alias __MODULE__
  alias Engine.Harness.{Assembly, Diff, PromptAssembler, Report}

  @typedoc """
    * `report` - what was read
    * `assembly` - what its inputs give here
    * `diff` - from the report's prompt to that. Where the bytes differ, `settings` (the library's
      version is one) and `changes` name what does: an input that was edited in the file, say
  """
  @type t :: %Replay{report: Report.t(), assembly: Assembly.t(), diff: Diff.t()}

  @enforce_keys [:report, :assembly, :diff]
  defstruct @enforce_keys

  @doc """
  Replays a report that was written with `inputs: true`.

  ## Options

    * `:tokenizer` - as `Engine.Harness.PromptAssembler.assemble/2` takes it, for a report whose
      tokenizer is not one of this library's.

  `{:error, exception}` for what `Engine.Harness.Report.from_json/1` and
  `Engine.Harness.Report.inputs/2` say, for a prompt whose text is missing or is not what its own
  hash says, and what assembling says.
  """
  @spec run(binary, keyword) :: {:ok, t} | {:error, Exception.t()}
  def run(json, opts \\ []) do
    with {:ok, report} <- Report.from_json(json),
         :ok <- whole(report),
         {:ok, contents, settings} <- Report.inputs(report, opts),
         {:ok, assembly} <- assemble(contents, settings) do
      {:ok, %Replay{report: report, assembly: assembly, diff: Diff.between(report, assembly)}}
    end
  end

  # What is misshapen came out of a file: it is no programmer's mistake.
  defp assemble(contents, settings) do
    PromptAssembler.assemble(contents, settings)
  rescue
    error in ArgumentError -> {:error, error}
  end

  defp whole(%Report{prompt: %{text: nil}}) do
    {:error, %Report.Error{message: "the report was written without the prompt's text"}}
  end

  defp whole(%Report{prompt: %{text: text, sha256: sha256}}) do
    case Assembly.sha256(text) do
      ^sha256 ->
        :ok

      other ->
        message = "the report's prompt was edited: its sha256 is #{other}, not #{sha256}"
        {:error, %Report.Error{message: message}}
    end
  end

  @doc """
  A replay as lines of text for people.
  """
  @spec to_text(t) :: String.t()
  def to_text(%Replay{diff: diff, assembly: assembly}) do
    explained =
      if not diff.same and diff.settings == [] and diff.changes == [] do
        "no input and no setting differs: the code that assembles does\n"
      else
        ""
      end

    Diff.to_text(diff) <> explained <> "sha256 #{assembly.sha256}\n"
  end
end
