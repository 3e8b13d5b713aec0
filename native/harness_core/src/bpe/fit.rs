//! How much of a text or of a list of units fits a budget of exact tokens.
//!
//! Counts don't add up: a prefix can cost more than a longer one, and two texts together more
//! than their sum. So nothing is concluded from sums; they only say where to look, and what is
//! kept was counted as it will be sent.

use std::borrow::Borrow;
use std::ops::Range;

use super::{Bpe, Remembered};
use crate::boundary;
use crate::plan::{MARKER, SEPARATOR};
use crate::tokens::{Count, Part, Tokenizer};

/// Counts with a table, and remembers what was counted.
#[derive(Clone, Copy)]
pub struct Counter<'a> {
    bpe: &'a Bpe,
    remembered: &'a Remembered,
}

impl<'a> Counter<'a> {
    /// A counter with a memory of the caller's choice; `Remembered::shared()` is the process's.
    pub fn new(bpe: &'a Bpe, remembered: &'a Remembered) -> Self {
        Self { bpe, remembered }
    }
}

impl Tokenizer for Counter<'_> {
    fn count(&self, text: &str) -> Count {
        let encoding = self.bpe.encoding();
        self.remembered
            .count(encoding, text, || self.bpe.count_and_followed(text))
    }

    fn joined<'p>(&self, parts: &[impl Borrow<Part<'p>>]) -> u64 {
        let groups = groups(parts).map(|group| self.group(parts, group));
        groups.fold(0, u64::saturating_add)
    }

    fn fit_suffix(&self, units: &[Part<'_>], budget: u64, gone: u64) -> (usize, u64) {
        let (dropped, tokens) = self.longest_suffix(units, budget);
        let worth_it = self.shortest_worth(units, gone);
        if worth_it <= dropped {
            return (dropped, tokens);
        }
        // Fewer units may cost more, by what a separator merges with.
        for dropped in worth_it..units.len() {
            let tokens = self.joined(units.get(dropped..).unwrap_or_default());
            if tokens <= budget {
                return (dropped, tokens);
            }
        }
        (units.len(), 0)
    }

    fn fit_prefix(&self, text: &str, budget: u64, suffix: &str) -> Option<usize> {
        let cut = || self.bpe.fit_prefix(text, budget, suffix);
        match suffix {
            MARKER => {
                let encoding = self.bpe.encoding();
                self.remembered.cut(encoding, text, budget, cut)
            }
            _ => cut(),
        }
    }
}

impl Counter<'_> {
    /// How many units have to go until the rest fits, and what it costs.
    fn longest_suffix(&self, units: &[Part<'_>], budget: u64) -> (usize, u64) {
        let mut sum: u64 = 0;
        for group in groups(units).collect::<Vec<_>>().into_iter().rev() {
            let (start, end) = (group.start, group.end);
            let more = sum.saturating_add(self.group(units, group));
            if more <= budget {
                sum = more;
                continue;
            }
            // Its last units may fit without its first ones.
            let room = budget.saturating_sub(sum);
            let rest = |dropped: usize| match start.saturating_add(dropped) {
                first if first < end => {
                    let text = join(units, first..end);
                    self.bpe.count_up_to(&text, room)
                }
                _ => Some(0),
            };
            let (dropped, tokens) = first_that_fits(rest, end.saturating_sub(start));
            return (start.saturating_add(dropped), sum.saturating_add(tokens));
        }
        (0, sum)
    }

    /// How many units have to go until they are worth `gone`. Followed by a separator, which a
    /// letter would not merge with, they cost what they are worth.
    fn shortest_worth(&self, units: &[Part<'_>], gone: u64) -> usize {
        let Some(most) = gone.checked_sub(1) else {
            return 0;
        };
        let mut sum: u64 = 0;
        for group in groups(units) {
            let more = sum.saturating_add(self.group(units, group.clone()));
            if more <= most {
                sum = more;
                continue;
            }
            // Its first units may be worth it.
            let is_short = |end: usize| {
                let head = join(units, group.start..end);
                let most = most.saturating_sub(sum);
                self.bpe.count_up_to(&head, most).is_some()
            };
            let (mut short, mut enough) = (group.start, group.end);
            while enough.saturating_sub(short) > 1 {
                match short.midpoint(enough) {
                    middle if is_short(middle) => short = middle,
                    middle => enough = middle,
                }
            }
            return enough;
        }
        units.len()
    }

    /// The tokens of the units of a group, with the separator after it if something follows.
    fn group<'p>(&self, parts: &[impl Borrow<Part<'p>>], group: Range<usize>) -> u64 {
        let last = group.end == parts.len();
        match parts.get(group.clone()) {
            Some([part]) if last => part.borrow().count.alone,
            Some([part]) => part.borrow().count.followed,
            _ => self.bpe.count(&join(parts, group)),
        }
    }
}

