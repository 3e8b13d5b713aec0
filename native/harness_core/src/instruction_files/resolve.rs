//! Follows links component by component, inside the workspace, without help from the kernel.
//!
//! The same rules as `openat2(RESOLVE_BENEATH)`: `..` above the workspace and absolute links are
//! refused, and so is the 41st link. `..` goes back to the descriptor that was passed on the way,
//! so that nobody can make it lead elsewhere by moving a directory.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, readlinkat};
use rustix::io::Errno;

use super::identity::file_type;
use super::open::{Fault, Node, Opener};
use super::reason::Reason;

/// As many links as Linux follows in one path.
const MOST_LINKS: usize = 40;

/// The file to which a path beneath the workspace leads; the path's last component is a link.
pub(super) fn resolve(opener: &Opener, path: &[u8]) -> Result<Node, Fault> {
    // The components still to go, the next one last.
    let mut pending: Vec<Vec<u8>> = reversed(path);
    let mut passed: Vec<Node> = Vec::new();
    let mut links = 0_usize;
    let mut last: Option<Node> = None;

    while let Some(component) = pending.pop() {
        if last.take().is_some() {
            // A component after something that is no directory.
            return Err(Reason::DanglingLink.into());
        }
        match component.as_slice() {
            b"" | b"." => continue,
            b".." => match passed.pop() {
                Some(_) => continue,
                None => return Err(Reason::EscapingLink.into()),
            },
            _ => {}
        }
        let name = CString::new(component).map_err(|_| Fault::File(Reason::DanglingLink))?;
        let parent = match passed.last() {
            None => opener.root(),
            Some(node) => descriptor(node)?,
        };
        let node = opener.node(parent, &name).map_err(missing)?;
        match file_type(&node.stat) {
            FileType::Symlink => {
                links = links.saturating_add(1);
                if links > MOST_LINKS {
                    return Err(Reason::LinkLoop.into());
                }
                let target = read_link(parent, &name)?;
                if target.first() == Some(&b'/') {
                    return Err(Reason::AbsoluteLink.into());
                }
                pending.extend(reversed(&target));
            }
            FileType::Directory => passed.push(node),
            _ => last = Some(node),
        }
    }
    match last.or_else(|| passed.pop()) {
        Some(node) => Ok(node),
        // The link leads to the workspace itself.
        None => {
            let stat = rustix::fs::fstat(opener.root())?;
            Ok(Node { fd: None, stat })
        }
    }
}

fn reversed(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}

fn descriptor(node: &Node) -> Result<BorrowedFd<'_>, Fault> {
    node.fd
        .as_ref()
        .map(OwnedFd::as_fd)
        .ok_or_else(|| Reason::DanglingLink.into())
}

fn read_link(parent: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, Fault> {
    match readlinkat(parent, name, Vec::new()) {
        Ok(target) => Ok(target.into_bytes()),
        // No link any more: replaced since it was looked at.
        Err(Errno::INVAL) => Err(Reason::Vanished.into()),
        Err(errno) => Err(missing(errno)),
    }
}

fn missing(errno: Errno) -> Fault {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Reason::DanglingLink.into(),
        errno => errno.into(),
    }
}
