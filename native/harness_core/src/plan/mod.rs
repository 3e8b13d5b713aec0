//! What of each layer is kept, as integers.
//!
//! The strategies are those of ADR 0006. A budget is tested against the tokens of the layer's
//! text *as it will be sent*, separators and marker included.
//!
//! `trim` has the strategies, one layer at a time; `truncate` finds where a text is cut; `total`
//! makes layers give way to a budget of the whole.

mod total;
mod trim;
mod truncate;

use std::num::NonZeroU64;

use crate::markdown::Fence;
use crate::tokens::Tokenizer;

pub use total::Total;

/// Stands between two units of a layer, and between two layers that are not empty.
pub const SEPARATOR: &str = "\n\n";

/// Follows the prefix of a text that was cut.
pub const MARKER: &str = "[… truncated …]";

/// A layer's content with the strategy that trims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// All or nothing.
    KeepOrDrop(&'a [u8]),
    /// Whole units go from the head until the rest fits.
    DropWholeUnits {
        /// In the order they are sent, what goes first at the head.
        units: Vec<&'a [u8]>,
        /// How many tokens go at a time: with a step, the units that go are worth at least the
        /// tokens over budget rounded up to a multiple of it, so that the head stays where it is
        /// while the tail grows by less than a step. Without one, no unit goes that need not.
        step: Option<NonZeroU64>,
    },
    /// A prefix that ends at a [boundary](crate::boundary), followed by [`MARKER`].
    TruncateTail {
        /// The text.
        text: &'a [u8],
        /// Where a cut is best.
        at: At,
    },
}

/// Where a text that has to be cut is best cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// At the last cluster boundary that fits.
    #[default]
    Grapheme,
    /// After the last line that fits; inside the first line where that alone does not.
    Line,
    /// In the last tenth of the budget before a heading, else between paragraphs, else between
    /// lines; at the last cluster boundary where there is none of these. A code fence that is
    /// open there is closed.
    Markdown,
}

/// A layer to plan: its content and the tokens that it may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer<'a> {
    /// The content, in the order it is sent.
    pub content: Content<'a>,
    /// In tokens; [`u64::MAX`] is no limit.
    pub budget: u64,
}

/// What became of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There was nothing to send.
    Empty,
    /// All of it is sent.
    Kept,
    /// A part of it is sent.
    Trimmed,
    /// There was something, and nothing of it is sent.
    Dropped,
}

/// Where a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The byte offset at which its prefix ends.
    pub at: usize,
    /// The code fence that is open there: what [`closing`](crate::markdown::closing) makes of it
    /// stands between the prefix and [`MARKER`].
    pub fence: Option<Fence>,
}

/// How one layer is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerPlan {
    /// What became of it.
    pub status: Status,
    /// Tokens of all of it.
    pub tokens_before: u64,
    /// Tokens of what is sent; at most the limit.
    pub tokens: u64,
    /// What it was trimmed to: its budget, or less where it gave way to the whole's.
    pub limit: u64,
    /// How many units go from the head, empty units not counted.
    pub dropped: usize,
    /// Where a text is cut, if it is.
    pub cut: Option<Cut>,
    /// Each unit's own tokens, empty units left out.
    pub unit_tokens: Vec<u64>,
}

/// How all layers are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One for each layer, in the order given.
    pub layers: Vec<LayerPlan>,
    /// Tokens of the prompt that they make, separators between layers included.
    pub tokens: u64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A text is not UTF-8.
    #[error("layer {layer}, unit {unit} is not UTF-8 at byte {offset}")]
    NotUtf8 {
        /// The layer's index.
        layer: usize,
        /// The unit's index in the list given; 0 for a text.
        unit: usize,
        /// The offset of the first byte that is not part of a code point.
        offset: usize,
    },
    /// The layers that do not give way are over the total budget.
    #[error("what does not give way costs {tokens} tokens, the total budget is {budget}")]
    OverTotal {
        /// What they cost, separators included.
        tokens: u64,
        /// What each layer costs, 0 for one that gave way.
        layers: Vec<u64>,
        /// The total budget.
        budget: u64,
    },
}

/// Plans all layers and counts the prompt that they make, which costs at most the total budget.
///
/// Empty units cost nothing and are left out of the answer.
pub fn plan<T: Tokenizer>(
    tokenizer: &T,
    layers: &[Layer<'_>],
    total: &Total<'_>,
) -> Result<Plan, Error> {
    let mut trimmed = Vec::with_capacity(layers.len());
    for (index, layer) in layers.iter().enumerate() {
        let units = decode(index, &layer.content)?;
        trimmed.push(trim::Trimmed::new(tokenizer, layer, units));
    }
    let tokens = total::give_way(tokenizer, &mut trimmed, total)?;
    Ok(Plan {
        layers: trimmed.into_iter().map(|layer| layer.plan).collect(),
        tokens,
    })
}

/// The layer's text or units that are not empty.
fn decode<'a>(layer: usize, content: &Content<'a>) -> Result<Vec<&'a str>, Error> {
    let parts = match content {
        Content::KeepOrDrop(text) | Content::TruncateTail { text, .. } => {
            std::slice::from_ref(text)
        }
        Content::DropWholeUnits { units, .. } => units,
    };
    let mut units = Vec::with_capacity(parts.len());
    for (unit, part) in parts.iter().enumerate() {
        let text = str::from_utf8(part).map_err(|error| Error::NotUtf8 {
            layer,
            unit,
            offset: error.valid_up_to(),
        })?;
        if !text.is_empty() {
            units.push(text);
        }
    }
    Ok(units)
}
