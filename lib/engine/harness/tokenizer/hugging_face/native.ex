defmodule Engine.Harness.Tokenizer.HuggingFace.Native do
  # Stubs of the functions in native/harness_hf_nif, a library that may not be there.
  @moduledoc false

  @on_load :on_load

  # Always :ok: a failed on_load would unload the module and leave callers with a bare `undef`.
  def on_load do
    :persistent_term.put(__MODULE__, open())
    :ok
  end

  @doc "`:ok` when the library is there, else why it is not."
  @spec loaded :: :ok | {:error, {:not_compiled | :not_loaded, String.t()}}
  def loaded, do: :persistent_term.get(__MODULE__)

  def load(_path), do: :erlang.nif_error(:nif_not_loaded)
  def count_up_to(_tokenizer, _text, _limit), do: :erlang.nif_error(:nif_not_loaded)

  # Asked of the build's folder and not of the variable, which says nothing of how it was compiled.
  defp open do
    with directory when is_list(directory) <- :code.priv_dir(:engine),
         path = :filename.join(directory, 'native/libharness_hf_nif'),
         {:exists, true} <- {:exists, :filelib.is_regular(path ++ '.so')} do
      case :erlang.load_nif(path, 0) do
        :ok ->
          :ok

        {:error, reason} ->
          {:error, {:not_loaded, "its library can't be loaded: #{inspect(reason)}"}}
      end
    else
      _ ->
        {:error,
         {:not_compiled,
          "a tokenizer.json needs :engine to be compiled with the environment variable " <>
            "HARNESS_HF=1: HARNESS_HF=1 mix compile"}}
    end
  end
end
