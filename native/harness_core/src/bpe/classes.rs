//! What the splitting expressions ask of a character: one of eight classes.
//!
//! A class is one bit, so that "is it one of these" is a single test, and 0 stands for the end of
//! the text, which is in no set.

use std::sync::LazyLock;

use super::categories::RUNS;

/// `\p{Lu}` and `\p{Lt}`.
pub(super) const UPPER: u8 = 1;
/// `\p{Ll}`.
pub(super) const LOWER: u8 = 2;
/// `\p{Lm}` and `\p{Lo}`: letters that o200k takes for upper and for lower case.
pub(super) const CASELESS: u8 = 4;
/// `\p{M}`.
pub(super) const MARK: u8 = 8;
/// `\p{N}`.
pub(super) const NUMBER: u8 = 16;
/// `\s` without the line breaks.
pub(super) const SPACE: u8 = 32;
/// `\r` and `\n`.
pub(super) const NEWLINE: u8 = 64;
/// Everything else: punctuation, symbols, controls, unassigned.
pub(super) const OTHER: u8 = 128;

/// `\p{L}`.
pub(super) const LETTER: u8 = UPPER | LOWER | CASELESS;
/// `\s`.
pub(super) const WHITE: u8 = SPACE | NEWLINE;

/// Code points in a block of the table: as many as the last byte of a character tells apart.
const BLOCK: usize = 64;

/// The classes of ASCII, for the first step of every piece.
static ASCII: [u8; 128] = {
    let mut table = [OTHER; 128];
    let mut byte = 0;
    while byte < 128 {
        #[allow(clippy::indexing_slicing, reason = "byte < 128, at compile time")]
        {
            table[byte] = match byte as u8 {
                b'A'..=b'Z' => UPPER,
                b'a'..=b'z' => LOWER,
                b'0'..=b'9' => NUMBER,
                b'\r' | b'\n' => NEWLINE,
                b' ' | b'\t' | 0x0b | 0x0c => SPACE,
                _ => OTHER,
            };
        }
        byte += 1;
    }
    table
};

/// The classes of all code points in two steps: a block by all bytes of the character but the
/// last, then the class by the last one. Whole scripts share a block, so it stays in cache.
pub(super) struct Classes {
    /// Where the block begins in `blocks`, by `code point / BLOCK`.
    block_at: Vec<u32>,
    blocks: Vec<u8>,
}

impl Classes {
    /// The table, made at its first use.
    pub(super) fn shared() -> &'static Self {
        static SHARED: LazyLock<Classes> = LazyLock::new(Classes::new);
        &SHARED
    }

    fn new() -> Self {
        let mut classes = Vec::with_capacity(0x11_0000);
        let ends = RUNS
            .iter()
            .skip(1)
            .map(|(first, _)| *first)
            .chain([0x11_0000]);
        for ((_, class), end) in RUNS.iter().zip(ends) {
            classes.resize(end as usize, *class);
        }
        let mut known = std::collections::HashMap::new();
        let mut block_at = Vec::with_capacity(classes.len() / BLOCK);
        let mut blocks: Vec<u8> = Vec::new();
        for block in classes.chunks(BLOCK) {
            let at = *known.entry(block).or_insert_with(|| {
                let at = blocks.len() as u32;
                blocks.extend_from_slice(block);
                at
            });
            block_at.push(at);
        }
        Self { block_at, blocks }
    }

    /// The class and the length of the character that begins at `at`; `(0, 0)` at the end.
    #[inline(always)]
    pub(super) fn at(&self, bytes: &[u8], at: usize) -> (u8, usize) {
        match bytes.get(at) {
            None => (0, 0),
            Some(&byte) if byte < 0x80 => (ascii(byte), 1),
            Some(&byte) => self.beyond_ascii(bytes, at, byte),
        }
    }

    #[inline(always)]
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "at is inside of a slice, the rest is masked to fewer than 21 bits"
    )]
    fn beyond_ascii(&self, bytes: &[u8], at: usize, first: u8) -> (u8, usize) {
        let low = |offset: usize| usize::from(bytes.get(at + offset).copied().unwrap_or(0) & 0x3f);
        let first = usize::from(first);
        if first < 0xe0 {
            (self.look_up(first & 0x1f, low(1)), 2)
        } else if first < 0xf0 {
            (self.look_up((first & 0x0f) << 6 | low(1), low(2)), 3)
        } else {
            (
                self.look_up((first & 0x07) << 12 | low(1) << 6 | low(2), low(3)),
                4,
            )
        }
    }

    #[inline(always)]
    fn look_up(&self, block: usize, last: usize) -> u8 {
        let at = self.block_at.get(block).copied().unwrap_or(0) as usize;
        self.blocks.get(at | last).copied().unwrap_or(OTHER)
    }
}

/// The class of an ASCII character.
#[inline(always)]
pub(super) fn ascii(byte: u8) -> u8 {
    ASCII.get(usize::from(byte)).copied().unwrap_or(OTHER)
}
