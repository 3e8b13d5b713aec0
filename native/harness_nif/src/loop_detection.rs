use crate::binary;
use harness_core::loop_detection::{Call, Kind, Ladder, NotAState, Outcome, Rung, State, Verdict};
use rustler::{Binary, Encoder, Env, NifTaggedEnum, NifUnitEnum, Term};

mod atoms {
    rustler::atoms! { ok, error }
}

/// `{tool, arguments, key, polling, outcome}`
type GivenCall<'a> = (Binary<'a>, Binary<'a>, Vec<&'a str>, u64, GivenOutcome<'a>);

/// `{:result, binary} | {:error, binary} | :refused`
#[derive(NifTaggedEnum)]
enum GivenOutcome<'a> {
    Result(Binary<'a>),
    Error(Binary<'a>),
    Refused,
}

/// `{nudge, block, halt}`
type GivenLadder = (Option<u64>, Option<u64>, Option<u64>);

#[derive(NifUnitEnum)]
enum GivenRung {
    Nudge,
    Block,
    Halt,
}

#[derive(NifUnitEnum)]
enum GivenKind {
    Repetition,
    Cycle,
    NearDuplicate,
    RepeatedText,
    Idle,
}

fn call<'a>((tool, arguments, key, polling, outcome): &'a GivenCall<'_>) -> Call<'a> {
    Call {
        tool,
        arguments,
        key: key.clone(),
        polling: *polling,
        outcome: match outcome {
            GivenOutcome::Result(result) => Outcome::Result(result),
            GivenOutcome::Error(text) => Outcome::Error(text),
            GivenOutcome::Refused => Outcome::Refused,
        },
    }
}

/// `{rung, kind, period, repetitions, tool, first, last}`, or `nil`
fn encode<'a>(env: Env<'a>, verdict: Option<Verdict>) -> Term<'a> {
    let Some(verdict) = verdict else {
        return Option::<()>::None.encode(env);
    };
    let rung = match verdict.rung {
        Rung::Nudge => GivenRung::Nudge,
        Rung::Block => GivenRung::Block,
        Rung::Halt => GivenRung::Halt,
    };
    let kind = match verdict.kind {
        Kind::Repetition => GivenKind::Repetition,
        Kind::Cycle => GivenKind::Cycle,
        Kind::NearDuplicate => GivenKind::NearDuplicate,
        Kind::RepeatedText => GivenKind::RepeatedText,
        Kind::Idle => GivenKind::Idle,
    };
    (
        rung,
        kind,
        verdict.period,
        verdict.repetitions,
        verdict.tool,
        verdict.first,
        verdict.last,
    )
        .encode(env)
}

/// `{:ok, value} | {:error, message}`
fn answer<'a>(env: Env<'a>, result: Result<Term<'a>, NotAState>) -> Term<'a> {
    match result {
        Ok(value) => (atoms::ok(), value).encode(env),
        Err(error) => (atoms::error(), error.to_string()).encode(env),
    }
}

#[rustler::nif]
fn loop_detection_new(env: Env<'_>) -> Term<'_> {
    binary(env, &State::default().to_bytes())
}

#[rustler::nif]
fn loop_detection_reset<'a>(env: Env<'a>, state: Binary<'a>) -> Term<'a> {
    let reset = State::from_bytes(&state).map(|mut state| {
        state.reset();
        binary(env, &state.to_bytes())
    });
    answer(env, reset)
}

#[rustler::nif]
fn loop_detection_observe<'a>(
    env: Env<'a>,
    state: Binary<'a>,
    ladder: GivenLadder,
    text: Binary<'a>,
    calls: Vec<GivenCall<'a>>,
) -> Term<'a> {
    observe(env, state, ladder, text, calls)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn loop_detection_observe_dirty<'a>(
    env: Env<'a>,
    state: Binary<'a>,
    ladder: GivenLadder,
    text: Binary<'a>,
    calls: Vec<GivenCall<'a>>,
) -> Term<'a> {
    observe(env, state, ladder, text, calls)
}

/// `{:ok, {verdict | nil, state}} | {:error, message}`
fn observe<'a>(
    env: Env<'a>,
    state: Binary<'a>,
    (nudge, block, halt): GivenLadder,
    text: Binary<'a>,
    calls: Vec<GivenCall<'a>>,
) -> Term<'a> {
    let ladder = Ladder { nudge, block, halt };
    let calls: Vec<Call> = calls.iter().map(call).collect();
    let observed = State::from_bytes(&state).map(|mut state| {
        let verdict = state.observe(&ladder, &text, &calls);
        (encode(env, verdict), binary(env, &state.to_bytes())).encode(env)
    });
    answer(env, observed)
}

#[rustler::nif]
fn loop_detection_is_blocked<'a>(env: Env<'a>, state: Binary<'a>, call: GivenCall<'a>) -> Term<'a> {
    is_blocked(env, state, call)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn loop_detection_is_blocked_dirty<'a>(
    env: Env<'a>,
    state: Binary<'a>,
    call: GivenCall<'a>,
) -> Term<'a> {
    is_blocked(env, state, call)
}

/// `{:ok, boolean} | {:error, message}`
fn is_blocked<'a>(env: Env<'a>, state: Binary<'a>, given: GivenCall<'a>) -> Term<'a> {
    let blocked =
        State::from_bytes(&state).map(|state| state.is_blocked(&call(&given)).encode(env));
    answer(env, blocked)
}
