//! Counts as the crate would encode, without the encoding.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::{
    Model, ModelWrapper, OffsetReferential, OffsetType, PreTokenizer, TruncationDirection,
    utils::parallelism::set_parallelism,
};

use crate::Error;

/// The most bytes of a text that is counted: the crate takes about 100 bytes of memory for each.
pub const LARGEST_TEXT: usize = 16 * 1024 * 1024;

/// A model's own tokenizer.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Of the bytes of a `tokenizer.json`.
    ///
    /// What the file says of truncation, padding and dropout is for training, and left out: a count
    /// has no limit, and is the same each time.
    pub fn new(json: &[u8]) -> Result<Self, Error> {
        // No threads but the caller's.
        set_parallelism(false);
        caught(|| {
            let mut tokenizer = tokenizers::Tokenizer::from_bytes(json)?;
            tokenizer.with_truncation(None)?;
            tokenizer.with_padding(None);
            tokenizer.set_encode_special_tokens(true);
            if let ModelWrapper::BPE(bpe) = tokenizer.get_model()
                && bpe.dropout.is_some()
            {
                let mut bpe = bpe.clone();
                bpe.dropout = None;
                tokenizer.with_model(bpe);
            }
            Ok(Self(tokenizer))
        })
        .map_err(Error::Damaged)
    }

    /// The tokens of a text if they are at most `limit`, else any number above it: nothing more is
    /// encoded once it is known.
    ///
    /// Text that spells a special token is ordinary text, and no special token is added. Tokens
    /// that the file adds to the vocabulary without calling them special are found as always.
    pub fn count_up_to(&self, text: &str, limit: u64) -> Result<u64, Error> {
        if text.len() > LARGEST_TEXT {
            return Err(Error::TextTooLarge(text.len()));
        }
        caught(|| self.encode(text, limit)).map_err(Error::Failed)
    }

    /// The steps of the crate's `encode`, but for post-processing, which adds nothing but special
    /// tokens.
    fn encode(&self, text: &str, limit: u64) -> tokenizers::Result<u64> {
        let tokenizer = &self.0;
        let mut pieces = tokenizer
            .get_added_vocabulary()
            .extract_and_normalize(tokenizer.get_normalizer(), text);
        if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let enough = usize::try_from(limit)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        tokenizer
            .get_model()
            .tokenize_in_pretokenized(&mut pieces, Some((enough, TruncationDirection::Right)))?;
        let tokens = pieces
            .get_splits(OffsetReferential::Original, OffsetType::None)
            .into_iter()
            .map(|(_, _, tokens)| tokens.as_ref().map_or(0, Vec::len))
            .fold(0, usize::saturating_add);
        Ok(u64::try_from(tokens).unwrap_or(u64::MAX))
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokenizer")
    }
}

/// The crate panics where its regular expressions give up, and on files that are nearly right.
/// Nothing of it is left half-done: a tokenizer that counts changes nothing but its caches.
fn caught<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(words(panic.as_ref())),
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => (*words).to_owned(),
        (_, Some(words)) => words.clone(),
        _ => "for no reason given".to_owned(),
    }
}
