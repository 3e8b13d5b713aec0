//! The state of a git repository, read without git.
//!
//! `git status` runs programs that a repository's own configuration names (`core.fsmonitor`,
//! filters). Nothing here runs a program, fetches, or writes. What can't be known that way is
//! not guessed: it is an [`Unknown`] with its reason.
//!
//! Environment variables such as `GIT_DIR` are not looked at: the workspace alone decides.

mod config;
mod owner;
mod place;
mod repository;
mod status;

use place::Head;
use repository::Repository;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Where the user's own configuration lies, and how much work is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// `$HOME`: its `.gitconfig` is the user's.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`; `.config` in the home directory when absent.
    pub xdg_config_home: Option<PathBuf>,
    /// The system's configuration, `/etc/gitconfig`; `None` reads none.
    pub system_config: Option<PathBuf>,
    /// `$SUDO_UID`: whose repositories root may read too, as in git.
    pub sudo_uid: Option<u32>,
    /// The most bytes of an index that are read.
    pub max_index_bytes: u64,
    /// The most time that is spent, in milliseconds.
    pub time_limit_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            home: None,
            xdg_config_home: None,
            system_config: Some(PathBuf::from("/etc/gitconfig")),
            sudo_uid: None,
            max_index_bytes: 128 << 20,
            time_limit_ms: 2_000,
        }
    }
}

/// What is known of a workspace's repository. No repository: no branch, no head, not dirty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The branch that `HEAD` names, born or not, as raw bytes; `None` on a detached one.
    pub branch: Result<Option<Vec<u8>>, Unknown>,
    /// Seven digits of the commit that a detached `HEAD` names.
    pub head: Option<String>,
    /// Whether `git status --porcelain` would print anything.
    pub dirty: Result<bool, Unknown>,
}

impl State {
    /// What is known before files are compared.
    fn of_head(found: &Result<Option<Repository>, Unknown>) -> Self {
        let head = match found {
            Ok(Some(repository)) => &repository.head,
            Ok(None) => &Ok(Head::Other),
            Err(unknown) => &Err(unknown.clone()),
        };
        let (branch, head) = match head {
            Ok(Head::Branch(name)) => (Ok(Some(name.clone())), None),
            Ok(Head::Detached(id)) => (Ok(None), Some(id.chars().take(7).collect())),
            Ok(Head::Other) => (Ok(None), None),
            Err(unknown) => (Err(unknown.clone()), None),
        };
        State {
            branch,
            head,
            dirty: Ok(false),
        }
    }

    fn unknown(unknown: Unknown) -> Self {
        State {
            branch: Err(unknown.clone()),
            head: None,
            dirty: Err(unknown),
        }
    }
}

/// Why something is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The kind of reason.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

impl Unknown {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Unknown {
            reason,
            message: message.into(),
        }
    }
}

/// The kinds of reason for which something is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another user's repository; nothing of its configuration was read.
    Refused,
    /// No work tree to compare with.
    Bare,
    /// A changed file whose content only a program (a filter) can compare.
    Filter,
    /// The user's own configuration, or a path that it names, can't be read.
    Config,
    /// The repository's configuration includes other files, which are not read.
    Include,
    /// `core.worktree` names another directory than the one the repository was found in.
    Worktree,
    /// A format that is not read: reftable, SHA-256, a later version.
    Unsupported,
    /// A submodule whose state is not known, or that configuration says to ignore in part.
    Submodule,
    /// Objects that are needed are not there, as in a partial clone.
    Missing,
    /// Damaged files.
    Corrupt,
    /// Files that may not be read.
    Unreadable,
    /// An index over the bound.
    Bound,
    /// The time was over.
    Timeout,
}

/// How many readings may be under way at once. One that hangs for ever takes a thread with it, so
/// this bounds those too.
const READINGS: usize = 64;

/// A recursion of gitoxide goes as deep as directories do: a path has at most 2,048 of them.
const STACK_BYTES: usize = 64 << 20;

/// The state of the repository that a directory lies in.
///
/// The reading happens in a thread of its own. It is told to stop when the time is over, and left
/// behind should it hang (a repository may hold FIFOs), while what it found by then counts; a panic
/// of the library that reads is [`Reason::Corrupt`].
pub fn state(workspace: &Path, options: &Options) -> State {
    let deadline = Instant::now().checked_add(Duration::from_millis(options.time_limit_ms));
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let reading = match start(workspace, options, &stop, sender) {
        Ok(()) => || match deadline {
            Some(deadline) => {
                receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
            None => receiver.recv().map_err(RecvTimeoutError::from),
        },
        Err(unknown) => return State::unknown(unknown),
    };
    let failed = |error| match error {
        RecvTimeoutError::Timeout => Unknown::new(
            Reason::Timeout,
            format!("not read within {} ms", options.time_limit_ms),
        ),
        RecvTimeoutError::Disconnected => Unknown::new(
            Reason::Corrupt,
            "the repository's files could not be made sense of",
        ),
    };
    let state = match reading() {
        Ok(head) => State {
            dirty: reading().map_or_else(|error| Err(failed(error)), |state| state.dirty),
            ..head
        },
        Err(error) => State::unknown(failed(error)),
    };
    stop.store(true, Ordering::Relaxed);
    state
}

/// Sends twice: what `HEAD` says, and then the whole.
fn start(
    workspace: &Path,
    options: &Options,
    stop: &Arc<AtomicBool>,
    sender: Sender<State>,
) -> Result<(), Unknown> {
    let reading = Reading::begin()?;
    let (workspace, options, stop) = (workspace.to_owned(), options.clone(), stop.clone());
    std::thread::Builder::new()
        .name("git state".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let _reading = reading;
            let found = Repository::find(&workspace, &options);
            let head = State::of_head(&found);
            // Nobody listens once the time is over.
            let _ = sender.send(head.clone());
            let context = status::Context {
                options: &options,
                stop: &stop,
                depth: 0,
            };
            let dirty = context.dirty(&found);
            let _ = sender.send(State { dirty, ..head });
        })
        .map_err(|error| Unknown::new(Reason::Bound, format!("no thread: {error}")))?;
    Ok(())
}

/// One of the readings that are under way.
struct Reading;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

impl Reading {
    fn begin() -> Result<Self, Unknown> {
        if UNDER_WAY.fetch_add(1, Ordering::Relaxed) < READINGS {
            return Ok(Reading);
        }
        drop(Reading);
        let message = format!("{READINGS} readings are under way or hang");
        Err(Unknown::new(Reason::Bound, message))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}
