//! Spans of a session, as OTLP JSON.
//!
//! The input is what the hooks recorded, a JSON array of events, the newest first; the output is
//! an `ExportTraceServiceRequest` of OpenTelemetry's protocol in its JSON encoding, one span a
//! line. Spans and attributes are named after the semantic conventions for generative AI:
//! `invoke_agent` around `chat` and `execute_tool`. What handlers decided become events of the
//! span in whose step they ran.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;

/// A trace's identity and its place in the caller's own.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// What wrote the trace: `service.name`.
    pub service: &'a str,
    /// Who serves the model: `gen_ai.provider.name`.
    pub provider: Option<&'a str>,
    /// Added to the events' times, in milliseconds, to make them Unix time.
    pub unix_ms: i64,
    /// The trace's id, where the caller's is not continued.
    pub trace_id: [u8; 16],
    /// An incoming W3C `traceparent`; as that standard asks, a malformed one counts as absent.
    pub traceparent: Option<&'a str>,
    /// Ids of the spans, in the order in which they begin: one for each event and one more is
    /// always enough. A span for which none is left is not written.
    pub span_ids: &'a [[u8; 8]],
}

/// The events are not those of the hooks.
#[derive(Debug, thiserror::Error)]
#[error("not a list of events: {0}")]
pub struct NotEvents(#[from] serde_json::Error);

/// An incoming place in a trace.
#[derive(Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace that is continued.
    pub trace_id: [u8; 16],
    /// The span that called.
    pub span_id: [u8; 8],
    /// Whether it is sampled, and what else the flags say.
    pub flags: u8,
}

impl Parent {
    /// Reads a `traceparent` header: version, trace id, span id, flags. A later version is read as
    /// far as this one goes.
    ///
    /// ```
    /// use harness_core::trace::Parent;
    ///
    /// let parent = Parent::read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    /// assert_eq!(parent.map(|parent| parent.flags), Some(1));
    /// assert_eq!(Parent::read("00-0-0-01"), None);
    /// ```
    pub fn read(header: &str) -> Option<Self> {
        let mut fields = header.trim_matches([' ', '\t']).splitn(5, '-');
        let [version] = bytes(fields.next()?)?;
        let parent = Parent {
            trace_id: bytes(fields.next()?)?,
            span_id: bytes(fields.next()?)?,
            flags: bytes::<1>(fields.next()?)?.into_iter().next()?,
        };
        let valid = version != 0xff
            && (version != 0 || fields.next().is_none())
            && parent.trace_id != [0; 16]
            && parent.span_id != [0; 8];
        valid.then_some(parent)
    }
}

/// Lower-case hexadecimal digits, two a byte.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'f' => char::from(byte).to_digit(16),
        _ => None,
    };
    let mut bytes = [0; N];
    let mut digits = text.bytes();
    for byte in &mut bytes {
        let value = digit(digits.next()?)?
            .checked_mul(16)?
            .checked_add(digit(digits.next()?)?)?;
        *byte = u8::try_from(value).ok()?;
    }
    digits.next().is_none().then_some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The events as OTLP JSON.
///
/// # Errors
///
/// When the text is not a JSON array of events as the hooks record them.
pub fn otlp(events: &[u8], context: &Context) -> Result<String, NotEvents> {
    let mut events: Vec<Event> = serde_json::from_slice(events)?;
    events.reverse();
    let mut trace = Trace::new(context);
    for run in runs(&events) {
        trace.run(run);
    }
    trace.finish()
}

#[derive(Debug, Deserialize)]
struct Event {
    phase: Phase,
    handler: String,
    kind: String,
    decision: String,
    reason: Option<String>,
    on_error: String,
    #[serde(default)]
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    SessionStart,
    SessionEnd,
    PreModelCall,
    PostModelCall,
    PreToolUse,
    PostToolUse,
}

