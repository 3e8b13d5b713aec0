//! Layers that give way to a budget of the whole.

use super::Error;
use super::trim::Trimmed;
use crate::tokens::{Part, Tokenizer};

/// What the whole prompt may cost, and which layers give way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total<'a> {
    /// In tokens; [`u64::MAX`] is no limit.
    pub budget: u64,
    /// The layers' indexes, the first to give way first. What is not among them never does.
    pub give_way: &'a [usize],
}

impl Total<'_> {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        budget: u64::MAX,
        give_way: &[],
    };
}

/// Trims one layer after the other until the prompt fits, and counts it.
///
/// A layer is trimmed to what the others leave of the total. Since the whole may count more than
/// its parts (by the separators, and in exact tokens anyhow), less is tried as long as it does, in
/// steps that double.
pub(super) fn give_way<T: Tokenizer>(
    tokenizer: &T,
    layers: &mut [Trimmed<'_, '_>],
    total: &Total<'_>,
) -> Result<u64, Error> {
    let mut tokens = count(tokenizer, layers, None);
    for &index in total.give_way {
        if tokens <= total.budget {
            return Ok(tokens);
        }
        let others = count(tokenizer, layers, Some(index));
        let Some(layer) = layers.get(index).filter(|layer| !layer.sent().is_empty()) else {
            continue;
        };
        let mut limit = layer.plan.limit.min(total.budget.saturating_sub(others));
        let mut less: u64 = 1;
        loop {
            if let Some(layer) = layers.get_mut(index) {
                layer.to(tokenizer, limit);
            }
            tokens = count(tokenizer, layers, None);
            if tokens <= total.budget || limit == 0 {
                break;
            }
            let over = tokens.saturating_sub(total.budget);
            limit = limit.saturating_sub(over.max(less));
            less = less.saturating_mul(2);
        }
    }
    match tokens <= total.budget {
        true => Ok(tokens),
        false => Err(Error::OverTotal {
            tokens,
            layers: layers.iter().map(|layer| layer.plan.tokens).collect(),
            budget: total.budget,
        }),
    }
}

/// The tokens of the prompt, layers being joined as units are; without one of them.
fn count<T: Tokenizer>(tokenizer: &T, layers: &[Trimmed<'_, '_>], without: Option<usize>) -> u64 {
    let layers = layers.iter().enumerate();
    let sent = layers.filter(|(index, _)| Some(*index) != without);
    let parts: Vec<&Part<'_>> = sent.flat_map(|(_, layer)| layer.sent()).collect();
    tokenizer.joined(&parts)
}
