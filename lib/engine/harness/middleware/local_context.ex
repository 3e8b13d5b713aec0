defmodule Engine.Harness.Middleware.LocalContext do
  @moduledoc """
  Looks at the host once, before a model guesses, and puts what it found into the prompt.

      context = LocalContext.new("/srv/shop")
      environment = LocalContext.discover(context)
      environment.toolchains["git"].version
      LocalContext.inject(context, "You are a senior engineer.")

  Nothing that a repository brings is run: `Engine.Harness.HostEnvironment.Git` reads its state,
  `Engine.Harness.Toolchain` runs tools from trusted places alone, and the tree and the limits of the
  machine are read from the disk.

  ## In a session

  As a middleware it discovers in `:session_start`, and keeps the facts in `assigns`, under this
  module's name. `Engine.Harness.ContextBuilder.build/2` takes them as `:environment`, so that a
  session's prompts hold the same bytes. A `:session_start` that is run again looks again.

      hooks = Middleware.attach(Hooks.new(), {LocalContext, workspace: "/srv/shop"})
      {:ok, session} = Hooks.run(hooks, :session_start, %{session_id: "s1"})

      ContextBuilder.build("developer",
        workspace: "/srv/shop",
        environment: session.assigns[LocalContext]
      )

  ## Options

    * `:workspace` - a directory; required where it is not an argument
    * `:tools` - what to look for, as `Engine.Harness.Toolchain.discover/3` takes it;
      `#{inspect(Engine.Harness.Toolchain.default())}` by default
    * `:depth` - levels of the directory tree; 2 by default
    * `:path`, `:home`, `:timeout_ms` - as `Engine.Harness.Toolchain.discover/3` takes them

  Source: "The AI Harness Concept & Environment Onboarding", sections 2 to 4.
  """

  @behaviour Engine.Harness.Middleware

  alias Engine.Harness.{HostEnvironment, Native, Options, Toolchain}
  alias Engine.Harness.HostEnvironment.Git

  @toolchain_options [:path, :home, :timeout_ms]

  @enforce_keys [:workspace, :tools, :depth, :toolchain_options]
  defstruct @enforce_keys

  @opaque t :: %__MODULE__{
            workspace: binary,
            tools: [{String.t(), [String.t()]}],
            depth: non_neg_integer,
            toolchain_options: keyword
          }

  @doc """
  Checks the workspace and the options; nothing is looked at yet.

  Raises `ArgumentError` when the workspace is no directory, or an option is not what it should be.

      iex> Engine.Harness.Middleware.LocalContext.new("/no/such/folder")
      ** (ArgumentError) expected the workspace to be a directory, got: "/no/such/folder" (No such file or directory (os error 2))
  """
  @spec new(Path.t(), keyword) :: t
  def new(workspace, opts \\ []) do
    opts = Options.validate!(opts, [:tools, :depth | @toolchain_options])
    depth = Options.natural!(Map.new(opts), :depth, 2)

    %__MODULE__{
      workspace: root!(workspace),
      tools: opts |> Keyword.get(:tools, Toolchain.default()) |> Toolchain.requests!(),
      # More levels than any path can have.
      depth: min(depth, 4_096),
      toolchain_options: Keyword.take(opts, @toolchain_options)
    }
  end

  defp root!(workspace) do
    case workspace |> IO.chardata_to_string() |> Native.host_environment_root() do
      {:ok, root} ->
        root

      {:error, message} ->
        raise ArgumentError,
              "expected the workspace to be a directory, got: #{Options.show(workspace)} (#{message})"
    end
  end

  @doc """
  Looks at the host. What can't be found out is `nil`, with a reason; nothing raises.

  The parts run at once: it takes as long as the slowest, with `:timeout_ms` for each tool and two
  seconds for git's state.
  """
  @spec discover(t) :: HostEnvironment.t()
  def discover(%__MODULE__{workspace: workspace} = context) do
    git = Task.async(fn -> Git.state(workspace) end)
    tree = Task.async(fn -> Native.host_environment_tree(workspace, context.depth) end)
    toolchains = Toolchain.discover(context.tools, workspace, context.toolchain_options)
    git = Task.await(git, :infinity)
    {system, kernel, cores, memory} = Native.host_environment_host()

    found = [
      directory_tree_summary: Task.await(tree, :infinity),
      cpu_cores: cores,
      memory_limit_bytes: memory
    ]

    unknown = for {fact, {:error, reason}} <- found, into: %{}, do: {fact, reason}
    unknown_to_git = Map.new(git.reasons, fn {fact, reason} -> {git_fact(fact), reason} end)

    struct!(
      %HostEnvironment{
        workspace_root: workspace,
        operating_system: system,
        kernel: kernel,
        git_branch: git.branch,
        git_head: git.head,
        git_dirty: git.dirty,
        tools: Enum.map(toolchains, & &1.name),
        toolchains: Map.new(toolchains, &{&1.name, &1}),
        unknown: Map.merge(unknown, unknown_to_git)
      },
      for({fact, {:ok, value}} <- found, do: {fact, value})
    )
  end

  defp git_fact(:branch), do: :git_branch
  defp git_fact(:dirty), do: :git_dirty

  @doc """
  The prompt, trimmed, a blank line, and the block of `Engine.Harness.HostEnvironment.to_text/1`;
  the block alone where the prompt is blank.

  Given what was discovered before, it tells that. Given the middleware itself, it looks first.

      iex> alias Engine.Harness.{HostEnvironment, Middleware.LocalContext}
      iex> environment = %HostEnvironment{workspace_root: "/srv/shop", operating_system: "Linux"}
      iex> prompt = LocalContext.inject(environment, "You are a senior engineer.\\n")
      iex> prompt |> String.split("\\n") |> Enum.take(4)
      ["You are a senior engineer.", "", "<host_environment>", "Workspace Root: /srv/shop"]
  """
  @spec inject(t | HostEnvironment.t(), String.t()) :: String.t()
  def inject(%__MODULE__{} = context, base_prompt),
    do: context |> discover() |> inject(base_prompt)

  def inject(%HostEnvironment{} = environment, base_prompt) when is_binary(base_prompt) do
    case String.trim(base_prompt) do
      "" -> HostEnvironment.to_text(environment)
      prompt -> prompt <> "\n\n" <> HostEnvironment.to_text(environment)
    end
  end

  @impl true
  def init(opts) do
    unless Keyword.keyword?(opts) and Keyword.has_key?(opts, :workspace) do
      raise ArgumentError, "option :workspace is required: the path of a directory"
    end

    {workspace, opts} = Keyword.pop!(opts, :workspace)
    new(workspace, opts)
  end

  @impl true
  def session_start(payload, context) do
    {:cont, put_in(payload.assigns[__MODULE__], discover(context))}
  end
end
