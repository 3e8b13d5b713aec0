//! How many tokens a text costs, and how much of it fits.

use std::borrow::{Borrow, Cow};

use crate::boundary;
use crate::plan::SEPARATOR;

/// Counts tokens, and finds what fits a budget.
///
/// Counts of parts need not add up to the count of the whole (for an exact tokenizer they
/// don't), so [`joined`](Self::joined) and the two below answer for a text as it will be sent.
pub trait Tokenizer {
    /// The tokens of a text; none for the empty one.
    fn count(&self, text: &str) -> Count;

    /// The tokens of the parts with a [`SEPARATOR`] between each two.
    fn joined<'a>(&self, parts: &[impl Borrow<Part<'a>>]) -> u64;

    /// How many units have to go from the head until the rest, joined by [`SEPARATOR`], costs
    /// at most `budget` and what went is worth at least `gone`; and what the rest costs. With one
    /// unit more it would not be so.
    ///
    /// Units that go, each with the separator after it, are worth what they cost in front of other
    /// text, the least of it where that depends on the text: what is worth enough once stays so,
    /// whatever is added at the tail.
    fn fit_suffix(&self, units: &[Part<'_>], budget: u64, gone: u64) -> (usize, u64);

    /// Where to cut a text that is over budget such that the prefix and `suffix` cost at most
    /// `budget`. `None` when not even one cluster and the suffix fit.
    fn fit_prefix(&self, text: &str, budget: u64, suffix: &str) -> Option<usize>;

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

    fn joined<'a>(&self, parts: &[impl Borrow<Part<'a>>]) -> u64 {
        let bytes = parts.iter().fold(0, |sum: u64, part| {
            sum.saturating_add(followed_size(part.borrow()))
        });
        Self::tokens(bytes.saturating_sub(size(SEPARATOR)))
    }

    fn fit_suffix(&self, units: &[Part<'_>], budget: u64, gone: u64) -> (usize, u64) {
        let mut rest = units.iter().map(followed_size).fold(0, u64::saturating_add);
        let mut head: u64 = 0;
        let mut dropped: usize = 0;
        let tokens = |rest: u64| Self::tokens(rest.saturating_sub(size(SEPARATOR)));
        for unit in units {
            if tokens(rest) <= budget && head / Self::BYTES_PER_TOKEN >= gone {
                break;
            }
            head = head.saturating_add(followed_size(unit));
            rest = rest.saturating_sub(followed_size(unit));
            dropped = dropped.saturating_add(1);
        }
        (dropped, tokens(rest))
    }

    fn fit_prefix(&self, text: &str, budget: u64, suffix: &str) -> Option<usize> {
        let room = Self::bytes(budget).checked_sub(size(suffix))?;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        match boundary::at_or_before(text.as_bytes(), room) {
            0 => None,
            cut => Some(cut),
        }
    }
}

/// The bytes of a part and of the separator after it.
fn followed_size(part: &Part<'_>) -> u64 {
    size(&part.text).saturating_add(size(SEPARATOR))
}

/// A text's bytes as the integer that all plans count in.
fn size(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MARKER;

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
        assert_eq!(Approximate.joined(&parts(&[])), 0);
    }

    #[test]
    fn separators_are_part_of_what_fits() {
        // 4 + 2 + 4 bytes are 3 tokens.
        let units = parts(&["aaaa", "bbbb"]);
        assert_eq!(Approximate.fit_suffix(&units, 3, 0), (0, 3));
        assert_eq!(Approximate.fit_suffix(&units, 2, 0), (1, 1));
        assert_eq!(Approximate.fit_suffix(&units, 0, 0), (2, 0));
        assert_eq!(Approximate.fit_suffix(&[], 0, 0), (0, 0));
    }

    #[test]
    fn what_goes_is_worth_the_least_that_it_may_cost() {
        // 4 + 2 bytes are surely one token, twice that three.
        let units = parts(&["aaaa", "bbbb", "cccc"]);
        assert_eq!(Approximate.fit_suffix(&units, 9, 1), (1, 3));
        assert_eq!(Approximate.fit_suffix(&units, 9, 2), (2, 1));
        assert_eq!(Approximate.fit_suffix(&units, 9, 3), (2, 1));
        assert_eq!(Approximate.fit_suffix(&units, 9, 4), (3, 0));
        // All of them may go, whatever they are worth.
        assert_eq!(Approximate.fit_suffix(&units, 9, 99), (3, 0));
    }

    #[test]
    fn the_marker_is_part_of_what_fits() {
        // The marker is 19 bytes: 5 tokens leave one byte for the prefix.
        assert_eq!(Approximate.fit_prefix("zzzzzzzz", 5, MARKER), Some(1));
        assert_eq!(Approximate.fit_prefix("zzzzzzzz", 4, MARKER), None);
        assert_eq!(Approximate.fit_prefix("éééééééé", 5, MARKER), None);
    }
}
