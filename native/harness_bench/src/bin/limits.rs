//! Verdicts of the `governor` crate on given arrivals, and how fast it gives them.
//!
//! ```text
//! cargo run --release -p harness_bench --features limits --bin limits -- FILE LIMIT INTERVAL_MS BURST
//! ```
//!
//! FILE has an arrival a line: its time in milliseconds and how much it asks for. Printed is a line
//! of verdicts, `1` for admitted, `0` for not now, `-` for never; then a line with the nanoseconds
//! for each arrival, the median of several rounds.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};

const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, limit, interval, burst] = args.as_slice() else {
        return Err("usage: limits FILE LIMIT INTERVAL_MS BURST".into());
    };
    let period = Duration::from_millis(interval.parse::<u64>()?) / limit.parse::<u32>()?;
    let burst = burst.parse::<NonZeroU32>()?;
    let quota = Quota::with_period(period)
        .ok_or("an interval of 0")?
        .allow_burst(burst);

    let mut arrivals = Vec::new();
    for line in fs::read_to_string(file)?.lines() {
        let (at, units) = line.split_once(' ').ok_or("TIME UNITS")?;
        arrivals.push((at.parse::<u64>()?, units.parse::<NonZeroU32>()?));
    }

    let mut times = Vec::new();
    let mut verdicts = String::new();
    for _ in 0..ROUNDS {
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
        let mut now = 0;
        let mut round = String::with_capacity(arrivals.len());
        let start = Instant::now();
        for &(at, units) in &arrivals {
            clock.advance(Duration::from_millis(at - now));
            now = at;
            round.push(match black_box(limiter.check_n(units)) {
                Ok(Ok(())) => '1',
                Ok(Err(_)) => '0',
                Err(_) => '-',
            });
        }
        times.push(start.elapsed().as_nanos() / arrivals.len().max(1) as u128);
        verdicts = round;
    }
    times.sort_unstable();
    println!("{verdicts}\n{}", times[ROUNDS / 2]);
    Ok(())
}
