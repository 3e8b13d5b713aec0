//! Exact token counts for OpenAI's byte-pair encodings.
//!
//! [`Encoding::bpe`] gives the one table of an encoding, made at its first use from data inside
//! the library; [`Bpe::count`] counts. The numbers are those of OpenAI's tiktoken, except that no
//! text is special: `<|endoftext|>` is ordinary characters.
//!
//! ```
//! use harness_core::bpe::Encoding;
//!
//! let bpe = Encoding::O200kBase.bpe()?;
//! assert_eq!(bpe.count("Hello, world!"), 4);
//! assert_eq!(bpe.count_up_to("Hello, world!", 3), None);
//! # Ok::<(), harness_core::bpe::Error>(())
//! ```
//!
//! How it goes, from the outside in:
//!
//! - `split` cuts the text into pieces, by hand-written code over `classes`;
//! - `recent` knows the counts of short pieces that were seen a moment ago: most of them;
//! - `merge` finds the tokens of the others, in linear time, with the `trie` of all tokens;
//! - `vocabulary` makes these tables and checks the data they are made from;
//! - `fit` finds what fits a budget, and `remembered` what it has found before.

mod borders;
mod categories;
mod classes;
mod fit;
mod merge;
mod recent;
mod remembered;
mod split;
mod trie;
mod vocabulary;

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

pub use fit::Counter;
pub use remembered::{Info, Remembered};

use classes::Classes;
use merge::Merges;
use recent::{MEDIUM, MediumPieces, Recent, SHORT, ShortPieces};
use split::Splitter;

use crate::plan::SEPARATOR;
use crate::tokens::Count;

/// The longest token of either vocabulary, in bytes: so `n` tokens are at most `128 * n` bytes.
const LONGEST: usize = 128;

/// Why an encoding can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data inside the library is not what it was built with.
    #[error("the vocabulary of {encoding} is damaged: {reason}")]
    Damaged {
        /// The encoding's name.
        encoding: &'static str,
        /// What was found.
        reason: String,
    },
    /// There is no encoding of this name.
    #[error("unknown encoding {name:?}, expected one of: cl100k_base, o200k_base")]
    Unknown {
        /// The name that was given.
        name: String,
    },
}

/// The encodings there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// GPT-3.5, GPT-4 and the text-embedding-3 models.
    Cl100kBase,
    /// GPT-4o, GPT-4.1, GPT-5 and the o-series.
    O200kBase,
}

impl Encoding {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Cl100kBase, Self::O200kBase];

    /// The name that tiktoken has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cl100kBase => "cl100k_base",
            Self::O200kBase => "o200k_base",
        }
    }

    /// Its table, made by the first call in the process.
    pub fn bpe(self) -> Result<&'static Bpe, Error> {
        static CL100K: OnceLock<Result<Bpe, Error>> = OnceLock::new();
        static O200K: OnceLock<Result<Bpe, Error>> = OnceLock::new();
        let (cell, stored) = match self {
            Self::Cl100kBase => (&CL100K, &vocabulary::CL100K_BASE),
            Self::O200kBase => (&O200K, &vocabulary::O200K_BASE),
        };
        let made = cell.get_or_init(|| {
            let merges = stored.load()?;
            Ok(Bpe {
                encoding: self,
                merges,
                classes: Classes::shared(),
            })
        });
        made.as_ref().map_err(Clone::clone)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Encoding {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
            .ok_or_else(|| Error::Unknown {
                name: name.to_owned(),
            })
    }
}

/// One encoding, ready to count.
pub struct Bpe {
    encoding: Encoding,
    merges: Merges,
    classes: &'static Classes,
}

impl fmt::Debug for Bpe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bpe({})", self.encoding)
    }
}

thread_local! {
    static CL100K_RECENT: RefCell<Option<Box<Recent>>> = const { RefCell::new(None) };
    static O200K_RECENT: RefCell<Option<Box<Recent>>> = const { RefCell::new(None) };
}

