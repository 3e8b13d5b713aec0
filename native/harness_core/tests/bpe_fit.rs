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
use harness_core::bpe::{Bpe, Counter, Encoding, Remembered};
use harness_core::plan::{At, Content, Layer, MARKER, SEPARATOR, Status, Total, plan};
use harness_core::tokens::{Part, Tokenizer};
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
    let content = Content::TruncateTail {
        text: text.as_bytes(),
        at: At::Grapheme,
    };
    let off = Remembered::new(0);
    let plan = plan(
        &Counter::new(bpe, &off),
        &[Layer { content, budget }],
        &Total::UNLIMITED,
    )
    .unwrap();
    let layer = &plan.layers[0];
    assert!(layer.tokens <= budget);
    assert_eq!(layer.tokens, plan.tokens);
    match (layer.status, layer.cut.map(|cut| cut.at)) {
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
        "/",
        "!",
        " ",
        "\u{85}",
        "\u{3000}",
        "'s",
        "Abc",
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
        let off = Remembered::new(0);
        let counter = Counter::new(bpe, &off);
        let (dropped, tokens) = counter.fit_suffix(&parts(&counter, &units), budget, 0);
        let count = |dropped: usize| bpe.count(&units[dropped..].join(SEPARATOR));
        prop_assert_eq!(tokens, count(dropped));
        prop_assert!(tokens <= budget);
        if let Some(one_less) = dropped.checked_sub(1) {
            prop_assert!(count(one_less) > budget);
        }
    }

    #[test]
    fn joined_parts_are_counted_as_one_text(
        units in prop::collection::vec(prop_oneof![hostile_text(), ".{0,12}"], 0..10),
        encoding in encoding(),
    ) {
        let bpe = encoding.bpe().unwrap();
        let units: Vec<&str> = units.iter().map(String::as_str).filter(|unit| !unit.is_empty()).collect();
        let off = Remembered::new(0);
        let counter = Counter::new(bpe, &off);
        let parts = parts(&counter, &units);
        prop_assert_eq!(counter.joined(&parts), bpe.count(&units.join(SEPARATOR)));
        for part in parts {
            prop_assert_eq!(part.count.alone, bpe.count(&part.text));
            prop_assert_eq!(part.count.followed, bpe.count(&format!("{}{SEPARATOR}", part.text)));
        }
    }

    #[test]
    fn what_is_remembered_changes_no_plan(
        layers in prop::collection::vec((prop::collection::vec("[a-z/\n ]{50,90}", 1..6), 0..60_u64, 0..3), 1..6),
        capacity in 0..40_u64,
        encoding in encoding(),
    ) {
        let layers: Vec<Layer<'_>> = layers.iter().map(|(units, budget, strategy)| Layer {
            content: match strategy {
                0 => Content::KeepOrDrop(units[0].as_bytes()),
                1 => Content::TruncateTail { text: units[0].as_bytes(), at: At::Grapheme },
                _ => Content::DropWholeUnits { units: units.iter().map(String::as_bytes).collect(), step: None },
            },
            budget: *budget,
        }).collect();
        let bpe = encoding.bpe().unwrap();
        let (off, on) = (Remembered::new(0), Remembered::new(capacity));
        let expected = plan(&Counter::new(bpe, &off), &layers, &Total::UNLIMITED);
        for _ in 0..3 {
            prop_assert_eq!(&plan(&Counter::new(bpe, &on), &layers, &Total::UNLIMITED), &expected);
        }
        prop_assert_eq!((off.info().entries, off.info().hits), (0, 0));
        prop_assert!(on.info().entries <= capacity.next_multiple_of(32));
    }
}