/// The parts in groups: tokens never cross from one group into the next, so that their sum is
/// exact. Mostly each part is a group of its own.
fn groups<'p>(parts: &[impl Borrow<Part<'p>>]) -> impl Iterator<Item = Range<usize>> {
    let mut start: usize = 0;
    std::iter::from_fn(move || {
        let next = start.saturating_add(1);
        let more = parts.get(next..)?;
        let inner = more
            .iter()
            .take_while(|part| !begins_a_piece(&(*part).borrow().text));
        let group = start..next.saturating_add(inner.count());
        start = group.end;
        Some(group)
    })
}

/// Whether a piece surely begins with the text when a separator is before it. White space up to
/// the last line break of a run, and slashes after line breaks, may belong to what is before.
fn begins_a_piece(text: &str) -> bool {
    let rest = text.trim_start();
    let white = text.get(..text.len().saturating_sub(rest.len()));
    !rest.is_empty() && !text.starts_with('/') && !white.unwrap_or_default().contains(['\r', '\n'])
}

/// Some of the parts as they stand in what is sent: followed by a separator if another follows.
fn join<'p>(parts: &[impl Borrow<Part<'p>>], range: Range<usize>) -> String {
    let end = range.end;
    let mut text = String::new();
    for part in parts.get(range).unwrap_or_default() {
        if !text.is_empty() {
            text.push_str(SEPARATOR);
        }
        text.push_str(&part.borrow().text);
    }
    if end < parts.len() {
        text.push_str(SEPARATOR);
    }
    text
}

impl Bpe {
    fn fit_prefix(&self, text: &str, budget: u64, suffix: &str) -> Option<usize> {
        // A prefix and the marker cost at most 1 more than their sum.
        let room = budget.saturating_sub(self.count(suffix)).saturating_sub(1);
        let mut sent = String::new();
        let mut cut = self.first_over(text, room);
        // Every prefix that is surely short enough lies before `cut`, so the first that fits from
        // there on downwards is at least as long.
        while cut > 0 {
            sent.clear();
            sent.push_str(text.get(..cut)?);
            sent.push_str(suffix);
            if self.count_up_to(&sent, budget).is_some() {
                return Some(cut);
            }
            cut = before(text, cut);
        }
        None
    }

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
            sum = sum.saturating_add(self.count(piece));
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

/// The smallest number of units to drop that fits while one unit less does not, from the end on:
/// dropping all of them costs nothing, and dropping none does not fit.
fn first_that_fits(rest: impl Fn(usize) -> Option<u64>, units: usize) -> (usize, u64) {
    let mut fits = (units, 0);
    let mut over: usize = 0;
    let mut step: usize = 1;
    // In growing steps, since what fits is short and each look costs up to the budget.
    while let Some(next) = fits.0.checked_sub(step).filter(|next| *next > over) {
        match rest(next) {
            Some(tokens) => fits = (next, tokens),
            None => over = next,
        }
        step = step.saturating_mul(2);
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