impl Bpe {
    /// Which encoding it is.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The number of tokens of `text`; 0 if it is empty.
    pub fn count(&self, text: &str) -> u64 {
        self.with_recent(|recent| match self.encoding {
            Encoding::Cl100kBase => self.count_in::<false>(recent, text),
            Encoding::O200kBase => self.count_in::<true>(recent, text),
        })
    }

    /// The number of tokens of `text`, and with a separator after it: only the last pieces differ.
    pub(crate) fn count_and_followed(&self, text: &str) -> Count {
        self.with_recent(|recent| match self.encoding {
            Encoding::Cl100kBase => self.count_and_followed_in::<false>(recent, text),
            Encoding::O200kBase => self.count_and_followed_in::<true>(recent, text),
        })
    }

    /// The number of tokens of `text` if it is at most `limit`, else `None`. Stops soon after the
    /// limit, so it costs no more for a text of any length.
    pub fn count_up_to(&self, text: &str, limit: u64) -> Option<u64> {
        if text.len() as u64 > limit.saturating_mul(LONGEST as u64) {
            return None;
        }
        self.with_recent(|recent| match self.encoding {
            Encoding::Cl100kBase => self.count_up_to_in::<false>(recent, text, limit),
            Encoding::O200kBase => self.count_up_to_in::<true>(recent, text, limit),
        })
    }

