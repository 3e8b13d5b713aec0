//! A bounded part of a stream.

use crate::protocol::Stream;

/// The first bytes of a stream, and the number of all.
#[derive(Default)]
pub struct Capture {
    kept: Vec<u8>,
    bytes: u64,
}

impl Capture {
    /// Counts what was read and keeps what there is room for.
    pub fn add(&mut self, read: &[u8], limit: usize) {
        self.bytes = self.bytes.saturating_add(read.len() as u64);
        let room = limit.saturating_sub(self.kept.len());
        self.kept.extend(read.iter().take(room));
    }

    /// As valid UTF-8 of at most `limit` bytes: a character that the cut split is left out, what
    /// is not UTF-8 is replaced by U+FFFD.
    pub fn finish(mut self, limit: usize) -> Stream {
        let whole = self.bytes == self.kept.len() as u64;
        if !whole && let Some(last) = self.kept.utf8_chunks().last() {
            let tail = last.invalid();
            let split = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
            if split {
                self.kept
                    .truncate(self.kept.len().saturating_sub(tail.len()));
            }
        }
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        // Replacements are longer than what they replace.
        text.truncate(text.floor_char_boundary(limit));
        Stream {
            text,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(reads: &[&[u8]], limit: usize) -> (String, u64) {
        let mut capture = Capture::default();
        for read in reads {
            capture.add(read, limit);
        }
        let stream = capture.finish(limit);
        (stream.text, stream.bytes)
    }

    #[test]
    fn keeps_whole_characters_and_counts_all() {
        assert_eq!(capture(&[b"ab", b"cd"], 10), ("abcd".into(), 4));
        assert_eq!(capture(&[b"ab", b"cd"], 3), ("abc".into(), 4));
        assert_eq!(capture(&["aé".as_bytes()], 2), ("a".into(), 3));
        assert_eq!(capture(&[b"a\xc3"], 9), ("a\u{fffd}".into(), 2));
        assert_eq!(capture(&[b"a\xffb"], 9), ("a\u{fffd}b".into(), 3));
        assert_eq!(capture(&[b"\xff\xff"], 4), ("\u{fffd}".into(), 2));
        assert_eq!(capture(&[b"abc"], 0), (String::new(), 3));
    }
}
