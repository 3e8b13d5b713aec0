//! Layers trimmed by exact tokens.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs
)]

use harness_core::boundary::at_or_before;
use harness_core::bpe::{Bpe, Encoding};
use harness_core::plan::{Content, Layer, MARKER, SEPARATOR, Status, plan};
use harness_core::tokens::Tokenizer;
use proptest::prelude::*;
use serde::Deserialize;
use unicode_segmentation::UnicodeSegmentation;

#[derive(Deserialize)]
struct Case {
    text: String,
    #[serde(default)]
    truncations: Vec<Truncation>,
}

#[derive(Deserialize)]
struct Truncation {
    encoding: String,
    budget: u64,
    min_cut_at: usize,
}

/// Where a text is cut by the plan of a layer, 0 when nothing of it is sent.
fn cut(bpe: &'static Bpe, text: &str, budget: u64) -> usize {
    let content = Content::TruncateTail(text.as_bytes());
    let plan = plan(&bpe, &[Layer { content, budget }]).unwrap();
    let layer = &plan.layers[0];
    assert!(layer.tokens <= budget);
    assert_eq!(layer.tokens, plan.tokens);
    match (layer.status, layer.cut_at) {
        (Status::Empty | Status::Kept, None) => text.len(),
        (Status::Dropped, None) => 0,
        (Status::Trimmed, Some(cut)) => {
            assert_eq!(at_or_before(text.as_bytes(), cut), cut);
            assert_eq!(
                layer.tokens,
                bpe.count(&format!("{}{MARKER}", &text[..cut]))
            );
            cut
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn truncations_of_tokens_json() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../../test/cases/tokens.json")).unwrap();
    let mut truncations = 0;
    for case in &cases {
        for truncation in &case.truncations {
            let encoding: Encoding = truncation.encoding.parse().unwrap();
            let cut = cut(encoding.bpe().unwrap(), &case.text, truncation.budget);
            assert!(
                cut >= truncation.min_cut_at,
                "{:?} at {}: {cut} < {}",
                case.text,
                truncation.budget,
                truncation.min_cut_at
            );
            truncations += 1;
        }
    }
    assert!(truncations > 400, "{truncations}");
}

/// Texts whose pieces, merges and clusters get into each other's way.
fn hostile_text() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "the ",
        "  ",
        "\n",
        "\r\n",
        "don't",
        "1234567",
        "é",
        "e\u{301}",
        "漢字",
        "👩‍👩‍👧",
        "🇧🇷",
        "नमस्ते",
        "====",
        "aaaaaaaaaaaa",
        MARKER,
        SEPARATOR,
        "<|endoftext|>",
        "\u{200d}",
        ".\n\n",
        "[",
        "ZWJ",
    ]);
    prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop::sample::select(Encoding::ALL.to_vec())
}

proptest! {
    #[test]
    fn a_cut_is_as_long_as_promised(text in hostile_text(), budget in 0..60_u64, encoding in encoding()) {
        let bpe = encoding.bpe().unwrap();
        let cut = cut(bpe, &text, budget);
        if bpe.count(&text) > budget && let Some(room) = budget.checked_sub(bpe.count(MARKER) + 1) {
            let ends = text.grapheme_indices(true).map(|(at, cluster)| at + cluster.len());
            let promised = ends.take_while(|&end| bpe.count(&text[..end]) <= room).last();
            prop_assert!(cut >= promised.unwrap_or(0), "{} < {:?}", cut, promised);
        }
    }

    #[test]
    fn the_rest_fits_and_one_unit_more_does_not(
        units in prop::collection::vec(hostile_text(), 0..14),
        budget in 0..200_u64,
        encoding in encoding(),
    ) {
        let bpe = encoding.bpe().unwrap();
        let units: Vec<&str> = units.iter().map(String::as_str).filter(|unit| !unit.is_empty()).collect();
        let (dropped, tokens) = (&bpe).fit_suffix(&units, budget);
        let count = |dropped: usize| bpe.count(&units[dropped..].join(SEPARATOR));
        prop_assert_eq!(tokens, count(dropped));
        prop_assert!(tokens <= budget);
        if let Some(one_less) = dropped.checked_sub(1) {
            prop_assert!(count(one_less) > budget);
        }
    }

    #[test]
    fn pieces_are_counted_as_one_text(parts in prop::collection::vec(hostile_text(), 0..6), encoding in encoding()) {
        let bpe = encoding.bpe().unwrap();
        let whole = parts.concat();
        prop_assert_eq!(Tokenizer::count(&bpe, parts.iter().map(String::as_str)), bpe.count(&whole));
    }
}

#[test]
fn ten_thousand_units_and_a_megabyte() {
    let bpe = Encoding::O200kBase.bpe().unwrap();
    let rules: Vec<String> = (0..10_000)
        .map(|n| format!("Rule {n}: prices are net."))
        .collect();
    let units: Vec<&str> = rules.iter().map(String::as_str).collect();
    let (dropped, tokens) = (&bpe).fit_suffix(&units, 8_000);
    assert!(tokens <= 8_000);
    assert!(bpe.count(&units[dropped - 1..].join(SEPARATOR)) > 8_000);

    for unit in ["a", " ", "\n", "^", "漢", "👩‍👩‍👧", "e\u{301}\u{301}", "🇧🇷"] {
        let text = unit.repeat(1_000_000 / unit.len());
        let cut = cut(bpe, &text, 4_000);
        assert!(cut > 0 && cut < text.len(), "{unit:?}: {cut}");
    }
}
