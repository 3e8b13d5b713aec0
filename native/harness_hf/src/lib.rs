//! Exact token counts by a model's own `tokenizer.json`.
//!
//! A crate of its own, since `tokenizers` brings some forty others: only who asks for it builds it.

mod file;
mod loaded;
mod tokenizer;

pub use file::{LARGEST_FILE, NotAFile};
pub use loaded::load;
pub use tokenizer::{LARGEST_TEXT, Tokenizer};

/// Why there is no tokenizer, or no count.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is at the path.
    #[error("there is no such file")]
    Missing,
    /// The system says no.
    #[error("it can't be read: {0}")]
    Unreadable(rustix::io::Errno),
    /// A directory, a pipe, a device or a socket.
    #[error("it is {0}, not a regular file")]
    NotRegular(NotAFile),
    /// More bytes than [`LARGEST_FILE`].
    #[error("it has more than {LARGEST_FILE} bytes, which is the most that is read")]
    FileTooLarge,
    /// Not what the crate takes for a tokenizer.
    #[error("it is not a tokenizer.json: {0}")]
    Damaged(String),
    /// More bytes than [`LARGEST_TEXT`].
    #[error("a text of {0} bytes can't be counted, {LARGEST_TEXT} is the most")]
    TextTooLarge(usize),
    /// The tokenizer has no answer, such as a vocabulary without a token for the unknown.
    #[error("it can't count a text: {0}")]
    Failed(String),
}
