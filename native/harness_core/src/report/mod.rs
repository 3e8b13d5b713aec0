//! What became of everything that was considered for a prompt, in a shape that is written,
//! read again and compared.
//!
//! A [`Report`] is plain data with one order of keys. [`Report::to_json`] writes it by the schema
//! `docs/report.schema.json`, [`page::page`] shows the same numbers to people, and
//! [`Report::from_json`] reads back what was written.

pub mod page;
mod shown;

use serde::{Deserialize, Serialize};
pub use shown::Shown;

/// What a report is called in its `schema` field.
pub const SCHEMA: &str = "engine.harness.report";

/// The version of the schema that is written, and the only one that is read.
pub const VERSION: u64 = 1;

/// All that is known of one assembled prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u64,
    /// The version of the library that assembled.
    pub harness: Shown,
    /// Whose prompt it is.
    pub agent: Option<Shown>,
    /// The workspace's path as it was given.
    pub workspace: Option<Shown>,
    /// What counted the tokens.
    pub tokenizer: Tokenizer,
    /// The whole.
    pub prompt: Prompt,
    /// In the order they are sent.
    pub layers: Vec<Layer>,
    /// What other tokenizers say.
    pub compared: Vec<Compared>,
    /// How many instruction files may be other people's; `None` where no workspace was read.
    pub foreign: Option<Foreign>,
    /// What is likely to be a mistake.
    pub warnings: Vec<Warning>,
    /// What changed since an earlier prompt.
    pub diff: Option<Diff>,
    /// What is needed to assemble again.
    pub inputs: Option<Inputs>,
}

/// What counts the tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokenizer {
    /// An encoding's name, or a module's.
    pub name: Shown,
    /// Whether all tokens of the report are estimates.
    pub estimated: bool,
}

/// The whole prompt. Sizes are in bytes, tokens are the tokenizer's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Its length.
    pub bytes: u64,
    /// Its tokens, separators between layers included.
    pub tokens: u64,
    /// The sum of the layers' budgets; `None` is no limit.
    pub budget: Option<u64>,
    /// What all layers together may cost; `None` is no limit.
    pub total_budget: Option<u64>,
    /// In which order layers give way to the total budget.
    pub give_way: Vec<LayerName>,
    /// Layers that must not lose anything.
    pub strict: Vec<LayerName>,
    /// How many bytes a hundred tokens stand for, rounded down; `None` without tokens.
    pub bytes_per_100_tokens: Option<u64>,
    /// Lower-case hex.
    pub sha256: String,
    /// What stands between the layers.
    pub separators: Separators,
    /// The prompt itself, where it was asked for.
    pub text: Option<String>,
}

/// What stands between the parts of a whole. `parts + separators = whole`, in bytes and in tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Separators {
    /// How many.
    pub count: u64,
    /// All of them together.
    pub bytes: u64,
    /// What the whole costs beyond its parts; negative where joined parts cost less than single
    /// ones, as they do when each of them is rounded up.
    pub tokens: i64,
}

/// A layer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerName {
    /// Who the agent is.
    Identity,
    /// Instructions of the workspace and the database.
    InstructionFiles,
    /// The project's README and surroundings.
    ProjectContext,
    /// Rules of the business.
    BusinessRules,
    /// What is going on.
    TaskState,
}

/// The layers of every report, in the order they are sent.
pub const LAYERS: [LayerName; 5] = [
    LayerName::Identity,
    LayerName::InstructionFiles,
    LayerName::ProjectContext,
    LayerName::BusinessRules,
    LayerName::TaskState,
];

/// How a layer is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// All or nothing.
    KeepOrDrop,
    /// Whole units from the head.
    DropWholeUnits,
    /// A prefix.
    TruncateTail,
}

/// What became of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerStatus {
    /// There was nothing to send.
    Empty,
    /// All of it is sent.
    Kept,
    /// A part of it is sent.
    Trimmed,
    /// Nothing of it is sent.
    Dropped,
}

