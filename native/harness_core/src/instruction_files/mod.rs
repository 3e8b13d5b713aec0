//! Finds and reads a workspace's instruction files (`AGENTS.md`).
//!
//! [`load`] walks the workspace, reads what counts and reports what doesn't. The order of both
//! lists is fixed: the shallower first, then by path components compared bytewise, so that the
//! order is ascending precedence and the same on every machine. A [`Loaded::snapshot`] lets
//! [`unchanged`] tell later, for the cost of looking at the directories and files seen, whether
//! another load would give the same.
//!
//! - All directories are walked but `.git`; links to directories are not followed.
//! - In each directory the first of `filenames` that is there counts, whatever is wrong with it.
//! - A relative link to a file is read if it stays inside the workspace.
//! - The same file under several names counts once: at its real name rather than at a link to it;
//!   among several of a kind, at the first in order. With targets, names out of scope don't matter.
//! - Sizes, depths and numbers are limited, see [`MAX_FILE_BYTES`] and the other constants.

mod content;
mod error;
mod foreign;
mod git;
mod identity;
pub(crate) mod listing;
mod names;
pub(crate) mod open;
mod order;
mod reason;
mod resolve;
mod rules;
mod scope;
mod snapshot;
#[cfg(test)]
mod tests;
mod walk;
mod work;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use content::Content;
pub use error::Error;
use foreign::Counter;
use identity::Id;
use names::Names;
use open::Opener;
pub use reason::{Kind, Reason, Unused};
use reason::{errno_name, is_shortage};
use scope::Scope;
use snapshot::Recorder;
use walk::{Found, Plan};

/// The largest instruction file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The deepest directories that are walked; the workspace itself is level 0.
pub const MAX_DEPTH: usize = 128;
/// The most instruction files a workspace may hold.
pub const MAX_FILES: usize = 10_000;
/// The most directories a workspace may hold.
pub const MAX_DIRECTORIES: usize = 1_000_000;

/// More threads than this gain nothing: they wait for the kernel's locks.
const MAX_THREADS: usize = 4;

/// What to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The names of instruction files, the preferred one first. Spelling is exact.
    pub filenames: Vec<String>,
    /// Leave out the directories that `.gitignore` files and `info/exclude` name. A file that they
    /// name is loaded all the same if its directory isn't ignored: personal instructions are
    /// often kept that way.
    pub gitignore: bool,
    /// What to do with repositories inside the workspace (submodules, work trees, clones).
    pub nested_repositories: Nested,
    /// Only what applies to these files or directories, existing or not: the directories from the
    /// workspace down to each one. Relative ones start at the workspace. `None`: everything.
    pub targets: Option<Vec<PathBuf>>,
    /// Count the sources that lie in ignored directories, for [`Foreign::ignored`]. It costs a look
    /// at the directories above each source.
    pub count_ignored: bool,
}

impl Default for Options {
    /// All `AGENTS.md` of a workspace.
    fn default() -> Self {
        Options {
            filenames: vec!["AGENTS.md".to_owned()],
            gitignore: false,
            nested_repositories: Nested::Include,
            targets: None,
            count_ignored: false,
        }
    }
}

/// What to do with a directory that holds a `.git` of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nested {
    /// Walk it like any other.
    #[default]
    Include,
    /// Leave it out, and report it.
    Skip,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// In ascending precedence: the deeper, the stronger; equal depth by path components, bytewise.
    pub sources: Vec<Source>,
    /// What was seen and not used, in the same order.
    pub unused: Vec<Unused>,
    /// How many sources are likely to be other people's.
    pub foreign: Foreign,
    /// For [`unchanged`]. Its bytes mean nothing else, and may differ between equal loads.
    pub snapshot: Vec<u8>,
}

/// An instruction file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Relative to the workspace, `/`-separated; the bytes as the file system has them.
    pub path: Vec<u8>,
    /// The file's text without a byte order mark at its start.
    pub text: String,
}

/// Sources that an option would leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// In repositories inside the workspace.
    pub nested: usize,
    /// In ignored directories; 0 unless [`Options::count_ignored`] asks.
    pub ignored: usize,
}

/// Numbers that tests make smaller.
#[derive(Clone, Copy, Debug)]
struct Limits {
    file_bytes: u64,
    depth: usize,
    files: usize,
    directories: usize,
}

/// What tests can switch off or set.
#[derive(Clone, Copy, Debug)]
struct System {
    limits: Limits,
    /// Use `openat2`.
    openat2: bool,
    /// Use `O_PATH` and `/proc/self/fd`.
    paths: bool,
    /// As many threads; otherwise as the machine has, up to [`MAX_THREADS`].
    threads: Option<usize>,
}

const SYSTEM: System = System {
    limits: Limits {
        file_bytes: MAX_FILE_BYTES,
        depth: MAX_DEPTH,
        files: MAX_FILES,
        directories: MAX_DIRECTORIES,
    },
    openat2: true,
    paths: true,
    threads: None,
};

impl System {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, |number| number.get().min(MAX_THREADS))
        })
    }
}

/// Walks the workspace and reads its instruction files.
///
/// # Errors
///
/// See [`Error`]. What is wrong with single files or sub-directories is reported in
/// [`Loaded::unused`] instead.
pub fn load(workspace: &Path, options: &Options) -> Result<Loaded, Error> {
    load_with(workspace, options, &SYSTEM)
}

