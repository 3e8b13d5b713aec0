//! One layer, trimmed to so many tokens.

use std::num::NonZeroU64;

use super::truncate::truncate;
use super::{Content, Layer, LayerPlan, Status};
use crate::tokens::{Part, Tokenizer};

/// A layer with its plan.
pub(super) struct Trimmed<'a, 'l> {
    pub(super) plan: LayerPlan,
    layer: &'l Layer<'a>,
    /// Its text, or its units that are not empty.
    units: Vec<Part<'a>>,
    /// What is sent of a text that is cut.
    cut: Option<Part<'a>>,
}

impl<'a, 'l> Trimmed<'a, 'l> {
    /// Trims a layer to its own budget.
    pub(super) fn new<T: Tokenizer>(
        tokenizer: &T,
        layer: &'l Layer<'a>,
        units: Vec<&'a str>,
    ) -> Self {
        let units: Vec<Part<'a>> = units.into_iter().map(|unit| tokenizer.part(unit)).collect();
        let mut trimmed = Self {
            plan: LayerPlan {
                status: Status::Empty,
                tokens_before: tokenizer.joined(&units),
                tokens: 0,
                limit: layer.budget,
                dropped: 0,
                cut: None,
                unit_tokens: match layer.content {
                    Content::DropWholeUnits { .. } => {
                        units.iter().map(|unit| unit.count.alone).collect()
                    }
                    _ => Vec::new(),
                },
            },
            layer,
            units,
            cut: None,
        };
        if !trimmed.units.is_empty() {
            trimmed.to(tokenizer, layer.budget);
        }
        trimmed
    }

    /// The parts of its text as it will be sent.
    pub(super) fn sent(&self) -> &[Part<'a>] {
        match (self.plan.status, &self.cut) {
            (Status::Empty | Status::Dropped, _) => &[],
            (_, Some(cut)) => std::slice::from_ref(cut),
            (_, None) => self.units.get(self.plan.dropped..).unwrap_or_default(),
        }
    }

    /// Trims it to `limit` tokens, which is at most what it was trimmed to before.
    pub(super) fn to<T: Tokenizer>(&mut self, tokenizer: &T, limit: u64) {
        let plan = &mut self.plan;
        (plan.limit, plan.tokens, plan.dropped) = (limit, 0, 0);
        (plan.cut, self.cut) = (None, None);

        // An exact tokenizer may find no token in a text; 0 empties the layer all the same.
        if plan.tokens_before <= limit && limit > 0 {
            (plan.status, plan.tokens) = (Status::Kept, plan.tokens_before);
            return;
        }
        let is_sent = match self.layer.content {
            Content::KeepOrDrop(_) => false,
            Content::DropWholeUnits { step, .. } => {
                (plan.dropped, plan.tokens) = match limit {
                    0 => (self.units.len(), 0),
                    _ => {
                        let (rest, gone) = in_steps(plan.tokens_before, limit, step);
                        tokenizer.fit_suffix(&self.units, rest, gone)
                    }
                };
                plan.dropped < self.units.len()
            }
            Content::TruncateTail { at, .. } => {
                let text = self.units.first().map_or("", |unit| &unit.text);
                if let Some((cut, sent)) = truncate(tokenizer, text, limit, at) {
                    (plan.cut, plan.tokens) = (Some(cut), sent.count.alone);
                    self.cut = Some(sent);
                }
                self.cut.is_some()
            }
        };
        plan.status = match is_sent {
            true => Status::Trimmed,
            false => Status::Dropped,
        };
    }
}

/// What the rest may cost, and how many tokens have to go: what is over, rounded up to whole steps.
fn in_steps(tokens: u64, limit: u64, step: Option<NonZeroU64>) -> (u64, u64) {
    let Some(step) = step.map(NonZeroU64::get) else {
        return (limit, 0);
    };
    let steps = tokens.saturating_sub(limit).div_ceil(step);
    let gone = steps.saturating_mul(step).min(tokens);
    (tokens.saturating_sub(gone), gone)
}
