//! The hand-written splitting against the encodings' own expressions, run by a general engine.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use fancy_regex::{Regex, RegexBuilder};
use harness_core::bpe::Encoding;
use proptest::prelude::*;
use std::sync::LazyLock;

/// As tiktoken 0.14 has them.
const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

static ORACLES: LazyLock<[(Encoding, Regex); 2]> = LazyLock::new(|| {
    let compile = |expression| RegexBuilder::new(expression).build().unwrap();
    [
        (Encoding::Cl100kBase, compile(CL100K)),
        (Encoding::O200kBase, compile(O200K)),
    ]
});

fn check(text: &str) {
    for (encoding, oracle) in ORACLES.iter() {
        let expected: Vec<&str> = oracle
            .find_iter(text)
            .map(|found| found.unwrap().as_str())
            .collect();
        let pieces: Vec<&str> = encoding.bpe().unwrap().pieces(text).collect();
        assert_eq!(pieces, expected, "{encoding} of {text:?}");
    }
}

/// One character of every class and every kind that the expressions tell apart, and those that are
/// the same to them but not to code: by length in UTF-8, by block, next to the limits.
const TELLING: &[&str] = &[
    "a",
    "s",
    "S",
    "t",
    "T",
    "r",
    "e",
    "E",
    "v",
    "m",
    "l",
    "L",
    "d",
    "D",
    "Z",
    "z",
    "A",
    "'",
    "’",
    "ſ",
    "K",
    "ß",
    "ı",
    "İ",
    "é",
    "É",
    "ǅ",
    "ª",
    "º",
    "ʰ",
    "ˮ",
    "あ",
    "漢",
    "한",
    "ا",
    "ก",
    "क",
    "\u{94d}",
    "\u{93f}",
    "\u{301}",
    "\u{20dd}",
    "\u{fe0f}",
    "\u{200d}",
    "\u{e0100}",
    "0",
    "9",
    "٣",
    "½",
    "²",
    "Ⅷ",
    "〇",
    "𝟘",
    "①",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\u{b}",
    "\u{c}",
    "\u{85}",
    "\u{a0}",
    "\u{1680}",
    "\u{2003}",
    "\u{2028}",
    "\u{2029}",
    "\u{202f}",
    "\u{3000}",
    "\u{200b}",
    "\u{feff}",
    "\u{1c}",
    "\u{1f}",
    "/",
    "//",
    "!",
    ".",
    "_",
    "-",
    "$",
    "€",
    "🙂",
    "👩\u{200d}👧",
    "🇧🇷",
    "\u{0}",
    "\u{7f}",
    "\u{80}",
    "\u{e000}",
    "\u{ffff}",
    "\u{10ffff}",
    "𐐀",
    "𐐨",
    "𠀀",
    "'s",
    "'LL",
    "'ve",
    "'ſ",
    "<|endoftext|>",
    "        ",
    "abcdefgh",
    "ABCDEFGH",
    "aaaaaaaaaaaaaaaaa",
];

#[test]
fn telling_characters_by_threes() {
    for first in TELLING {
        for second in TELLING {
            for third in TELLING {
                check(&[*first, *second, *third].concat());
            }
        }
    }
}

/// Every code point, where each of the alternatives could take it.
#[test]
fn every_code_point() {
    let mut text = String::new();
    for code_point in ('\0'..=char::MAX).filter(|c| *c < '\u{f0000}' || *c > '\u{10fff0}') {
        text.clear();
        for around in ["a", "A", "1", " ", "!", "'", "\n"] {
            text.push_str(around);
            text.push(code_point);
        }
        text.push(code_point);
        text.push('b');
        check(&text);
    }
}

/// The classes themselves, read off the pieces, against `regex-syntax`'s tables.
#[test]
fn unicode_version_is_the_oracles() {
    let version = regex_syntax::hir::ClassUnicode::empty();
    assert!(version.ranges().is_empty());
    // U+1C89 is an upper case letter since Unicode 16, U+088F is unassigned until 17.
    check("a\u{1c89}b\u{88f}c");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn telling_characters(parts in prop::collection::vec(prop::sample::select(TELLING), 0..24)) {
        check(&parts.concat());
    }

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn words(text in r"([ \t]{0,3}[A-Za-z]{1,12}('[a-z]{1,2})?|[0-9]{1,7}|[!-/:-@]{1,4}|[\r\n ]{1,4}|\PC){0,20}") {
        check(&text);
    }
}