/// Where a text may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutAt {
    /// Between two clusters.
    Grapheme,
    /// At the end of a line.
    Line,
    /// At a heading, a paragraph, a line.
    Markdown,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its name.
    pub name: LayerName,
    /// How it is trimmed.
    pub strategy: Strategy,
    /// What became of it.
    pub status: LayerStatus,
    /// Tokens that it may cost; `None` is no limit.
    pub budget: Option<u64>,
    /// What it was trimmed to: its budget, or less where it gave way to the total budget.
    pub limit: Option<u64>,
    /// Units go in steps of so many tokens.
    pub step: Option<u64>,
    /// Where its text may be cut.
    pub at: Option<CutAt>,
    /// Tokens of all that was given, joined as it would have been sent.
    pub tokens_before: u64,
    /// Tokens of what is sent.
    pub tokens: u64,
    /// Bytes of all that was given, joined as it would have been sent.
    pub bytes_before: u64,
    /// Bytes of what is sent, marker included.
    pub bytes: u64,
    /// Where it begins in the prompt; `None` where nothing is sent.
    pub offset: Option<u64>,
    /// At which byte of what was given its text is cut.
    pub cut_at: Option<u64>,
    /// How many of its units are sent; `None` for a text.
    pub units: Option<Units>,
    /// What stands between its units.
    pub separators: Separators,
    /// Of what is sent.
    pub sha256: String,
    /// Of the prompt from its first byte to this layer's last.
    pub prefix_sha256: String,
    /// Each thing that was considered for it: what was given in that order, then what was seen
    /// and not used.
    pub items: Vec<Item>,
}

/// How many units of a layer are sent. Empty ones count as little as they cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Units {
    /// Units sent.
    pub kept: u64,
    /// Units given.
    pub given: u64,
}

/// What became of one thing that was considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is sent as it was given.
    Kept,
    /// A prefix of it is sent.
    Cut,
    /// It was given and is not sent.
    Dropped,
    /// It was given and there is nothing in it.
    Empty,
    /// It was seen in the workspace and not used.
    Unused,
}

/// One thing that was considered: a text, a unit, or a file that was seen and not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// A unit's id, or the path of what was not used; `None` for a layer's text.
    pub id: Option<Shown>,
    /// Its place among what was given, from 0; `None` for what was not used.
    pub index: Option<u64>,
    /// 1 is what is dropped last; `None` for what was not used.
    pub rank: Option<u64>,
    /// What became of it.
    pub status: Status,
    /// Why, as a word for programs.
    pub reason: Shown,
    /// Why, as words for people.
    pub message: Shown,
    /// Where it begins in the prompt; `None` where nothing of it is sent.
    pub offset: Option<u64>,
    /// Its own bytes; `None` for what was not used.
    pub bytes_before: Option<u64>,
    /// Bytes of it that are sent, marker included.
    pub bytes: u64,
    /// Its own tokens; `None` for what was not used.
    pub tokens_before: Option<u64>,
    /// Tokens of it that are sent, marker included.
    pub tokens: u64,
    /// Of what was given; `None` for what was not used.
    pub sha256: Option<String>,
}

/// What the prompt costs by another tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// An encoding's name, or a module's.
    pub name: Shown,
    /// Whether its tokens are estimates.
    pub estimated: bool,
    /// Tokens of what is sent of each layer.
    pub layers: Vec<u64>,
    /// What the prompt costs beyond them.
    pub separators: i64,
    /// Tokens of the prompt.
    pub tokens: u64,
}

/// How many instruction files may be other people's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// From repositories inside the workspace.
    pub nested: u64,
    /// From ignored directories.
    pub ignored: u64,
}

/// What is likely to be a mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// Where it is.
    pub layer: LayerName,
    /// Which mistake, as a word for programs.
    pub kind: Shown,
    /// How often.
    pub count: u64,
    /// Where the first one begins in the prompt.
    pub offset: u64,
    /// The first one's bytes.
    pub length: u64,
    /// Words for people.
    pub message: Shown,
}

/// What changed from an earlier prompt to this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// Whether the bytes are the same.
    pub same: bool,
    /// The first byte that differs.
    pub first_difference: Option<Difference>,
    /// The longest common prefix.
    pub common: Common,
    /// Tokens of the earlier prompt, by its own tokenizer.
    pub tokens_before: u64,
    /// Tokens of this one.
    pub tokens: u64,
    /// Whether the tokens of one of them are estimates.
    pub estimated: bool,
    /// Settings that differ.
    pub settings: Vec<Setting>,
    /// Everything that was considered and is not as it was.
    pub changes: Vec<Change>,
}

/// Where two prompts part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Its offset in both.
    pub byte: u64,
    /// What stands there in the earlier one; `None` where that one ends.
    pub before: Option<Place>,
    /// What stands there in this one; `None` where it ends.
    pub after: Option<Place>,
}

/// A byte of a prompt. A separator belongs to what follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The layer.
    pub layer: LayerName,
    /// The unit's id; `None` in a layer's text.
    pub id: Option<Shown>,
    /// Its offset in the unit or text; `None` in a separator.
    pub byte: Option<u64>,
}

/// What two prompts begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Common {
    /// Its bytes.
    pub bytes: u64,
    /// Its tokens, up to the last whole character.
    pub tokens: u64,
    /// How many layers from the first on are the same, prompt up to their end included.
    pub layers: u64,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its name.
    pub name: Shown,
    /// What it was.
    pub before: Shown,
    /// What it is.
    pub after: Shown,
}

