//! How much of a text or of a list of units fits a budget of exact tokens.
//!
//! Counts don't add up: a prefix can cost more than a longer one, and two texts together more
//! than their sum. So nothing is concluded from sums; they only say where to look, and what is
//! kept was counted as it will be sent.

use super::Bpe;
use crate::boundary;
use crate::plan::{MARKER, SEPARATOR};
use crate::tokens::Tokenizer;

impl Tokenizer for &Bpe {
    fn count<'a>(&self, mut pieces: impl Iterator<Item = &'a str>) -> u64 {
        let Some(first) = pieces.next() else {
            return 0;
        };
        match pieces.next() {
            None => Bpe::count(self, first),
            Some(second) => {
                let mut text = String::from(first);
                text.push_str(second);
                text.extend(pieces);
                Bpe::count(self, &text)
            }
        }
    }

    fn fit_suffix(&self, units: &[&str], budget: u64) -> (usize, u64) {
        let joined = units.join(SEPARATOR);
        let mut starts = Vec::with_capacity(units.len());
        let mut start: usize = 0;
        for unit in units {
            starts.push(start);
            start = start
                .saturating_add(unit.len())
                .saturating_add(SEPARATOR.len());
        }
        // The tokens of what is left when so many units are dropped, if it fits.
        let rest = |dropped: usize| match starts.get(dropped) {
            Some(&start) => self.count_up_to(joined.get(start..)?, budget),
            None => Some(0),
        };

        // Where the sum of the units says that it ends, a separator being a token mostly.
        let mut guess = units.len();
        let mut sum: u64 = 0;
        for unit in units.iter().rev() {
            sum = sum.saturating_add(Bpe::count(self, unit)).saturating_add(1);
            if sum > budget {
                break;
            }
            guess = guess.saturating_sub(1);
        }
        first_that_fits(rest, guess, units.len())
    }

    fn fit_prefix(&self, text: &str, budget: u64) -> Option<(usize, u64)> {
        // A prefix and the marker cost at most 1 more than their sum.
        let room = budget
            .saturating_sub(Bpe::count(self, MARKER))
            .saturating_sub(1);
        let mut sent = String::new();
        let mut cut = self.first_over(text, room);
        // Every prefix that is surely short enough lies before `cut`, so the first that fits from
        // there on downwards is at least as long.
        while cut > 0 {
            sent.clear();
            sent.push_str(text.get(..cut)?);
            sent.push_str(MARKER);
            if let Some(tokens) = self.count_up_to(&sent, budget) {
                return Some((cut, tokens));
            }
            cut = before(text, cut);
        }
        None
    }
}

impl Bpe {
    /// A boundary whose prefix costs more than `limit`, while that of the boundary before it does
    /// not; the text's end if no prefix does.
    fn first_over(&self, text: &str, limit: u64) -> usize {
        let is_over = |end: usize| {
            let prefix = text.get(..end).unwrap_or_default();
            self.count_up_to(prefix, limit).is_none()
        };

        // The pieces' sum says where it is, nearly: a prefix may be split otherwise near its end.
        let mut within: usize = 0;
        let mut over = text.len();
        let mut sum: u64 = 0;
        for piece in self.pieces(text) {
            sum = sum.saturating_add(Bpe::count(self, piece));
            let next = within.saturating_add(piece.len());
            let end = boundary::at_or_before(text.as_bytes(), next);
            if sum > limit && is_over(end) {
                over = end;
                break;
            }
            within = next;
        }
        within = boundary::at_or_before(text.as_bytes(), within).min(before(text, over));
        // Whose own count may be over all the same.
        while within > 0 && is_over(within) {
            over = within;
            within = before(text, within);
        }
        loop {
            let middle = within.midpoint(over);
            match boundary::at_or_before(text.as_bytes(), middle) {
                end if end <= within => {
                    // No boundary in the lower half: the next one above it, if it is below `over`.
                    match after(text, within, over) {
                        Some(end) if is_over(end) => return end,
                        Some(end) => within = end,
                        None => return over,
                    }
                }
                end if is_over(end) => over = end,
                end => within = end,
            }
        }
    }
}

/// The boundary before a boundary.
fn before(text: &str, boundary: usize) -> usize {
    boundary::at_or_before(text.as_bytes(), boundary.saturating_sub(1))
}

/// The first boundary after `within` and below `over`.
fn after(text: &str, within: usize, over: usize) -> Option<usize> {
    (within.saturating_add(1)..over)
        .map(|offset| boundary::at_or_before(text.as_bytes(), offset))
        .find(|&end| end > within)
}

/// The number of units to drop, next to `guess`, at which the rest fits while one unit more would
/// not. With all `units` dropped it fits.
fn first_that_fits(
    rest: impl Fn(usize) -> Option<u64>,
    guess: usize,
    units: usize,
) -> (usize, u64) {
    // Away from the guess in growing steps, until one end fits and the other does not.
    let (mut over, mut fits);
    let mut step: usize = 1;
    match rest(guess) {
        Some(tokens) => {
            fits = (guess, tokens);
            loop {
                let Some(next) = fits.0.checked_sub(1) else {
                    return fits;
                };
                let next = next.saturating_sub(step.saturating_sub(1));
                match rest(next) {
                    Some(tokens) => fits = (next, tokens),
                    None => {
                        over = next;
                        break;
                    }
                }
                step = step.saturating_mul(2);
            }
        }
        None => {
            over = guess;
            loop {
                let next = over.saturating_add(step).min(units);
                match rest(next) {
                    Some(tokens) => {
                        fits = (next, tokens);
                        break;
                    }
                    None => over = next,
                }
                step = step.saturating_mul(2);
            }
        }
    }
    while fits.0.saturating_sub(over) > 1 {
        let middle = over.midpoint(fits.0);
        match rest(middle) {
            Some(tokens) => fits = (middle, tokens),
            None => over = middle,
        }
    }
    fits
}
