//! What was seen and not used, and why.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;

/// A path that was seen in the workspace and not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Relative to the workspace, `/`-separated; the bytes as the file system has them.
    pub path: Vec<u8>,
    /// Why it isn't used; its `Display` is a sentence's part for users.
    pub reason: Reason,
}

/// Why a path is not used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Not a regular file; it was never opened for reading.
    NotRegular {
        /// What it is instead.
        kind: Kind,
    },
    /// The system refused to open or read it.
    Unreadable {
        /// The system's name of the error, such as `EACCES`.
        error: String,
    },
    /// Not text in UTF-8.
    NotUtf8 {
        /// Offset of the first bad byte in the file.
        offset: u64,
    },
    /// Larger than what is read.
    TooLarge {
        /// The file's size (what was read of it, if it grew meanwhile).
        bytes: u64,
        /// The largest size read.
        limit: u64,
    },
    /// Nothing in it but white space, if that.
    Empty,
    /// A link to nothing.
    DanglingLink,
    /// A link whose target, or a link on the way, is an absolute path; refused even when it points
    /// into the workspace, because it means something else on another machine.
    AbsoluteLink,
    /// A link that leads out of the workspace.
    EscapingLink,
    /// A link that leads through more than 40 links.
    LinkLoop,
    /// The same file (device and inode) as the one at `path`.
    DuplicateOf {
        /// The one that counts.
        path: Vec<u8>,
    },
    /// Its directory holds a name that comes earlier in `filenames`.
    Superseded {
        /// The one that counts in this directory.
        by: Vec<u8>,
    },
    /// Spelt like a wanted name but for upper and lower case.
    NearMiss {
        /// The wanted spelling.
        expected: String,
    },
    /// A directory deeper than what is walked.
    TooDeep {
        /// The deepest level walked; the workspace is level 0.
        limit: usize,
    },
    /// A directory that is a repository of its own, left out on request.
    NestedRepository,
    /// It was listed, and gone when it was opened.
    Vanished,
}

/// What a path is that isn't a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// Something that has no name here.
    Other,
}

impl From<FileType> for Kind {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::Directory => Kind::Directory,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharacterDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            _ => Kind::Other,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Directory => "directory",
            Kind::Fifo => "named pipe",
            Kind::Socket => "socket",
            Kind::CharacterDevice => "character device",
            Kind::BlockDevice => "block device",
            Kind::Other => "special file",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotRegular { kind } => write!(f, "not a regular file but a {kind}"),
            Reason::Unreadable { error } => write!(f, "can't be read ({error})"),
            Reason::NotUtf8 { offset } => {
                write!(f, "not UTF-8 (first bad byte at offset {offset})")
            }
            Reason::TooLarge { bytes, limit } => {
                write!(f, "too large ({bytes} bytes; at most {limit} are read)")
            }
            Reason::Empty => f.write_str("empty"),
            Reason::DanglingLink => f.write_str("a link to nothing"),
            Reason::AbsoluteLink => f.write_str("a link by an absolute path, which isn't followed"),
            Reason::EscapingLink => f.write_str("a link that leads out of the workspace"),
            Reason::LinkLoop => f.write_str("a link that leads through too many links"),
            Reason::DuplicateOf { path } => write!(f, "the same file as {}", Quoted(path)),
            Reason::Superseded { by } => write!(f, "{} is preferred in this directory", Quoted(by)),
            Reason::NearMiss { expected } => {
                write!(f, "spelt differently from {expected:?}, so it isn't read")
            }
            Reason::TooDeep { limit } => write!(f, "deeper than {limit} directories, not entered"),
            Reason::NestedRepository => {
                f.write_str("a repository of its own, left out by nested_repositories")
            }
            Reason::Vanished => f.write_str("gone before it could be read"),
        }
    }
}

/// A path in quotes, with control characters, right-to-left overrides and bad bytes escaped.
pub(super) struct Quoted<'a>(pub(super) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Path::new(OsStr::from_bytes(self.0)))
    }
}

/// The system's name of an error; its number where the name is of no use to anyone.
pub(super) fn errno_name(errno: Errno) -> String {
    let name = match errno {
        Errno::ACCESS => "EACCES",
        Errno::PERM => "EPERM",
        Errno::IO => "EIO",
        Errno::LOOP => "ELOOP",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NOENT => "ENOENT",
        Errno::NOTDIR => "ENOTDIR",
        Errno::NOMEM => "ENOMEM",
        Errno::MFILE => "EMFILE",
        Errno::NFILE => "ENFILE",
        Errno::STALE => "ESTALE",
        Errno::NXIO => "ENXIO",
        Errno::NODEV => "ENODEV",
        Errno::INVAL => "EINVAL",
        Errno::AGAIN => "EAGAIN",
        Errno::BUSY => "EBUSY",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::NOTCONN => "ENOTCONN",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::NOSYS => "ENOSYS",
        other => return format!("error {}", other.raw_os_error()),
    };
    name.to_owned()
}

/// Errors that say something about the process and nothing about the file.
pub(super) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}
