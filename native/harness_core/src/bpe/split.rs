//! Cutting text into pieces, in one pass and without a regular expression engine.
//!
//! A piece is one match of the encoding's expression; tokens never cross pieces. The expressions,
//! as OpenAI's tiktoken has them (possessive marks left out, they change nothing here):
//!
//! ```text
//! cl100k_base                        o200k_base
//! '(?i:[sdmt]|ll|ve|re)              [^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! [^\r\n\p{L}\p{N}]?\p{L}+           [^\r\n\p{L}\p{N}]?U+L*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! \p{N}{1,3}                         \p{N}{1,3}
//!  ?[^\s\p{L}\p{N}]+[\r\n]*           ?[^\s\p{L}\p{N}]+[\r\n/]*
//! \s+$                               \s*[\r\n]+
//! \s*[\r\n]                          \s+(?!\S)
//! \s+(?!\S)                          \s+
//! \s
//!            U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]  L = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
//! ```
//!
//! `tests/bpe_split.rs` runs these very expressions through a general engine as the oracle.
//!
//! Splitting has no memory: what a piece is depends on the text from its start on, never on what
//! is before it. Some pieces depend on what comes after them.

// Positions stay within the text (every step is a `get` or the length of a character just seen),
// so sums of them can't overflow.
#![allow(clippy::arithmetic_side_effects)]

use super::classes::{
    CASELESS, Classes, LETTER, LOWER, MARK, NEWLINE, NUMBER, OTHER, SPACE, UPPER, WHITE,
};

/// Cuts one text into pieces.
#[derive(Clone, Copy)]
pub(super) struct Splitter<'t, const O200K: bool> {
    bytes: &'t [u8],
    classes: &'static Classes,
}

impl<'t, const O200K: bool> Splitter<'t, O200K> {
    pub(super) fn new(text: &'t str, classes: &'static Classes) -> Self {
        Self {
            bytes: text.as_bytes(),
            classes,
        }
    }

    /// The end of the piece that begins at `start`, which is a character boundary before the end.
    #[inline(always)]
    pub(super) fn piece_end(&self, start: usize) -> usize {
        let (class, len) = self.at(start);
        let next = start + len;
        if O200K {
            if class & LETTER != 0 {
                return self.contracted(self.cased(start));
            }
            if class & (OTHER | SPACE) != 0 && self.at(next).0 & (LETTER | MARK) != 0 {
                return self.contracted(self.cased(next));
            }
            if class & MARK != 0 {
                return self.contracted(self.after_mark(start, next));
            }
        } else {
            if class & LETTER != 0 {
                return self.letters(start);
            }
            if class & (OTHER | SPACE | MARK) != 0 {
                let contracted = self.contracted(start);
                if contracted > start {
                    return contracted;
                }
                if self.at(next).0 & LETTER != 0 {
                    return self.letters(next);
                }
            }
        }
        if class & NUMBER != 0 {
            return self.digits(next);
        }
        if class & (OTHER | MARK) != 0 {
            return self.marks(next);
        }
        if self.byte(start) == b' ' && self.at(next).0 & (OTHER | MARK) != 0 {
            return self.marks(next);
        }
        self.white(start)
    }

    #[inline(always)]
    fn at(&self, at: usize) -> (u8, usize) {
        self.classes.at(self.bytes, at)
    }

    /// The byte at `at`, 0 at the end.
    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The end of `\p{L}*` at `at`.
    #[inline(always)]
    fn letters(&self, mut at: usize) -> usize {
        loop {
            at += letters_ahead(eight(self.bytes, at) | 0x2020_2020_2020_2020);
            let byte = self.byte(at);
            if byte < 0x80 {
                if byte.is_ascii_alphabetic() {
                    continue;
                }
                return at;
            }
            let (class, len) = self.at(at);
            if class & LETTER == 0 {
                return at;
            }
            at += len;
        }
    }

    /// The end of `U*L+|U+L*` at `at`; `at` itself where neither matches.
    #[inline(always)]
    fn cased(&self, at: usize) -> usize {
        let mut end = at;
        while self.byte(end).is_ascii_uppercase() {
            end += 1;
        }
        loop {
            let ahead = letters_ahead(eight(self.bytes, end));
            end += ahead;
            if ahead < 8 {
                break;
            }
        }
        if self.byte(end) < 0x80 {
            end
        } else {
            self.cased_beyond_ascii(at).0
        }
    }

