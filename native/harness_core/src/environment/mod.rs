//! Facts about the host, found without running anything.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

pub mod git;
pub mod hardware;
pub mod system;
pub mod tree;

/// The absolute path of a directory, links resolved; an error where it is none.
pub fn workspace_root(path: &Path) -> Result<PathBuf, Error> {
    let root = path.canonicalize()?;
    if root.is_dir() {
        Ok(root)
    } else {
        Err(ErrorKind::NotADirectory.into())
    }
}
