//! A process that counts tokens and times itself, for `bench/tokens.exs`.
//!
//! ```text
//! tokens harness|bpe-openai|splintr ENCODING
//! ```
//!
//! It prints `ready MILLISECONDS KILOBYTES`, the cost of the encoding; for each path that it reads
//! from standard input it prints `NANOSECONDS TOKENS` of counting that file's text.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use harness_core::bpe::Encoding;

type Count = Box<dyn Fn(&str) -> u64>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(name), Some(encoding)) = (args.next(), args.next()) else {
        return Err("usage: tokens harness|bpe-openai|splintr ENCODING".into());
    };
    let before = resident();
    let start = Instant::now();
    let count = contestant(&name, encoding.parse()?)?;
    black_box(count("ready"));
    let ready = start.elapsed();

    let mut output = io::stdout().lock();
    let kilobytes = resident().saturating_sub(before);
    writeln!(output, "ready {} {kilobytes}", ready.as_millis())?;
    output.flush()?;
    for path in io::stdin().lock().lines() {
        let text = fs::read_to_string(path?)?;
        let start = Instant::now();
        let tokens = black_box(count(black_box(&text)));
        writeln!(output, "{} {tokens}", start.elapsed().as_nanos())?;
        output.flush()?;
    }
    Ok(())
}

fn contestant(name: &str, encoding: Encoding) -> Result<Count, Box<dyn Error>> {
    match name {
        "harness" => {
            let bpe = encoding.bpe()?;
            Ok(Box::new(|text| bpe.count(text)))
        }
        "bpe-openai" => {
            let bpe = match encoding {
                Encoding::Cl100kBase => bpe_openai::cl100k_base(),
                Encoding::O200kBase => bpe_openai::o200k_base(),
            };
            Ok(Box::new(|text| bpe.count(text) as u64))
        }
        "splintr" => {
            let bpe = splintr::from_pretrained(encoding.name())?;
            Ok(Box::new(move |text| bpe.encode_raw(text).len() as u64))
        }
        _ => Err(format!("no contestant {name:?}").into()),
    }
}

/// The process's resident memory in KB, 0 where the system doesn't say.
fn resident() -> usize {
    fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok())
        .map_or(0, |pages| pages * 4)
}
