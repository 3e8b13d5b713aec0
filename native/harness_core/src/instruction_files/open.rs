//! Opens files with no gap between looking and reading.
//!
//! A name is opened with `O_PATH`, which reads nothing and waits for nothing; the descriptor is
//! looked at; and only if it is a regular file is that very descriptor opened again for reading,
//! through `/proc/self/fd`. Whatever happens to the name meanwhile, what is read is what was looked
//! at. A link is resolved by `openat2(RESOLVE_BENEATH)` from the workspace's descriptor, so that
//! the kernel itself keeps it inside.
//!
//! Two fallbacks give the same results:
//! - where `openat2` is missing (Linux before 5.6, a sandbox that forbids it), links are resolved
//!   component by component ([`super::resolve`]);
//! - where `/proc` or `O_PATH` is missing (other systems), a name is looked at with `fstatat`,
//!   opened with `O_NOFOLLOW | O_NONBLOCK` only if it is a regular file, and looked at again: the
//!   gap is harmless, since what was opened is refused unless it is the same file.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::{Errno, read, retry_on_intr};

use super::identity::{Identity, file_type};
use super::order::join;
use super::reason::{Reason, errno_name, is_shortage};
use super::resolve;

/// Flags of every descriptor that is read from: never wait for a writer, never become a terminal.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Why one file can't be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Something about the file; others can still be loaded.
    File(Reason),
    /// Something about the process.
    Shortage(Errno),
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Fault::File(reason)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        if is_shortage(errno) {
            Fault::Shortage(errno)
        } else {
            Fault::File(Reason::Unreadable {
                error: errno_name(errno),
            })
        }
    }
}

/// A name that was looked at. Without a descriptor it is something that must not be opened.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) fd: Option<OwnedFd>,
    pub(super) stat: Stat,
}

/// A file to which a name leads, links followed.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) node: Node,
    /// Whether the name itself is a link.
    pub(super) is_link: bool,
}

/// How files are opened; see the module's documentation.
#[derive(Debug)]
pub(super) struct Opener {
    root: OwnedFd,
    /// `/proc/self/fd`, where `O_PATH` descriptors are opened again; none where it is missing.
    reopen: Option<OwnedFd>,
    /// Cleared at the first sign that the system doesn't have it.
    openat2: AtomicBool,
    limit: u64,
}

impl Opener {
    /// `openat2` and `paths` switch the fallbacks on when false.
    pub(super) fn new(root: OwnedFd, limit: u64, openat2: bool, paths: bool) -> Self {
        let reopen = if paths { proc_self_fd() } else { None };
        Opener {
            root,
            reopen,
            openat2: AtomicBool::new(openat2),
            limit,
        }
    }

