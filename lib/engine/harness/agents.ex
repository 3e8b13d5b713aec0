defmodule Engine.Harness.Agents do
  @moduledoc """
  Who an agent is: a static map from slug to the text of its identity layer.

      iex> {:ok, identity} = Engine.Harness.Agents.fetch("tester")
      iex> identity
      "You are the tester: you try to make the product fail where its rules say it must not, and report each failure so that anyone can see it again."

  The application's configuration changes an identity, or adds one:

      config :engine, :agents, %{
        "developer" => "You are the developer of a bank: …",
        "translator" => "You are the translator: …"
      }

  | key | type | default | meaning |
  |---|---|---|---|
  | `:agents` | map from slug to text, both non-empty strings | `%{}` | laid over the map of this module, slug by slug |

  It is read at each call, so a release can set it in `config/runtime.exs`. What is no such
  map raises `ArgumentError`.
  """

  @identities %{
    "creative" =>
      "You are the creative: you turn an idea into the rules of a product, one clear statement " <>
        "at a time, and ask where the intent is open.",
    "architect" =>
      "You are the architect: you decide how the parts of the product fit together, choose the " <>
        "simplest structure that its rules allow, and write down why.",
    "developer" =>
      "You are the developer: you make the smallest change that does what was asked, in the " <>
        "style of the code around it, and leave it tested.",
    "reviewer" =>
      "You are the reviewer: you read a change as the one who will have to live with it, and " <>
        "name what is wrong, where, and what would be right.",
    "tester" =>
      "You are the tester: you try to make the product fail where its rules say it must not, " <>
        "and report each failure so that anyone can see it again.",
    "writer" =>
      "You are the writer: you explain the product to the people who use it, in plain words, " <>
        "and claim nothing that it does not do."
  }

  defmodule UnknownError do
    @moduledoc """
    There is no agent of that slug.

    | field | type | meaning |
    |---|---|---|
    | `:slug` | term | what was asked for |
    | `:known` | list of strings | the slugs that there are, sorted |
    """

    @typedoc "An agent that is not known."
    @type t :: %__MODULE__{slug: term, known: [String.t()]}

    defexception [:slug, :known]

    @impl true
    def message(%__MODULE__{slug: slug, known: known}) do
      "unknown agent #{inspect(slug)}, known are: #{Enum.join(known, ", ")}"
    end
  end

  @doc """
  The identity of an agent.

  A slug is a string; anything else is as unknown as a string that is none of the slugs.

  ## Examples

      iex> {:ok, "You are the writer: " <> _} = Engine.Harness.Agents.fetch("writer")
      iex> {:error, error} = Engine.Harness.Agents.fetch("poet")
      iex> Exception.message(error)
      ~s(unknown agent "poet", known are: architect, creative, developer, reviewer, tester, writer)

  """
  @spec fetch(String.t()) :: {:ok, String.t()} | {:error, UnknownError.t()}
  def fetch(slug) do
    identities = identities()

    with :error <- Map.fetch(identities, slug) do
      {:error, %UnknownError{slug: slug, known: sorted(identities)}}
    end
  end

  @doc """
  Like `fetch/1`, but returns the text, and raises `UnknownError` for an unknown slug.

  ## Examples

      iex> "You are the developer: " <> _ = Engine.Harness.Agents.fetch!("developer")
      iex> Engine.Harness.Agents.fetch!("poet")
      ** (Engine.Harness.Agents.UnknownError) unknown agent "poet", known are: architect, creative, developer, reviewer, tester, writer

  """
  @spec fetch!(String.t()) :: String.t()
  def fetch!(slug) do
    case fetch(slug) do
      {:ok, identity} -> identity
      {:error, error} -> raise error
    end
  end

  @doc """
  The slugs of all agents, sorted.

  ## Examples

      iex> Engine.Harness.Agents.slugs()
      ["architect", "creative", "developer", "reviewer", "tester", "writer"]

  """
  @spec slugs() :: [String.t(), ...]
  def slugs, do: sorted(identities())

  defp sorted(identities), do: identities |> Map.keys() |> Enum.sort()

  defp identities do
    configured = Application.get_env(:engine, :agents, %{})

    if not is_map(configured) do
      raise ArgumentError,
            "expected config :engine, :agents to be a map from slug to identity, " <>
              "got: #{inspect(configured)}"
    end

    Enum.each(configured, fn {slug, identity} ->
      if not (text?(slug) and text?(identity)) do
        raise ArgumentError,
              "expected each slug and identity in config :engine, :agents to be a non-empty " <>
                "string, got: #{inspect(slug)} => #{inspect(identity)}"
      end
    end)

    Map.merge(@identities, configured)
  end

  defp text?(term), do: is_binary(term) and term != "" and String.valid?(term)
end
