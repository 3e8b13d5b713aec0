//! How many tokens a text costs, and how much of it fits.

use std::borrow::Cow;

use crate::boundary;
use crate::plan::{MARKER, SEPARATOR};

/// Counts tokens, and finds what fits a budget.
///
/// Counts of parts need not add up to the count of the whole (for an exact tokenizer they
/// don't), so [`joined`](Self::joined) and the two below answer for a text as it will be sent.
pub trait Tokenizer {
    /// The tokens of a text; none for the empty one.
    fn count(&self, text: &str) -> Count;

    /// The tokens of the parts with a [`SEPARATOR`] between each two.
    fn joined(&self, parts: &[Part<'_>]) -> u64;

    /// How many units have to go from the head until the rest, joined by [`SEPARATOR`], costs
    /// at most `budget`, and what the rest costs. One unit more would not fit.
    fn fit_suffix(&self, units: &[Part<'_>], budget: u64) -> (usize, u64);

    /// Where to cut a text that is over budget such that the prefix and [`MARKER`] cost at most
    /// `budget`. `None` when not even one cluster and the marker fit.
    fn fit_prefix(&self, text: &str, budget: u64) -> Option<usize>;

    /// A text with its count.
    fn part<'a>(&self, text: impl Into<Cow<'a, str>>) -> Part<'a> {
        let text = text.into();
        let count = self.count(&text);
        Part { text, count }
    }
}

/// The tokens of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// By itself.
    pub alone: u64,
    /// With a [`SEPARATOR`] after it.
    pub followed: u64,
}

/// A part of what is sent, with its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// A unit or a layer's text; not empty.
    pub text: Cow<'a, str>,
    /// Its tokens.
    pub count: Count,
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
    fn count(&self, text: &str) -> Count {
        let bytes = size(text);
        Count {
            alone: Self::tokens(bytes),
            followed: Self::tokens(bytes.saturating_add(size(SEPARATOR))),
        }
    }

    fn joined(&self, parts: &[Part<'_>]) -> u64 {
        let bytes = parts.iter().fold(0, |sum, part| joined_size(sum, part));
        Self::tokens(bytes)
    }

    fn fit_suffix(&self, units: &[Part<'_>], budget: u64) -> (usize, u64) {
        let room = Self::bytes(budget);
        let mut kept: usize = 0;
        let mut bytes: u64 = 0;
        for unit in units.iter().rev() {
            let more = joined_size(bytes, unit);
            if more > room {
                break;
            }
            bytes = more;
            kept = kept.saturating_add(1);
        }
        (units.len().saturating_sub(kept), Self::tokens(bytes))
    }

    fn fit_prefix(&self, text: &str, budget: u64) -> Option<usize> {
        let room = Self::bytes(budget).checked_sub(size(MARKER))?;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        match boundary::at_or_before(text.as_bytes(), room) {
            0 => None,
            cut => Some(cut),
        }
    }
}

/// The bytes of what is there with one part more, which is not empty.
fn joined_size(bytes: u64, part: &Part<'_>) -> u64 {
    let separator = if bytes == 0 { 0 } else { size(SEPARATOR) };
    bytes
        .saturating_add(separator)
        .saturating_add(size(&part.text))
}

/// A text's bytes as the integer that all plans count in.
fn size(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(texts: &[&'a str]) -> Vec<Part<'a>> {
        texts.iter().map(|text| Approximate.part(*text)).collect()
    }

    #[test]
    fn bytes_by_four_rounded_up() {
        let count = |text: &str| Approximate.count(text).alone;
        assert_eq!(count(""), 0);
        assert_eq!(count("a"), 1);
        assert_eq!(count("abcd"), 1);
        assert_eq!(count("abcde"), 2);
        // Bytes, never characters: nine bytes in three.
        assert_eq!(count("漢字漢"), 3);
    }

    #[test]
    fn with_a_separator() {
        assert_eq!(
            Approximate.count("abc"),
            Count {
                alone: 1,
                followed: 2
            }
        );
        // 1 + 2 + 1 + 2 + 2 bytes.
        assert_eq!(Approximate.joined(&parts(&["a", "b", "cd"])), 2);
        assert_eq!(Approximate.joined(&[]), 0);
    }

    #[test]
    fn separators_are_part_of_what_fits() {
        // 4 + 2 + 4 bytes are 3 tokens.
        let units = parts(&["aaaa", "bbbb"]);
        assert_eq!(Approximate.fit_suffix(&units, 3), (0, 3));
        assert_eq!(Approximate.fit_suffix(&units, 2), (1, 1));
        assert_eq!(Approximate.fit_suffix(&units, 0), (2, 0));
        assert_eq!(Approximate.fit_suffix(&[], 0), (0, 0));
    }

    #[test]
    fn the_marker_is_part_of_what_fits() {
        // The marker is 19 bytes: 5 tokens leave one byte for the prefix.
        assert_eq!(Approximate.fit_prefix("zzzzzzzz", 5), Some(1));
        assert_eq!(Approximate.fit_prefix("zzzzzzzz", 4), None);
        assert_eq!(Approximate.fit_prefix("éééééééé", 5), None);
    }
}