/// What a payload said about its step. A caller may put anything there.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Step {
    session_id: Value,
    agent: Value,
    model: Value,
    tool: Value,
    call_id: Value,
    is_error: Value,
    usage: Value,
    now_ms: Value,
    ended: Value,
}

impl Event {
    /// Stopped the step.
    fn halts(&self) -> bool {
        match self.decision.as_str() {
            "halt" => true,
            "raise" | "throw" | "exit" | "invalid_return" => self.on_error == "halt",
            _ => false,
        }
    }
}

/// The events of one run of a phase's handlers: one step, each handler once. What a handler noted
/// stands before its decision.
fn runs(events: &[Event]) -> Vec<&[Event]> {
    let mut decided: Vec<&str> = Vec::new();
    let mut runs = Vec::new();
    let mut rest = events;
    let mut length: usize = 0;
    for (index, event) in events.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| events.get(index));
        let same = before.is_some_and(|before| {
            before.phase == event.phase
                && before.step == event.step
                && !decided.contains(&event.handler.as_str())
        });
        if !same {
            let (run, after) = rest.split_at_checked(length).unwrap_or_default();
            runs.extend((!run.is_empty()).then_some(run));
            rest = after;
            length = 0;
            decided.clear();
        }
        length = length.saturating_add(1);
        if is_decision(&event.decision) {
            decided.push(&event.handler);
        }
    }
    runs.extend((!rest.is_empty()).then_some(rest));
    runs
}

fn is_decision(decision: &str) -> bool {
    matches!(
        decision,
        "ok" | "cont" | "halt" | "raise" | "throw" | "exit" | "invalid_return"
    )
}

/// A span of OTLP, in the order and the spelling of its JSON encoding: 64-bit integers are text.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    parent_span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u8>,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<SpanEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanEvent {
    time_unix_nano: String,
    name: String,
    attributes: Vec<Attribute>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u8,
    message: String,
}

