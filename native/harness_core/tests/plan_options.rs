//! Steps, a total budget, and cuts at lines and in Markdown.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs
)]

use std::num::NonZeroU64;

use harness_core::boundary;
use harness_core::bpe::{Counter, Encoding, Remembered};
use harness_core::markdown::closing;
use harness_core::plan::{
    At, Content, Error, Layer, LayerPlan, MARKER, Plan, SEPARATOR, Status, Total, plan,
};
use harness_core::tokens::{Approximate, Tokenizer};
use proptest::prelude::*;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

fn units<'a>(units: &[&'a str], step: u64) -> Content<'a> {
    Content::DropWholeUnits {
        units: units.iter().map(|unit| unit.as_bytes()).collect(),
        step: NonZeroU64::new(step),
    }
}

fn text(text: &str, at: At) -> Content<'_> {
    let text = text.as_bytes();
    Content::TruncateTail { text, at }
}

fn one<T: Tokenizer>(tokenizer: &T, content: Content<'_>, budget: u64) -> LayerPlan {
    let layers = [Layer { content, budget }];
    plan(tokenizer, &layers, &Total::UNLIMITED)
        .unwrap()
        .layers
        .remove(0)
}

/// What is sent of a text.
fn sent(text: &str, plan: &LayerPlan) -> String {
    match (plan.status, plan.cut) {
        (Status::Empty | Status::Dropped, _) => String::new(),
        (_, None) => text.to_owned(),
        (_, Some(cut)) => text[..cut.at].to_owned() + &closing(text.as_bytes(), cut) + MARKER,
    }
}

fn cut(text: &str, at: At, budget: u64) -> String {
    sent(text, &one(&Approximate, self::text(text, at), budget))
}

mod steps {
    use super::*;

    /// Two bytes and a separator: one token a turn.
    #[test]
    fn one_token_a_turn_moves_ten_times_in_300_turns() {
        let mut moves = Vec::new();
        let mut before = 0;
        for turn in 1..=300 {
            let rules = vec!["ru"; turn];
            let plan = one(&Approximate, units(&rules, 20), 100);
            assert_eq!(plan.tokens_before, turn as u64);
            assert_eq!(plan.tokens, (turn - plan.dropped) as u64);
            assert!(plan.tokens <= 100);
            if plan.dropped != before {
                moves.push((turn, plan.dropped));
                before = plan.dropped;
            }
        }
        let expected: Vec<(usize, usize)> = (1..=10).map(|n| (20 * n + 81, 20 * n)).collect();
        assert_eq!(moves, expected);
    }

    #[test]
    fn without_a_step_no_unit_goes_that_need_not() {
        let rules = vec!["ru"; 101];
        assert_eq!(one(&Approximate, units(&rules, 0), 100).dropped, 1);
        assert_eq!(one(&Approximate, units(&rules, 1), 100).dropped, 1);
        assert_eq!(one(&Approximate, units(&rules, 20), 100).dropped, 20);
        assert_eq!(one(&Approximate, units(&rules, 20), 101).dropped, 0);
    }

    #[test]
    fn a_step_beyond_the_budget_may_empty_the_layer() {
        let rules = vec!["ru"; 120];
        let plan = one(&Approximate, units(&rules, 150), 100);
        assert_eq!((plan.status, plan.dropped), (Status::Dropped, 120));
        let rules = vec!["ru"; 200];
        let plan = one(&Approximate, units(&rules, 150), 100);
        assert_eq!((plan.status, plan.dropped), (Status::Trimmed, 150));
        let plan = one(&Approximate, units(&rules, u64::MAX), 100);
        assert_eq!((plan.status, plan.dropped), (Status::Dropped, 200));
    }

    /// The sizes are such that what is left would round up on some turns and down on others.
    #[test]
    fn what_is_dropped_does_not_follow_the_rounding_of_the_rest() {
        let mut rules = vec!["aaaa"; 40];
        let mut dropped = Vec::new();
        for _ in 0..4 {
            // 40 units are 238 bytes, 60 tokens, and each of one byte adds 3 bytes: 60, 61, 61, 62.
            dropped.push(one(&Approximate, units(&rules, 10), 55).dropped);
            rules.push("b");
        }
        // 10 tokens of the head are 40 bytes: 7 units.
        assert_eq!(dropped, [7, 7, 7, 7]);
    }

