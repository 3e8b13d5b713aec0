//! The state of a git repository, read without git.
//!
//! `git status` runs programs that a repository's own configuration names (`core.fsmonitor`,
//! filters). Nothing here runs a program, fetches, or writes. What can't be known that way is
//! not guessed: it is an [`Unknown`] with its reason.
//!
//! Environment variables such as `GIT_DIR` are not looked at: the workspace alone decides.

mod owner;
mod place;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

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
    fn none() -> Self {
        State {
            branch: Ok(None),
            head: None,
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

/// The state of the repository that a directory lies in.
///
/// The reading happens in a thread of its own. It is told to stop when the time is over, and left
/// behind should it hang (a repository may hold FIFOs); a panic of the library that reads is
/// [`Reason::Corrupt`].
pub fn state(workspace: &Path, options: &Options) -> State {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let spawned = std::thread::Builder::new().name("git state".into()).spawn({
        let (workspace, options, stop) = (workspace.to_owned(), options.clone(), stop.clone());
        move || {
            let user = owner::User::read(&options);
            // Nobody listens once the time is over.
            let _ = sender.send(read(&workspace, &options, &user, &stop, 0));
        }
    });
    if let Err(error) = spawned {
        return State::unknown(Unknown::new(
            Reason::Unreadable,
            format!("no thread: {error}"),
        ));
    }
    let state = receiver.recv_timeout(Duration::from_millis(options.time_limit_ms));
    stop.store(true, Ordering::Relaxed);
    state.unwrap_or_else(|error| {
        State::unknown(match error {
            RecvTimeoutError::Timeout => Unknown::new(
                Reason::Timeout,
                format!("not read within {} ms", options.time_limit_ms),
            ),
            RecvTimeoutError::Disconnected => Unknown::new(
                Reason::Corrupt,
                "the repository's files could not be made sense of",
            ),
        })
    })
}

fn read(
    workspace: &Path,
    options: &Options,
    user: &owner::User,
    stop: &Arc<AtomicBool>,
    depth: u8,
) -> State {
    let place = match place::find(workspace) {
        Ok(Some(place)) => place,
        Ok(None) => return State::none(),
        Err(unknown) => return State::unknown(unknown),
    };
    if let Err(unknown) = owner::check(&place, user, options.sudo_uid) {
        return State::unknown(unknown);
    }
    let (branch, head) = match place.head() {
        Ok(place::Head::Branch(name)) => (Ok(Some(name)), None),
        Ok(place::Head::Other) => (Ok(None), None),
        Ok(place::Head::Detached(id)) => (Ok(None), Some(id.chars().take(7).collect())),
        Err(unknown) => (Err(unknown), None),
    };
    let context = status::Context {
        place: &place,
        options,
        user,
        stop,
        depth,
    };
    match context.dirty() {
        // Where the references are elsewhere, HEAD holds a placeholder.
        Err(unknown) if unknown.reason == Reason::Unsupported => State::unknown(unknown),
        dirty => State {
            branch,
            head,
            dirty,
        },
    }
}