fn parts<'a>(counter: &Counter<'_>, units: &[&'a str]) -> Vec<Part<'a>> {
    units.iter().map(|unit| counter.part(*unit)).collect()
}

#[test]
fn what_was_counted_is_looked_up() {
    let bpe = Encoding::O200kBase.bpe().unwrap();
    let remembered = Remembered::new(1_000);
    let counter = Counter::new(bpe, &remembered);
    let texts: Vec<String> = (0..10)
        .map(|n| format!("{n}: {}", "prices are net. ".repeat(8)))
        .collect();
    for text in &texts {
        assert_eq!(counter.count(text).alone, bpe.count(text));
    }
    let info = remembered.info();
    assert_eq!((info.hits, info.misses, info.entries), (0, 10, 10));
    for text in &texts {
        assert_eq!(counter.count(text).alone, bpe.count(text));
    }
    // The other encoding's counts are others.
    let cl100k = Encoding::Cl100kBase.bpe().unwrap();
    Counter::new(cl100k, &remembered).count(&texts[0]);
    let info = remembered.info();
    assert_eq!((info.hits, info.misses, info.entries), (10, 11, 11));

    // A text that is too short to be worth it.
    counter.count("prices are net");
    assert_eq!(remembered.info(), info);

    // A cut at one budget is not the cut at another.
    let text = texts.concat();
    for budget in [20, 30, 20] {
        let cut = counter.fit_prefix(&text, budget, MARKER).unwrap();
        let sent = format!("{}{MARKER}", &text[..cut]);
        assert!(bpe.count(&sent) <= budget && bpe.count(&sent) > budget - 4);
    }
    let info = remembered.info();
    assert_eq!((info.hits, info.misses, info.entries), (11, 13, 13));

    remembered.set_capacity(0);
    assert_eq!(counter.count(&texts[0]).alone, bpe.count(&texts[0]));
    let off = remembered.info();
    assert_eq!((off.capacity, off.entries, off.hits), (0, 0, info.hits));
    remembered.set_capacity(100);
    counter.count(&texts[0]);
    assert_eq!(
        (remembered.info().capacity, remembered.info().entries),
        (100, 1)
    );
}

#[test]
fn a_memory_is_bounded() {
    let bpe = Encoding::O200kBase.bpe().unwrap();
    let remembered = Remembered::new(1_000);
    let counter = Counter::new(bpe, &remembered);
    for n in 0..20_000 {
        counter.count(&format!("{n:064}"));
    }
    assert!(
        remembered.info().entries <= 1_000,
        "{:?}",
        remembered.info()
    );
}

#[test]
fn ten_thousand_units_and_a_megabyte() {
    let bpe = Encoding::O200kBase.bpe().unwrap();
    let rules: Vec<String> = (0..10_000)
        .map(|n| format!("Rule {n}: prices are net."))
        .collect();
    let units: Vec<&str> = rules.iter().map(String::as_str).collect();
    let off = Remembered::new(0);
    let counter = Counter::new(bpe, &off);
    let (dropped, tokens) = counter.fit_suffix(&parts(&counter, &units), 8_000, 0);
    assert!(tokens <= 8_000);
    assert!(bpe.count(&units[dropped - 1..].join(SEPARATOR)) > 8_000);

    // Units that may each be one piece with the one before.
    for unit in ["/", "\n", " ", "/usr/lib", " \n x"] {
        let units = vec![unit; 10_000];
        let (dropped, tokens) = counter.fit_suffix(&parts(&counter, &units), 100, 0);
        assert_eq!(tokens, bpe.count(&units[dropped..].join(SEPARATOR)));
        assert!(tokens <= 100 && bpe.count(&units[dropped - 1..].join(SEPARATOR)) > 100);
    }

    for unit in ["a", " ", "\n", "^", "漢", "👩‍👩‍👧", "e\u{301}\u{301}", "🇧🇷"] {
        let text = unit.repeat(1_000_000 / unit.len());
        let cut = cut(bpe, &text, 4_000);
        assert!(cut > 0 && cut < text.len(), "{unit:?}: {cut}");
    }
}

#[test]
fn a_long_last_piece_is_counted_alone_and_followed() {
    let units = [
        "a",
        "^",
        " ",
        "\n",
        "\r\n",
        "\t",
        "ab",
        "é",
        "ſ",
        "漢字",
        "가",
        "=-",
        "/",
        "' ",
        "\u{301}",
        "👩\u{200d}👧🇧🇷👍🏽",
        "\u{3000}",
        "xyzzy",
        "Zwölf",
    ];
    let starts = ["", "x", " x", "1 ", "(", "\n"];
    let ends = ["", " ", "\n", "\r", "/", "!", "s", "'s"];
    for encoding in [Encoding::Cl100kBase, Encoding::O200kBase] {
        let bpe = encoding.bpe().unwrap();
        let remembered = Remembered::new(0);
        let counter = Counter::new(bpe, &remembered);
        for unit in units {
            for bytes in [500, 513, 640, 2_049] {
                let middle = unit.repeat(bytes / unit.len() + 1);
                for (start, end) in starts.iter().flat_map(|s| ends.iter().map(move |e| (s, e))) {
                    let text = format!("{start}{middle}{end}");
                    let count = counter.count(&text);
                    let alone = bpe.encode(&text).len() as u64;
                    let followed = bpe.encode(&format!("{text}{SEPARATOR}")).len() as u64;
                    assert_eq!(
                        (count.alone, count.followed),
                        (alone, followed),
                        "{encoding}: {start:?}, {unit:?} to {bytes} bytes, {end:?}"
                    );
                }
            }
        }
    }
}
