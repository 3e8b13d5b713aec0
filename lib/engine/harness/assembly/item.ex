defmodule Engine.Harness.Assembly.Item do
  @moduledoc """
  What became of one text or unit that was given.
  """

  @typedoc """
  `:kept`, sent as it was given; `:cut`, a prefix of it is sent; `:dropped`, nothing of it;
  `:empty`, there was nothing in it.
  """
  @type status :: :kept | :cut | :dropped | :empty

  @typedoc """
    * `id` - the one given, a unit's index where none was, `nil` for a text
    * `index` - its place among what was given, from 0
    * `rank` - 1 is what is dropped last
    * `status` - see `t:status/0`
    * `reason` - `:fits`, `:over_budget`, `:over_total_budget` or `:empty`
    * `offset` - its byte offset in the prompt, `nil` when nothing of it is sent
    * `bytes_before`, `tokens_before` - of what was given
    * `bytes`, `tokens` - of what is sent, marker included
    * `sha256` - of what was given
  """
  @type t :: %__MODULE__{
          id: term,
          index: non_neg_integer,
          rank: pos_integer,
          status: status,
          reason: :fits | :over_budget | :over_total_budget | :empty,
          offset: non_neg_integer | nil,
          bytes_before: non_neg_integer,
          bytes: non_neg_integer,
          tokens_before: non_neg_integer,
          tokens: non_neg_integer,
          sha256: String.t()
        }

  @enforce_keys [
    :id,
    :index,
    :rank,
    :status,
    :reason,
    :offset,
    :bytes_before,
    :bytes,
    :tokens_before,
    :tokens,
    :sha256
  ]
  defstruct @enforce_keys
end
