//! The tokens of one piece, in time linear in its length.
//!
//! Byte-pair encoding merges, again and again, the adjacent pair that makes the lowest token. The
//! same result is found from the left without merging (the algorithm of the `bpe` crate): a
//! sequence of tokens is the encoding if and only if each two neighbours are the encoding of their
//! joined bytes. So take the longest token that fits its left neighbour; where none does, give the
//! left one back, remember that no way leads on from there, and try a shorter one.
//!
//! Two neighbours fit if no merge across their border would have been done before the merges that
//! made them. [`Merges::fits`] undoes those merges, latest first, and asks at each step.

// Tokens are below `Merges::len()` (`Vocabulary` checks it), positions are within the piece.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::borders::Borders;
use super::recent::Pairs;
use super::trie::{NONE, Trie};

/// What is known of the tokens of one vocabulary.
pub(super) struct Merges {
    pub(super) trie: Trie,
    /// The two tokens each is merged from; a single byte: itself twice.
    pub(super) parts: Vec<(u32, u32)>,
    /// The longest other token that each begins with, or `NONE`.
    pub(super) shorter: Vec<u32>,
    /// The length of each in bytes.
    pub(super) len: Vec<u8>,
    pub(super) pairs: PairTable,
    pub(super) borders: Borders,
}

impl Merges {
    fn len_of(&self, token: u32) -> usize {
        usize::from(self.len[token as usize])
    }

    /// Whether the two tokens stay as they are when their bytes are encoded together.
    fn fits(&self, mut left: u32, mut right: u32) -> bool {
        // Merges from this token on are undone already.
        let mut limit = u32::MAX;
        loop {
            if self
                .pairs
                .merged(left, right)
                .is_some_and(|token| token < limit)
            {
                return false;
            }
            if left > right {
                limit = left;
                left = self.parts[left as usize].1;
                if left == limit {
                    limit = right + 1;
                    right = self.parts[right as usize].0;
                    if right + 1 == limit {
                        return true;
                    }
                }
            } else {
                limit = right + 1;
                right = self.parts[right as usize].0;
                if right + 1 == limit {
                    limit = left;
                    left = self.parts[left as usize].1;
                    if left == limit {
                        return true;
                    }
                }
            }
        }
    }
}

/// Which token two tokens merge to: open addressing, behind a filter of one bit for each of many
/// hashes that answers nearly all of the questions from a nearer cache.
pub(super) struct PairTable {
    /// `left << 36 | right << 18 | merged`; all ones where free.
    entries: Vec<u64>,
    filter: Vec<u64>,
    shift: u32,
}

const FILTER_BITS: u32 = 21;

impl PairTable {
    /// A table for `merged`, with tokens numbered from `first` on.
    pub(super) fn new(first: u32, merged: &[(u32, u32)]) -> Self {
        let size = (merged.len() * 2).next_power_of_two().max(2);
        let mut table = Self {
            entries: vec![u64::MAX; size],
            filter: vec![0; 1 << (FILTER_BITS - 6)],
            shift: 64 - size.trailing_zeros(),
        };
        for (token, (left, right)) in (first..).zip(merged) {
            let key = pair(*left, *right);
            let hash = mix(key);
            let bit = hash >> (64 - FILTER_BITS);
            table.filter[(bit / 64) as usize] |= 1 << (bit % 64);
            let mut at = (hash >> table.shift) as usize;
            while table.entries[at] != u64::MAX {
                at = (at + 1) & (table.entries.len() - 1);
            }
            table.entries[at] = key << 18 | u64::from(token);
        }
        table
    }

    #[inline(always)]
    fn merged(&self, left: u32, right: u32) -> Option<u32> {
        let key = pair(left, right);
        let hash = mix(key);
        let bit = hash >> (64 - FILTER_BITS);
        if self.filter[(bit / 64) as usize] >> (bit % 64) & 1 == 0 {
            return None;
        }
        let mut at = (hash >> self.shift) as usize;
        loop {
            let entry = self.entries[at];
            if entry >> 18 == key {
                return Some(entry as u32 & NONE);
            }
            if entry == u64::MAX {
                return None;
            }
            at = (at + 1) & (self.entries.len() - 1);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        (self.entries.len() + self.filter.len()) * size_of::<u64>()
    }
}

#[inline(always)]
pub(super) fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 18 | u64::from(right)
}

#[inline(always)]
fn mix(key: u64) -> u64 {
    (key ^ key >> 15).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Positions from which no way leads on.
pub(super) trait Dead {
    fn has(&self, at: usize) -> bool;
    fn add(&mut self, at: usize);
}

/// Of a piece of at most 63 bytes.
impl Dead for u64 {
    #[inline(always)]
    fn has(&self, at: usize) -> bool {
        *self >> at & 1 == 1
    }

    fn add(&mut self, at: usize) {
        *self |= 1 << at;
    }
}

/// Of a piece of any length.
impl Dead for Vec<u64> {
    fn has(&self, at: usize) -> bool {
        self.get(at / 64)
            .is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn add(&mut self, at: usize) {
        if self.len() <= at / 64 {
            self.resize(at / 64 + 1, 0);
        }
        self[at / 64] |= 1 << (at % 64);
    }
}

/// An encoding under way: `tokens` are the encoding of the first `at` bytes.
#[derive(Clone, Default)]
pub(super) struct Progress<D> {
    pub(super) tokens: Vec<u32>,
    pub(super) at: usize,
    dead: D,
    /// The token to try next, if it is known already.
    next: Option<u32>,
}

impl<D: Dead + Default> Progress<D> {
    /// Starts again, with the memory there is.
    pub(super) fn reset(&mut self) {
        self.tokens.clear();
        self.at = 0;
        self.dead = D::default();
        self.next = None;
    }

    /// Goes on until `until` bytes are encoded, or a token more than `limit` is there. As long as
    /// `until` is a token's length away from the end, all that was done so far is what would be
    /// done for any piece that begins with the same bytes.
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        merges: &Merges,
        known: &mut Pairs,
        piece: &[u8],
        until: usize,
        limit: usize,
    ) {
        if self.at >= until {
            return;
        }
        let mut token = match self.next.take() {
            Some(token) => token,
            None => merges.trie.longest(&piece[self.at..]),
        };
        loop {
            let end = self.at + merges.len_of(token);
            let left = self.tokens.last().copied();
            if !self.dead.has(end)
                && left.is_none_or(|left| known.get(left, token, || merges.fits(left, token)))
            {
                self.tokens.push(token);
                self.at = end;
                if end >= until || self.tokens.len() > limit {
                    return;
                }
                token = merges.trie.longest(&piece[end..]);
                continue;
            }
            let shorter = merges.shorter[token as usize];
            if shorter != NONE {
                token = shorter;
                continue;
            }
            self.dead.add(self.at);
            // There is a token before: from the start of a piece a way leads to its end.
            let Some(left) = self.tokens.pop() else {
                return;
            };
            self.at -= merges.len_of(left);
            token = left;
        }
    }
}
