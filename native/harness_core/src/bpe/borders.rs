//! Borders between two characters that no token of the vocabulary lies across.
//!
//! Where no token contains such a border, no merge can ever cross it, so a piece may be encoded in
//! two parts. In writing without spaces a piece is a whole clause, which hardly ever comes again;
//! its parts are words of a few characters, which do. Only borders between two characters beyond
//! ASCII are looked at: nearly all pairs of ASCII characters are in some token.

// Bits are hashes cut to the tables' sizes.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

const BITS: u32 = 18;

/// What is known of the borders. It may say that a token lies across one where none does.
pub(super) struct Borders {
    /// Pairs of characters that are whole in some token, one bit for each of many hashes.
    whole: Vec<u64>,
    /// The last and first byte, where a token has only a part of one of the two characters.
    part: Vec<u64>,
}

impl Borders {
    pub(super) fn new() -> Self {
        Self {
            whole: vec![0; 1 << (BITS - 6)],
            part: vec![0; (1 << 16) / 64],
        }
    }

    /// Adds what lies across borders in a token.
    pub(super) fn add(&mut self, token: &[u8]) {
        if token.is_ascii() {
            return;
        }
        // Where the character to the left begins, if that is in the token.
        let mut left = None;
        for at in 0..token.len() {
            let byte = token[at];
            if byte & 0xc0 == 0x80 {
                continue;
            }
            if at > 0 && byte >= 0x80 && token[at - 1] >= 0x80 {
                let whole = left.is_some_and(|left| left + len(token[left]) == at)
                    && at + len(byte) <= token.len();
                match left {
                    Some(left) if whole => {
                        let bit = hash(character(token, left), character(token, at));
                        self.whole[bit / 64] |= 1 << (bit % 64);
                    }
                    _ => {
                        let bit = usize::from(token[at - 1]) << 8 | usize::from(byte);
                        self.part[bit / 64] |= 1 << (bit % 64);
                    }
                }
            }
            left = Some(at);
        }
    }

    /// The end of the first part of `bytes[start..end]`: no token lies across it.
    #[inline(always)]
    pub(super) fn next(&self, bytes: &[u8], start: usize, end: usize) -> usize {
        let mut at = start;
        let mut left = 0;
        while at < end {
            let byte = bytes[at];
            if byte < 0x80 {
                left = 0;
                at += 1;
                continue;
            }
            let right = character(bytes, at);
            if left != 0 && !self.crossed(left, right, bytes[at - 1], byte) {
                return at;
            }
            left = right;
            at += len(byte);
        }
        end
    }

    #[inline(always)]
    fn crossed(&self, left: u32, right: u32, last: u8, first: u8) -> bool {
        let whole = hash(left, right);
        let part = usize::from(last) << 8 | usize::from(first);
        (self.whole[whole / 64] >> (whole % 64) | self.part[part / 64] >> (part % 64)) & 1 == 1
    }

    pub(super) fn bytes(&self) -> usize {
        (self.whole.len() + self.part.len()) * size_of::<u64>()
    }
}

/// The length of the character that begins with `first`, which is no ASCII.
#[inline(always)]
fn len(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        _ => 2,
    }
}

/// The bytes of the character at `at`, as a number.
#[inline(always)]
fn character(bytes: &[u8], at: usize) -> u32 {
    let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let two = byte(at) | byte(at + 1) << 8;
    match len(bytes[at]) {
        2 => two,
        3 => two | byte(at + 2) << 16,
        _ => two | byte(at + 2) << 16 | byte(at + 3) << 24,
    }
}

#[inline(always)]
fn hash(left: u32, right: u32) -> usize {
    let pair = u64::from(left) << 32 | u64::from(right);
    ((pair ^ pair >> 21).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize
}
