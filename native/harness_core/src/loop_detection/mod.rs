//! Loops of an agent: the same calls with the same outcomes, over and over.
//!
//! [`State::observe`] is told each assistant message once the results of its calls are in. A
//! message with calls becomes one symbol, a digest of what was called and what came of it; for
//! each period p from 1 to 8 the state counts how long `x[i] = x[i - p]` has held. That finds
//! every cycle of such a period in constant time and memory, with no window to search. Beside it
//! run three counters that never do more than nudge: calls that differ by small steps of a
//! number, a passage repeated within one text, messages that bring neither a call nor a new text.
//!
//! ```
//! use harness_core::loop_detection::{Call, Ladder, Outcome, Rung, State};
//!
//! let ladder = Ladder { nudge: Some(3), block: Some(5), halt: Some(8) };
//! let call = Call {
//!     tool: b"sh",
//!     arguments: br#"{"command":"make"}"#,
//!     key: vec![],
//!     polling: 0,
//!     outcome: Outcome::Error(b"main.c:12: missing ;"),
//! };
//! let mut state = State::default();
//! assert_eq!(state.observe(&ladder, b"", &[call.clone()]), None);
//! assert_eq!(state.observe(&ladder, b"", &[call.clone()]), None);
//! let verdict = state.observe(&ladder, b"", &[call]).ok_or("no verdict")?;
//! assert_eq!((verdict.rung, verdict.repetitions), (Rung::Nudge, 3));
//! # Ok::<(), &str>(())
//! ```

mod arguments;
mod digest;
mod error_class;
mod passages;

use crate::{boundary, escape::escape};
use arguments::Arguments;
use digest::{Digest, digest};
use serde::{Deserialize, Serialize};

/// The longest cycle that is looked for, in messages with calls.
pub const PERIODS: usize = 8;
/// Calls in small steps are a near-duplicate from this many in a row.
const NEAR_REPETITIONS: u64 = 8;
/// How far each number may be from that of the call before.
const NEAR_STEP: f64 = 10.0;
/// Messages in a row with neither a call nor a new text.
const IDLE_REPETITIONS: u64 = 3;
/// How many texts back a text is not new.
const TEXTS: usize = 8;
/// How many calls of a message, and how many numbers in them, are remembered: memory has a bound.
const CALLS: usize = 256;
/// Bound of the tools' names in a verdict, in bytes.
const TOOLS_BYTES: usize = 256;

/// From how many repetitions on a loop is nudged, blocked, halted; `None` leaves a rung out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    /// The model is told.
    pub nudge: Option<u64>,
    /// The calls of the loop are not run any more.
    pub block: Option<u64>,
    /// The session ends.
    pub halt: Option<u64>,
}

/// A rung of the ladder, the lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// The model is told.
    Nudge,
    /// The calls of the loop are not run any more.
    Block,
    /// The session ends.
    Halt,
}

/// What kind of loop it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The same calls with the same outcomes, message after message.
    Repetition,
    /// The same messages in turn.
    Cycle,
    /// The same calls but for small steps of numbers.
    NearDuplicate,
    /// The same passage inside one text.
    RepeatedText,
    /// Neither a call nor a new text.
    Idle,
}

/// A loop that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How far up the ladder it is.
    pub rung: Rung,
    /// What repeats.
    pub kind: Kind,
    /// Messages in one turn of the loop; characters of the passage for [`Kind::RepeatedText`].
    pub period: u64,
    /// How often it was seen in a row.
    pub repetitions: u64,
    /// The tools' names, escaped and joined; empty where no tool is part of it.
    pub tool: String,
    /// The message in which it began, counted from 1 over the whole session.
    pub first: u64,
    /// The message just observed.
    pub last: u64,
}

