defmodule Engine.Harness.Schedule do
  # Where native work runs: up to this size on the caller's scheduler, which it holds for well
  # under a millisecond; beyond it on a dirty one, the hop to which costs more than small work.
  @moduledoc false

  @normal_bytes 65_536
  @normal_units 1_000

  # Exact counting passes a millisecond at 10 to 20 KB.
  @normal_counted_bytes 8_192

  defguard is_small(bytes) when bytes <= @normal_bytes
  defguard is_small(bytes, units) when bytes <= @normal_bytes and units <= @normal_units
  defguard is_small_to_count(bytes) when bytes <= @normal_counted_bytes
end