    /// The workspace's descriptor.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Looks at one name, following nothing.
    pub(super) fn node(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<Node, Errno> {
        #[cfg(target_os = "linux")]
        if self.reopen.is_some() {
            let fd = open_name(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            let stat = fstat(&fd)?;
            return Ok(Node { fd: Some(fd), stat });
        }
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let flags = match file_type(&stat) {
            FileType::RegularFile => READ | OFlags::NOFOLLOW,
            FileType::Directory => READ | OFlags::NOFOLLOW | OFlags::DIRECTORY,
            _ => return Ok(Node { fd: None, stat }),
        };
        // Replaced between the two calls: as if it had been removed.
        let fd = match open_name(dir, name, flags) {
            Ok(fd) if Identity::new(&fstat(&fd)?).id() == Identity::new(&stat).id() => fd,
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => return Err(Errno::NOENT),
            Err(errno) => return Err(errno),
        };
        Ok(Node { fd: Some(fd), stat })
    }

    /// Looks at `name` in the directory `dir`, which lies at `dir_path` in the workspace; follows
    /// relative links that stay inside.
    pub(super) fn look(
        &self,
        dir: BorrowedFd<'_>,
        dir_path: &[u8],
        name: &CStr,
    ) -> Result<Looked, Fault> {
        let node = self.node(dir, name).map_err(|errno| match errno {
            Errno::NOENT => Fault::File(Reason::Vanished),
            errno => errno.into(),
        })?;
        if file_type(&node.stat) != FileType::Symlink {
            return Ok(Looked {
                node,
                is_link: false,
            });
        }
        let path = join(dir_path, name.to_bytes());
        let node = match self.beneath(&path) {
            Some(Ok(node)) => node,
            // Refused by the kernel. The walk through the components says which link is to blame;
            // if that finds nothing wrong, the link was changed meanwhile, and stays refused.
            Some(Err(Errno::XDEV)) => match resolve::resolve(self, &path) {
                Ok(_) => return Err(Reason::EscapingLink.into()),
                Err(fault) => return Err(fault),
            },
            Some(Err(Errno::NOENT | Errno::NOTDIR)) => return Err(Reason::DanglingLink.into()),
            Some(Err(Errno::LOOP)) => return Err(Reason::LinkLoop.into()),
            Some(Err(errno)) => return Err(errno.into()),
            None => resolve::resolve(self, &path)?,
        };
        Ok(Looked {
            node,
            is_link: true,
        })
    }

    /// Resolves a path beneath the workspace in the kernel; `None` where it can't or won't say.
    #[cfg(target_os = "linux")]
    fn beneath(&self, path: &[u8]) -> Option<Result<Node, Errno>> {
        use rustix::fs::{ResolveFlags, openat2};

        if self.reopen.is_none() || !self.openat2.load(Ordering::Relaxed) {
            return None;
        }
        // The kernel gives up when anything on the system is renamed meanwhile.
        for _ in 0..8 {
            let opened = openat2(
                &self.root,
                path,
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            );
            return match opened {
                Ok(fd) => Some(fstat(&fd).map(|stat| Node { fd: Some(fd), stat })),
                Err(Errno::AGAIN | Errno::INTR) => continue,
                // Longer than a path may be in one call.
                Err(Errno::NAMETOOLONG) => None,
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
                    self.openat2.store(false, Ordering::Relaxed);
                    None
                }
                Err(errno) => Some(Err(errno)),
            };
        }
        None
    }

    /// Only Linux has `openat2`.
    #[cfg(not(target_os = "linux"))]
    fn beneath(&self, _path: &[u8]) -> Option<Result<Node, Errno>> {
        let _ = self.openat2.load(Ordering::Relaxed);
        None
    }

    /// The bytes of a regular file that was looked at: all of them, or none if they are too many.
    pub(super) fn read(&self, node: &Node) -> Result<Vec<u8>, Fault> {
        let kind = file_type(&node.stat);
        let Some(fd) = node.fd.as_ref().filter(|_| kind == FileType::RegularFile) else {
            return Err(Reason::NotRegular { kind: kind.into() }.into());
        };
        let looked_at = Identity::new(&node.stat);
        if looked_at.size > self.limit {
            return Err(self.too_large(looked_at.size).into());
        }
        match &self.reopen {
            None => self.read_all(fd.as_fd(), looked_at.size),
            Some(proc_self_fd) => {
                use std::os::fd::AsRawFd;

                let reopened = openat(
                    proc_self_fd,
                    fd.as_raw_fd().to_string(),
                    READ,
                    Mode::empty(),
                )?;
                if Identity::new(&fstat(&reopened)?).id() != looked_at.id() {
                    return Err(Reason::Vanished.into());
                }
                self.read_all(reopened.as_fd(), looked_at.size)
            }
        }
    }

    /// Reads no more than one byte over the limit, whatever the size was said to be.
    fn read_all(&self, fd: BorrowedFd<'_>, size: u64) -> Result<Vec<u8>, Fault> {
        let most = usize::try_from(self.limit)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        // One byte of room more than needed, so that the last call sees the end of the file.
        let mut room = usize::try_from(size)
            .unwrap_or(most)
            .saturating_add(1)
            .min(most);
        let mut bytes = Vec::new();
        loop {
            let length = bytes.len();
            bytes.resize(room, 0);
            let Some(space) = bytes.get_mut(length..) else {
                break;
            };
            let count = retry_on_intr(|| read(fd, &mut *space))?;
            bytes.truncate(length.saturating_add(count));
            if count == 0 || bytes.len() >= most {
                break;
            }
            if bytes.len() == room {
                room = room.saturating_mul(2).max(8192).min(most);
            }
        }
        match u64::try_from(bytes.len()) {
            Ok(length) if length <= self.limit => Ok(bytes),
            _ => Err(self
                .too_large(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
                .into()),
        }
    }

    fn too_large(&self, bytes: u64) -> Reason {
        Reason::TooLarge {
            bytes,
            limit: self.limit,
        }
    }
}

/// The directory through which descriptors are opened again, if it is what it seems to be.
#[cfg(target_os = "linux")]
fn proc_self_fd() -> Option<OwnedFd> {
    use rustix::fs::{PROC_SUPER_MAGIC, fstatfs, open};

    let fd = open(
        "/proc/self/fd",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let is_proc = fstatfs(&fd).is_ok_and(|stat| stat.f_type == PROC_SUPER_MAGIC);
    is_proc.then_some(fd)
}

/// Only Linux has it in a usable form.
#[cfg(not(target_os = "linux"))]
fn proc_self_fd() -> Option<OwnedFd> {
    None
}

/// Opens a directory that is no link.
pub(crate) fn open_dir(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_name(parent, name, flags)
}

/// Some file systems let a signal interrupt the opening of a file.
fn open_name(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(dir, name, flags, Mode::empty()))
}
