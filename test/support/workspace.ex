defmodule Engine.Workspace do
  @moduledoc "Real folders for tests, removed when the test is over."

  import ExUnit.Callbacks, only: [on_exit: 1]

  @doc """
  A new folder with the given files, from relative path to text, `{:link, target}`, `:directory`,
  `:fifo` or `{:sparse, bytes}`.
  """
  def workspace!(files \\ %{}) do
    root =
      Path.join(
        System.tmp_dir!(),
        "engine_test_#{System.pid()}_#{System.unique_integer([:positive])}"
      )

    File.mkdir_p!(root)
    on_exit(fn -> File.rm_rf!(root) end)
    Enum.each(files, fn {path, content} -> write!(root, path, content) end)
    root
  end

  @doc "Adds one file to a folder."
  def write!(root, path, content) do
    path = root <> "/" <> path
    File.mkdir_p!(Path.dirname(path))

    case content do
      {:link, target} -> File.ln_s!(target, path)
      :directory -> File.mkdir_p!(path)
      :fifo -> {_, 0} = System.cmd("mkfifo", [path])
      {:sparse, bytes} -> {_, 0} = System.cmd("truncate", ["-s", "#{bytes}", path])
      text when is_binary(text) -> File.write!(path, text)
    end
  end
end
