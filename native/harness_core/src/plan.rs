//! What of each layer is kept, as integers.
//!
//! The strategies are those of ADR 0006. A budget is tested against the tokens of the layer's
//! text *as it will be sent*, separators and marker included.

use crate::tokens::{Part, Tokenizer};

/// Stands between two units of a layer, and between two layers that are not empty.
pub const SEPARATOR: &str = "\n\n";

/// Follows the prefix of a text that was cut.
pub const MARKER: &str = "[… truncated …]";

/// A layer's content with the strategy that trims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// All or nothing.
    KeepOrDrop(&'a [u8]),
    /// Whole units go from the head, one at a time, until the rest fits.
    DropWholeUnits(Vec<&'a [u8]>),
    /// A prefix that ends at a [boundary](crate::boundary), followed by [`MARKER`].
    TruncateTail(&'a [u8]),
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

/// How one layer is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerPlan {
    /// What became of it.
    pub status: Status,
    /// Tokens of all of it.
    pub tokens_before: u64,
    /// Tokens of what is sent; at most the budget.
    pub tokens: u64,
    /// How many units go from the head, empty units not counted.
    pub dropped: usize,
    /// The byte offset at which a text is cut.
    pub cut_at: Option<usize>,
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

/// A text that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layer {layer}, unit {unit} is not UTF-8 at byte {offset}")]
pub struct NotUtf8 {
    /// The layer's index.
    pub layer: usize,
    /// The unit's index in the list given; 0 for a text.
    pub unit: usize,
    /// The offset of the first byte that is not part of a code point.
    pub offset: usize,
}

/// Plans all layers and counts the prompt that they make.
///
/// Empty units cost nothing and are left out of the answer.
pub fn plan<T: Tokenizer>(tokenizer: &T, layers: &[Layer<'_>]) -> Result<Plan, NotUtf8> {
    let mut plans = Vec::with_capacity(layers.len());
    let mut prompt: Vec<Part<'_>> = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let units = decode(index, &layer.content)?;
        let (plan, sent) = plan_layer(tokenizer, layer, &units);
        prompt.extend(sent);
        plans.push(plan);
    }
    Ok(Plan {
        layers: plans,
        // Layers are joined as units are.
        tokens: tokenizer.joined(&prompt),
    })
}

/// The layer's text or units that are not empty.
fn decode<'a>(layer: usize, content: &Content<'a>) -> Result<Vec<&'a str>, NotUtf8> {
    let parts = match content {
        Content::KeepOrDrop(text) | Content::TruncateTail(text) => std::slice::from_ref(text),
        Content::DropWholeUnits(units) => units,
    };
    let mut units = Vec::with_capacity(parts.len());
    for (unit, part) in parts.iter().enumerate() {
        let text = str::from_utf8(part).map_err(|error| NotUtf8 {
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

/// The plan of one layer, and the parts of its text as it will be sent.
fn plan_layer<'a, T: Tokenizer>(
    tokenizer: &T,
    layer: &Layer<'a>,
    units: &[&'a str],
) -> (LayerPlan, Vec<Part<'a>>) {
    let mut parts: Vec<Part<'a>> = units.iter().map(|unit| tokenizer.part(*unit)).collect();
    let tokens_before = tokenizer.joined(&parts);
    let mut plan = LayerPlan {
        status: Status::Kept,
        tokens_before,
        tokens: tokens_before,
        dropped: 0,
        cut_at: None,
        unit_tokens: match layer.content {
            Content::DropWholeUnits(_) => parts.iter().map(|unit| unit.count.alone).collect(),
            _ => Vec::new(),
        },
    };
    if units.is_empty() {
        plan.status = Status::Empty;
        return (plan, parts);
    }
    // An exact tokenizer may find no token in a text; a budget of 0 empties the layer all the same.
    if tokens_before <= layer.budget && layer.budget > 0 {
        return (plan, parts);
    }

    let (tokens, sent) = match layer.content {
        Content::KeepOrDrop(_) => (0, Vec::new()),
        Content::DropWholeUnits(_) => {
            let (dropped, tokens) = match layer.budget {
                0 => (units.len(), 0),
                budget => tokenizer.fit_suffix(&parts, budget),
            };
            plan.dropped = dropped;
            (tokens, parts.split_off(dropped.min(parts.len())))
        }
        Content::TruncateTail(_) => {
            let text = units.first().copied().unwrap_or_default();
            let cut = tokenizer.fit_prefix(text, layer.budget);
            match cut.and_then(|cut| Some((cut, text.get(..cut)?))) {
                Some((cut, prefix)) => {
                    plan.cut_at = Some(cut);
                    let sent = tokenizer.part([prefix, MARKER].concat());
                    (sent.count.alone, vec![sent])
                }
                None => (0, Vec::new()),
            }
        }
    };
    plan.tokens = tokens;
    plan.status = if sent.is_empty() {
        Status::Dropped
    } else {
        Status::Trimmed
    };
    (plan, sent)
}
