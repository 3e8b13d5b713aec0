//! How many tokens a text costs, and how much of it fits.

use crate::boundary;
use crate::plan::{MARKER, SEPARATOR};

/// Counts tokens, and finds what fits a budget.
///
/// Counts of parts need not add up to the count of the whole (for an exact tokenizer they
/// don't), so each method answers for a text as it will be sent.
pub trait Tokenizer {
    /// The tokens of the pieces' concatenation: the pieces are one text. Empty text is 0.
    fn count<'a>(&self, pieces: impl Iterator<Item = &'a str>) -> u64;

    /// How many units have to go from the head until the rest, joined by [`SEPARATOR`], costs
    /// at most `budget`, and what the rest costs. One unit more would not fit.
    fn fit_suffix(&self, units: &[&str], budget: u64) -> (usize, u64);

    /// Where to cut a text that is over budget such that the prefix and [`MARKER`] cost at most
    /// `budget`, and what they cost. `None` when not even one cluster and the marker fit.
    fn fit_prefix(&self, text: &str, budget: u64) -> Option<(usize, u64)>;
}

/// Bytes divided by four, rounded up: the estimate of ADR 0006.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Approximate;

impl Approximate {
    /// Bytes that one token stands for.
    pub const BYTES_PER_TOKEN: u64 = 4;

    fn tokens(bytes: u64) -> u64 {
        bytes.div_ceil(Self::BYTES_PER_TOKEN)
    }

    fn bytes(tokens: u64) -> u64 {
        tokens.saturating_mul(Self::BYTES_PER_TOKEN)
    }
}

impl Tokenizer for Approximate {
    fn count<'a>(&self, pieces: impl Iterator<Item = &'a str>) -> u64 {
        Self::tokens(pieces.fold(0, |sum, piece| sum.saturating_add(size(piece))))
    }

    fn fit_suffix(&self, units: &[&str], budget: u64) -> (usize, u64) {
        let room = Self::bytes(budget);
        let mut kept: usize = 0;
        let mut bytes: u64 = 0;
        for unit in units.iter().rev() {
            let separator = if kept == 0 { 0 } else { size(SEPARATOR) };
            let more = bytes.saturating_add(separator).saturating_add(size(unit));
            if more > room {
                break;
            }
            bytes = more;
            kept = kept.saturating_add(1);
        }
        (units.len().saturating_sub(kept), Self::tokens(bytes))
    }

    fn fit_prefix(&self, text: &str, budget: u64) -> Option<(usize, u64)> {
        let room = Self::bytes(budget).checked_sub(size(MARKER))?;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        match boundary::at_or_before(text.as_bytes(), room) {
            0 => None,
            cut => {
                let prefix = u64::try_from(cut).unwrap_or(u64::MAX);
                Some((cut, Self::tokens(prefix.saturating_add(size(MARKER)))))
            }
        }
    }
}

/// A text's bytes as the integer that all plans count in.
fn size(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_four_rounded_up() {
        let count = |text: &str| Approximate.count([text].into_iter());
        assert_eq!(count(""), 0);
        assert_eq!(count("a"), 1);
        assert_eq!(count("abcd"), 1);
        assert_eq!(count("abcde"), 2);
        // Bytes, never characters: nine bytes in three.
        assert_eq!(count("漢字漢"), 3);
    }

    #[test]
    fn pieces_are_one_text() {
        assert_eq!(Approximate.count(["a", "b", "c"].into_iter()), 1);
    }

    #[test]
    fn separators_are_part_of_what_fits() {
        // 4 + 2 + 4 bytes are 3 tokens.
        assert_eq!(Approximate.fit_suffix(&["aaaa", "bbbb"], 3), (0, 3));
        assert_eq!(Approximate.fit_suffix(&["aaaa", "bbbb"], 2), (1, 1));
        assert_eq!(Approximate.fit_suffix(&["aaaa", "bbbb"], 0), (2, 0));
        assert_eq!(Approximate.fit_suffix(&[], 0), (0, 0));
    }

    #[test]
    fn the_marker_is_part_of_what_fits() {
        // The marker is 19 bytes: 5 tokens leave one byte for the prefix.
        assert_eq!(Approximate.fit_prefix("zzzzzzzz", 5), Some((1, 5)));
        assert_eq!(Approximate.fit_prefix("zzzzzzzz", 4), None);
        assert_eq!(Approximate.fit_prefix("éééééééé", 5), None);
    }
}
