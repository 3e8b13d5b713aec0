//! The walk of instruction files beside its peers.
//!
//! ```text
//! walk make DIR    makes a tree of 200,000 files in 20,000 directories
//! walk time DIR    times it, each contestant in turn, round after round
//! ```
//!
//! The floor is a bare loop of directory reads on one thread: what any walk has to do. Run under
//! `taskset -c 0` for one processor.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness_core::instruction_files::{Options, load};

const ROUNDS: usize = 7;

type Contestant<'a> = (&'a str, Box<dyn Fn() -> usize + 'a>);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [verb, directory] if verb == "make" => make(Path::new(directory))?,
        [verb, directory] if verb == "time" => time(Path::new(directory)),
        _ => return Err("usage: walk make|time DIR".into()),
    }
    Ok(())
}

/// 100 packages of 199 directories of 10 files; of every tenth package the half is ignored.
fn make(root: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(root.join(".git/objects"))?;
    fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n")?;
    fs::write(root.join(".gitignore"), "node_modules/\nbuild/\n")?;
    fs::write(root.join("AGENTS.md"), "root\n")?;
    for package in 0..100 {
        let base = root.join(format!("package{package}"));
        for directory in 0..199 {
            let name = match (package % 10, directory % 2) {
                (0, 0) => format!("node_modules/m{directory}"),
                _ => format!("src/d{}/d{directory}", directory % 14),
            };
            let path = base.join(name);
            fs::create_dir_all(&path)?;
            for file in 0..10 {
                fs::write(path.join(format!("file{file}.ex")), "x")?;
            }
        }
        fs::write(base.join("AGENTS.md"), "package\n")?;
    }
    Ok(())
}

fn time(root: &Path) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\n{cores} processors, warm, median of {ROUNDS} rounds");
    let all = Options::default();
    let honouring = Options {
        gitignore: true,
        ..Options::default()
    };
    let ours = |options: &Options| load(root, options).map_or(0, |loaded| loaded.sources.len());

    table(
        "all directories but .git",
        &[
            ("harness", Box::new(|| ours(&all))),
            ("floor, one thread", Box::new(|| floor(root))),
            (
                "find -name AGENTS.md",
                program(root, "find", &[".", "-name", "AGENTS.md"]),
            ),
            ("fd -u", program(root, "fdfind", &["-u", "-g", "AGENTS.md"])),
            (
                "rg --files -u",
                program(root, "rg", &["--files", "-u", "-g", "AGENTS.md"]),
            ),
        ],
    );
    table(
        "honouring .gitignore",
        &[
            ("harness", Box::new(|| ours(&honouring))),
            ("fd", program(root, "fdfind", &["-g", "AGENTS.md"])),
            (
                "rg --files",
                program(root, "rg", &["--files", "-g", "AGENTS.md"]),
            ),
        ],
    );
    println!("peak resident memory: {} MiB", peak_mebibytes());
}

fn table(title: &str, contestants: &[Contestant<'_>]) {
    let mut times = vec![Vec::new(); contestants.len()];
    let mut found = vec![0; contestants.len()];
    // The first round warms up.
    for round in 0..=ROUNDS {
        for (index, (_, run)) in contestants.iter().enumerate() {
            let start = Instant::now();
            found[index] = run();
            if round > 0 {
                times[index].push(start.elapsed());
            }
        }
    }
    println!(
        "\n{title:<28} {:>10} {:>12} {:>8}",
        "ms", "times ours", "found"
    );
    let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
    for ((name, _), (median, found)) in contestants.iter().zip(medians.iter().zip(&found)) {
        let ratio = median.as_secs_f64() / medians[0].as_secs_f64();
        println!(
            "{name:<28} {:>10.1} {ratio:>12.2} {found:>8}",
            median.as_secs_f64() * 1e3
        );
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Reads every directory but .git; the kind of an entry comes with its name.
fn floor(root: &Path) -> usize {
    let mut found = 0;
    let mut open: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".git" => open.push(entry.path()),
                _ if entry.file_name() == "AGENTS.md" => found += 1,
                _ => {}
            }
        }
    }
    found
}

fn program<'a>(root: &'a Path, name: &'a str, args: &'a [&'a str]) -> Box<dyn Fn() -> usize + 'a> {
    Box::new(move || {
        let mut command = Command::new(name);
        command
            .args(args)
            .current_dir(root)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let output = command
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        output.iter().filter(|&&byte| byte == b'\n').count()
    })
}

fn peak_mebibytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) / 1024
}
