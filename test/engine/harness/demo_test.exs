defmodule Engine.Harness.DemoTest do
  use ExUnit.Case, async: true

  alias Engine.Harness.Demo.Limits

  doctest Engine.Harness.Demo
  doctest Limits

  test "a session comes up against each of its limits" do
    story = Limits.story()

    # One call takes 10 s of the rate, and two may be ahead: the third passes at 10 s. The breaker
    # opens at 20.3 s for 30 s. Left before the seventh call: 8000 - 1200 - 2 * 1450 - 1500.
    for line <- [
          ~S|   4.7 s  wait     key "scripted-1", call rate: 1 asked, 0 of 2 left (2 used, 0 reserved); try again in 5300 ms|,
          ~S|  10.0 s  call 3   admitted for 30.0 s; answers 503, 0 tokens|,
          ~S|  20.3 s  wait     key "scripted-1", circuit breaker: open after 2 failures in a row; try again in 30000 ms|,
          ~S|  50.3 s  call 5   admitted for 30.0 s; answers 200, 1,450 tokens|,
          ~S|  52.8 s  search   not run: key "web_search", calls: 1 asked, 0 of 2 left (2 used, 0 reserved)|,
          ~S|  82.8 s  charged  lease 6 never came back: 1500 tokens are charged|,
          ~S|  82.8 s  told     Left of what you may use: 2,400 of 8,000 tokens.|,
          ~S|  84.9 s  halt     session, tokens: 1500 asked, 950 of 8000 left (7050 used, 0 reserved)|,
          # In micro-units: 7,200 + 6,720 + 5,850 + 10,500, the lost one, + 5,250.
          ~S|session         cost (micro-units)  ~35,520         0   24,480   60,000  ██████░░░░|
        ],
        do: assert(line in String.split(story, "\n"), line)
  end
end
