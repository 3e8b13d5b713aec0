//! What makes a whole load fail.

use std::path::PathBuf;

/// Why nothing was loaded. Faults of single files are never an error: see [`super::Unused`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such directory.
    #[error("workspace {0:?} does not exist; expected an existing directory")]
    WorkspaceMissing(PathBuf),
    /// A file, a device …
    #[error("workspace {0:?} is not a directory; expected an existing directory")]
    WorkspaceNotADirectory(PathBuf),
    /// The workspace exists and can't be opened or listed.
    #[error(
        "workspace {path:?} can't be read ({error}); expected a directory that this user may read"
    )]
    WorkspaceUnreadable {
        /// As given.
        path: PathBuf,
        /// The system's name of the error, such as `EACCES`.
        error: String,
    },
    /// `filenames` is empty.
    #[error("filenames is empty; expected at least one name, such as \"AGENTS.md\"")]
    NoFilenames,
    /// A wanted name that no directory can hold, or that is never read.
    #[error(
        "filenames holds {0:?}; expected names of 1 to 255 bytes without \"/\" and NUL, other than \".\", \"..\" and \".git\""
    )]
    BadFilename(String),
    /// `targets` is given and empty.
    #[error(
        "targets is empty; expected at least one path, or no targets at all for the whole workspace"
    )]
    NoTargets,
    /// A target that is no path.
    #[error("target {0:?} is not a path; expected a path that is not empty and holds no NUL")]
    BadTarget(PathBuf),
    /// A target that lies elsewhere once its links are resolved.
    #[error("target {target:?} is outside the workspace {workspace:?}; expected a path inside it")]
    TargetOutside {
        /// As given.
        target: PathBuf,
        /// As given.
        workspace: PathBuf,
    },
    /// A target that can't be resolved.
    #[error(
        "target {0:?} leads through more than 40 links; expected a path without a loop of links"
    )]
    TargetLoop(PathBuf),
    /// Which files would be left out would be arbitrary, so none is loaded.
    #[error(
        "the workspace holds more than {limit} instruction files; at most {limit} are allowed (use targets to load those of some paths)"
    )]
    TooManyFiles {
        /// The largest number allowed.
        limit: usize,
    },
    /// Which directories would be left out would be arbitrary, so nothing is loaded.
    #[error(
        "the workspace holds more than {limit} directories; at most {limit} are allowed (use targets to load those of some paths)"
    )]
    TooManyDirectories {
        /// The largest number allowed.
        limit: usize,
    },
    /// The process ran out of file descriptors or memory: what is left out would depend on what
    /// else runs.
    #[error(
        "the system refused resources ({error}) while the workspace was read; free some and load again"
    )]
    Resources {
        /// The system's name of the error, such as `EMFILE`.
        error: String,
    },
}
