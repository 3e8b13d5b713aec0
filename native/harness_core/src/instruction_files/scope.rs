//! Which directories apply to the files being worked on.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Error;

/// As many links as Linux follows in one path.
const MOST_LINKS: usize = 40;

/// The directories that are walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of them.
    All,
    /// These alone (paths in the workspace); with a directory, all above it are there.
    Chains(BTreeSet<Vec<u8>>),
}

impl Scope {
    /// The chains from the workspace to the directory of each target.
    pub(super) fn new(workspace: &Path, targets: Option<&[PathBuf]>) -> Result<Self, Error> {
        let Some(targets) = targets else {
            return Ok(Scope::All);
        };
        if targets.is_empty() {
            return Err(Error::NoTargets);
        }
        let root = super::canonical(workspace)?;
        let mut directories = BTreeSet::from([Vec::new()]);
        for target in targets {
            let bytes = target.as_os_str().as_bytes();
            if bytes.is_empty() || bytes.contains(&0) {
                return Err(Error::BadTarget(target.clone()));
            }
            // Components are compared, never text: `/repo` is no prefix of `/repo-x`.
            let resolved =
                resolve(&root.join(target)).ok_or_else(|| Error::TargetLoop(target.clone()))?;
            let inside = resolved
                .strip_prefix(&root)
                .map_err(|_| Error::TargetOutside {
                    target: target.clone(),
                    workspace: workspace.to_path_buf(),
                })?;
            let directory = if resolved.is_dir() {
                Some(inside)
            } else {
                inside.parent()
            };
            for ancestor in directory.into_iter().flat_map(Path::ancestors) {
                directories.insert(ancestor.as_os_str().as_bytes().to_vec());
            }
        }
        Ok(Scope::Chains(directories))
    }

    /// Whether the directory at `path` is walked.
    pub(super) fn holds(&self, path: &[u8]) -> bool {
        match self {
            Scope::All => true,
            Scope::Chains(directories) => directories.contains(path),
        }
    }
}

/// Follows the links and the `..` of an absolute path, as far as it exists; what doesn't exist yet
/// is taken literally. `None` if there are too many links.
fn resolve(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::from("/");
    let mut pending = components(path.as_os_str().as_bytes());
    let mut links = 0_usize;
    while let Some(component) = pending.pop_front() {
        match component.as_slice() {
            b"" | b"." => continue,
            b".." => {
                resolved.pop();
                continue;
            }
            _ => resolved.push(OsStr::from_bytes(&component)),
        }
        let Ok(target) = std::fs::read_link(&resolved) else {
            continue;
        };
        links = links.saturating_add(1);
        if links > MOST_LINKS {
            return None;
        }
        resolved.pop();
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        let mut rest = components(target.as_os_str().as_bytes());
        rest.append(&mut pending);
        pending = rest;
    }
    Some(resolved)
}

fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .map(<[u8]>::to_vec)
        .collect()
}
