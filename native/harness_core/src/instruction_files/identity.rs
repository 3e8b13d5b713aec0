//! The part of a file's status by which it is recognised.

use rustix::fs::{FileType, Stat};

/// Device and inode: two paths with the same pair are the same file.
pub(super) type Id = (u64, u64);

/// What is compared to see whether a file or directory has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) size: u64,
    /// Seconds and nanoseconds.
    pub(super) mtime: (i64, u64),
    /// Seconds and nanoseconds. Nobody can set it back, unlike `mtime`.
    pub(super) ctime: (i64, u64),
}

impl Identity {
    /// The types of these fields differ from system to system.
    #[allow(clippy::unnecessary_cast)]
    pub(super) fn new(stat: &Stat) -> Self {
        Identity {
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            size: stat.st_size as u64,
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    pub(super) fn id(&self) -> Id {
        (self.dev, self.ino)
    }
}

/// What the status says the file is.
pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
