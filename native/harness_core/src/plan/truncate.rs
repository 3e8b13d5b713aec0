//! Where a text over its budget is cut.

use super::{At, Cut, MARKER};
use crate::tokens::{Part, Tokenizer};
use crate::{boundary, markdown};

/// Cuts a text that is over budget: where, and what is sent. `None` when not even one cluster and
/// the marker fit.
pub(super) fn truncate<T: Tokenizer>(
    tokenizer: &T,
    text: &str,
    budget: u64,
    at: At,
) -> Option<(Cut, Part<'static>)> {
    let try_cut = |cut: Cut| {
        let prefix = text.get(..cut.at).filter(|prefix| !prefix.is_empty())?;
        let closing = markdown::closing(text.as_bytes(), cut);
        let sent = tokenizer.part([prefix, &closing, MARKER].concat());
        (sent.count.alone <= budget).then_some((cut, sent))
    };
    let outside = |at: usize| Cut { at, fence: None };

    let far = tokenizer.fit_prefix(text, budget, MARKER)?;
    let near = match at {
        At::Grapheme => return try_cut(outside(far)),
        At::Line => {
            let line = boundary::line_at_or_before(text.as_bytes(), far);
            return [line, far].into_iter().map(outside).find_map(try_cut);
        }
        At::Markdown => {
            let nine_tenths = budget.saturating_sub(budget.div_ceil(10));
            let near = tokenizer.fit_prefix(text, nine_tenths, MARKER);
            near.unwrap_or(0)
        }
    };

    let cuts = markdown::cuts(text.as_bytes(), near, far);
    if let Some(found) = cuts.iter().copied().find_map(try_cut) {
        return Some(found);
    }
    // A fence is open at the end, and nothing is left to close it with: sooner, by what that costs.
    let open = cuts.last().copied()?;
    let fence = open.fence?;
    let closing = markdown::closing(text.as_bytes(), open);
    let sooner = match tokenizer.fit_prefix(text, budget, &["\n", &closing, MARKER].concat()) {
        Some(far) if far > fence.line => markdown::cuts(text.as_bytes(), near, far),
        _ => Vec::new(),
    };
    // Before the fence, or where it is none yet.
    let before = [fence.line, fence.run.saturating_add(2)].map(outside);
    sooner.into_iter().chain(before).find_map(try_cut)
}
