//! The plans of whole prompts: the shared cases, and what holds for all inputs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use harness_core::markdown::closing;
use harness_core::plan::{self, At, Content, Error, Layer, MARKER, Plan, SEPARATOR, Status, Total};
use harness_core::tokens::Approximate;
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::HashMap;
use unicode_segmentation::UnicodeSegmentation;

#[derive(Deserialize)]
struct Case {
    name: String,
    contents: Contents,
    budgets: HashMap<String, u64>,
    expected: Expected,
}

#[derive(Deserialize)]
struct Contents {
    identity: String,
    instruction_files: Vec<String>,
    project_context: String,
    business_rules: Vec<String>,
    task_state: Vec<String>,
}

#[derive(Deserialize)]
struct Expected {
    layers: HashMap<String, ExpectedLayer>,
    prompt: String,
    tokens: u64,
}

#[derive(Deserialize)]
struct ExpectedLayer {
    text: String,
    tokens_before: u64,
    tokens: u64,
    status: String,
    #[serde(default)]
    dropped_units: usize,
    cut_at: Option<usize>,
}

const LAYERS: [&str; 5] = [
    "identity",
    "instruction_files",
    "project_context",
    "business_rules",
    "task_state",
];

fn plan(tokenizer: &Approximate, layers: &[Layer<'_>]) -> Result<Plan, Error> {
    plan::plan(tokenizer, layers, &Total::UNLIMITED)
}

fn units(units: &[String]) -> Content<'_> {
    Content::DropWholeUnits {
        units: units.iter().map(String::as_bytes).collect(),
        step: None,
    }
}

fn text(text: &[u8]) -> Content<'_> {
    Content::TruncateTail {
        text,
        at: At::Grapheme,
    }
}

/// The texts of the layers that a plan makes: what the BEAM does with sub-binaries.
fn texts(layers: &[Layer<'_>], plan: &Plan) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let layers = layers.iter().zip(&plan.layers);
    layers
        .map(|(layer, plan)| match (&layer.content, plan.status) {
            (_, Status::Empty | Status::Dropped) => String::new(),
            (Content::KeepOrDrop(bytes), _) => text(bytes),
            (Content::TruncateTail { text: bytes, .. }, _) => match plan.cut {
                Some(cut) => text(&bytes[..cut.at]) + &closing(bytes, cut) + MARKER,
                None => text(bytes),
            },
            (Content::DropWholeUnits { units, .. }, _) => {
                let units = units.iter().filter(|unit| !unit.is_empty());
                let kept: Vec<String> = units.skip(plan.dropped).map(|unit| text(unit)).collect();
                kept.join(SEPARATOR)
            }
        })
        .collect()
}

fn prompt(texts: &[String]) -> String {
    let texts: Vec<&str> = texts
        .iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty())
        .collect();
    texts.join(SEPARATOR)
}

#[test]
fn trimming_cases() {
    let cases = include_str!("../../../test/cases/trimming.json");
    let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
    assert_eq!(cases.len(), 97);
    for case in &cases {
        let contents = &case.contents;
        let layers: Vec<Layer<'_>> = LAYERS
            .iter()
            .zip([
                Content::KeepOrDrop(contents.identity.as_bytes()),
                units(&contents.instruction_files),
                text(contents.project_context.as_bytes()),
                units(&contents.business_rules),
                units(&contents.task_state),
            ])
            .map(|(name, content)| Layer {
                content,
                budget: case.budgets[*name],
            })
            .collect();

        let plan = plan(&Approximate, &layers).unwrap();
        let texts = texts(&layers, &plan);
        for ((name, layer), text) in LAYERS.iter().zip(&plan.layers).zip(&texts) {
            let expected = &case.expected.layers[*name];
            let at = format!("{}: {name}", case.name);
            assert_eq!(text, &expected.text, "{at}");
            assert_eq!(layer.tokens_before, expected.tokens_before, "{at}");
            assert_eq!(layer.tokens, expected.tokens, "{at}");
            assert_eq!(
                format!("{:?}", layer.status).to_lowercase(),
                expected.status,
                "{at}"
            );
            assert_eq!(layer.dropped, expected.dropped_units, "{at}");
            assert_eq!(layer.cut.map(|cut| cut.at), expected.cut_at, "{at}");
        }
        assert_eq!(prompt(&texts), case.expected.prompt, "{}", case.name);
        assert_eq!(plan.tokens, case.expected.tokens, "{}", case.name);
    }
}

#[test]
fn text_that_is_not_utf8_is_named() {
    let latin1 = b"caf\xe9";
    let error = |content| plan(&Approximate, &[Layer { content, budget: 9 }]).unwrap_err();
    let at = |unit| Error::NotUtf8 {
        layer: 0,
        unit,
        offset: 3,
    };
    assert_eq!(error(Content::KeepOrDrop(latin1)), at(0));
    assert_eq!(error(text(latin1)), at(0));
    assert_eq!(
        error(Content::DropWholeUnits {
            units: vec![b"ok", b"", latin1],
            step: None
        }),
        at(2)
    );

    let good = Layer {
        content: Content::KeepOrDrop(b"ok"),
        budget: 9,
    };
    let bad = Layer {
        content: text(latin1),
        budget: 9,
    };
    let error = plan(&Approximate, &[good, bad]).unwrap_err();
    assert_eq!(
        error,
        Error::NotUtf8 {
            layer: 1,
            unit: 0,
            offset: 3
        }
    );
    assert_eq!(error.to_string(), "layer 1, unit 0 is not UTF-8 at byte 3");
}

