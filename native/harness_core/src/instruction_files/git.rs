//! Where git keeps its rules: `.gitignore` files, and `info/exclude` in the repository.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::identity::{Identity, file_type};
use super::open::{Fault, Opener};
use super::order::join;
use super::reason::{Reason, Unused};
use super::rules::Rules;
use super::snapshot::{Kind, Recorder};

/// A directory that may hold rules.
pub(super) struct Place<'a> {
    pub(super) fd: BorrowedFd<'a>,
    /// In the workspace; absolute for a directory above it.
    pub(super) path: &'a [u8],
    /// For a directory above the workspace: the workspace's path in it, with a slash at its end.
    pub(super) above: &'a [u8],
}

/// Where what was seen goes to.
pub(super) struct Seen<'a> {
    pub(super) recorder: &'a mut Recorder,
    pub(super) unused: &'a mut Vec<Unused>,
}

/// Puts the rules that a directory holds on top of those of its parents. A directory's
/// `.gitignore` overrides the repository's `info/exclude`.
pub(super) fn rules(
    opener: &Opener,
    place: &Place<'_>,
    mut parent: Option<Arc<Rules>>,
    has_git: bool,
    has_gitignore: bool,
    seen: &mut Seen<'_>,
) -> Result<Option<Arc<Rules>>, Errno> {
    // Rules of a directory above the workspace are matched against the whole path below it.
    let base = if place.above.is_empty() {
        place.path
    } else {
        b""
    };
    if has_git && let Some(text) = exclude(opener, place, seen)? {
        parent = Rules::push(parent, base, place.above, &text);
    }
    if has_gitignore {
        let name = join(place.path, b".gitignore");
        match file(opener, place.fd, c".gitignore") {
            Ok((text, identity)) => {
                seen.recorder.record(Kind::Itself, &name, Some(&identity));
                parent = Rules::push(parent, base, place.above, &text);
            }
            Err(Fault::Shortage(errno)) => return Err(errno),
            Err(Fault::File(reason)) => {
                record(
                    place.fd,
                    b".gitignore",
                    &name,
                    AtFlags::SYMLINK_NOFOLLOW,
                    seen,
                );
                if place.above.is_empty() && reason != Reason::Vanished {
                    seen.unused.push(Unused { path: name, reason });
                }
            }
        }
    }
    Ok(parent)
}

/// The rules that apply to the workspace from above it, if it lies inside a repository.
pub(super) fn rules_above(
    opener: &Opener,
    root: &Path,
    seen: &mut Seen<'_>,
) -> Result<Option<Arc<Rules>>, Errno> {
    let has =
        |directory: &Path, name: &str| std::fs::symlink_metadata(directory.join(name)).is_ok();
    let mut above = Vec::new();
    for directory in root.ancestors() {
        let git = directory.join(".git");
        if has(directory, ".git") {
            break;
        }
        // A repository made here later changes what is ignored.
        seen.recorder
            .record(Kind::Itself, git.as_os_str().as_bytes(), None);
        above.push(directory.parent());
    }
    // Without a repository the list goes up to the top and ends with nothing.
    let Some(directories) = above.into_iter().collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let mut rules = None;
    for directory in directories.into_iter().rev() {
        let Ok(fd) = open_above(directory) else {
            continue;
        };
        let Ok(below) = root.strip_prefix(directory) else {
            continue;
        };
        let above = join(below.as_os_str().as_bytes(), b"");
        let path = directory.as_os_str().as_bytes();
        // The top itself: a path with two slashes in front is the same to the system.
        let place = Place {
            fd: fd.as_fd(),
            path,
            above: &above,
        };
        rules = self::rules(
            opener,
            &place,
            rules,
            has(directory, ".git"),
            has(directory, ".gitignore"),
            seen,
        )?;
    }
    Ok(rules)
}

fn open_above(directory: &Path) -> Result<OwnedFd, Errno> {
    openat(
        CWD,
        directory,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// The repository's own list. A work tree's `.git` is a file that names where the repository is,
/// which may have the list in common with other work trees.
fn exclude(
    opener: &Opener,
    place: &Place<'_>,
    seen: &mut Seen<'_>,
) -> Result<Option<Vec<u8>>, Errno> {
    let is_file = statat(place.fd, c".git", AtFlags::empty())
        .is_ok_and(|stat| file_type(&stat) == FileType::RegularFile);
    let repository = if is_file {
        record(
            place.fd,
            b".git",
            &join(place.path, b".git"),
            AtFlags::empty(),
            seen,
        );
        let Some(text) = plain(opener, place.fd, b".git")? else {
            return Ok(None);
        };
        let Some(named) = text.strip_prefix(b"gitdir:") else {
            return Ok(None);
        };
        let named = named.trim_ascii().to_vec();
        let list = join(&named, b"commondir");
        record(
            place.fd,
            &list,
            &below(place.path, &list),
            AtFlags::empty(),
            seen,
        );
        match plain(opener, place.fd, &list)? {
            Some(common) => below(&named, common.trim_ascii()),
            None => named,
        }
    } else {
        b".git".to_vec()
    };
    let list = join(&repository, b"info/exclude");
    record(
        place.fd,
        &list,
        &below(place.path, &list),
        AtFlags::empty(),
        seen,
    );
    plain(opener, place.fd, &list)
}

/// `path` as seen from `directory`, unless it is absolute.
fn below(directory: &[u8], path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") {
        path.to_vec()
    } else {
        join(directory, path)
    }
}

fn record(dir: BorrowedFd<'_>, name: &[u8], path: &[u8], flags: AtFlags, seen: &mut Seen<'_>) {
    let kind = if flags.is_empty() {
        Kind::Followed
    } else {
        Kind::Itself
    };
    let identity = statat(dir, name, flags)
        .ok()
        .map(|stat| Identity::new(&stat));
    seen.recorder.record(kind, path, identity.as_ref());
}

/// The bytes of a regular file at a path that the repository itself names, or nothing.
fn plain(opener: &Opener, dir: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => path.split_at(slash.saturating_add(1)),
        None => (b".".as_slice(), path),
    };
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(parent) = openat(dir, parent, flags, Mode::empty()) else {
        return Ok(None);
    };
    match file(opener, parent.as_fd(), &name) {
        Ok((text, _)) => Ok(Some(text)),
        Err(Fault::Shortage(errno)) => Err(errno),
        Err(Fault::File(_)) => Ok(None),
    }
}

/// A file's bytes and identity. As git does since 2.32, a link in place of a list isn't followed.
fn file(opener: &Opener, dir: BorrowedFd<'_>, name: &CStr) -> Result<(Vec<u8>, Identity), Fault> {
    let node = opener.node(dir, name).map_err(|errno| match errno {
        Errno::NOENT => Fault::File(Reason::Vanished),
        errno => errno.into(),
    })?;
    if file_type(&node.stat) == FileType::Symlink {
        return Err(Errno::LOOP.into());
    }
    let bytes = opener.read(&node)?;
    Ok((bytes, Identity::new(&node.stat)))
}
