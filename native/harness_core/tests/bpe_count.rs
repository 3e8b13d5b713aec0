//! Counting and encoding against the definition: merge the pair of the lowest rank, again and again.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use harness_core::bpe::{Bpe, Encoding};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::LazyLock;

type Ranks = HashMap<Vec<u8>, u32>;

static RANKS: LazyLock<[(&Bpe, Ranks); 2]> = LazyLock::new(|| {
    Encoding::ALL.map(|encoding| {
        let bpe = encoding.bpe().unwrap();
        (
            bpe,
            (0..bpe.tokens())
                .map(|token| (bpe.token_bytes(token), token))
                .collect(),
        )
    })
});

/// tiktoken's algorithm, as plainly as it can be said.
fn reference(bpe: &Bpe, ranks: &Ranks, text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    for piece in bpe.pieces(text) {
        if let Some(token) = ranks.get(piece.as_bytes()) {
            tokens.push(*token);
            continue;
        }
        let mut parts: Vec<Vec<u8>> = piece.bytes().map(|byte| vec![byte]).collect();
        while let Some((_, at)) = parts
            .windows(2)
            .enumerate()
            .filter_map(|(at, pair)| ranks.get(&pair.concat()).map(|rank| (*rank, at)))
            .min()
        {
            let right = parts.remove(at + 1);
            parts[at].extend(right);
        }
        tokens.extend(parts.iter().map(|part| ranks[part]));
    }
    tokens
}

fn check(text: &str) {
    for (bpe, ranks) in RANKS.iter() {
        let expected = reference(bpe, ranks, text);
        assert_eq!(bpe.encode(text), expected, "{} of {text:?}", bpe.encoding());
        let count = expected.len() as u64;
        // Twice: the second time from what is remembered.
        assert_eq!(bpe.count(text), count, "{} of {text:?}", bpe.encoding());
        assert_eq!(bpe.count(text), count, "{} of {text:?}", bpe.encoding());
        assert_eq!(bpe.count_up_to(text, count), Some(count));
        for less in [0, count / 2, count.saturating_sub(1)] {
            assert_eq!(
                bpe.count_up_to(text, less),
                (less == count).then_some(count)
            );
        }
    }
}

/// The stored vocabularies hold every byte of OpenAI's files: written back, they have their SHA-256.
#[test]
fn vocabularies_are_the_original_files() {
    let originals = [
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ];
    for (encoding, original) in Encoding::ALL.into_iter().zip(originals) {
        let bpe = encoding.bpe().unwrap();
        let mut hasher = Sha256::new();
        for token in 0..bpe.tokens() {
            hasher.update(format!("{} {token}\n", base64(&bpe.token_bytes(token))));
        }
        let found: String = hasher
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(found, original, "{encoding}");
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(bits);
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize] as char;
            out.push(if at <= three.len() { letter } else { '=' });
        }
    }
    out
}

/// Every token by itself, and two by two, is what the definition says.
#[test]
fn every_token_is_itself() {
    for (bpe, _) in RANKS.iter() {
        for token in 0..bpe.tokens() {
            if let Ok(text) = String::from_utf8(bpe.token_bytes(token))
                && bpe.pieces(&text).count() == 1
            {
                assert_eq!(bpe.encode(&text), [token], "{text:?}");
            }
        }
    }
}

#[test]
fn long_pieces() {
    for unit in [
        "a",
        " ",
        "\n",
        "^",
        "ab",
        "é",
        "漢",
        "👩\u{200d}👧",
        "-=",
        "Zz",
        "\u{301}",
    ] {
        check(&unit.repeat(700));
        for (bpe, _) in RANKS.iter() {
            let text = unit.repeat(300_000);
            let count = bpe.count(&text);
            assert_eq!(bpe.encode(&text).len() as u64, count, "{unit:?}");
            assert_eq!(bpe.count_up_to(&text, count), Some(count), "{unit:?}");
            assert_eq!(bpe.count_up_to(&text, count - 1), None, "{unit:?}");
        }
    }
}

#[test]
fn special_tokens_are_ordinary_text() {
    for (bpe, _) in RANKS.iter() {
        assert_eq!(bpe.count("<|endoftext|>"), 7);
        assert_eq!(bpe.count(""), 0);
        assert_eq!(bpe.count_up_to("", 0), Some(0));
    }
}

#[test]
fn names() {
    for encoding in Encoding::ALL {
        assert_eq!(encoding.name().parse(), Ok(encoding));
    }
    assert_eq!(
        "gpt2".parse::<Encoding>().unwrap_err().to_string(),
        "unknown encoding \"gpt2\", expected one of: cl100k_base, o200k_base"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn one_script(text in r"[a-c]{0,80}|[a-z]{0,60}|[ \n]{0,70}|[一-三]{0,40}|[一-龥]{0,30}|[а-я]{0,40}|[ก-๛]{0,40}|[가-힣]{0,30}|[!-/]{0,50}|[^a-z]{0,30}") {
        check(&text);
    }

    #[test]
    fn joined_tokens(tokens in prop::collection::vec(0u32..100_000, 0..30)) {
        for (bpe, _) in RANKS.iter() {
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| bpe.token_bytes(*token)).collect();
            check(&String::from_utf8_lossy(&bytes));
        }
    }
}