    fn stays<T: Tokenizer>(
        tokenizer: &T,
        rules: &[String],
        budget: u64,
        step: u64,
    ) -> Result<(), TestCaseError> {
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let mut last = (0, 0);
        for turn in 1..=rules.len() {
            let plan = one(tokenizer, units(&rules[..turn], step), budget);
            prop_assert!(plan.tokens <= budget);
            let steps = plan.tokens_before.saturating_sub(budget).div_ceil(step);
            let gone = (steps * step).min(plan.tokens_before);
            prop_assert!(plan.tokens_before - plan.tokens >= gone);
            // It moves when another step is over, and only then.
            prop_assert!(plan.dropped >= last.1);
            prop_assert!(plan.dropped == last.1 || steps > last.0, "turn {}", turn);
            last = (steps, plan.dropped);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn over_200_turns_the_head_moves_once_a_step(
            rules in prop::collection::vec("[a-z漢 ]{1,40}", 200),
            budget in 50..400_u64,
            step in 1..=50_u64,
        ) {
            stays(&Approximate, &rules, budget, step)?;
        }

        #[test]
        fn in_exact_tokens_too(
            rules in prop::collection::vec("[A-Za-z][a-z漢 .]{0,30}[a-z.]", 120),
            budget in 50..300_u64,
            step in 1..=50_u64,
        ) {
            let off = Remembered::new(0);
            let counter = Counter::new(Encoding::O200kBase.bpe().unwrap(), &off);
            stays(&counter, &rules, budget, step)?;
        }

        #[test]
        fn whatever_the_units_are_it_fits_and_enough_is_gone(
            rules in prop::collection::vec("[/\n a1]{1,6}", 0..30),
            budget in 0..40_u64,
            step in 1..30_u64,
        ) {
            let off = Remembered::new(0);
            let counter = Counter::new(Encoding::Cl100kBase.bpe().unwrap(), &off);
            let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
            let plan = one(&counter, units(&rules, step), budget);
            prop_assert!(plan.tokens <= budget);
            let rest = rules[plan.dropped..].join(SEPARATOR);
            prop_assert_eq!(plan.tokens, counter.count(&rest).alone);
            let over = plan.tokens_before.saturating_sub(budget);
            let gone = (over.div_ceil(step) * step).min(plan.tokens_before);
            prop_assert!(plan.tokens_before - plan.tokens >= gone);
        }
    }
}

mod total {
    use super::*;

    const ORDER: [usize; 4] = [2, 4, 1, 3];

