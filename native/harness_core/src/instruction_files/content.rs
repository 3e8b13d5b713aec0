//! What the bytes of an instruction file are worth.

use super::reason::Reason;

/// A file's text, or why it has none.
#[derive(Debug)]
pub(super) enum Content {
    /// UTF-8 with something in it.
    Text(String),
    /// Not used.
    Unused(Reason),
}

/// One byte order mark at the very start is no part of the text. White space is what Unicode calls
/// `White_Space`.
pub(super) fn from_bytes(bytes: Vec<u8>) -> Content {
    match String::from_utf8(bytes) {
        Err(error) => {
            let offset = u64::try_from(error.utf8_error().valid_up_to()).unwrap_or(u64::MAX);
            Content::Unused(Reason::NotUtf8 { offset })
        }
        Ok(mut text) => {
            if text.starts_with('\u{FEFF}') {
                text.drain(..'\u{FEFF}'.len_utf8());
            }
            if text.chars().all(char::is_whitespace) {
                Content::Unused(Reason::Empty)
            } else {
                Content::Text(text)
            }
        }
    }
}
