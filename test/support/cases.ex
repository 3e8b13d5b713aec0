defmodule Engine.Cases do
  @moduledoc "Inputs with right answers, from test/cases."

  @doc "A JSON file's content, objects as maps with string keys."
  def json(name) do
    "../cases"
    |> Path.expand(__DIR__)
    |> Path.join(name)
    |> File.read!()
    |> :jiffy.decode([:return_maps, :use_nil])
  end
end