    fn five<'a>(texts: [&'a str; 2], lists: [&[&'a str]; 3]) -> Vec<Layer<'a>> {
        let budget = 100;
        [
            Content::KeepOrDrop(texts[0].as_bytes()),
            units(lists[0], 0),
            text(texts[1], At::Grapheme),
            units(lists[1], 0),
            units(lists[2], 0),
        ]
        .map(|content| Layer { content, budget })
        .into()
    }

    fn within(layers: &[Layer<'_>], budget: u64) -> Result<Plan, Error> {
        let give_way = &ORDER;
        plan(&Approximate, layers, &Total { budget, give_way })
    }

    /// Each layer is 40 bytes, 10 tokens; joined they are 208 bytes, 52 tokens.
    #[test]
    fn layers_give_way_in_their_order() {
        let ten = "0123456789012345678901234567890123456789";
        // Four units of 8 bytes and one of 0 with separators: 8 * 4 + 2 * 3 = 38 bytes.
        let list = ["aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"];
        let layers = five([ten, ten], [&list, &list, &list]);
        let kept = |budget: u64| {
            let plan = within(&layers, budget).unwrap();
            assert!(plan.tokens <= budget);
            let layers = plan.layers.iter();
            layers
                .map(|layer| (layer.tokens, layer.limit))
                .collect::<Vec<_>>()
        };
        // 40 + 38 + 40 + 38 + 38 and 4 * 2 are 202 bytes, 51 tokens.
        assert_eq!(
            kept(51),
            [(10, 100), (10, 100), (10, 100), (10, 100), (10, 100)]
        );
        // Without the project's context 160 bytes are 40 tokens, so it may cost 10 of 50: over by
        // its separator, it is given 9. The marker is 19 bytes, 17 are left.
        assert_eq!(
            kept(50),
            [(10, 100), (10, 100), (9, 9), (10, 100), (10, 100)]
        );
        // The marker and one byte are 5 tokens; less is nothing.
        assert_eq!(kept(46)[2], (5, 5));
        assert_eq!(
            kept(44),
            [(10, 100), (10, 100), (0, 4), (10, 100), (10, 100)]
        );
        // Then the state of the task: one unit goes of 160 bytes.
        assert_eq!(kept(39), [(10, 100), (10, 100), (0, 0), (10, 100), (7, 9)]);
        // Its last unit is 8 bytes.
        assert_eq!(kept(33)[4], (2, 3));
        // Identity, files and rules are 120 bytes.
        assert_eq!(kept(30), [(10, 100), (10, 100), (0, 0), (10, 100), (0, 0)]);
        assert_eq!(kept(29)[1], (7, 9));
        assert_eq!(kept(20), [(10, 100), (0, 0), (0, 0), (10, 100), (0, 0)]);
        assert_eq!(kept(13)[3], (2, 3));
        assert_eq!(kept(12)[3], (0, 1));
        assert_eq!(kept(10), [(10, 100), (0, 0), (0, 0), (0, 0), (0, 0)]);
        assert_eq!(
            within(&layers, 9),
            Err(Error::OverTotal {
                tokens: 10,
                layers: vec![10, 0, 0, 0, 0],
                budget: 9
            })
        );
        assert_eq!(
            within(&layers, 9).unwrap_err().to_string(),
            "what does not give way costs 10 tokens, the total budget is 9"
        );
    }

    #[test]
    fn what_is_in_no_order_never_gives_way() {
        let layers = five(["", ""], [&["aaaaaaaa"], &["bbbbbbbb"], &[]]);
        let total = |give_way| Total {
            budget: 3,
            give_way,
        };
        let plan = |give_way| plan(&Approximate, &layers, &total(give_way));
        assert_eq!(plan(&[1]).unwrap().layers[1].status, Status::Dropped);
        assert_eq!(plan(&[3]).unwrap().layers[3].status, Status::Dropped);
        let error = Error::OverTotal {
            tokens: 5,
            layers: vec![0, 2, 0, 2, 0],
            budget: 3,
        };
        assert_eq!(plan(&[2, 4]), Err(error));
        // An index that is none is no layer.
        assert_eq!(plan(&[9, 1]).unwrap().layers[1].status, Status::Dropped);
    }

    fn some_text() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop::sample::select(vec!["word ", "漢", "\r\n", "\n\n", "/", "👩‍👩‍👧", "x"]),
            0..40,
        )
        .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn never_over_and_more_never_keeps_less(
            texts in prop::array::uniform2(some_text()),
            lists in prop::array::uniform3(prop::collection::vec(some_text(), 0..6)),
            at in prop::sample::select(vec![At::Grapheme, At::Line]),
            budget in 0..200_u64,
            more in 0..40_u64,
        ) {
            let lists: Vec<Vec<&str>> = lists.iter().map(|list| list.iter().map(String::as_str).collect()).collect();
            let mut layers = five([&texts[0], &texts[1]], [&lists[0], &lists[1], &lists[2]]);
            layers[2].content = text(&texts[1], at);
            let kept = |plan: &Plan| -> Vec<(usize, usize)> {
                plan.layers.iter().zip(&layers).map(|(plan, layer)| {
                    let units = match &layer.content {
                        Content::DropWholeUnits { units, .. } => units.iter().filter(|unit| !unit.is_empty()).count(),
                        _ => 0,
                    };
                    let cut = match plan.status {
                        Status::Dropped => 0,
                        _ => plan.cut.map_or(usize::MAX, |cut| cut.at),
                    };
                    (units - plan.dropped, cut)
                }).collect()
            };
            match (within(&layers, budget), within(&layers, budget + more)) {
                (Ok(less), Ok(more)) => {
                    prop_assert!(less.tokens <= budget);
                    prop_assert!(kept(&less).iter().zip(kept(&more)).all(|(less, more)| less.0 <= more.0 && less.1 <= more.1));
                    for plan in &less.layers {
                        prop_assert!(plan.tokens <= plan.limit);
                    }
                }
                (Err(Error::OverTotal { tokens, .. }), _) => {
                    let identity = one(&Approximate, Content::KeepOrDrop(texts[0].as_bytes()), 100);
                    prop_assert_eq!(tokens, identity.tokens);
                    prop_assert!(tokens > budget);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn never_over_in_exact_tokens(
            texts in prop::array::uniform2(some_text()),
            lists in prop::array::uniform3(prop::collection::vec(some_text(), 0..6)),
            budget in 0..150_u64,
        ) {
            let off = Remembered::new(0);
            let counter = Counter::new(Encoding::O200kBase.bpe().unwrap(), &off);
            let lists: Vec<Vec<&str>> = lists.iter().map(|list| list.iter().map(String::as_str).collect()).collect();
            let layers = five([&texts[0], &texts[1]], [&lists[0], &lists[1], &lists[2]]);
            match plan(&counter, &layers, &Total { budget, give_way: &ORDER }) {
                Ok(plan) => prop_assert!(plan.tokens <= budget),
                Err(error) => {
                    let is_over = matches!(error, Error::OverTotal { tokens, .. } if tokens > budget);
                    prop_assert!(is_over, "{:?}", error);
                }
            }
        }
    }
}

mod cuts {
    use super::*;

    #[test]
    fn after_the_last_line_that_fits() {
        // 10 tokens are 40 bytes: 21 and the marker.
        let lines = "one\ntwo\r\nthree\rfour and five and six and seven";
        assert_eq!(
            cut(lines, At::Line, 10),
            format!("one\ntwo\r\nthree\r{MARKER}")
        );
        assert_eq!(cut(lines, At::Line, 8), format!("one\ntwo\r\n{MARKER}"));
        // No line fits: at the last boundary.
        assert_eq!(cut(lines, At::Line, 5), format!("o{MARKER}"));
        let line = "0123456789".repeat(9);
        assert_eq!(cut(&line, At::Line, 10), format!("{}{MARKER}", &line[..21]));
        assert_eq!(cut(&line, At::Line, 4), "");
    }

    // 400 bytes of 100 tokens: 381 of them before the marker, the window from 341 on.
    const BUDGET: u64 = 100;
    const FAR: usize = 381;
    const NEAR: usize = 341;

    /// A text with `marks` at some offsets, filled up with words to well over the budget.
    fn filled(marks: &[(usize, &str)]) -> String {
        let mut text = String::new();
        for (at, mark) in marks {
            assert!(text.len() <= *at);
            while text.len() < *at {
                text.push('w');
            }
            text.push_str(mark);
        }
        text + &"v".repeat(600)
    }

    fn cut_at(text: &str) -> usize {
        one(&Approximate, self::text(text, At::Markdown), BUDGET)
            .cut
            .unwrap()
            .at
    }

    #[test]
    fn in_markdown_the_best_place_of_the_last_tenth() {
        let marks = [(345, "\n# Heading\n"), (360, "\n\n"), (370, "\n")];
        assert_eq!(cut_at(&filled(&marks)), 346);
        assert_eq!(cut_at(&filled(&marks[1..])), 362);
        assert_eq!(cut_at(&filled(&marks[2..])), 371);
        assert_eq!(cut_at(&filled(&[])), FAR);
        // The last of its kind.
        assert_eq!(cut_at(&filled(&[(345, "\n\n"), (360, "\n\n")])), 362);
        // None of them before the last tenth.
        assert_eq!(cut_at(&filled(&[(300, "\n# Heading\n\n")])), FAR);
        assert_eq!(cut_at(&filled(&[(NEAR - 2, "\n")])), FAR);
        assert_eq!(cut_at(&filled(&[(NEAR - 1, "\n")])), NEAR);
        // Exactly at the end.
        assert_eq!(
            cut_at(&filled(&[(345, "\n\n"), (FAR - 1, "\n# Heading\n")])),
            FAR
        );
        // Underlined.
        assert_eq!(
            cut_at(&filled(&[(349, "\n\nHeading\n=======\n"), (370, "\n\n")])),
            351
        );
        // In a quote.
        assert_eq!(
            cut_at(&filled(&[(345, "\n> ## Heading\n"), (370, "\n>\n> ")])),
            346
        );
        assert_eq!(
            cut_at(&filled(&[(345, "\n> text\n>\n> more\n"), (375, "\n")])),
            355
        );
        // What is none.
        for none in ["\n#Heading\n", "\n####### Heading\n", "\n\\# Heading\n"] {
            assert_eq!(cut_at(&filled(&[(345, none)])), 345 + none.len());
        }
    }

    #[test]
    fn an_open_fence_is_closed_by_its_own_delimiter() {
        for (fence, closed) in [
            ("```", "```"),
            ("`````rust", "`````"),
            ("~~~~ text", "~~~~"),
            ("  ```", "  ```"),
            ("> ```", "> ```"),
            ("> > ~~~", "> > ~~~"),
            ("- ```", "  ```"),
            ("10. ```", "    ```"),
            ("> - ```", ">   ```"),
        ] {
            let lead = fence.split(['`', '~']).next().unwrap();
            let lead: String = lead
                .chars()
                .map(|c| if c == '>' { c } else { ' ' })
                .collect();
            // In a line, and between two.
            for (code, line_break) in [
                ("c".repeat(600), "\n"),
                (format!("code\n{lead}").repeat(120), ""),
            ] {
                let text = format!("Words.\n\n{fence}\n{lead}{code}");
                let sent = cut(&text, At::Markdown, BUDGET);
                let end = format!("{line_break}{closed}\n{MARKER}");
                assert!(sent.ends_with(&end), "{sent:?}");
                assert!(
                    text.starts_with(&sent[..sent.len() - end.len()]),
                    "{sent:?}"
                );
                assert!(
                    sent.len() <= 400 && sent.len() > 400 - 4 - 6 - lead.len(),
                    "{}",
                    sent.len()
                );
            }
        }
        // Closed already, or none.
        for text in ["```\ncode\n```\n", "``\n", "`` ` ``\n", "``` a`b\n"] {
            let text = format!("{text}{}", "w".repeat(600));
            assert_eq!(
                cut(&text, At::Markdown, BUDGET),
                format!("{}{MARKER}", &text[..FAR])
            );
        }
    }

    #[test]
    fn a_heading_in_a_fence_is_code() {
        let text = format!("```\n{}\n# comment\n\n{}", "c".repeat(345), "d".repeat(600));
        let sent = cut(&text, At::Markdown, BUDGET);
        assert!(
            sent.ends_with(&format!("# comment\n\n```\n{MARKER}")),
            "{sent}"
        );
    }

    #[test]
    fn a_fence_that_can_not_be_closed_is_left_out() {
        // Its delimiter alone is larger than what is left.
        let text = format!("{}\n{}\ncode\n", "w".repeat(300), "`".repeat(500));
        assert_eq!(
            cut(&text, At::Markdown, BUDGET),
            format!("{}\n{MARKER}", &text[..300])
        );
        // 300 of them and two line breaks leave 78 bytes, and a run of 78 is a shorter delimiter.
        let text = format!("{}\ncode\n{}", "`".repeat(300), "c".repeat(300));
        let run = "`".repeat(78);
        assert_eq!(
            cut(&text, At::Markdown, BUDGET),
            format!("{run}\n{run}\n{MARKER}")
        );
        // Two backticks are no fence.
        let text = "`".repeat(600);
        assert_eq!(cut(&text, At::Markdown, BUDGET), format!("``{MARKER}"));
    }

    #[test]
    fn a_closing_fence_with_the_marker_after_it_would_close_nothing() {
        // The closing run ends where the cut would be.
        let text = format!("```\n{}\n```\n{}", "c".repeat(FAR - 8), "w".repeat(600));
        assert_eq!(text[..FAR].len(), FAR);
        assert!(text[..FAR].ends_with("\n```"));
        let sent = cut(&text, At::Markdown, BUDGET);
        assert!(sent.ends_with(&format!("c\n```\n{MARKER}")), "{sent}");
    }

    /// Whether the marker stands inside of a fenced code block, by another reading of Markdown.
    fn marker_is_code(sent: &str) -> bool {
        let mut depth = 0;
        for event in Parser::new(sent) {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    if info.contains("truncated") {
                        return true;
                    }
                    depth += 1;
                }
                Event::End(TagEnd::CodeBlock) => depth = 0,
                Event::Text(text) if depth > 0 && text.contains("… truncated …") => {
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    fn markdown() -> impl Strategy<Value = String> {
        let line = prop::sample::select(vec![
            "# Heading\n",
            "words of a paragraph\n",
            "\n",
            "```\n",
            "```rust\n",
            "````\n",
            "~~~\n",
            "code()\n",
            "> quoted\n",
            "> ```\n",
            "> code\n",
            "Title\n=====\n",
            "`span`\n",
            "漢字\r\n",
            "  ```\n",
            "---\n",
        ]);
        prop::collection::vec(line, 0..60).prop_map(|lines| lines.concat())
    }

    fn any_at() -> impl Strategy<Value = At> {
        prop::sample::select(vec![At::Grapheme, At::Line, At::Markdown])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn no_fence_is_left_open(text in markdown(), budget in 0..120_u64) {
            let sent = cut(&text, At::Markdown, budget);
            prop_assert!(sent.len() as u64 <= 4 * budget);
            if sent.ends_with(MARKER) {
                prop_assert!(!marker_is_code(&sent), "{:?}", sent);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_fits_at_a_boundary(text in markdown(), at in any_at(), budget in 0..120_u64, exact in any::<bool>()) {
            let off = Remembered::new(0);
            let counter = Counter::new(Encoding::O200kBase.bpe().unwrap(), &off);
            let content = self::text(&text, at);
            let plan = if exact { one(&counter, content, budget) } else { one(&Approximate, content, budget) };
            let sent = sent(&text, &plan);
            let tokens = if exact { counter.count(&sent).alone } else { Approximate.count(&sent).alone };
            prop_assert_eq!(plan.tokens, tokens);
            prop_assert!(tokens <= budget);
            if let Some(cut) = plan.cut {
                prop_assert_eq!(boundary::at_or_before(text.as_bytes(), cut.at), cut.at);
            }
            // It is empty only where it would be, wherever it is cut.
            let grapheme = one(&Approximate, self::text(&text, At::Grapheme), budget);
            prop_assert!(exact || plan.status == grapheme.status);
        }

        #[test]
        fn a_line_or_a_tenth_at_most_is_lost(text in markdown(), budget in 0..120_u64) {
            let at = |at: At| one(&Approximate, self::text(&text, at), budget).cut;
            if let (Some(most), Some(line), Some(markdown)) = (at(At::Grapheme), at(At::Line), at(At::Markdown)) {
                prop_assert!(line.at <= most.at && markdown.at <= most.at);
                let lines = text[..most.at].rfind('\n').map_or(most.at, |end| end + 1);
                prop_assert_eq!(line.at, lines);
                if markdown.fence.is_none() && !text.contains("```") && !text.contains("~~~") {
                    let tenth = 4 * budget.div_ceil(10) as usize;
                    prop_assert!(most.at - markdown.at <= tenth + 4);
                }
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>(), near in 0..50_usize, far in 0..50_usize) {
            for cut in harness_core::markdown::cuts(text.as_bytes(), near, far) {
                closing(text.as_bytes(), cut);
            }
        }
    }

    #[test]
    fn a_megabyte_of_lines_is_cut_in_one_pass() {
        for line in [
            "> ",
            "\n",
            "```\n",
            "- ",
            "# a\n",
            "a\n=\n",
            "~~~~\nx\n",
            "\r",
        ] {
            let text = line.repeat(1_000_000 / line.len());
            let plan = one(&Approximate, self::text(&text, At::Markdown), 200_000);
            assert!(
                plan.tokens <= 200_000 && plan.tokens > 90_000,
                "{line:?} {}",
                plan.tokens
            );
        }
    }
}
