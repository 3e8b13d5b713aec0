//! Counts of texts that were counted before: from turn to turn most of a prompt stays the same.
//!
//! An entry is found by a hash of 128 bits with a secret of this process, so that nobody can make
//! two texts that are taken for one another. Entries change no result, only the time it takes.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use xxhash_rust::xxh3::xxh3_128_with_secret;

use super::Encoding;
use crate::tokens::Count;

/// Texts below this size are counted faster than they are looked up.
const SMALLEST: usize = 64;

/// How many results are remembered unless it is said otherwise: about 5 MB.
const DEFAULT_CAPACITY: u64 = 65_536;

/// A bounded memory of counts, shared by all threads.
pub struct Remembered {
    capacity: AtomicU64,
    secret: [u8; 192],
    counts: Cache<Key, Count>,
    cuts: Cache<(Key, u64), Option<usize>>,
}

/// What a memory holds and how often it helped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// The most results it holds; 0 when it is off.
    pub capacity: u64,
    /// The results it holds.
    pub entries: u64,
    /// Look-ups that were answered.
    pub hits: u64,
    /// Look-ups that were not.
    pub misses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    text: u128,
    encoding: Encoding,
}

impl Remembered {
    /// A memory of at most `capacity` results.
    pub fn new(capacity: u64) -> Self {
        // The standard library's random keys; its hash of a number is a part of the secret.
        let random = RandomState::new();
        let mut secret = [0; 192];
        for (index, part) in secret.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&random.hash_one(index).to_le_bytes());
        }
        Self {
            capacity: AtomicU64::new(capacity),
            secret,
            counts: Cache::new(parts(capacity).0),
            cuts: Cache::new(parts(capacity).1),
        }
    }

    /// The one that this process's tokenizers share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Remembered> = OnceLock::new();
        SHARED.get_or_init(|| Self::new(DEFAULT_CAPACITY))
    }

    /// Changes how many results are remembered; 0 forgets all and turns it off.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        let (counts, cuts) = parts(capacity);
        self.counts.set_capacity(counts as u64);
        self.cuts.set_capacity(cuts as u64);
        if capacity == 0 {
            self.counts.clear();
            self.cuts.clear();
        }
    }

    /// What it holds and how often it helped.
    pub fn info(&self) -> Info {
        Info {
            capacity: self.capacity.load(Ordering::Relaxed),
            entries: (self.counts.len() as u64).saturating_add(self.cuts.len() as u64),
            hits: self.counts.hits().saturating_add(self.cuts.hits()),
            misses: self.counts.misses().saturating_add(self.cuts.misses()),
        }
    }

    pub(super) fn count(
        &self,
        encoding: Encoding,
        text: &str,
        count: impl FnOnce() -> Count,
    ) -> Count {
        match self.key(encoding, text) {
            None => count(),
            Some(key) => recall(&self.counts, key, count),
        }
    }

    pub(super) fn cut(
        &self,
        encoding: Encoding,
        text: &str,
        budget: u64,
        cut: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        match self.key(encoding, text) {
            None => cut(),
            Some(key) => recall(&self.cuts, (key, budget), cut),
        }
    }

    /// `None` for what is not remembered.
    fn key(&self, encoding: Encoding, text: &str) -> Option<Key> {
        if text.len() < SMALLEST || self.capacity.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let text = xxh3_128_with_secret(text.as_bytes(), &self.secret);
        Some(Key { text, encoding })
    }
}

/// No lock is held while a result is made: two threads may make the same one.
fn recall<K: Eq + std::hash::Hash, V: Copy>(
    cache: &Cache<K, V>,
    key: K,
    make: impl FnOnce() -> V,
) -> V {
    cache.get(&key).unwrap_or_else(|| {
        let made = make();
        cache.insert(key, made);
        made
    })
}

/// How much of a capacity is for counts and for cuts: a layer has one cut, but many units.
fn parts(capacity: u64) -> (usize, usize) {
    let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
    let cuts = capacity.div_ceil(16);
    (capacity.saturating_sub(cuts), cuts)
}