/// How something changed in what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// It is sent, and was not.
    Added,
    /// It was sent, and is not.
    Dropped,
    /// Other bytes of it are sent.
    Changed,
    /// The same bytes are sent at another place among what both send.
    Moved,
    /// It changed, but neither prompt holds it.
    Unsent,
}

/// One thing that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Its layer.
    pub layer: LayerName,
    /// The unit's id; `None` for a layer's text.
    pub id: Option<Shown>,
    /// How it changed.
    pub change: Changed,
    /// What became of it then; `None` where it was not given.
    pub before: Option<Status>,
    /// What became of it now; `None` where it is not given.
    pub after: Option<Status>,
    /// Tokens of it that were sent.
    pub tokens_before: u64,
    /// Tokens of it that are sent.
    pub tokens: u64,
    /// Words for people.
    pub message: Shown,
}

/// What is needed to assemble again, beside the tokenizer and the settings of [`Prompt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// What counts the tokens.
    pub tokenizer: Tokenizer,
    /// As [`Prompt::total_budget`].
    pub total_budget: Option<u64>,
    /// As [`Prompt::give_way`].
    pub give_way: Vec<LayerName>,
    /// As [`Prompt::strict`].
    pub strict: Vec<LayerName>,
    /// One for each layer.
    pub layers: Vec<LayerInputs>,
}

/// A layer's settings and what was given for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerInputs {
    /// The layer.
    pub name: LayerName,
    /// As [`Layer::budget`].
    pub budget: Option<u64>,
    /// As [`Layer::step`].
    pub step: Option<u64>,
    /// As [`Layer::at`].
    pub at: Option<CutAt>,
    /// The text that was given; `None` for a layer of units.
    pub text: Option<String>,
    /// The units that were given, empty ones included; `None` for a text.
    pub units: Option<Vec<Unit>>,
}

/// A unit that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Its id.
    pub id: Shown,
    /// Its text.
    pub text: String,
}

/// Why a text is not a report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of the schema's shape.
    #[error("not a report: {0}")]
    Invalid(#[from] serde_json::Error),
    /// JSON, but of another kind.
    #[error("not a report: its schema is {0:?}, expected {SCHEMA:?}")]
    Schema(String),
    /// Not the five layers in their order, or one that holds neither or both of a text and units.
    #[error("not a report: expected its {0} to be the five layers in the order they are sent")]
    Layers(&'static str),
    /// A report of another version.
    #[error("a report of version {0}, and only version {VERSION} can be read")]
    Version(u64),
}

/// What is looked at before the rest, so that a newer version is called by its name.
#[derive(Deserialize)]
struct Heading {
    schema: String,
    version: u64,
}

impl Report {
    /// Indented JSON with one order of keys, and a line feed at its end.
    ///
    /// Control characters beyond ASCII's are escaped too: printed on a terminal, nothing in it
    /// runs.
    ///
    /// # Errors
    ///
    /// None for reports, whose keys are all strings; the signature is the serializer's.
    pub fn to_json(&self) -> Result<String, Error> {
        let mut json = escape_controls(serde_json::to_string_pretty(self)?);
        json.push('\n');
        Ok(json)
    }

    /// Reads what [`Report::to_json`] wrote.
    ///
    /// # Errors
    ///
    /// For what is not JSON, another schema or version, and missing, unknown or misshapen fields.
    pub fn from_json(json: &str) -> Result<Report, Error> {
        let heading: Heading = serde_json::from_str(json)?;
        if heading.schema != SCHEMA {
            return Err(Error::Schema(heading.schema));
        }
        if heading.version != VERSION {
            return Err(Error::Version(heading.version));
        }
        let report: Report = serde_json::from_str(json)?;
        if !report.layers.iter().map(|layer| layer.name).eq(LAYERS) {
            return Err(Error::Layers("layers"));
        }
        if let Some(inputs) = &report.inputs {
            let one = |layer: &LayerInputs| layer.text.is_some() != layer.units.is_some();
            let names = inputs.layers.iter().map(|layer| layer.name);
            if !names.eq(LAYERS) || !inputs.layers.iter().all(one) {
                return Err(Error::Layers("inputs"));
            }
        }
        Ok(report)
    }
}

/// DEL and the C1 controls as `\u00hh`. They stand nowhere in JSON but inside of strings.
fn escape_controls(json: String) -> String {
    if !json.chars().any(is_late_control) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_late_control(character) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn is_late_control(character: char) -> bool {
    matches!(character, '\u{7f}'..='\u{9f}')
}
