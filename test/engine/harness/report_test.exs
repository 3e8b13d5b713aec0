defmodule Engine.Harness.ReportTest do
  # Not async: stands in the workspaces.
  use ExUnit.Case, async: false

  import Engine.Workspace

  alias Engine.Harness.{Debug, PromptAssembler, Report, Tokenizer}
  alias Engine.Tokenizers.Words

  doctest Report

  @root Path.expand("../../..", __DIR__)
  # The same repository a turn ago, and now.
  @before [
    workspace: ".",
    business_rules: [
      {"net", "Prices are gross."},
      {"a day", "Orders can be cancelled for a day."}
    ]
  ]
  @now [
    workspace: ".",
    budgets: [instruction_files: 30, project_context: 15],
    compare: [{Tokenizer.Bpe, encoding: :o200k_base}],
    business_rules: [
      {"net", "Prices are net."},
      "",
      {"a day", "Orders can be cancelled for a day."}
    ],
    task_state: ["Open."]
  ]

  defp printed(workspace, opts) do
    {:ok, io} = StringIO.open("")

    :ok =
      File.cd!(workspace, fn -> Debug.print("developer", [io: io, environment: false] ++ opts) end)

    {:ok, {"", text}} = StringIO.close(io)
    text
  end

  defp golden(name), do: File.read!(Path.join([@root, "test/golden", name]))
  defp decode(json), do: :jiffy.decode(json, [:return_maps, :use_nil])

  defp now do
    {:ok, earlier} = Report.from_json(golden("shop.json"))
    @now ++ [against: earlier]
  end

  # examples/shop as a repository of its own, cloned twice.
  defp clones do
    outer = workspace!()
    origin = Path.join(outer, "origin")
    File.cp_r!(Path.join(@root, "examples/shop"), origin)

    git = fn arguments ->
      identity = ~w(-c user.name=test -c user.email=test@localhost -c init.defaultBranch=main)
      {_, 0} = System.cmd("git", identity ++ arguments, cd: origin, stderr_to_stdout: true)
    end

    git.(~w(init -q))
    git.(~w(add .))
    git.(~w(commit -q -m shop))

    for name <- ["a", "deep/er"] do
      clone = Path.join(outer, name)
      git.(["clone", "-q", origin, clone])
      clone
    end
  end

  test "the golden files of a repository, and the same bytes from two clones" do
    goldens = [
      {"shop.json", @before ++ [format: :json, inputs: true]},
      {"shop_diff.json", now() ++ [format: :json, inputs: true]},
      {"shop.html", now() ++ [format: :html]},
      {"shop.txt", now()}
    ]

    [a, b] = clones()

    for {name, opts} <- goldens do
      assert printed(a, opts) == printed(b, opts)
      assert printed(a, opts) == golden(name)
    end
  end

  describe "every number of" do
    # The golden files' run, and one with all that may be set. Cut after a line the README has 44 of
    # 333 bytes. Without it 287 are left, 72 tokens: for 10 it is cut a line sooner, to 32 bytes.
    @settings [
      total_budget: 82,
      give_way: [:project_context, :task_state],
      strict: [:identity, :business_rules],
      step: [instruction_files: 7, business_rules: 500],
      at: [project_context: :line]
    ]
    @early {"now", "It is 04:55:14."}

    setup context do
      opts =
        if context[:settings],
          do: Keyword.update!(now(), :business_rules, &(&1 ++ [@early])) ++ @settings,
          else: now()

      shop = Path.join(@root, "examples/shop")
      [shop: shop, opts: opts, json: decode(printed(shop, [format: :json] ++ opts))]
    end

    # An integer with commas, infinity being null.
    defp numbers(line) do
      for [text] <- Regex.scan(~r/(?<![\w.])-?\d[\d,]*(?![\w.])|∞/u, line) do
        if text == "∞", do: nil, else: text |> String.replace(",", "") |> String.to_integer()
      end
    end

    defp table_equals(%{shop: shop, opts: opts, json: json}) do
      lines = shop |> printed([prompt: false] ++ opts) |> String.split("\n")
      row = fn name -> lines |> Enum.find(&String.starts_with?(&1, name <> " ")) |> numbers() end
      [compared] = json["compared"]

      for {layer, counted} <- Enum.zip(json["layers"], compared["layers"]) do
        units =
          case layer["units"] do
            %{"kept" => kept, "given" => given} when given > 0 -> [kept, given]
            _ -> []
          end

        assert row.(layer["name"]) == [layer["tokens"], layer["budget"]] ++ units ++ [counted]
      end

      prompt = json["prompt"]
      # No limit, nil, is more than any number.
      budget = min(prompt["budget"], prompt["total_budget"])
      assert row.("prompt") == [prompt["tokens"], budget, compared["tokens"]]
      assert row.("separators") == [prompt["separators"]["tokens"], compared["separators"]]

      tokenizer = Enum.find(lines, &String.starts_with?(&1, "tokenizer"))

      [ratio] =
        Regex.run(~r/(\d+)\.(\d\d) bytes/, tokenizer, capture: :all_but_first)
        |> Enum.join()
        |> List.wrap()

      assert String.to_integer(ratio) == prompt["bytes_per_100_tokens"]

      # What is not in the prompt: each with its tokens and its message.
      for layer <- json["layers"],
          item <- layer["items"],
          item["status"] in ~w(cut dropped unused) do
        cost = if item["tokens_before"], do: "~#{item["tokens_before"]}", else: ""
        words = Enum.join(List.wrap(item["id"]) ++ [item["message"]], ": ")

        assert Enum.any?(
                 lines,
                 &(&1 =~ ~r/^  #{layer["name"]} +#{cost}  #{Regex.escape(words)}$/)
               )
      end

      diff = json["diff"]
      place = diff["first_difference"]

      assert numbers(Enum.find(lines, &(&1 =~ "first difference"))) ==
               [place["byte"], place["before"]["byte"], place["after"]["byte"]]

      for setting <- diff["settings"] do
        words = "#{setting["name"]}: #{setting["before"]} before, #{setting["after"]} now"
        assert Enum.any?(lines, &(&1 =~ ~r/^  setting +#{Regex.escape(words)}$/))
      end

      for warning <- json["warnings"], do: assert(("  " <> warning["message"]) in lines)

      common = diff["common"]

      assert numbers(Enum.find(lines, &(&1 =~ "common prefix"))) ==
               [common["tokens"], diff["tokens"], common["bytes"], common["layers"]] ++
                 [diff["tokens_before"]]

      assert length(diff["changes"]) > 1

      for change <- diff["changes"] do
        tokens = "~#{change["tokens_before"]} → ~#{change["tokens"]}"
        what = Enum.join([change["layer"] | List.wrap(change["id"])], " ")

        assert Enum.any?(lines, fn line ->
                 String.starts_with?(line, "  #{change["change"]} ") and line =~ tokens and
                   line =~ what and String.ends_with?(line, "  " <> change["message"])
               end)
      end
    end

    defp page_equals(%{shop: shop, opts: opts, json: json}) do
      page = printed(shop, [format: :html] ++ opts)
      data = Regex.scan(~r{<data value="([^"]*)" data-of="([^"]*)">([^<]*)</data>}, page)
      assert length(data) > 90

      for [_, value, pointer, shown] <- data do
        keys =
          for key <- pointer |> String.split("/") |> tl() do
            if key =~ ~r/^\d+$/, do: Access.at(String.to_integer(key)), else: key
          end

        assert get_in(json, keys) == String.to_integer(value), pointer

        assert String.replace(shown, ~r/[,.]/, "") |> String.to_integer() ==
                 String.to_integer(value)
      end

      pointers = MapSet.new(data, &Enum.at(&1, 2))

      # All that the table shows is among them.
      for {layer, index} <- Enum.with_index(json["layers"]) do
        for field <- ["tokens", "tokens_before", "budget", "bytes", "step", "limit"],
            layer[field] != nil,
            field != "limit" or layer["limit"] != layer["budget"],
            do: assert("/layers/#{index}/#{field}" in pointers)

        for {item, of} <- Enum.with_index(layer["items"]),
            field <- ["rank", "tokens", "tokens_before", "bytes"],
            item[field] != nil,
            do: assert("/layers/#{index}/items/#{of}/#{field}" in pointers)
      end

      for {_, index} <- Enum.with_index(json["warnings"]),
          field <- ["count", "offset", "length"] do
        assert "/warnings/#{index}/#{field}" in pointers
      end

      if json["prompt"]["total_budget"], do: assert("/prompt/total_budget" in pointers)

      # No other number stands in it: names, messages, hashes and the prompt are the JSON's texts.
      rest =
        page
        |> String.replace(~r{<(style|script|title|pre|code|data|bdi)\b.*?</\1>}s, "")
        |> String.replace(~r/<[^>]*>/, " ")
        |> String.replace("sha256", "")

      refute rest =~ ~r/\d/

      for layer <- json["layers"], item <- layer["items"] do
        for text <- [item["id"], item["message"]], text != nil do
          assert page =~ "<bdi>#{text |> String.replace("\"", "&quot;")}</bdi>"
        end

        if item["sha256"], do: assert(page =~ item["sha256"])
      end
    end

    test("the table equals the JSON's", context, do: table_equals(context))
    test("the page equals the JSON's", context, do: page_equals(context))

    @tag :settings
    test "both equal the JSON's, with a step, a place, a total and strict layers", context do
      table_equals(context)
      page_equals(context)

      %{"layers" => [_, files, project, rules, _], "prompt" => prompt} = context.json
      assert {files["step"], rules["step"], project["at"]} == {7, 500, "line"}
      assert {project["limit"], project["budget"], project["tokens"]} == {10, 15, 8}
      assert {prompt["tokens"], prompt["total_budget"]} == {81, 82}
      assert [%{"layer" => "business_rules", "kind" => "clock_time"}] = context.json["warnings"]
    end
  end

  describe "the page" do
    defp page(contents, opts \\ []) do
      contents |> PromptAssembler.assemble!() |> Report.to_html(opts)
    end

    test "escapes all text" do
      script = "</pre><script>document.title='pwned'</script><!-- \" ' & \u202E\e\u200B"
      unit = {"r\"><script>\u202E\n", script}

      unused = %{
        layer: :instruction_files,
        path: "a\n<script>\xFF",
        reason: :near_miss,
        message: "<script>\u202E"
      }

      page =
        page([identity: script, instruction_files: [unit], project_context: script],
          agent: "<script>",
          workspace: "<b>\u202E",
          unused: [unused]
        )

      assert [_] = Regex.scan(~r/<script/, page)
      refute page =~ "<b>"
      refute page =~ ~r/[\x{202e}\x{1b}\x{200b}]/u

      assert page =~
               "&lt;/pre&gt;&lt;script&gt;document.title='pwned'&lt;/script&gt;&lt;!-- &quot; ' &amp; " <>
                 "<mark class=\"hidden\">\\u{202e}\\u{1b}\\u{200b}</mark>"

      assert page =~ "<bdi>a\\u{a}\\u{3c}script\\u{3e}\\xff</bdi>"
    end

    test "allows its own two blocks and nothing else" do
      page = page(identity: "x")

      hash = fn element ->
        [_, block] = Regex.run(~r{<#{element}>(.*?)</#{element}>}s, page)
        "'sha256-" <> Base.encode64(:crypto.hash(:sha256, block)) <> "'"
      end

      [_, policy] = Regex.run(~r/http-equiv="Content-Security-Policy" content="([^"]*)"/, page)

      assert policy ==
               "default-src 'none'; style-src #{hash.("style")}; script-src #{hash.("script")}; " <>
                 "base-uri 'none'; form-action 'none'"

      # It comes before what it allows.
      assert page =~ ~r/Content-Security-Policy.*<style>.*<script>/s
      refute page =~ ~r/https?:|\bsrc=|\bhref=|\bstyle=|\bon\w+=/
    end

    test "of an empty prompt and of one without its text" do
      assert page([]) =~ "It is empty."
      refute page([identity: "hidden text"], prompt: false) =~ "hidden text"
    end

    test "colours the prompt by layer, unit by unit" do
      page = page(identity: "who", business_rules: [{"a", "one"}, {"b", "two"}])
      assert page =~ ~s(<pre class="identity">\nwho</pre>)

      assert page =~
               ~s(<pre class="business_rules">\n<span class="item" title="a">one</span>\n\n) <>
                 ~s(<span class="item" title="b">two</span></pre>)
    end
  end

  describe "JSON" do
    test "is read back, in a VM that knew none of its names before" do
      path = Path.join(@root, "test/golden/shop_diff.json")

      code = """
      {:ok, report} = Engine.Harness.Report.from_json(File.read!(#{inspect(path)}))
      [identity | _] = report.layers
      [item] = identity.items
      change = hd(report.diff.changes)
      IO.inspect({identity.name, identity.strategy, identity.status, item.status, change.change})
      true = Engine.Harness.Report.to_json(report) == File.read!(#{inspect(path)})
      """

      ebin = Application.app_dir(:engine, "ebin")
      {out, 0} = System.cmd("elixir", ["-pa", ebin, "-e", code])
      assert out == "{:identity, :keep_or_drop, :kept, :kept, :dropped}\n"
    end

    test "budgets beyond what readers of JSON get right are no limit" do
      for {budget, expected} <- [
            {9_007_199_254_740_991, 9_007_199_254_740_991},
            {9_007_199_254_740_992, nil},
            {1_000_000_000_000_000_000_000_000, nil},
            {:infinity, nil}
          ] do
        assembly = PromptAssembler.assemble!(%{}, budgets: [identity: budget])
        assert hd(decode(Report.to_json(assembly))["layers"])["budget"] == expected
      end
    end

    test "without the prompt, and with what is not this library's" do
      assembly = PromptAssembler.assemble!([identity: "one two"], tokenizer: Words)
      json = decode(Report.to_json(assembly, prompt: false))
      assert json["prompt"]["text"] == nil
      assert json["tokenizer"] == %{"name" => "Engine.Tokenizers.Words", "estimated" => false}
      assert json["prompt"]["tokens"] == 2
    end

    test "says what was lost to what" do
      rules = for n <- 1..10, do: {"r#{n}", "aaaa"}

      contents = [
        identity: "id",
        business_rules: rules,
        project_context: String.duplicate("x", 200)
      ]

      messages = fn opts ->
        assembly = PromptAssembler.assemble!(contents, opts)

        for layer <- Report.new(assembly).layers, item <- layer.items, item.tokens_before > 0 do
          {item.reason, item.message}
        end
        |> Enum.uniq()
      end

      # Ten units of 4 bytes with nine separators are 58 bytes, 15 tokens.
      assert messages.(budgets: [business_rules: 10, identity: 0], step: [business_rules: 4]) == [
               {"over_budget", "dropped, over the budget of 0"},
               {"fits", "fits into the budget"},
               {"over_budget",
                "dropped, the layer is over its budget of 10 (oldest goes first, in steps of 4)"}
             ]

      # The text's 50 tokens are within its own budget, and too many for a total of 40.
      assert [{"fits", _}, {"over_total_budget", cut}] = messages.(total_budget: 40)
      assert cut =~ ~r/^cut at byte \d+ of 200, over the \d+ that the total budget leaves it$/

      opts = [total_budget: 62, give_way: [:business_rules]]
      assert [{"fits", _}, {"over_total_budget", dropped} | _] = messages.(opts)

      assert dropped =~
               ~r/^dropped, the layer is over the \d+ that the total budget leaves it \(oldest goes first\)$/
    end

    test "holds the warnings, as the page does" do
      assembly = PromptAssembler.assemble!(identity: "It is 04:55:14. You are a tester.")
      report = Report.new(assembly)
      # As in the doctest of Engine.Harness.Lint.
      assert [%{layer: :identity, kind: "clock_time", count: 1, offset: 6, length: 8}] =
               report.warnings

      assert Report.from_json(Report.to_json(report)) == {:ok, report}
      assert Report.to_html(report) =~ "<bdi>identity holds a clock time, 04:55:14: it changes"
    end

    test "errors" do
      assembly = PromptAssembler.assemble!(identity: "x")

      assert_raise ArgumentError, ~r/^option :colour is unknown, expected any of: :agent/, fn ->
        Report.new(assembly, colour: 1)
      end

      assert_raise ArgumentError,
                   "expected no options beside a report, got: [inputs: true]",
                   fn -> Report.to_json(Report.new(assembly), inputs: true) end

      assert {:error, %Report.Error{message: "not a report: missing field `schema`" <> _}} =
               Report.from_json("{}")

      assert {:error, %Report.Error{message: "a report of version 2, and" <> _}} =
               Report.from_json(~s({"schema": "engine.harness.report", "version": 2}))

      assert_raise ArgumentError, "expected :compare to be a list of tokenizers, got: 1", fn ->
        Report.compare(assembly, 1)
      end
    end
  end
end
