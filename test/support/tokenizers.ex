defmodule Engine.Tokenizers do
  @moduledoc "Tokenizers written in Elixir, for tests."

  defmodule BytesByFour do
    @moduledoc "The estimate of the core once more: its plans have to be the same."
    @behaviour Engine.Harness.Tokenizer

    @impl true
    def count(text, _opts), do: div(byte_size(text) + 3, 4)

    @impl true
    def estimated?(_opts), do: true
  end

  defmodule Delegated do
    @moduledoc "Asks the native exact count, one text at a time; its plans are made in Elixir."
    @behaviour Engine.Harness.Tokenizer

    @impl true
    defdelegate init(opts), to: Engine.Harness.Tokenizer.Bpe

    @impl true
    defdelegate count(text, encoding), to: Engine.Harness.Tokenizer.Bpe

    @impl true
    def estimated?(_encoding), do: false
  end

  defmodule Words do
    @moduledoc "Runs of letters. Takes `minimum:`, the tokens that any text costs at least."
    @behaviour Engine.Harness.Tokenizer

    @impl true
    def init(opts) do
      case Keyword.get(opts, :minimum, 0) do
        minimum when is_integer(minimum) and minimum >= 0 -> {:ok, minimum}
        other -> {:error, ArgumentError.exception("minimum: #{inspect(other)}")}
      end
    end

    @impl true
    def count(text, minimum), do: text |> String.split() |> length() |> max(minimum)

    @impl true
    def estimated?(_minimum), do: false
  end

  defmodule Returns do
    @moduledoc "Returns what it is told to return, from the callback it is told."
    @behaviour Engine.Harness.Tokenizer

    @impl true
    def init(opts), do: Keyword.get(opts, :init, {:ok, opts})

    @impl true
    def count(_text, opts), do: Keyword.get(opts, :count, 1)

    @impl true
    def estimated?(opts), do: Keyword.get(opts, :estimated?, false)
  end

  defmodule Jumpy do
    @moduledoc "Counts that rise and fall without reason, but are the same for the same text."
    @behaviour Engine.Harness.Tokenizer

    @impl true
    def count(text, _opts), do: :erlang.phash2(text, 20)

    @impl true
    def estimated?(_opts), do: false
  end
end
