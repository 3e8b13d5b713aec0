defmodule Engine.Harness.Native do
  # Stubs of the functions in native/harness_nif, grouped and prefixed by the concept whose module
  # alone calls them. A loaded library can't be upgraded in place, so nothing else lives here.
  @moduledoc false

  @on_load :load

  # Always :ok: a failed on_load would unload the module and leave callers with a bare `undef`.
  def load do
    path = :filename.join(:code.priv_dir(:engine), 'native/libharness_nif')

    case :erlang.load_nif(path, 0) do
      :ok -> :ok
      {:error, reason} -> :persistent_term.put({__MODULE__, :not_loaded}, reason)
    end
  catch
    # The application's folder is not on the code path.
    :error, reason -> :persistent_term.put({__MODULE__, :not_loaded}, reason)
  end

  def assembly_hashes(_prompt, _layers), do: not_loaded()
  def assembly_hashes_dirty(_prompt, _layers), do: not_loaded()

  def boundary_at_or_before(_text, _offset), do: not_loaded()
  def boundary_at_or_before_dirty(_text, _offset), do: not_loaded()
  def boundary_line_at_or_before(_text, _boundary), do: not_loaded()
  def boundary_line_at_or_before_dirty(_text, _boundary), do: not_loaded()
  def boundary_invalid_at(_text), do: not_loaded()
  def boundary_invalid_at_dirty(_text), do: not_loaded()

  def escape_name(_name), do: not_loaded()
  def escape_name_dirty(_name), do: not_loaded()
  def escape_short(_name), do: not_loaded()

  def git_state(_workspace, _options), do: not_loaded()

  def host_environment_host, do: not_loaded()
  def host_environment_root(_workspace), do: not_loaded()
  def host_environment_tree(_workspace, _depth), do: not_loaded()
  def host_environment_user, do: not_loaded()

  def instruction_files_load(_workspace, _options), do: not_loaded()
  def instruction_files_unchanged(_workspace, _options, _snapshot), do: not_loaded()

  def lint_warnings(_text), do: not_loaded()

  def markdown_cuts(_text, _near, _far), do: not_loaded()
  def markdown_cuts_dirty(_text, _near, _far), do: not_loaded()
  def markdown_closing(_text, _cut), do: not_loaded()
  def markdown_closing_dirty(_text, _cut), do: not_loaded()

  def plan_make(_tokenizer, _layers, _total), do: not_loaded()
  def plan_make_dirty(_tokenizer, _layers, _total), do: not_loaded()
  def loop_detection_new, do: not_loaded()
  def loop_detection_reset(_state), do: not_loaded()
  def loop_detection_observe(_state, _ladder, _text, _calls), do: not_loaded()
  def loop_detection_observe_dirty(_state, _ladder, _text, _calls), do: not_loaded()
  def loop_detection_is_blocked(_state, _call), do: not_loaded()
  def loop_detection_is_blocked_dirty(_state, _call), do: not_loaded()
  def plan_separator, do: not_loaded()
  def plan_marker, do: not_loaded()

  def report_to_json(_report), do: not_loaded()
  def report_to_html(_report), do: not_loaded()
  def report_from_json(_json), do: not_loaded()

  def tokens_prepare(_encoding), do: not_loaded()
  def tokens_count(_encoding, _text), do: not_loaded()
  def tokens_count_dirty(_encoding, _text), do: not_loaded()
  def tokens_remember(_capacity), do: not_loaded()
  def tokens_remembered, do: not_loaded()

  def trace_otlp(_events, _context, _span_ids), do: not_loaded()

  defp not_loaded do
    :erlang.nif_error(
      {:nif_not_loaded, :persistent_term.get({__MODULE__, :not_loaded}, :unknown)}
    )
  end
end
