//! Where the repository of a directory is: upwards as git looks, not past a mount point.

use super::{Reason, Unknown};
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Of a `.git` file, a `commondir` and a `HEAD`, which hold one line; a path is at most 4 KiB.
const LINE_BYTES: u64 = 8_192;

pub(super) struct Place {
    /// The real path of the directory that was asked about.
    pub workspace: PathBuf,
    /// The real path of the directory that has the `.git`; `None` when bare.
    pub work_tree: Option<PathBuf>,
    /// The `.git` in it when it is a file.
    pub git_file: Option<PathBuf>,
    /// What is this work tree's own: `HEAD`, the index.
    pub git_dir: PathBuf,
    /// What work trees share: configuration, objects, references.
    pub common_dir: PathBuf,
}

pub(super) enum Head {
    Branch(Vec<u8>),
    Detached(String),
    /// Symbolic, and not to a branch.
    Other,
}

pub(super) fn find(workspace: &Path) -> Result<Option<Place>, Unknown> {
    let start = fs::canonicalize(workspace).map_err(|error| unreadable(workspace, &error))?;
    let device = device(&start)?;
    for directory in start.ancestors() {
        if self::device(directory)? != device {
            break;
        }
        let dot_git = directory.join(".git");
        match fs::metadata(&dot_git) {
            Ok(found) if found.is_file() => return of_file(&start, directory, dot_git).map(Some),
            Ok(found) if found.is_dir() => {
                if let Some(common_dir) = common_dir(&dot_git)? {
                    return Ok(Some(Place {
                        workspace: start.clone(),
                        work_tree: Some(directory.to_owned()),
                        git_file: None,
                        git_dir: dot_git,
                        common_dir,
                    }));
                }
            }
            Ok(_) => return Err(corrupt(&dot_git, "is neither a directory nor a file")),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(unreadable(&dot_git, &error));
            }
            Err(_) => {}
        }
        if let Some(common_dir) = common_dir(directory)? {
            return Ok(Some(Place {
                workspace: start.clone(),
                work_tree: None,
                git_file: None,
                git_dir: directory.to_owned(),
                common_dir,
            }));
        }
    }
    Ok(None)
}

fn of_file(workspace: &Path, work_tree: &Path, git_file: PathBuf) -> Result<Place, Unknown> {
    let line = line(&git_file)?;
    let target = line
        .strip_prefix(b"gitdir: ")
        .ok_or_else(|| corrupt(&git_file, "does not start with `gitdir: `"))?;
    let git_dir = work_tree.join(OsStr::from_bytes(target));
    let git_dir = fs::canonicalize(&git_dir).map_err(|error| unreadable(&git_dir, &error))?;
    let common_dir =
        common_dir(&git_dir)?.ok_or_else(|| corrupt(&git_file, "names no repository"))?;
    Ok(Place {
        workspace: workspace.to_owned(),
        work_tree: Some(work_tree.to_owned()),
        git_file: Some(git_file),
        git_dir,
        common_dir,
    })
}

/// The common directory, if this is a repository: it has a `HEAD`, `objects` and `refs`.
fn common_dir(git_dir: &Path) -> Result<Option<PathBuf>, Unknown> {
    if fs::symlink_metadata(git_dir.join("HEAD")).is_err() {
        return Ok(None);
    }
    let file = git_dir.join("commondir");
    let common = match fs::symlink_metadata(&file) {
        Ok(_) => git_dir.join(OsStr::from_bytes(&line(&file)?)),
        Err(_) => git_dir.to_owned(),
    };
    let is_repository = common.join("objects").is_dir() && common.join("refs").is_dir();
    Ok(is_repository.then_some(common))
}

impl Place {
    pub(super) fn head(&self) -> Result<Head, Unknown> {
        let path = self.git_dir.join("HEAD");
        // What git made of it long ago.
        if let Ok(target) = fs::read_link(&path)
            && target.starts_with("refs")
        {
            return symbolic(target.as_os_str().as_bytes());
        }
        let line = line(&path)?;
        if let Some(name) = line.strip_prefix(b"ref:") {
            return symbolic(name.trim_ascii_start());
        }
        match std::str::from_utf8(&line) {
            Ok(id) if id.len() >= 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Ok(Head::Detached(id.to_ascii_lowercase()))
            }
            _ => Err(corrupt(&path, "names neither a reference nor a commit")),
        }
    }
}

fn symbolic(name: &[u8]) -> Result<Head, Unknown> {
    match name.strip_prefix(b"refs/heads/") {
        // What `HEAD` holds where references are not in files. (gitrepository-layout(5))
        Some(b".invalid") => Err(Unknown::new(
            Reason::Unsupported,
            "HEAD is not in the file of that name",
        )),
        Some(branch) => Ok(Head::Branch(branch.to_owned())),
        None => Ok(Head::Other),
    }
}

/// A small file's text without the line ends after it.
fn line(path: &Path) -> Result<Vec<u8>, Unknown> {
    regular(path)?;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(LINE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(path, &error))?;
    Ok(bytes.trim_ascii_end().to_owned())
}

/// Its size: opening anything but a regular file may wait for ever.
pub(super) fn regular(path: &Path) -> Result<u64, Unknown> {
    let found = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if found.is_file() {
        Ok(found.len())
    } else {
        Err(corrupt(path, "is not a regular file"))
    }
}

fn device(path: &Path) -> Result<u64, Unknown> {
    fs::metadata(path)
        .map(|found| found.dev())
        .map_err(|error| unreadable(path, &error))
}

pub(super) fn corrupt(path: &Path, what: &str) -> Unknown {
    Unknown::new(Reason::Corrupt, format!("{} {what}", path.display()))
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Unknown {
    Unknown::new(Reason::Unreadable, format!("{}: {error}", path.display()))
}
