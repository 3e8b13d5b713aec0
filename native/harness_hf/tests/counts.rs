//! Counts of real files beside those of the Python package, and what is no tokenizer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use harness_hf::{Error, LARGEST_FILE, LARGEST_TEXT, NotAFile, load};
use std::fs;
use std::path::PathBuf;

fn cases(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../test/cases")
        .join(name)
}

fn json(name: &str) -> serde_json::Value {
    serde_json::from_slice(&fs::read(cases(name)).unwrap()).unwrap()
}

#[test]
fn counts_of_the_python_package() {
    let texts = json("tokens.json");
    let counts = json("hugging_face/counts.json");
    for model in ["bpe", "word_piece", "unigram"] {
        let tokenizer = load(&cases(&format!("hugging_face/{model}.json"))).unwrap();
        let expected = counts[model].as_array().unwrap();
        let texts = texts.as_array().unwrap();
        assert_eq!(expected.len(), texts.len());
        for (case, count) in texts.iter().zip(expected) {
            let (text, count) = (case["text"].as_str().unwrap(), count.as_u64().unwrap());
            assert_eq!(tokenizer.count_up_to(text, u64::MAX).unwrap(), count);
            assert_eq!(tokenizer.count_up_to(text, count).unwrap(), count);
            if let Some(less) = count.checked_sub(1) {
                assert!(tokenizer.count_up_to(text, less).unwrap() > less);
            }
        }
    }
}

#[test]
fn what_is_no_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    assert!(matches!(load(&path), Err(Error::Missing)));
    assert!(matches!(
        load(folder.path()),
        Err(Error::NotRegular(NotAFile::Directory))
    ));

    let whole = fs::read(cases("hugging_face/bpe.json")).unwrap();
    let parts = (0..whole.len())
        .step_by(997)
        .filter_map(|end| whole.get(..end));
    for part in parts.chain([b"{}".as_slice(), b"[]", b"\xff", b"null"]) {
        fs::write(&path, part).unwrap();
        assert!(matches!(load(&path), Err(Error::Damaged(_))));
    }

    // A hole takes no room on the disk.
    let file = fs::File::create(&path).unwrap();
    file.set_len(LARGEST_FILE.checked_add(1).unwrap()).unwrap();
    assert!(matches!(load(&path), Err(Error::FileTooLarge)));
}

#[test]
fn a_text_that_is_too_long() {
    let tokenizer = load(&cases("hugging_face/bpe.json")).unwrap();
    let text = " ".repeat(LARGEST_TEXT.checked_add(1).unwrap());
    assert!(matches!(
        tokenizer.count_up_to(&text, 1),
        Err(Error::TextTooLarge(bytes)) if bytes == text.len()
    ));
}
