//! What was seen, in a form that can be kept and compared with the disk later.
//!
//! ```text
//! magic, hash of all that follows,
//! racy (0 or 1), length of the key, key,
//! number of blocks, length of each block, blocks
//! ```
//!
//! A block is a list of entries, read on its own so that blocks can be checked in parallel:
//! kind, bytes shared with the path of the entry before, length of the rest, the rest, and the
//! status. Numbers are in LEB128. The order of entries is that in which threads came across
//! them; it means nothing.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hasher};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, statat};

use super::identity::Identity;

const MAGIC: &[u8] = b"instruction_files\x01";

/// File systems keep time in ticks, so that two changes within a tick look the same. Git counts
/// what is younger than its index as changed for the same reason; 2 s is FAT's tick, the longest.
const RACY: Duration = Duration::from_secs(2);

/// Entries to a block.
const BLOCK: usize = 512;

/// How the status of a path is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of the path itself, a link not followed.
    Itself,
    /// Of what the path leads to; nothing, if it leads nowhere.
    Followed,
}

/// Collects what one worker sees.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    blocks: Vec<Vec<u8>>,
    block: Vec<u8>,
    entries: usize,
    previous: Vec<u8>,
    youngest: Option<(i64, u64)>,
}

impl Recorder {
    /// `path` is relative to the workspace, or absolute for what lies outside of it.
    pub(super) fn record(&mut self, kind: Kind, path: &[u8], identity: Option<&Identity>) {
        let shared = self
            .previous
            .iter()
            .zip(path)
            .take_while(|(a, b)| a == b)
            .count();
        let rest = path.get(shared..).unwrap_or_default();
        let tag = match (kind, identity.is_some()) {
            (Kind::Itself, true) => 0,
            (Kind::Itself, false) => 1,
            (Kind::Followed, true) => 2,
            (Kind::Followed, false) => 3,
        };
        self.block.push(tag);
        put_usize(&mut self.block, shared);
        put_usize(&mut self.block, rest.len());
        self.block.extend_from_slice(rest);
        if let Some(identity) = identity {
            for number in numbers(identity) {
                put(&mut self.block, number);
            }
            self.youngest = self.youngest.max(Some(identity.ctime));
        }
        self.previous.truncate(shared);
        self.previous.extend_from_slice(rest);
        self.entries = self.entries.saturating_add(1);
        if self.entries >= BLOCK {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.entries > 0 {
            self.blocks.push(std::mem::take(&mut self.block));
        }
        self.entries = 0;
        self.previous.clear();
    }
}

/// The snapshot of a load that began at `start`. `key` stands for all that was asked for.
pub(super) fn write(recorders: Vec<Recorder>, start: SystemTime, key: &[u8]) -> Vec<u8> {
    let youngest = recorders
        .iter()
        .filter_map(|recorder| recorder.youngest)
        .max();
    let mut blocks = Vec::new();
    for mut recorder in recorders {
        recorder.close();
        blocks.append(&mut recorder.blocks);
    }
    let mut body = vec![u8::from(is_racy(youngest, start))];
    put_usize(&mut body, key.len());
    body.extend_from_slice(key);
    put_usize(&mut body, blocks.len());
    for block in &blocks {
        put_usize(&mut body, block.len());
    }
    for block in blocks {
        body.extend_from_slice(&block);
    }
    seal(&body)
}

/// Puts in front of a body what shows that it is whole.
pub(super) fn seal(body: &[u8]) -> Vec<u8> {
    [MAGIC, hash(body).to_le_bytes().as_slice(), body].concat()
}

/// Whether something changed so shortly before the load, or during it, that a further change
/// might leave the same status.
fn is_racy(youngest: Option<(i64, u64)>, start: SystemTime) -> bool {
    let since = start
        .checked_sub(RACY)
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    youngest.is_some_and(|ctime| ctime > (seconds, u64::from(since.subsec_nanos())))
}

/// Whether all that the snapshot holds is still so. Anything that isn't a snapshot has changed.
pub(super) fn holds(
    snapshot: &[u8],
    root: BorrowedFd<'_>,
    key: &[u8],
    threads: impl Fn() -> usize,
) -> bool {
    let Some(blocks) = blocks(snapshot, key) else {
        return false;
    };
    let next = AtomicUsize::new(0);
    let same = AtomicBool::new(true);
    let check = || {
        while same.load(Ordering::Relaxed) {
            let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            if block_holds(block, root).is_none() {
                same.store(false, Ordering::Relaxed);
            }
        }
    };
    let helpers = if blocks.len() > 2 {
        threads().min(blocks.len()).saturating_sub(1)
    } else {
        0
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            // Without a further thread this one does the work.
            let _ = thread::Builder::new().spawn_scoped(scope, check);
        }
        check();
    });
    same.into_inner()
}

/// The blocks of an undamaged snapshot that was asked for with the same key and isn't racy.
fn blocks<'a>(snapshot: &'a [u8], key: &[u8]) -> Option<Vec<&'a [u8]>> {
    let rest = snapshot.strip_prefix(MAGIC)?;
    let (expected, mut body) = rest.split_first_chunk::<8>()?;
    if hash(body) != u64::from_le_bytes(*expected) || body.split_off_first()? != &0 {
        return None;
    }
    let length = get_usize(&mut body)?;
    if body.split_off(..length)? != key {
        return None;
    }
    let count = get_usize(&mut body)?;
    let mut lengths = Vec::new();
    for _ in 0..count {
        lengths.push(get_usize(&mut body)?);
    }
    let mut blocks = Vec::new();
    for length in lengths {
        blocks.push(body.split_off(..length)?);
    }
    body.is_empty().then_some(blocks)
}

/// `None` as soon as something differs.
fn block_holds(mut block: &[u8], root: BorrowedFd<'_>) -> Option<()> {
    let mut path: Vec<u8> = Vec::new();
    while let Some(tag) = block.split_off_first() {
        let (flags, present) = match tag {
            0 => (AtFlags::SYMLINK_NOFOLLOW, true),
            1 => (AtFlags::SYMLINK_NOFOLLOW, false),
            2 => (AtFlags::empty(), true),
            3 => (AtFlags::empty(), false),
            _ => return None,
        };
        let shared = get_usize(&mut block)?;
        let length = get_usize(&mut block)?;
        path.truncate(shared);
        path.extend_from_slice(block.split_off(..length)?);
        let name = if path.is_empty() {
            b"."
        } else {
            path.as_slice()
        };
        let now = statat(root.as_fd(), Path::new(OsStr::from_bytes(name)), flags)
            .ok()
            .map(|stat| Identity::new(&stat));
        match (present, now) {
            (false, None) => {}
            (true, Some(now)) => {
                for number in numbers(&now) {
                    if get(&mut block)? != number {
                        return None;
                    }
                }
            }
            _ => return None,
        }
    }
    Some(())
}

fn numbers(identity: &Identity) -> [u64; 7] {
    [
        identity.dev,
        identity.ino,
        identity.size,
        identity.mtime.0.cast_unsigned(),
        identity.mtime.1,
        identity.ctime.0.cast_unsigned(),
        identity.ctime.1,
    ]
}

/// Guards against damage, not against malice.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

pub(super) fn put_usize(out: &mut Vec<u8>, number: usize) {
    put(out, u64::try_from(number).unwrap_or(u64::MAX));
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn get_usize(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(get(bytes)?).ok()
}

fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64_u32).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7F).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
