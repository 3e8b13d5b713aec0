//! What this process may use of the machine: CPU cores and memory.
//!
//! Limits come from control groups: `cpu.max` and `memory.max` of version 2 (Linux kernel
//! documentation, "Control Group v2"), `cpu.cfs_quota_us` and `memory.limit_in_bytes` of version 1.
//! A limit of any ancestor holds too, so the smallest of the chain counts.

use std::io::ErrorKind;
use std::num::IntErrorKind;
use std::path::{Component, Path, PathBuf};

/// A limit above this is none: version 1 writes "no limit" as the largest number of pages.
const UNLIMITED: u64 = 1 << 60;

/// Why a number is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// A file that should hold a number holds something else, or nothing.
    #[error("a limit's file holds no number")]
    Malformed,
    /// A file is there and can't be read.
    #[error("a limit's file can't be read")]
    Unreadable,
    /// The system doesn't say.
    #[error("the system doesn't say")]
    Unsupported,
}

/// What this process may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Hardware {
    /// CPU cores: the smaller of the affinity's and the quota's; may be a fraction.
    pub cpu_cores: Result<f64, Unknown>,
    /// Bytes: the smaller of the machine's memory and the limits.
    pub memory_limit_bytes: Result<u64, Unknown>,
}

/// The cores that this thread may be scheduled on.
pub fn affinity() -> Option<u32> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return Some(set.count());
    }
    let cores = std::thread::available_parallelism().ok()?;
    u32::try_from(cores.get()).ok()
}

/// Reads `proc` and the control groups below `root` (`/` but for tests). `cores` is what
/// [`affinity`] says.
pub fn hardware(root: &Path, cores: Option<u32>) -> Hardware {
    let groups = groups(root);
    Hardware {
        cpu_cores: cpu(&groups, cores),
        memory_limit_bytes: memory(root, &groups),
    }
}

/// A directory of a control group, or of its ancestor, and its hierarchy's version.
enum Group {
    V1(PathBuf),
    V2(PathBuf),
}

fn cpu(groups: &Result<Vec<Group>, Unknown>, cores: Option<u32>) -> Result<f64, Unknown> {
    let mut least = f64::from(cores.ok_or(Unknown::Unsupported)?);
    for group in groups.as_ref().map_err(|unknown| *unknown)? {
        let quota = match group {
            Group::V2(dir) => match read(&dir.join("cpu.max"))? {
                Some(text) => {
                    let (quota, period) = text.trim().split_once(' ').ok_or(Unknown::Malformed)?;
                    ratio(quota, period)?
                }
                None => None,
            },
            Group::V1(dir) => {
                let quota = read(&dir.join("cpu.cfs_quota_us"))?;
                match (quota, read(&dir.join("cpu.cfs_period_us"))?) {
                    (Some(quota), Some(period)) => ratio(&quota, &period)?,
                    _ => None,
                }
            }
        };
        least = quota.map_or(least, |quota| least.min(quota));
    }
    Ok(least)
}

/// Both are microseconds; `max` and -1 are no quota.
fn ratio(quota: &str, period: &str) -> Result<Option<f64>, Unknown> {
    let Some(quota) = limit(quota)? else {
        return Ok(None);
    };
    // The kernel keeps both below 2^32 µs.
    let number = |value: u64| u32::try_from(value).map(f64::from).ok();
    match limit(period)? {
        Some(period) if period > 0 => match (number(quota), number(period)) {
            (Some(quota), Some(period)) => Ok(Some(quota / period)),
            _ => Err(Unknown::Malformed),
        },
        _ => Err(Unknown::Malformed),
    }
}

fn memory(root: &Path, groups: &Result<Vec<Group>, Unknown>) -> Result<u64, Unknown> {
    let meminfo = read(&root.join("proc/meminfo"))?.ok_or(Unknown::Unsupported)?;
    let total = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?;
        kib.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let mut least = total.ok_or(Unknown::Malformed)?;
    for group in groups.as_ref().map_err(|unknown| *unknown)? {
        let file = match group {
            Group::V2(dir) => dir.join("memory.max"),
            Group::V1(dir) => dir.join("memory.limit_in_bytes"),
        };
        if let Some(bytes) = read(&file)?.map(|text| limit(&text)).transpose()?.flatten() {
            least = least.min(bytes);
        }
    }
    Ok(least)
}

/// A number, or none for `max`, -1 and what is beyond every machine.
fn limit(text: &str) -> Result<Option<u64>, Unknown> {
    match text.trim() {
        "max" | "-1" => Ok(None),
        digits => match digits.parse::<u64>() {
            Ok(number) => Ok(Some(number).filter(|number| *number <= UNLIMITED)),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(None),
            Err(_) => Err(Unknown::Malformed),
        },
    }
}

/// A file's text; none when it is absent.
fn read(path: &Path) -> Result<Option<String>, Unknown> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(_) => Err(Unknown::Unreadable),
    }
}

/// The process's groups in all hierarchies, with their ancestors up to each mount point.
fn groups(root: &Path) -> Result<Vec<Group>, Unknown> {
    let memberships = read(&root.join("proc/self/cgroup"))?.unwrap_or_default();
    let mounts = read(&root.join("proc/self/mountinfo"))?.unwrap_or_default();
    let mut groups = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let path = memberships
            .lines()
            .find_map(|line| mount.membership(line))
            .unwrap_or("/");
        // Outside of what is mounted (another namespace): the mount point is all there is to see.
        let beneath = Path::new(path)
            .strip_prefix(&mount.root)
            .unwrap_or(Path::new(""));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let beneath = if beneath.components().all(is_plain) {
            beneath
        } else {
            Path::new("")
        };
        let top = root.join(mount.point.trim_start_matches('/'));
        for ancestor in beneath.ancestors() {
            let dir = top.join(ancestor);
            groups.push(match mount.controllers {
                None => Group::V2(dir),
                Some(_) => Group::V1(dir),
            });
        }
    }
    Ok(groups)
}

/// A hierarchy's line in `/proc/self/mountinfo` (proc(5)).
struct Mount<'a> {
    root: String,
    point: String,
    /// None for version 2.
    controllers: Option<&'a str>,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, point) = (unescape(front.next()?), unescape(front.next()?));
        let mut back = back.split(' ');
        let controllers = match (back.next()?, back.next(), back.next()) {
            ("cgroup2", _, _) => None,
            ("cgroup", _, Some(options)) => Some(options),
            _ => return None,
        };
        Some(Mount {
            root,
            point,
            controllers,
        })
    }

    /// The path in a line of `/proc/self/cgroup`, if the line is of this hierarchy.
    fn membership<'b>(&self, line: &'b str) -> Option<&'b str> {
        let (id, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        let is_mine = match self.controllers {
            None => id == "0" && names.is_empty(),
            Some(options) => names
                .split(',')
                .any(|name| !name.is_empty() && options.split(',').any(|option| option == name)),
        };
        is_mine.then_some(path)
    }
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(field.to_owned(), |text, (from, to)| text.replace(from, to))
}