#[test]
fn a_code_point_that_ends_early_is_not_utf8_where_it_starts() {
    let layer = Layer {
        content: Content::KeepOrDrop(b"a\xe6\xbc"),
        budget: 9,
    };
    let error = Error::NotUtf8 {
        layer: 0,
        unit: 0,
        offset: 1,
    };
    assert_eq!(plan(&Approximate, &[layer]).unwrap_err(), error);
}

fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

fn hostile_text() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "word ",
        "\r\n",
        "é",
        "\u{301}",
        "漢",
        "👩‍👩‍👧‍👦",
        "🇧🇷",
        "क्ष",
        MARKER,
        SEPARATOR,
        "x",
    ]);
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

fn one(content: Content<'_>, budget: u64) -> (Vec<Layer<'_>>, Plan) {
    let layers = vec![Layer { content, budget }];
    let plan = plan(&Approximate, &layers).unwrap();
    (layers, plan)
}

proptest! {
    #[test]
    fn a_cut_text_is_the_longest_prefix_that_fits(text in hostile_text(), budget in 0..120_u64) {
        let (layers, plan) = one(self::text(text.as_bytes()), budget);
        let sent = &texts(&layers, &plan)[0];
        let layer = &plan.layers[0];
        prop_assert_eq!(layer.tokens, tokens(sent.len()));
        prop_assert!(layer.tokens <= budget);

        let mut ends: Vec<usize> = text.grapheme_indices(true).map(|(at, _)| at).collect();
        ends.push(text.len());
        let fits = |end: &&usize| tokens(**end + MARKER.len()) <= budget;
        let longest = ends.iter().filter(|end| **end > 0).filter(fits).max();
        let expected = if tokens(text.len()) <= budget {
            text.clone()
        } else {
            longest.map_or(String::new(), |end| text[..*end].to_string() + MARKER)
        };
        prop_assert_eq!(sent, &expected);
    }

    #[test]
    fn what_is_sent_fits_and_is_sent_whole_the_next_time(text in hostile_text(), budget in 0..120_u64) {
        let (layers, plan) = one(self::text(text.as_bytes()), budget);
        let sent = texts(&layers, &plan).remove(0);
        let (layers, plan) = one(self::text(sent.as_bytes()), budget);
        prop_assert_eq!(&texts(&layers, &plan)[0], &sent);
        prop_assert_eq!(plan.layers[0].cut, None);
    }

    #[test]
    fn a_larger_budget_never_keeps_less(
        text in hostile_text(),
        units in prop::collection::vec(hostile_text(), 0..12),
        budget in 0..120_u64,
        more in 0..40_u64,
    ) {
        let cut = |budget| {
            let (layers, plan) = one(self::text(text.as_bytes()), budget);
            let sent = texts(&layers, &plan).remove(0);
            plan.layers[0].cut.map_or(sent.len(), |cut| cut.at)
        };
        prop_assert!(cut(budget) <= cut(budget + more));
        let dropped = |budget| one(self::units(&units), budget).1.layers[0].dropped;
        prop_assert!(dropped(budget) >= dropped(budget + more));
    }

    #[test]
    fn kept_units_are_the_longest_suffix_that_fits(
        units in prop::collection::vec(hostile_text(), 0..12),
        budget in 0..200_u64,
    ) {
        let (layers, plan) = one(self::units(&units), budget);
        let layer = &plan.layers[0];
        let sent = &texts(&layers, &plan)[0];
        prop_assert_eq!(layer.tokens, tokens(sent.len()));
        prop_assert!(layer.tokens <= budget);

        let full: Vec<&str> = units.iter().map(String::as_str).filter(|unit| !unit.is_empty()).collect();
        let each: Vec<u64> = full.iter().map(|unit| tokens(unit.len())).collect();
        prop_assert_eq!(&layer.unit_tokens, &each);
        prop_assert_eq!(sent, &full[layer.dropped..].join(SEPARATOR));
        if let Some(one_less) = layer.dropped.checked_sub(1) {
            prop_assert!(tokens(full[one_less..].join(SEPARATOR).len()) > budget);
        }
        let (layers, again) = one(self::units(std::slice::from_ref(sent)), budget);
        prop_assert_eq!(&texts(&layers, &again)[0], sent);
    }

    #[test]
    fn the_whole_is_counted_as_it_is_sent(
        identity in hostile_text(),
        context in hostile_text(),
        units in prop::collection::vec(hostile_text(), 0..6),
        budgets in prop::array::uniform3(0..80_u64),
    ) {
        let layers = [
            Layer { content: Content::KeepOrDrop(identity.as_bytes()), budget: budgets[0] },
            Layer { content: self::text(context.as_bytes()), budget: budgets[1] },
            Layer { content: self::units(&units), budget: budgets[2] },
        ];
        let plan = plan(&Approximate, &layers).unwrap();
        prop_assert_eq!(plan.tokens, tokens(prompt(&texts(&layers, &plan)).len()));
    }

    #[test]
    fn no_bytes_make_it_panic(
        text in any::<Vec<u8>>(),
        units in prop::collection::vec(any::<Vec<u8>>(), 0..6),
        budget in any::<u64>(),
    ) {
        let units = units.iter().map(Vec::as_slice).collect();
        let layers = [
            Layer { content: Content::KeepOrDrop(&text), budget },
            Layer { content: self::text(&text), budget },
            Layer { content: Content::DropWholeUnits { units, step: None }, budget },
        ];
        if let Ok(plan) = plan(&Approximate, &layers) {
            prop_assert!(plan.layers.iter().all(|layer| layer.tokens <= budget));
        }
    }
}
