//! The loop detection against a search of the whole history, and with hostile input.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use harness_core::loop_detection::{Call, Kind, Ladder, Outcome, Rung, State};
use proptest::prelude::*;

const LADDER: Ladder = Ladder {
    nudge: Some(3),
    block: Some(5),
    halt: Some(8),
};

fn call<'a>(tool: &'a [u8], outcome: Outcome<'a>) -> Call<'a> {
    Call {
        tool,
        arguments: b"{}",
        key: vec![],
        polling: 0,
        outcome,
    }
}

fn rung(repetitions: usize) -> Option<Rung> {
    match repetitions {
        0..3 => None,
        3..5 => Some(Rung::Nudge),
        5..8 => Some(Rung::Block),
        _ => Some(Rung::Halt),
    }
}

/// The highest rung and then the smallest period, by comparing whole turns from the end.
fn by_search<T: PartialEq>(history: &[T]) -> Option<(Rung, u64, u64)> {
    let mut best: Option<(Rung, u64, u64)> = None;
    for period in 1..=8 {
        let mut repetitions = 1;
        while history.len() >= (repetitions + 1) * period {
            let last = &history[history.len() - period..];
            let turn = &history[history.len() - (repetitions + 1) * period..][..period];
            if turn != last {
                break;
            }
            repetitions += 1;
        }
        if let Some(rung) = rung(repetitions)
            && best.is_none_or(|(before, _, _)| rung > before)
        {
            best = Some((rung, period as u64, repetitions as u64));
        }
    }
    best
}

proptest! {
    #[test]
    fn finds_what_a_search_of_all_history_finds(
        // Long stretches of one turn, with other calls between.
        stretches in prop::collection::vec(
            (prop::collection::vec((0_u8..3, 0_u8..2), 1..9), 1_usize..10),
            1..6,
        ),
    ) {
        let mut state = State::default();
        let mut history = Vec::new();
        for symbol in stretches.iter().flat_map(|(turn, times)| turn.repeat(*times)) {
            history.push(symbol);
            let (tool, result) = ([symbol.0], [symbol.1]);
            let verdict = state
                .observe(&LADDER, b"", &[call(&tool, Outcome::Result(&result))])
                .map(|verdict| (verdict.rung, verdict.period, verdict.repetitions));
            prop_assert_eq!(verdict, by_search(&history));
            prop_assert_eq!(
                state.is_blocked(&call(&tool, Outcome::Refused)),
                verdict.is_some_and(|(rung, _, _)| rung >= Rung::Block)
            );
            // It is all in the bytes.
            prop_assert_eq!(&State::from_bytes(&state.to_bytes()).unwrap(), &state);
        }
    }

    #[test]
    fn no_bytes_make_it_crash(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut real = State::default();
        for _ in 0..6 {
            let _ = real.observe(&LADDER, b"", &[call(b"t", Outcome::Error(b"no"))]);
        }
        let mut damaged = real.to_bytes();
        let at = at.index(damaged.len());
        damaged[at] = byte;
        for bytes in [&bytes, &damaged] {
            if let Ok(mut state) = State::from_bytes(bytes) {
                let _ = state.is_blocked(&call(b"t", Outcome::Refused));
                for _ in 0..3 {
                    let _ = state.observe(&LADDER, bytes, &[call(bytes, Outcome::Refused)]);
                }
                state.reset();
            }
        }
    }
}

#[test]
fn the_period_is_eight_at_most() {
    let messages = |period: u8| {
        let mut state = State::default();
        let mut last = None;
        for n in (0..period).cycle().take(usize::from(period) * 3) {
            last = state.observe(&LADDER, b"", &[call(&[n], Outcome::Result(b"r"))]);
        }
        last.map(|verdict| (verdict.kind, verdict.period, verdict.repetitions))
    };
    assert_eq!(messages(8), Some((Kind::Cycle, 8, 3)));
    assert_eq!(messages(9), None);
}

#[test]
fn a_message_of_any_number_of_calls_is_remembered_in_bounds() {
    let names: Vec<[u8; 4]> = (0..10_000_u32).map(u32::to_le_bytes).collect();
    let calls: Vec<Call> = names
        .iter()
        .map(|name| call(name, Outcome::Result(b"r")))
        .collect();
    let mut state = State::default();
    for _ in 0..4 {
        let _ = state.observe(&LADDER, b"", &calls);
    }
    let verdict = state.observe(&LADDER, b"", &calls).unwrap();
    assert_eq!((verdict.rung, verdict.repetitions), (Rung::Block, 5));
    // 8 messages of 256 calls of two digests at most.
    assert!(state.to_bytes().len() < 8 * 256 * 2 * 16 + 4_096);
    assert!(verdict.tool.len() <= 256);
}
