//! What a thread has just counted: short pieces, and whether two tokens fit side by side.
//!
//! Nearly all pieces of a text are short and repeat. Both tables have one place for each hash, and
//! a later entry takes the place of an earlier one: looking up is one load, nothing is searched
//! for, nothing grows. They change no result.

// Places are hashes cut to the tables' sizes.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::merge::{Progress, pair};

/// The longest piece that is remembered: with its length and its count it fills 16 bytes.
pub(super) const SHORT: usize = 14;

/// The longest piece that is remembered at all.
pub(super) const MEDIUM: usize = 30;

/// 16 bytes each, and 32 bytes each: together half of what a core's second cache has.
pub(super) type ShortPieces = Pieces<14, u128>;
pub(super) type MediumPieces = Pieces<12, [u128; 2]>;
const PAIRS_BITS: u32 = 15;

/// One encoding's tables of one thread.
pub(super) struct Recent {
    pub(super) pieces: ShortPieces,
    pub(super) medium: MediumPieces,
    pub(super) pairs: Pairs,
    pub(super) short: Progress<u64>,
    pub(super) long: Progress<Vec<u64>>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            pieces: ShortPieces::new(),
            medium: MediumPieces::new(),
            pairs: Pairs(vec![0; 1 << PAIRS_BITS]),
            short: Progress::default(),
            long: Progress::default(),
        }
    }
}

/// The counts of pieces: the bytes, in the last one the count, in the one before the length.
pub(super) struct Pieces<const BITS: u32, T>(Vec<T>);

/// Where a piece is, or would be, remembered.
pub(super) struct Place<T> {
    key: T,
    at: usize,
}

impl<const BITS: u32, T: Copy + Default> Pieces<BITS, T> {
    fn new() -> Self {
        Self(vec![T::default(); 1 << BITS])
    }
}

/// The byte of the length in an entry's last word; the byte above is the count's.
const LEN: u32 = 112;
const COUNT: u32 = 120;

impl<const BITS: u32> Pieces<BITS, u128> {
    /// The key and the place of the piece at `start` (at most `SHORT` bytes long, not empty).
    #[inline(always)]
    pub(super) fn place(bytes: &[u8], start: usize, len: usize) -> Place<u128> {
        let key = sixteen(bytes, start) & ((1 << (len * 8)) - 1) | (len as u128) << LEN;
        Place {
            key,
            at: place(key, BITS),
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, place: &Place<u128>) -> Option<u64> {
        let entry = self.0[place.at & ((1 << BITS) - 1)];
        (entry << 8 == place.key << 8).then_some((entry >> COUNT) as u64)
    }

    pub(super) fn put(&mut self, place: &Place<u128>, count: u64) {
        self.0[place.at] = place.key | u128::from(count) << COUNT;
    }
}

impl<const BITS: u32> Pieces<BITS, [u128; 2]> {
    /// The key and the place of the piece at `start` (`SHORT` to `MEDIUM` bytes long).
    #[inline(always)]
    pub(super) fn place(bytes: &[u8], start: usize, len: usize) -> Place<[u128; 2]> {
        let low = sixteen(bytes, start);
        let high = sixteen(bytes, start + 16);
        let key = if len < 16 {
            [low & ((1 << (len * 8)) - 1), (len as u128) << LEN]
        } else {
            [
                low,
                high & ((1 << (len * 8 - 128)) - 1) | (len as u128) << LEN,
            ]
        };
        Place {
            key,
            at: place(key[0] ^ key[1].rotate_left(61), BITS),
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, place: &Place<[u128; 2]>) -> Option<u64> {
        let [low, high] = self.0[place.at & ((1 << BITS) - 1)];
        (low == place.key[0] && high << 8 == place.key[1] << 8).then_some((high >> COUNT) as u64)
    }

    pub(super) fn put(&mut self, place: &Place<[u128; 2]>, count: u64) {
        self.0[place.at] = [place.key[0], place.key[1] | u128::from(count) << COUNT];
    }
}

#[inline(always)]
fn place(key: u128, bits: u32) -> usize {
    let low = key as u64;
    let high = (key >> 64) as u64;
    let hash = (low ^ high.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (hash >> (64 - bits)) as usize
}

/// The sixteen bytes at `start`, the first one lowest; zeros after the end.
#[inline(always)]
fn sixteen(bytes: &[u8], start: usize) -> u128 {
    match bytes
        .get(start..start + 16)
        .and_then(|some| some.try_into().ok())
    {
        Some(sixteen) => u128::from_le_bytes(sixteen),
        None => at_end(bytes, start),
    }
}

#[cold]
fn at_end(bytes: &[u8], start: usize) -> u128 {
    let mut sixteen = [0; 16];
    for (to, from) in sixteen
        .iter_mut()
        .zip(bytes.get(start..).unwrap_or_default())
    {
        *to = *from;
    }
    u128::from_le_bytes(sixteen)
}

/// Which tokens fit side by side, by a hash of the pair that can be undone: some of its bits are
/// the place, so the others tell the pair. The entry: those, one bit for the answer, one that is
/// set.
pub(super) struct Pairs(Vec<u32>);

impl Pairs {
    #[inline(always)]
    pub(super) fn get(&mut self, left: u32, right: u32, ask: impl FnOnce() -> bool) -> bool {
        // Each step can be undone: exclusive-or with higher bits, multiplying by an odd number.
        let key = pair(left, right);
        let hash = (key ^ key >> 19).wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << 36) - 1);
        let at = (hash >> (36 - PAIRS_BITS)) as usize;
        let tag = (hash as u32 & ((1 << (36 - PAIRS_BITS)) - 1)) << 2 | 1;
        let entry = self.0[at];
        if entry & !2 == tag {
            return entry & 2 != 0;
        }
        let answer = ask();
        self.0[at] = tag | u32::from(answer) << 1;
        answer
    }
}
