use sha2::{Digest as _, Sha256};

/// The first half of a SHA-256: short to keep, and nothing a model writes collides by accident or
/// on purpose.
pub(super) type Digest = [u8; 16];

/// Of parts that stay apart: `["ab", "c"]` and `["a", "bc"]` differ.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hasher = Hasher::default();
    for part in parts {
        hasher.part(part);
    }
    hasher.finish()
}

/// A digest of parts that come one after another.
#[derive(Clone, Default)]
pub(super) struct Hasher(Sha256);

impl Hasher {
    pub(super) fn part(&mut self, part: &[u8]) {
        // A usize has 64 bits at most on every platform that Rust knows.
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub(super) fn finish(self) -> Digest {
        let mut digest = Digest::default();
        for (to, from) in digest.iter_mut().zip(self.0.finalize()) {
            *to = from;
        }
        digest
    }
}
