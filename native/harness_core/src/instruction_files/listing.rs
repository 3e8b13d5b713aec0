//! One pass over the entries of an open directory.

use std::ffi::CStr;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::{Errno, Result};

/// The space that listings reuse. The system fills it with as many entries as fit in one call.
pub(crate) struct Buffer(#[cfg(target_os = "linux")] Vec<MaybeUninit<u8>>);

impl Buffer {
    /// 32 KiB, as `readdir` of the C libraries has it: few directories need a second call.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> Self {
        Buffer(vec![MaybeUninit::uninit(); 32 * 1024])
    }

    /// Only Linux lists into space of ours.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> Self {
        Buffer()
    }
}

/// Calls `each` with every entry's name and type, without `.` and `..`.
///
/// A directory removed meanwhile has no more entries; that is no error.
#[cfg(target_os = "linux")]
pub(crate) fn list(
    dir: BorrowedFd<'_>,
    buffer: &mut Buffer,
    mut each: impl FnMut(&CStr, FileType),
) -> Result<()> {
    let mut entries = rustix::fs::RawDir::new(dir, &mut buffer.0);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) => pass(dir, entry.file_name(), entry.file_type(), &mut each),
            Err(Errno::INTR) => {}
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Calls `each` with every entry's name and type, without `.` and `..`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn list(
    dir: BorrowedFd<'_>,
    _buffer: &mut Buffer,
    mut each: impl FnMut(&CStr, FileType),
) -> Result<()> {
    for entry in rustix::fs::Dir::read_from(dir)? {
        match entry {
            Ok(entry) => pass(dir, entry.file_name(), entry.file_type(), &mut each),
            Err(Errno::INTR) => {}
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn pass(
    dir: BorrowedFd<'_>,
    name: &CStr,
    listed: FileType,
    each: &mut impl FnMut(&CStr, FileType),
) {
    if matches!(name.to_bytes(), b"." | b"..") {
        return;
    }
    // Some file systems don't say what an entry is.
    let file_type = match listed {
        FileType::Unknown => match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(_) => FileType::Unknown,
        },
        known => known,
    };
    each(name, file_type);
}