#[derive(Debug, Serialize)]
struct Attribute {
    key: &'static str,
    value: AttributeValue,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum AttributeValue {
    StringValue(String),
    IntValue(String),
}

fn attribute(key: &'static str, value: impl Into<String>) -> Attribute {
    Attribute {
        key,
        value: AttributeValue::StringValue(value.into()),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// `chat gpt`, or `chat` alone.
fn name(operation: &str, of: Option<&String>) -> String {
    of.map_or_else(|| operation.to_owned(), |of| format!("{operation} {of}"))
}

struct Trace<'a> {
    context: &'a Context<'a>,
    parent: Option<Parent>,
    trace_id: String,
    spans: Vec<Span>,
    /// Where in `spans` those are that have not ended, the newest last; the first is the agent's.
    open: Vec<Open>,
    now_ms: i64,
    is_timed: bool,
}

struct Open {
    index: usize,
    ended_by: Phase,
    tool: Value,
    call_id: Value,
}

impl<'a> Trace<'a> {
    fn new(context: &'a Context) -> Self {
        let parent = context.traceparent.and_then(Parent::read);
        let trace_id = parent
            .as_ref()
            .map_or(context.trace_id, |parent| parent.trace_id);
        Trace {
            context,
            parent,
            trace_id: hex(&trace_id),
            spans: Vec::new(),
            open: Vec::new(),
            now_ms: 0,
            is_timed: false,
        }
    }

    fn run(&mut self, run: &[Event]) {
        let Some(Event { phase, step, .. }) = run.first() else {
            return;
        };
        // A step without a time, or before the last one, is at the last one's.
        if let Some(now) = step.now_ms.as_i64() {
            self.now_ms = if self.is_timed {
                now.max(self.now_ms)
            } else {
                now
            };
            self.is_timed = true;
        }
        if self.open.is_empty() {
            let mut attributes = vec![attribute("gen_ai.operation.name", "invoke_agent")];
            let agent = text(&step.agent);
            attributes.extend(self.provider());
            attributes.extend(
                agent
                    .clone()
                    .map(|name| attribute("gen_ai.agent.name", name)),
            );
            attributes
                .extend(text(&step.session_id).map(|id| attribute("gen_ai.conversation.id", id)));
            let name = name("invoke_agent", agent.as_ref());
            self.begin(Phase::SessionEnd, step, name, INTERNAL, attributes);
        }
        let halted = run.iter().find(|event| event.halts());
        match phase {
            Phase::SessionStart => {
                let agent = self.open.first().map(|open| open.index);
                self.note(agent, run);
                self.fail(agent, halted);
            }
            Phase::PreModelCall => {
                let model = text(&step.model);
                let mut attributes = vec![attribute("gen_ai.operation.name", "chat")];
                attributes.extend(self.provider());
                attributes.extend(
                    model
                        .clone()
                        .map(|model| attribute("gen_ai.request.model", model)),
                );
                let name = name("chat", model.as_ref());
                let span = self.begin(Phase::PostModelCall, step, name, CLIENT, attributes);
                self.note(span, run);
                self.not_taken(span, halted);
            }
            Phase::PreToolUse => {
                let tool = text(&step.tool);
                let mut attributes = vec![attribute("gen_ai.operation.name", "execute_tool")];
                attributes.extend(tool.clone().map(|tool| attribute("gen_ai.tool.name", tool)));
                attributes.push(attribute("gen_ai.tool.type", "function"));
                attributes
                    .extend(text(&step.call_id).map(|id| attribute("gen_ai.tool.call.id", id)));
                let name = name("execute_tool", tool.as_ref());
                let span = self.begin(Phase::PostToolUse, step, name, INTERNAL, attributes);
                self.note(span, run);
                self.not_taken(span, halted);
            }
            Phase::PostModelCall | Phase::PostToolUse => self.end_step(*phase, step, run, halted),
            Phase::SessionEnd => {
                let ended = text(&step.ended).filter(|ended| ended != "normal");
                let agent = self.open.first().map(|open| open.index);
                self.note(agent, run);
                self.fail(agent, halted);
                if let (Some(ended), Some(span)) = (ended, self.span(agent)) {
                    span.fail("session", ended);
                }
                while let Some(open) = self.open.pop() {
                    self.end(open.index);
                }
            }
        }
    }

    fn provider(&self) -> Option<Attribute> {
        self.context
            .provider
            .map(|provider| attribute("gen_ai.provider.name", provider))
    }

    fn end_step(&mut self, phase: Phase, step: &Step, run: &[Event], halted: Option<&Event>) {
        let position = self.open.iter().rposition(|open| {
            open.ended_by == phase
                && open.call_id == step.call_id
                && (phase == Phase::PostModelCall || open.tool == step.tool)
        });
        let span = position.map(|position| self.open.remove(position).index);
        // Nothing listened when it began.
        let span = span.or_else(|| {
            let (operation, of) = match phase {
                Phase::PostModelCall => ("chat", text(&step.model)),
                _ => ("execute_tool", text(&step.tool)),
            };
            let attributes = vec![attribute("gen_ai.operation.name", operation)];
            let span = self.begin(
                phase,
                step,
                name(operation, of.as_ref()),
                INTERNAL,
                attributes,
            );
            self.open.pop();
            span
        });
        self.note(span, run);
        self.fail(span, halted);
        if let Some(span) = self.span(span) {
            span.attributes.extend(usage(&step.usage));
            if step.is_error == Value::Bool(true) {
                span.fail("tool", "the tool answered with an error".to_owned());
            }
        }
        if let Some(index) = span {
            self.end(index);
        }
    }

    fn begin(
        &mut self,
        ended_by: Phase,
        step: &Step,
        name: String,
        kind: u8,
        attributes: Vec<Attribute>,
    ) -> Option<usize> {
        let index = self.spans.len();
        let span_id = hex(self.context.span_ids.get(index)?);
        let parent_span_id = match self.open.first() {
            Some(agent) => self.spans.get(agent.index)?.span_id.clone(),
            None => self
                .parent
                .as_ref()
                .map(|parent| hex(&parent.span_id))
                .unwrap_or_default(),
        };
        let time = self.time();
        self.spans.push(Span {
            trace_id: self.trace_id.clone(),
            span_id,
            parent_span_id,
            flags: self.parent.as_ref().map(|parent| parent.flags),
            name,
            kind,
            start_time_unix_nano: time.clone(),
            end_time_unix_nano: time,
            attributes,
            events: Vec::new(),
            status: None,
        });
        self.open.push(Open {
            index,
            ended_by,
            tool: step.tool.clone(),
            call_id: step.call_id.clone(),
        });
        Some(index)
    }

    fn end(&mut self, index: usize) {
        let time = self.time();
        if let Some(span) = self.spans.get_mut(index) {
            span.end_time_unix_nano = time;
        }
    }

    fn span(&mut self, index: Option<usize>) -> Option<&mut Span> {
        self.spans.get_mut(index?)
    }

    fn note(&mut self, span: Option<usize>, run: &[Event]) {
        let time = self.time();
        if let Some(span) = self.span(span) {
            span.events.extend(run.iter().map(|event| {
                let mut attributes = vec![
                    attribute("engine.harness.handler", event.handler.clone()),
                    attribute("engine.harness.kind", event.kind.clone()),
                ];
                attributes.extend(
                    event
                        .reason
                        .clone()
                        .map(|reason| attribute("engine.harness.reason", reason)),
                );
                SpanEvent {
                    time_unix_nano: time.clone(),
                    name: format!("engine.harness.{}", event.decision),
                    attributes,
                }
            }));
        }
    }

    /// The step that a span was begun for was not taken: nothing else will end it.
    fn not_taken(&mut self, span: Option<usize>, halted: Option<&Event>) {
        if halted.is_some() {
            self.fail(span, halted);
            self.open.pop();
        }
    }

    fn fail(&mut self, span: Option<usize>, halted: Option<&Event>) {
        if let (Some(halted), Some(span)) = (halted, self.span(span)) {
            span.fail(&halted.decision, halted.reason.clone().unwrap_or_default());
        }
    }

    /// Nanoseconds of Unix time, as text.
    fn time(&self) -> String {
        let ms = self.now_ms.saturating_add(self.context.unix_ms);
        u64::try_from(ms)
            .unwrap_or(0)
            .saturating_mul(1_000_000)
            .to_string()
    }

    fn finish(mut self) -> Result<String, NotEvents> {
        while let Some(open) = self.open.pop() {
            self.end(open.index);
        }
        let resource = serde_json::to_string(&[attribute("service.name", self.context.service)])?;
        let mut text = format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":{resource}}},"scopeSpans":[{{"scope":{{"name":"engine.harness","version":"{}"}},"spans":["#,
            env!("CARGO_PKG_VERSION")
        );
        for (index, span) in self.spans.iter().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            text.push_str(&serde_json::to_string(span)?);
        }
        text.push_str("\n]}]}]}");
        Ok(text)
    }
}

impl Span {
    /// What failed first is what the span says.
    fn fail(&mut self, kind: &str, message: String) {
        if self.status.is_none() {
            self.attributes.push(attribute("error.type", kind));
            self.status = Some(Status { code: 2, message });
        }
    }
}

/// Tokens, by the names of the conventions where they have one.
fn usage(usage: &Value) -> Vec<Attribute> {
    [
        ("input_tokens", "gen_ai.usage.input_tokens"),
        ("output_tokens", "gen_ai.usage.output_tokens"),
        (
            "cached_input_tokens",
            "gen_ai.usage.cache_read.input_tokens",
        ),
    ]
    .into_iter()
    .filter_map(|(name, key)| {
        let tokens = usage.get(name)?.as_i64()?;
        Some(Attribute {
            key,
            value: AttributeValue::IntValue(tokens.to_string()),
        })
    })
    .collect()
}