    /// The same for any text, and whether it was `U*L+` that matched.
    ///
    /// `U*` takes all it can. If a lower case letter follows, `L+` goes on from there. Otherwise
    /// `U*` gives back characters until `L+` has one, so the match ends after the last character
    /// that is in both sets. If there is none, `U+` alone matches.
    fn cased_beyond_ascii(&self, at: usize) -> (usize, bool) {
        let mut end = at;
        let mut after_both = None;
        loop {
            let (class, len) = self.at(end);
            if class & (UPPER | CASELESS | MARK) == 0 {
                if class & LOWER == 0 {
                    break;
                }
                return (self.lower(end), true);
            }
            end += len;
            if class & UPPER == 0 {
                after_both = Some(end);
            }
        }
        match after_both {
            Some(end) => (end, true),
            None => (end, false),
        }
    }

    /// The end of `L*` at `at`.
    fn lower(&self, mut at: usize) -> usize {
        loop {
            at += letters_ahead(eight(self.bytes, at));
            let (class, len) = self.at(at);
            if class & (LOWER | CASELESS | MARK) == 0 {
                return at;
            }
            at += len;
        }
    }

    /// A mark may be the optional first character or a letter. The alternatives in their order:
    /// `U*L+` after it, then `U*L+` from it, which always matches.
    fn after_mark(&self, start: usize, next: usize) -> usize {
        let (end, lower) = self.cased_beyond_ascii(next);
        if lower {
            end
        } else {
            self.cased_beyond_ascii(start).0
        }
    }

    /// The end of `(?i:'s|'t|'re|'ve|'m|'ll|'d)?` at `at`. Ignoring case, `ſ` is an s.
    #[inline(always)]
    fn contracted(&self, at: usize) -> usize {
        if self.byte(at) != b'\'' {
            return at;
        }
        match (self.byte(at + 1), self.byte(at + 2)) {
            (b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D', _) => at + 2,
            (b'r' | b'R' | b'v' | b'V', b'e' | b'E') | (b'l' | b'L', b'l' | b'L') => at + 3,
            (0xc5, 0xbf) => at + 3,
            _ => at,
        }
    }

    /// The end of `\p{N}{0,2}` at `at`.
    #[inline(always)]
    fn digits(&self, at: usize) -> usize {
        let (class, len) = self.at(at);
        if class & NUMBER == 0 {
            return at;
        }
        let (class, more) = self.at(at + len);
        if class & NUMBER == 0 {
            at + len
        } else {
            at + len + more
        }
    }

    /// The end of `[^\s\p{L}\p{N}]*` and the line breaks (for o200k also slashes) after it.
    #[inline(always)]
    fn marks(&self, mut at: usize) -> usize {
        loop {
            let (class, len) = self.at(at);
            if class & (OTHER | MARK) == 0 {
                break;
            }
            at += len;
        }
        while matches!(self.byte(at), b'\r' | b'\n') || (O200K && self.byte(at) == b'/') {
            at += 1;
        }
        at
    }

    /// The end of white space that belongs to nothing else.
    #[inline(always)]
    fn white(&self, start: usize) -> usize {
        let mut end = start;
        let mut last = start;
        let mut after_newline = None;
        loop {
            let spaces = spaces_ahead(eight(self.bytes, end));
            if spaces > 0 {
                end += spaces;
                last = end - 1;
                continue;
            }
            let (class, len) = self.at(end);
            if class & WHITE == 0 {
                break;
            }
            last = end;
            end += len;
            if class & NEWLINE != 0 {
                after_newline = Some(end);
            }
        }
        let at_end = end == self.bytes.len();
        match after_newline {
            Some(after) if O200K || !at_end => after,
            // The last one is left for what follows, if that leaves anything.
            _ if !at_end && last > start => last,
            _ => end,
        }
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The eight bytes at `at`, the first one lowest; zeros after the end.
#[inline(always)]
pub(super) fn eight(bytes: &[u8], at: usize) -> u64 {
    match bytes
        .get(at..at + 8)
        .and_then(|eight| eight.try_into().ok())
    {
        Some(eight) => u64::from_le_bytes(eight),
        None => eight_at_end(bytes, at),
    }
}

#[cold]
fn eight_at_end(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    for (to, from) in eight.iter_mut().zip(bytes.get(at..).unwrap_or_default()) {
        *to = *from;
    }
    u64::from_le_bytes(eight)
}

/// How many of eight bytes, from the lowest on, are ASCII lower case letters.
#[inline(always)]
fn letters_ahead(eight: u64) -> usize {
    let low = eight & !HIGH;
    // The high bit of each byte: at least 'a', and not above 'z'.
    let from_a = low + ONES * (0x80 - b'a' as u64);
    let above_z = low + ONES * (0x80 - b'z' as u64 - 1);
    let letter = from_a & !above_z & !eight & HIGH;
    ((letter ^ HIGH).trailing_zeros() / 8) as usize
}

/// How many of eight bytes, from the lowest on, are spaces.
#[inline(always)]
fn spaces_ahead(eight: u64) -> usize {
    ((eight ^ (ONES * b' ' as u64)).trailing_zeros() / 8) as usize
}
