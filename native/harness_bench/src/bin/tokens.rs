//! Token counting beside its peers.
//!
//! ```text
//! cargo run --release -p harness_bench --features peers --bin tokens -- [--encoding NAME] [--rounds N] [--best] FILE...
//! ```
//!
//! Every file is a corpus. All contestants count the same text in turn, round after round; printed
//! are medians (with `--best` the best ones, where the machine is busy) in MB/s and ratios to ours. Then 1 MB texts made to be slow, at 1 and at 4 MB: the
//! time in milliseconds, the growth (4 is linear), and the ratio to the peer.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use harness_core::bpe::Encoding;

type Contestant = (&'static str, Box<dyn Fn(&str) -> u64>);

fn main() -> Result<(), Box<dyn Error>> {
    let mut encoding = Encoding::O200kBase;
    let mut rounds = 9;
    let mut best = false;
    let mut files = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--encoding" => encoding = args.next().ok_or("--encoding NAME")?.parse()?,
            "--best" => best = true,
            "--rounds" => rounds = args.next().ok_or("--rounds N")?.parse()?,
            _ => files.push(arg),
        }
    }

    let before = resident();
    let start = Instant::now();
    let bpe = encoding.bpe()?;
    let load = start.elapsed();
    println!(
        "{encoding}: ready in {} ms, tables {} KB, resident {} KB more",
        load.as_millis(),
        bpe.memory() / 1024,
        resident().saturating_sub(before),
    );
    let mut contestants: Vec<Contestant> = vec![("harness", Box::new(|text| bpe.count(text)))];
    contestants.extend(peers(encoding)?);

    println!("\n{:<24} {}", "corpus", header(&contestants));
    for file in &files {
        let text = fs::read_to_string(file)?;
        let name = file.rsplit('/').next().unwrap_or(file);
        let times = medians(&contestants, &text, rounds, best, Some(name));
        println!(
            "{name:<24} {}",
            row(&times, |time| text.len() as f64 / 1e6 / time)
        );
    }

    println!("\n{:<24} {}", "1 MB worst case, ms", header(&contestants));
    for (name, make) in worst_cases() {
        let one = medians(
            &contestants,
            &make(1_000_000),
            rounds.min(3),
            best,
            Some(name),
        );
        let four = medians(&contestants[..1], &make(4_000_000), 3, best, None);
        let growth = four.first().unwrap_or(&0.0) / one.first().unwrap_or(&1.0);
        println!(
            "{name:<24} {}  x{growth:.2} for 4 MB",
            row(&one, |time| time * 1e3)
        );
    }
    Ok(())
}

fn header(contestants: &[Contestant]) -> String {
    contestants
        .iter()
        .map(|(name, _)| format!("{name:>12} {:>6}", "ratio"))
        .collect()
}

/// Each figure, and how many times the contestant's time is ours.
fn row(times: &[f64], figure: impl Fn(f64) -> f64) -> String {
    let ours = times.first().copied().unwrap_or(1.0);
    times
        .iter()
        .map(|time| format!("{:>12.2} {:>6.2}", figure(*time), time / ours))
        .collect()
}

/// The median time of each contestant in seconds, in interleaved rounds after a warm one.
fn medians(
    contestants: &[Contestant],
    text: &str,
    rounds: usize,
    best: bool,
    compare: Option<&str>,
) -> Vec<f64> {
    let mut times = vec![Vec::new(); contestants.len()];
    let counts: Vec<u64> = contestants.iter().map(|(_, count)| count(text)).collect();
    for ((name, _), count) in contestants.iter().zip(&counts) {
        if let (Some(case), Some(ours)) = (compare, counts.first())
            && count != ours
        {
            println!("{case}: {name} counts {count}, not {ours}");
        }
    }
    for _ in 0..rounds {
        for ((_, count), times) in contestants.iter().zip(&mut times) {
            let start = Instant::now();
            black_box(count(black_box(text)));
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times
        .into_iter()
        .map(|mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times
                .get(if best { 0 } else { times.len() / 2 })
                .copied()
                .unwrap_or(0.0)
        })
        .collect()
}

#[cfg(feature = "peers")]
fn peers(encoding: Encoding) -> Result<Vec<Contestant>, Box<dyn Error>> {
    let openai = match encoding {
        Encoding::Cl100kBase => bpe_openai::cl100k_base(),
        Encoding::O200kBase => bpe_openai::o200k_base(),
    };
    let splintr = splintr::from_pretrained(encoding.name())?;
    Ok(vec![
        (
            "bpe-openai",
            Box::new(move |text: &str| openai.count(text) as u64),
        ),
        (
            "splintr",
            Box::new(move |text: &str| splintr.encode_raw(text).len() as u64),
        ),
    ])
}

#[cfg(not(feature = "peers"))]
fn peers(_: Encoding) -> Result<Vec<Contestant>, Box<dyn Error>> {
    Ok(Vec::new())
}

type Maker = Box<dyn Fn(usize) -> String>;

fn worst_cases() -> Vec<(&'static str, Maker)> {
    fn repeat(unit: &'static str) -> Maker {
        Box::new(move |bytes| unit.repeat(bytes / unit.len()))
    }
    fn random(from: &'static [char]) -> Maker {
        Box::new(move |bytes| {
            let mut state = 0x2545_f491_4f6c_dd1du64;
            let mut text = String::new();
            while text.len() < bytes {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let at = (state >> 33) as usize % from.len();
                text.push(from[at]);
            }
            text
        })
    }
    let letters: Vec<char> = ('a'..='z').collect();
    let latin: Vec<char> = ('\u{a1}'..='\u{ff}')
        .filter(|c| c.is_alphabetic())
        .collect();
    let base64: Vec<char> = ('a'..='z')
        .chain('A'..='Z')
        .chain('0'..='9')
        .chain(['+', '/'])
        .collect();
    let chinese: Vec<char> = ('\u{4e00}'..='\u{5e00}').collect();
    vec![
        ("one letter", repeat("a")),
        ("spaces", repeat(" ")),
        ("newlines", repeat("\n")),
        ("^", repeat("^")),
        ("ab", repeat("ab")),
        ("random letters", random(letters.leak())),
        ("random Latin-1", random(latin.leak())),
        ("random Chinese", random(chinese.leak())),
        ("base64 line", random(base64.leak())),
        (
            "emoji sequences",
            repeat("👩\u{200d}👩\u{200d}👧\u{200d}👦🇧🇷👍🏽"),
        ),
    ]
}

/// The process's resident memory in KB, 0 where the system doesn't say.
fn resident() -> usize {
    fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok())
        .map_or(0, |pages| pages * 4)
}