    /// The tokens of `text`.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.with_recent(|recent| {
            for piece in self.pieces(text) {
                recent.long.reset();
                let bytes = piece.as_bytes();
                let (long, pairs) = (&mut recent.long, &mut recent.pairs);
                long.advance(&self.merges, pairs, bytes, bytes.len(), usize::MAX);
                tokens.extend_from_slice(&recent.long.tokens);
            }
        });
        tokens
    }

    /// The pieces that `text` is split into before each is encoded for itself.
    pub fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let o200k = self.encoding == Encoding::O200kBase;
        let cl100k_splitter = Splitter::<false>::new(text, self.classes);
        let o200k_splitter = Splitter::<true>::new(text, self.classes);
        let mut start = 0;
        std::iter::from_fn(move || {
            if start >= text.len() {
                return None;
            }
            let from = start;
            start = match o200k {
                true => o200k_splitter.piece_end(from),
                false => cl100k_splitter.piece_end(from),
            };
            text.get(from..start)
        })
    }

    /// The bytes of a token; empty for a number that is none.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut open = vec![token];
        while let Some(token) = open.pop() {
            match self.merges.parts.get(token as usize) {
                Some((left, _)) if *left == token => bytes.push(self.single_byte(token)),
                Some((left, right)) => open.extend([*right, *left]),
                None => {}
            }
        }
        bytes
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> u32 {
        self.merges.parts.len() as u32
    }

    /// The memory its tables take, in bytes.
    pub fn memory(&self) -> usize {
        // Two numbers of `parts`, one of `shorter`, a byte of `len`.
        let each = 13;
        let tokens = self.merges.parts.len().saturating_mul(each);
        tokens
            .saturating_add(self.merges.trie.bytes())
            .saturating_add(self.merges.pairs.bytes())
            .saturating_add(self.merges.borders.bytes())
    }

    fn single_byte(&self, token: u32) -> u8 {
        (0..=u8::MAX)
            .find(|byte| self.merges.trie.longest(&[*byte]) == token)
            .unwrap_or(0)
    }

    fn with_recent<T>(&self, work: impl FnOnce(&mut Recent) -> T) -> T {
        let recent = match self.encoding {
            Encoding::Cl100kBase => &CL100K_RECENT,
            Encoding::O200kBase => &O200K_RECENT,
        };
        recent.with_borrow_mut(|recent| work(recent.get_or_insert_with(|| Box::new(Recent::new()))))
    }

    #[allow(clippy::arithmetic_side_effects, reason = "at most one token a byte")]
    fn count_in<const O200K: bool>(&self, recent: &mut Recent, text: &str) -> u64 {
        let splitter = Splitter::<O200K>::new(text, self.classes);
        let mut count = 0;
        let mut start = 0;
        while start < text.len() {
            let end = splitter.piece_end(start);
            count += self.count_piece(recent, text.as_bytes(), start, end);
            start = end;
        }
        count
    }

    #[allow(clippy::arithmetic_side_effects, reason = "at most one token a byte")]
    fn count_and_followed_in<const O200K: bool>(&self, recent: &mut Recent, text: &str) -> Count {
        let splitter = Splitter::<O200K>::new(text, self.classes);
        // White space at the end goes on into the separator, and so may the last piece.
        let ink = text.trim_end().len();
        let mut count = 0;
        let mut start = 0;
        while start < ink {
            let end = splitter.piece_end(start);
            if end > ink || end == text.len() {
                break;
            }
            count += self.count_piece(recent, text.as_bytes(), start, end);
            start = end;
        }
        let last = text.get(start..).unwrap_or_default();
        let followed = [last, SEPARATOR].concat();
        let both = self.count_last::<O200K>(recent, last, &followed);
        Count {
            alone: count + both.alone,
            followed: count + both.followed,
        }
    }

    /// The number of tokens of the last pieces, and of them with a separator. A long piece, which
    /// may be all of a text, is not counted twice.
    #[allow(clippy::arithmetic_side_effects, reason = "at most one token a byte")]
    fn count_last<const O200K: bool>(
        &self,
        recent: &mut Recent,
        last: &str,
        followed: &str,
    ) -> Count {
        let one_piece = last.len() > 4 * LONGEST
            && Splitter::<O200K>::new(last, self.classes).piece_end(0) == last.len();
        let end = Splitter::<O200K>::new(followed, self.classes).piece_end(0);
        if one_piece && end == last.len() {
            let alone = self.count_piece(recent, last.as_bytes(), 0, last.len());
            let separator = followed.get(end..).unwrap_or_default();
            return Count {
                alone,
                followed: alone + self.count_in::<O200K>(recent, separator),
            };
        }
        if one_piece && end == followed.len() {
            let (last, followed) = (last.as_bytes(), followed.as_bytes());
            let (merges, pairs) = (&self.merges, &mut recent.pairs);
            recent.long.reset();
            // What both begin with; the separator is within reach of a token from here on.
            let shared = last.len() - LONGEST;
            recent.long.advance(merges, pairs, last, shared, usize::MAX);
            let mut long = recent.long.clone();
            long.advance(merges, pairs, last, last.len(), usize::MAX);
            recent
                .long
                .advance(merges, pairs, followed, followed.len(), usize::MAX);
            return Count {
                alone: long.tokens.len() as u64,
                followed: recent.long.tokens.len() as u64,
            };
        }
        Count {
            alone: self.count_in::<O200K>(recent, last),
            followed: self.count_in::<O200K>(recent, followed),
        }
    }

    #[allow(clippy::arithmetic_side_effects, reason = "at most one token a byte")]
    fn count_up_to_in<const O200K: bool>(
        &self,
        recent: &mut Recent,
        text: &str,
        limit: u64,
    ) -> Option<u64> {
        let splitter = Splitter::<O200K>::new(text, self.classes);
        let mut count = 0;
        let mut start = 0;
        while start < text.len() {
            let end = splitter.piece_end(start);
            if end - start <= LONGEST {
                count += self.count_piece(recent, text.as_bytes(), start, end);
            } else {
                let piece = text.as_bytes().get(start..end).unwrap_or_default();
                // What is found last may still change. A token changes by what is within reach of
                // a token after it, so this many are surely enough.
                let stop = (limit - count).saturating_add(2 * LONGEST as u64);
                let stop = usize::try_from(stop).unwrap_or(usize::MAX);
                recent.long.reset();
                recent
                    .long
                    .advance(&self.merges, &mut recent.pairs, piece, piece.len(), stop);
                count += recent.long.tokens.len() as u64;
            }
            if count > limit {
                return None;
            }
            start = end;
        }
        Some(count)
    }

    /// The number of tokens of a piece.
    #[inline(always)]
    #[allow(clippy::arithmetic_side_effects, reason = "start < end <= bytes.len()")]
    fn count_piece(&self, recent: &mut Recent, bytes: &[u8], start: usize, end: usize) -> u64 {
        let len = end - start;
        if len == 1 {
            return 1;
        }
        // The last character's first byte, if it has three: as in writing without spaces.
        let third_last = bytes.get(end.wrapping_sub(3)).copied().unwrap_or(0);
        if len > SHORT || (len > 3 && third_last & 0xf0 == 0xe0) {
            return self.count_by_parts(recent, bytes, start, end);
        }
        self.count_short(recent, bytes, start, end)
    }

    /// The number of tokens of a piece that is better not remembered as a whole.
    #[inline(never)]
    #[allow(clippy::arithmetic_side_effects, reason = "at most one token a byte")]
    fn count_by_parts(&self, recent: &mut Recent, bytes: &[u8], start: usize, end: usize) -> u64 {
        let mut count = 0;
        let mut start = start;
        while start < end {
            let part = self.merges.borders.next(bytes, start, end);
            let length = part - start;
            count += if length <= SHORT {
                self.count_short(recent, bytes, start, part)
            } else if length <= MEDIUM {
                self.count_medium(recent, bytes, start, part)
            } else {
                self.count_long(recent, bytes, start, part)
            };
            start = part;
        }
        count
    }

    /// The number of tokens of at most `SHORT` bytes.
    #[inline(always)]
    #[allow(clippy::arithmetic_side_effects, reason = "start < end <= bytes.len()")]
    fn count_short(&self, recent: &mut Recent, bytes: &[u8], start: usize, end: usize) -> u64 {
        let place = ShortPieces::place(bytes, start, end - start);
        match recent.pieces.get(&place) {
            Some(count) => count,
            None => {
                let count = self.count_below_64(recent, bytes, start, end);
                recent.pieces.put(&place, count);
                count
            }
        }
    }

    /// The number of tokens of `SHORT` to `MEDIUM` bytes.
    #[inline(always)]
    #[allow(clippy::arithmetic_side_effects, reason = "start < end <= bytes.len()")]
    fn count_medium(&self, recent: &mut Recent, bytes: &[u8], start: usize, end: usize) -> u64 {
        let place = MediumPieces::place(bytes, start, end - start);
        match recent.medium.get(&place) {
            Some(count) => count,
            None => {
                let count = self.count_below_64(recent, bytes, start, end);
                recent.medium.put(&place, count);
                count
            }
        }
    }

    #[inline(never)]
    fn count_below_64(&self, recent: &mut Recent, bytes: &[u8], start: usize, end: usize) -> u64 {
        let piece = bytes.get(start..end).unwrap_or_default();
        recent.short.reset();
        recent.short.advance(
            &self.merges,
            &mut recent.pairs,
            piece,
            piece.len(),
            usize::MAX,
        );
        recent.short.tokens.len() as u64
    }

    #[inline(never)]
    fn count_long(&self, recent: &mut Recent, bytes: &[u8], start: usize, end: usize) -> u64 {
        let piece = bytes.get(start..end).unwrap_or_default();
        if piece.len() < 64 {
            return self.count_below_64(recent, bytes, start, end);
        }
        recent.long.reset();
        recent.long.advance(
            &self.merges,
            &mut recent.pairs,
            piece,
            piece.len(),
            usize::MAX,
        );
        recent.long.tokens.len() as u64
    }
}
