//! `cases/tokens.json`: counts of both encodings.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use harness_core::bpe::Encoding;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Case {
    text: String,
    counts: BTreeMap<String, u64>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../test/cases/tokens.json")).unwrap()
}

#[test]
fn counts_of_tokens_json() {
    for (index, case) in cases().iter().enumerate() {
        for (name, count) in &case.counts {
            let bpe = name.parse::<Encoding>().unwrap().bpe().unwrap();
            assert_eq!(
                bpe.count(&case.text),
                *count,
                "case {index}, {name}: {:?}",
                case.text
            );
            assert_eq!(
                bpe.encode(&case.text).len() as u64,
                *count,
                "case {index}, {name}"
            );
            assert_eq!(
                bpe.count_up_to(&case.text, *count),
                Some(*count),
                "case {index}, {name}"
            );
            if let Some(less) = count.checked_sub(1) {
                assert_eq!(
                    bpe.count_up_to(&case.text, less),
                    None,
                    "case {index}, {name}"
                );
            }
        }
    }
}
