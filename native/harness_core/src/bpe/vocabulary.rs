//! The vocabularies, as they are stored in the library, and what is made of them at first use.
//!
//! Stored is, deflated: the 256 single bytes in the order of their ranks, then for each further
//! token the two tokens it is merged from (three planes of bytes, lowest first, of the left ones,
//! then of the right ones). A token's bytes are those of its parts, so nothing has to be merged
//! or sorted to make the tables. `vocabulary/README.md` says where the data is from.

use miniz_oxide::inflate::decompress_to_vec_with_limit;
use sha2::{Digest, Sha256};

use super::Error;
use super::borders::Borders;
use super::merge::{Merges, PairTable};
use super::trie::{Builder, NONE};

/// A vocabulary as it is stored.
pub(super) struct Stored {
    pub(super) name: &'static str,
    pub(super) data: &'static [u8],
    pub(super) sha256: &'static str,
    pub(super) tokens: usize,
}

/// OpenAI's cl100k_base.
pub(super) static CL100K_BASE: Stored = Stored {
    name: "cl100k_base",
    data: include_bytes!("../../vocabulary/cl100k_base.bpe"),
    sha256: "a02293e5313064837e99894a8abb2accf8eec0d08deed8e060542fad3da5056f",
    tokens: 100_256,
};

/// OpenAI's o200k_base.
pub(super) static O200K_BASE: Stored = Stored {
    name: "o200k_base",
    data: include_bytes!("../../vocabulary/o200k_base.bpe"),
    sha256: "3420eeb3f2e4b3d981dc19d286d3d08cc7742cdf533f28263b11ab281c717eec",
    tokens: 199_998,
};

/// Tokens that are single bytes.
const SINGLE: usize = 256;

impl Stored {
    /// Checks the data and makes the tables.
    pub(super) fn load(&self) -> Result<Merges, Error> {
        let found: String = Sha256::digest(self.data)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if found != self.sha256 {
            return Err(self.damaged(format!("its SHA-256 is {found}, not {}", self.sha256)));
        }
        self.tables()
            .ok_or_else(|| self.damaged("its content makes no sense".to_owned()))
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Damaged {
            encoding: self.name,
            reason,
        }
    }

    /// The tables; `None` if the data isn't what `prepare` in `harness_bench` writes.
    fn tables(&self) -> Option<Merges> {
        let merged = self.tokens.checked_sub(SINGLE)?;
        let size = merged.checked_mul(6)?.checked_add(SINGLE)?;
        let data = decompress_to_vec_with_limit(self.data, size).ok()?;
        if data.len() != size || self.tokens >= NONE as usize {
            return None;
        }
        let (single, planes) = data.split_at_checked(SINGLE)?;
        let merged = unpack(planes, merged)?;

        let mut builder = Builder::new();
        let mut parts = Vec::with_capacity(self.tokens);
        let mut len = Vec::with_capacity(self.tokens);
        let mut nodes = Vec::with_capacity(self.tokens);
        // All tokens' bytes one after another, and where each begins.
        let mut bytes = Vec::new();
        let mut starts: Vec<usize> = Vec::with_capacity(self.tokens);
        for (token, byte) in (0u32..).zip(single) {
            let node = builder.walk(Builder::ROOT, &[*byte])?;
            if !builder.end(node, token) {
                return None;
            }
            nodes.push(node);
            parts.push((token, token));
            len.push(1u8);
            starts.push(bytes.len());
            bytes.push(*byte);
        }
        for (token, (left, right)) in (256u32..).zip(&merged) {
            // Only tokens that are there already: `get` fails for later ones.
            let (left_at, right_at) = (*left as usize, *right as usize);
            let (left_len, right_len) = (*len.get(left_at)?, *len.get(right_at)?);
            let start = bytes.len();
            bytes.extend_from_within(range(*starts.get(left_at)?, left_len)?);
            let from = range(*starts.get(right_at)?, right_len)?;
            let node = builder.walk(*nodes.get(left_at)?, bytes.get(from.clone())?)?;
            bytes.extend_from_within(from);
            if !builder.end(node, token) {
                return None;
            }
            nodes.push(node);
            parts.push((*left, *right));
            len.push(left_len.checked_add(right_len)?);
            starts.push(start);
        }
        let mut borders = Borders::new();
        for (start, len) in starts.iter().zip(&len) {
            borders.add(bytes.get(range(*start, *len)?)?);
        }
        let (trie, shorter) = builder.build(self.tokens);
        let pairs = PairTable::new(256, &merged);
        Some(Merges {
            trie,
            parts,
            shorter,
            len,
            pairs,
            borders,
        })
    }
}

fn range(start: usize, len: u8) -> Option<std::ops::Range<usize>> {
    Some(start..start.checked_add(usize::from(len))?)
}

/// The pairs from their six planes.
fn unpack(planes: &[u8], count: usize) -> Option<Vec<(u32, u32)>> {
    let mut plane = planes.chunks_exact(count);
    let mut number = || -> Option<Vec<u32>> {
        let (low, middle, high) = (plane.next()?, plane.next()?, plane.next()?);
        let numbers = low.iter().zip(middle).zip(high);
        Some(
            numbers
                .map(|((low, middle), high)| u32::from_le_bytes([*low, *middle, *high, 0]))
                .collect(),
        )
    };
    let left = number()?;
    let right = number()?;
    Some(left.into_iter().zip(right).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Every damage is an error that names the encoding; none is a panic.
    #[test]
    fn damaged_data_is_an_error() {
        let whole = CL100K_BASE.data;
        for (at, name) in [
            (0, "first"),
            (whole.len() / 2, "middle"),
            (whole.len() - 1, "last"),
        ] {
            let mut data = whole.to_vec();
            data[at] ^= 0x10;
            let stored = Stored {
                data: data.leak(),
                ..CL100K_BASE
            };
            let error = stored.load().err().unwrap().to_string();
            assert!(
                error.starts_with("the vocabulary of cl100k_base is damaged: its SHA-256 is"),
                "{name}"
            );
        }
        let short = Stored {
            data: &whole[..1000],
            ..CL100K_BASE
        };
        assert!(short.load().is_err());
    }

    /// Even with a digest that fits, content that can't be is refused.
    #[test]
    fn content_that_makes_no_sense_is_an_error() {
        let whole = CL100K_BASE.data;
        for at in (0..whole.len()).step_by(whole.len() / 23) {
            let mut data = whole.to_vec();
            data[at] ^= 0x10;
            // Must not panic; a few such changes still give a table.
            let _ = Stored {
                data: data.leak(),
                ..CL100K_BASE
            }
            .tables();
        }
        assert!(
            Stored {
                data: &whole[..1000],
                ..CL100K_BASE
            }
            .tables()
            .is_none()
        );
        assert!(
            Stored {
                tokens: 100_255,
                ..CL100K_BASE
            }
            .tables()
            .is_none()
        );
        assert!(
            Stored {
                tokens: 10,
                ..CL100K_BASE
            }
            .tables()
            .is_none()
        );
        assert!(
            Stored {
                data: &[],
                ..CL100K_BASE
            }
            .tables()
            .is_none()
        );
    }
}