/// Whether a load with the same options would give the same as the one that gave the snapshot.
///
/// Directories and files seen are compared by device, inode, size, mtime and ctime. A snapshot that
/// holds something changed less than two seconds before its load began never counts as
/// unchanged, because a further change could leave the same status; nor does a damaged one, nor one
/// that holds a path longer than a system call takes (4,095 bytes on Linux).
#[must_use]
pub fn unchanged(workspace: &Path, options: &Options, snapshot: &[u8]) -> bool {
    let Ok(root) = open_root(workspace) else {
        return false;
    };
    let Ok(scope) = Scope::new(workspace, options.targets.as_deref()) else {
        return false;
    };
    snapshot::holds(snapshot, root.as_fd(), &key(options, &scope), || {
        SYSTEM.threads()
    })
}

fn load_with(workspace: &Path, options: &Options, system: &System) -> Result<Loaded, Error> {
    let start = SystemTime::now();
    let names = Names::new(&options.filenames)?;
    let root = open_root(workspace)?;
    let scope = Scope::new(workspace, options.targets.as_deref())?;
    let opener = Opener::new(root, system.limits.file_bytes, system.openat2, system.paths);
    let mut recorder = Recorder::default();
    let mut unused = Vec::new();

    let above = if options.gitignore || options.count_ignored {
        let canonical = canonical(workspace)?;
        let mut seen = git::Seen {
            recorder: &mut recorder,
            unused: &mut unused,
        };
        git::rules_above(&opener, &canonical, &mut seen).map_err(shortage)?
    } else {
        None
    };
    let plan = Plan {
        workspace,
        opener: &opener,
        names: &names,
        scope: &scope,
        gitignore: options.gitignore,
        nested: options.nested_repositories,
        limits: system.limits,
    };
    let rules = if options.gitignore {
        above.clone()
    } else {
        None
    };
    let mut found = walk::walk(&plan, rules, || system.threads())?;
    let mut recorders = std::mem::take(&mut found.recorders);
    let mut loaded = assemble(found);
    if options.count_ignored && !options.gitignore {
        let paths = loaded.sources.iter().map(|source| source.path.as_slice());
        let counter = Counter {
            opener: &opener,
            above,
            recorder: &mut recorder,
        };
        loaded.foreign.ignored = counter.count(paths).map_err(shortage)?;
    }
    recorders.push(recorder);
    loaded.snapshot = snapshot::write(recorders, start, &key(options, &scope));
    Ok(loaded)
}

/// Brings what was found into order, and counts each file once.
fn assemble(mut found: Found) -> Loaded {
    found
        .candidates
        .sort_by(|a, b| order::compare(&a.path, &b.path));
    // Where each file counts: at its first real name, else at the first link to it.
    let mut kept: HashMap<Id, (bool, Vec<u8>)> = HashMap::new();
    for candidate in &found.candidates {
        match kept.get(&candidate.id) {
            Some((false, _)) => {}
            Some((true, _)) if candidate.is_link => {}
            _ => {
                kept.insert(candidate.id, (candidate.is_link, candidate.path.clone()));
            }
        }
    }
    let mut sources = Vec::new();
    let mut unused = found.unused;
    let mut foreign = Foreign::default();
    for candidate in found.candidates {
        if let Some((_, path)) = kept.get(&candidate.id)
            && *path != candidate.path
        {
            let reason = Reason::DuplicateOf { path: path.clone() };
            unused.push(Unused {
                path: candidate.path,
                reason,
            });
            continue;
        }
        match found.contents.remove(&candidate.id) {
            Some(Content::Text(text)) => {
                sources.push(Source {
                    path: candidate.path,
                    text,
                });
                foreign.nested = foreign.nested.saturating_add(usize::from(candidate.nested));
            }
            Some(Content::Unused(reason)) => unused.push(Unused {
                path: candidate.path,
                reason,
            }),
            None => unused.push(Unused {
                path: candidate.path,
                reason: Reason::Vanished,
            }),
        }
    }
    for surplus in found.surplus {
        let same = surplus.id.and_then(|id| kept.get(&id));
        let reason = match same {
            Some((_, path)) => Reason::DuplicateOf { path: path.clone() },
            None => Reason::Superseded { by: surplus.by },
        };
        unused.push(Unused {
            path: surplus.path,
            reason,
        });
    }
    unused.sort_by(|a, b| order::compare(&a.path, &b.path).then_with(|| a.reason.cmp(&b.reason)));
    Loaded {
        sources,
        unused,
        foreign,
        snapshot: Vec::new(),
    }
}

/// All that a load's result depends on besides the disk.
fn key(options: &Options, scope: &Scope) -> Vec<u8> {
    let mut key = vec![
        u8::from(options.gitignore),
        u8::from(options.nested_repositories == Nested::Skip),
        u8::from(options.count_ignored),
    ];
    for filename in &options.filenames {
        snapshot::put_usize(&mut key, filename.len());
        key.extend_from_slice(filename.as_bytes());
    }
    if let Scope::Chains(directories) = scope {
        key.push(0);
        for directory in directories {
            snapshot::put_usize(&mut key, directory.len());
            key.extend_from_slice(directory);
        }
    }
    key
}

/// The workspace itself may be given through a link.
fn open_root(workspace: &Path) -> Result<OwnedFd, Error> {
    open(
        workspace,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| workspace_error(workspace, errno))
}

/// The workspace's path without links.
fn canonical(workspace: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(workspace).map_err(|error| {
        workspace_error(
            workspace,
            Errno::from_io_error(&error).unwrap_or(Errno::INVAL),
        )
    })
}

fn workspace_error(workspace: &Path, errno: Errno) -> Error {
    let path = workspace.to_path_buf();
    match errno {
        Errno::NOENT => Error::WorkspaceMissing(path),
        Errno::NOTDIR => Error::WorkspaceNotADirectory(path),
        errno if is_shortage(errno) => shortage(errno),
        errno => Error::WorkspaceUnreadable {
            path,
            error: errno_name(errno),
        },
    }
}

fn shortage(errno: Errno) -> Error {
    Error::Resources {
        error: errno_name(errno),
    }
}