/// What came of a call.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// The tool's result.
    Result(&'a [u8]),
    /// The tool failed with this text.
    Error(&'a [u8]),
    /// It was blocked and not run: one more repetition of what it came to before.
    Refused,
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The tool's name.
    pub tool: &'a [u8],
    /// JSON text.
    pub arguments: &'a [u8],
    /// The arguments by which the tool tells its calls apart; empty for all of them.
    pub key: Vec<&'a str>,
    /// How many repetitions are no loop for this tool.
    pub polling: u64,
    /// What came of it.
    pub outcome: Outcome<'a>,
}

/// What has to be remembered of a session: of constant size, however long it gets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    messages: u64,
    /// The last messages with calls, the newest first.
    recent: Vec<Seen>,
    /// By period − 1: for how many messages each has equalled the one a period before.
    runs: [Run; PERIODS],
    near: Near,
    /// The last texts, the newest first.
    texts: Vec<Digest>,
    idle: Run,
    /// The period of the loop whose calls are blocked; 0 while none is.
    blocked: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Run {
    length: u64,
    /// The message in which it began.
    first: u64,
}

/// A message with calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Seen {
    message: u64,
    /// What was called.
    identity: Digest,
    /// What was called, and what came of it.
    symbol: Digest,
    calls: Vec<SeenCall>,
    tools: Vec<String>,
    polling: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct SeenCall {
    identity: Digest,
    outcome: Digest,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Near {
    /// What was called, its numbers left out.
    shape: Digest,
    numbers: Vec<f64>,
    run: Run,
}

/// Bytes that are no state.
#[derive(Debug, thiserror::Error)]
#[error("not the state of a loop detection: {0}")]
pub struct NotAState(#[from] postcard::Error);

impl State {
    /// The state as bytes, the same for the same state.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Only a writer that runs out of room can fail, and a Vec does not.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// The state that [`State::to_bytes`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAState> {
        Ok(postcard::from_bytes(bytes)?)
    }

    /// Forgets all but how many messages there were: the user said something.
    pub fn reset(&mut self) {
        *self = State {
            messages: self.messages,
            ..State::default()
        };
    }

    /// Takes in an assistant message, and says which loop it is part of: of several the one
    /// highest on the ladder, of those the one with the smallest period.
    pub fn observe(&mut self, ladder: &Ladder, text: &[u8], calls: &[Call]) -> Option<Verdict> {
        let text = &String::from_utf8_lossy(text);
        self.messages = self.messages.saturating_add(1);
        let mut found = Vec::new();

        if !calls.is_empty() {
            self.observe_calls(calls);
            found.extend(self.cycle(ladder));
            self.blocked = match found.first() {
                Some(verdict) if verdict.rung >= Rung::Block => {
                    usize::try_from(verdict.period).unwrap_or(0)
                }
                _ => 0,
            };
        }
        if ladder.nudge.is_some() {
            found.extend(self.near_duplicate(!calls.is_empty()));
            found.extend(self.repeated_text(text));
        }
        let idle = self.observe_text(text, calls.is_empty());
        if ladder.nudge.is_some() {
            found.extend(idle);
        }
        // The first of the highest.
        found
            .into_iter()
            .reduce(|best, next| if next.rung > best.rung { next } else { best })
    }

    /// Whether a call belongs to the loop that is blocked. Its outcome is not looked at.
    pub fn is_blocked(&self, call: &Call) -> bool {
        self.blocked > 0
            && Named::of(call)
                .identities()
                .any(|identity| self.outcome_in_block(identity).is_some())
    }

    fn outcome_in_block(&self, identity: Digest) -> Option<Digest> {
        self.recent
            .iter()
            .take(self.blocked)
            .find_map(|seen| seen.outcome(identity))
    }

    fn observe_calls(&mut self, calls: &[Call]) {
        let (seen, near) = self.see(calls);
        for (index, run) in self.runs.iter_mut().enumerate() {
            match self.recent.get(index) {
                Some(before) if before.symbol == seen.symbol => {
                    if run.length == 0 {
                        run.first = before.message;
                    }
                    run.length = run.length.saturating_add(1);
                }
                _ => run.length = 0,
            }
        }
        self.recent.truncate(PERIODS.saturating_sub(1));
        self.recent.insert(0, seen);
        self.observe_near(near);
    }

    /// The message as it is remembered, and its shape with the numbers of the calls.
    fn see(&self, calls: &[Call]) -> (Seen, (Digest, Vec<f64>)) {
        let named: Vec<Named> = calls.iter().map(Named::of).collect();
        let mut seen: Vec<SeenCall> = calls
            .iter()
            .zip(&named)
            .map(|(call, named)| named.seen(self, call.outcome))
            .collect();
        seen.sort_unstable();
        seen.dedup();

        let mut identities: Vec<Digest> = seen.iter().map(|call| call.identity).collect();
        identities.dedup();
        let identity = digest(identities.iter().map(|identity| identity.as_slice()));

        // A loop that is blocked goes on through refused attempts, even where a call comes to
        // another outcome at each place of a longer cycle.
        let expected = self
            .blocked
            .checked_sub(1)
            .and_then(|index| self.recent.get(index))
            .filter(|expected| expected.identity == identity);
        if let Some(expected) = expected
            && calls
                .iter()
                .all(|call| matches!(call.outcome, Outcome::Refused))
        {
            seen.clone_from(&expected.calls);
        }
        let symbol = digest(
            seen.iter()
                .flat_map(|call| [call.identity.as_slice(), call.outcome.as_slice()]),
        );

        let mut shapes: Vec<(Digest, &[f64])> = named.iter().map(Named::shape).collect();
        shapes.sort_by(|a, b| {
            a.0.cmp(&b.0)
                .then_with(|| a.1.partial_cmp(b.1).unwrap_or(std::cmp::Ordering::Equal))
        });
        let shape = digest(shapes.iter().map(|(shape, _)| shape.as_slice()));
        let numbers: Vec<f64> = shapes
            .iter()
            .flat_map(|(_, numbers)| numbers.iter().copied())
            .collect();
        // So many that only the very same calls are alike.
        let near = if numbers.len() > CALLS {
            (identity, Vec::new())
        } else {
            (shape, numbers)
        };

        let mut tools: Vec<String> = calls
            .iter()
            .map(|call| shorten(escape(call.tool)))
            .collect();
        tools.sort_unstable();
        tools.dedup();
        tools.truncate(PERIODS);
        seen.truncate(CALLS);

        let seen = Seen {
            message: self.messages,
            identity,
            symbol,
            calls: seen,
            tools,
            polling: calls.iter().map(|call| call.polling).min().unwrap_or(0),
        };
        (seen, near)
    }

    fn cycle(&self, ladder: &Ladder) -> Option<Verdict> {
        let mut best: Option<Verdict> = None;
        for (run, period) in self.runs.iter().zip(1_u64..) {
            let repetitions = run
                .length
                .checked_div(period)
                .unwrap_or(0)
                .saturating_add(1);
            let turn = self
                .recent
                .iter()
                .take(usize::try_from(period).unwrap_or(0));
            let polling = turn.map(|seen| seen.polling).min().unwrap_or(0);
            let Some(rung) = ladder.rung(repetitions.saturating_sub(polling)) else {
                continue;
            };
            if best.as_ref().is_none_or(|best| rung > best.rung) {
                best = Some(Verdict {
                    rung,
                    kind: if period == 1 {
                        Kind::Repetition
                    } else {
                        Kind::Cycle
                    },
                    period,
                    repetitions,
                    tool: self.tools(period),
                    first: run.first,
                    last: self.messages,
                });
            }
        }
        best
    }

    fn observe_near(&mut self, (shape, numbers): (Digest, Vec<f64>)) {
        let near = &mut self.near;
        let alike = near.run.length > 0
            && near.shape == shape
            && near.numbers.len() == numbers.len()
            && near
                .numbers
                .iter()
                .zip(&numbers)
                .all(|(a, b)| (a - b).abs() <= NEAR_STEP);
        if alike && near.numbers == numbers {
            // The very same call neither adds nor ends: that is the cycles' business.
            return;
        }
        if alike {
            near.run.length = near.run.length.saturating_add(1);
        } else {
            near.run = Run {
                length: 1,
                first: self.messages,
            };
        }
        near.shape = shape;
        near.numbers = numbers;
    }

    fn near_duplicate(&self, calls: bool) -> Option<Verdict> {
        let run = self.near.run;
        (calls && run.length >= NEAR_REPETITIONS).then(|| {
            self.nudge(Kind::NearDuplicate, run)
                .with_tool(self.tools(1))
        })
    }

    fn repeated_text(&self, text: &str) -> Option<Verdict> {
        passages::repeated(text).map(|repeated| Verdict {
            period: repeated.characters,
            ..self.nudge(
                Kind::RepeatedText,
                Run {
                    length: repeated.times,
                    first: self.messages,
                },
            )
        })
    }

    fn observe_text(&mut self, text: &str, idle: bool) -> Option<Verdict> {
        let text = text.trim();
        let digest = digest([text.as_bytes()]);
        let is_new = !text.is_empty() && !self.texts.contains(&digest);
        if !text.is_empty() {
            self.texts.retain(|seen| *seen != digest);
            self.texts.truncate(TEXTS.saturating_sub(1));
            self.texts.insert(0, digest);
        }
        if !idle {
            self.idle.length = 0;
            return None;
        }
        if is_new || self.idle.length == 0 {
            self.idle = Run {
                length: 1,
                first: self.messages,
            };
        } else {
            self.idle.length = self.idle.length.saturating_add(1);
        }
        (self.idle.length >= IDLE_REPETITIONS).then(|| self.nudge(Kind::Idle, self.idle))
    }

    fn nudge(&self, kind: Kind, run: Run) -> Verdict {
        Verdict {
            rung: Rung::Nudge,
            kind,
            period: 1,
            repetitions: run.length,
            tool: String::new(),
            first: run.first,
            last: self.messages,
        }
    }

    /// The tools of the last messages, in the order in which they were first called.
    fn tools(&self, period: u64) -> String {
        let turn = self
            .recent
            .iter()
            .take(usize::try_from(period).unwrap_or(0));
        let mut names: Vec<&str> = Vec::new();
        for name in turn.rev().flat_map(|seen| &seen.tools) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        shorten(names.join(", "))
    }
}

impl Verdict {
    fn with_tool(self, tool: String) -> Self {
        Verdict { tool, ..self }
    }
}

impl Ladder {
    /// The highest rung that this many repetitions reach.
    fn rung(&self, repetitions: u64) -> Option<Rung> {
        [
            (self.halt, Rung::Halt),
            (self.block, Rung::Block),
            (self.nudge, Rung::Nudge),
        ]
        .into_iter()
        .find_map(|(from, rung)| (repetitions >= from?).then_some(rung))
    }
}

impl Seen {
    fn outcome(&self, identity: Digest) -> Option<Digest> {
        self.calls
            .iter()
            .find(|call| call.identity == identity)
            .map(|call| call.outcome)
    }
}

/// A call's arguments, digested.
struct Named {
    /// By its arguments; by the text itself where that is no JSON.
    exact: Digest,
    /// The same for all calls of the tool whose arguments are no JSON; for the others `None`.
    malformed: Option<Digest>,
    shape: Digest,
    numbers: Vec<f64>,
}

impl Named {
    fn of(call: &Call) -> Self {
        let tool = call.tool;
        match Arguments::read(call.arguments, &call.key) {
            Some(arguments) => Named {
                exact: digest([tool, b"arguments", &arguments.identity]),
                malformed: None,
                shape: digest([tool, b"shape", &arguments.shape]),
                numbers: arguments.numbers,
            },
            None => {
                let exact = digest([tool, b"text", call.arguments]);
                Named {
                    exact,
                    malformed: Some(digest([tool, b"malformed"])),
                    shape: exact,
                    numbers: Vec::new(),
                }
            }
        }
    }

    fn identities(&self) -> impl Iterator<Item = Digest> {
        self.malformed.into_iter().chain([self.exact])
    }

    fn shape(&self) -> (Digest, &[f64]) {
        (self.shape, &self.numbers)
    }

    fn seen(&self, state: &State, outcome: Outcome) -> SeenCall {
        match (outcome, self.malformed) {
            (Outcome::Result(result), _) => SeenCall {
                identity: self.exact,
                outcome: digest([b"result", result]),
            },
            // However the text is broken, and whatever the parser says about it.
            (Outcome::Error(_), Some(identity)) => SeenCall {
                identity,
                outcome: digest([b"malformed".as_slice()]),
            },
            (Outcome::Error(text), None) => SeenCall {
                identity: self.exact,
                outcome: digest([b"error", error_class::class(text).as_slice()]),
            },
            (Outcome::Refused, _) => self
                .identities()
                .find_map(|identity| {
                    let outcome = state.outcome_in_block(identity)?;
                    Some(SeenCall { identity, outcome })
                })
                .unwrap_or_else(|| SeenCall {
                    identity: self.exact,
                    outcome: digest([b"refused".as_slice()]),
                }),
        }
    }
}

fn shorten(mut text: String) -> String {
    text.truncate(boundary::at_or_before(text.as_bytes(), TOOLS_BYTES));
    text
}
