//! The file's bytes, never more than a bound, never waiting for a writer.

use std::fmt;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use rustix::io::{Errno, read, retry_on_intr};

use crate::Error;

/// The most bytes of a file that is read. The largest that models in use have are 35 MB.
pub const LARGEST_FILE: u64 = 128 * 1024 * 1024;

/// What is at a path instead of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAFile {
    /// Holds files.
    Directory,
    /// A pipe with a name.
    Fifo,
    /// Of characters or of blocks.
    Device,
    /// Or whatever else a system has.
    Socket,
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAFile::Directory => "a directory",
            NotAFile::Fifo => "a named pipe",
            NotAFile::Device => "a device",
            NotAFile::Socket => "a socket",
        })
    }
}

/// Changes whenever a file's content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// An open file that is regular and not too large.
pub(crate) struct File {
    fd: OwnedFd,
    stat: Stat,
}

impl File {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // The flag keeps the opening of a pipe from waiting for who writes into it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd =
            retry_on_intr(|| open(path, flags, Mode::empty())).map_err(|errno| match errno {
                Errno::NOENT => Error::Missing,
                // What a socket, and a device without a driver, say to being opened.
                Errno::NXIO | Errno::NODEV => Error::NotRegular(NotAFile::Socket),
                errno => Error::Unreadable(errno),
            })?;
        let stat = fstat(&fd).map_err(Error::Unreadable)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok(Self { fd, stat }),
            FileType::Directory => NotAFile::Directory,
            FileType::Fifo => NotAFile::Fifo,
            FileType::CharacterDevice | FileType::BlockDevice => NotAFile::Device,
            _ => NotAFile::Socket,
        };
        Err(Error::NotRegular(kind))
    }

    #[allow(clippy::useless_conversion, reason = "types differ between systems")]
    #[allow(clippy::unnecessary_cast, reason = "types differ between systems")]
    pub(crate) fn identity(&self) -> Identity {
        let stat = &self.stat;
        Identity {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// All of it, or an error as soon as it is seen to be more than `largest`.
    pub(crate) fn read(&self, largest: u64) -> Result<Vec<u8>, Error> {
        let largest = usize::try_from(largest).unwrap_or(usize::MAX);
        let size = usize::try_from(self.stat.st_size).unwrap_or(usize::MAX);
        if size > largest {
            return Err(Error::FileTooLarge);
        }
        // What it was said to be is no promise: it may grow meanwhile, and /proc says 0.
        let mut bytes = Vec::with_capacity(size.saturating_add(1));
        let mut chunk = vec![0; 1 << 16];
        loop {
            let count = retry_on_intr(|| read(&self.fd, &mut chunk)).map_err(Error::Unreadable)?;
            let Some(new) = chunk.get(..count).filter(|new| !new.is_empty()) else {
                return Ok(bytes);
            };
            bytes.extend_from_slice(new);
            if bytes.len() > largest {
                return Err(Error::FileTooLarge);
            }
        }
    }
}
