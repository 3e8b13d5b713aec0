//! Where a text may be cut.
//!
//! A cut falls on an extended grapheme cluster boundary (Unicode Standard Annex #29), so that
//! no character, emoji sequence, flag or CRLF is torn. A "cluster" can be made as long as one
//! likes (one letter and a megabyte of combining marks), so only [`REACH`] bytes are searched;
//! where no cluster boundary lies in reach, the cut falls between two code points.

use unicode_segmentation::{GraphemeCursor, GraphemeIncomplete};

/// How far, in bytes, a cluster boundary is looked for before the offset.
pub const REACH: usize = 1024;

/// Bytes before the offset that the cursor is given at first; nearly every rule looks at one or
/// two code points.
const WINDOW: usize = 64;

/// Bytes that the cursor is given at a time when it asks for more of what came before.
const CONTEXT: usize = 4096;

/// The boundary at or before `offset`: the last cluster boundary that is at most `offset` if it
/// lies within [`REACH`] bytes of it, otherwise the last code point boundary that is at most
/// `offset`. An offset past the end is the end.
///
/// Only the text near the offset is read, save for what a cluster rule has to see whole (a run
/// of regional indicators, or of marks before a joiner). So the text comes as bytes, and nobody
/// has to validate all of it first. Where the bytes read are not UTF-8, any offset counts as a
/// boundary.
///
/// ```
/// use harness_core::boundary::at_or_before;
///
/// assert_eq!(at_or_before(b"a\r\nb", 2), 1);
/// assert_eq!(at_or_before("🇧🇷🇧🇷".as_bytes(), 12), 8);
/// assert_eq!(at_or_before("क्ष".as_bytes(), 6), 0);
/// ```
pub fn at_or_before(text: &[u8], offset: usize) -> usize {
    if offset >= text.len() {
        return text.len();
    }
    let code_point = code_point_at_or_before(text, offset);
    let first = offset.saturating_sub(REACH);
    let mut candidate = code_point;
    loop {
        if is_cluster_boundary(text, candidate) {
            return candidate;
        }
        candidate = match candidate.checked_sub(1) {
            Some(before) => code_point_at_or_before(text, before),
            None => return code_point,
        };
        if candidate < first {
            return code_point;
        }
    }
}

/// The end of the last line that ends at or before a boundary, its line break (`\n`, `\r\n` or `\r`)
/// included; 0 where none does.
///
/// ```
/// use harness_core::boundary::line_at_or_before;
///
/// assert_eq!(line_at_or_before(b"one\r\ntwo\nthree", 8), 5);
/// assert_eq!(line_at_or_before(b"one", 3), 0);
/// ```
pub fn line_at_or_before(text: &[u8], boundary: usize) -> usize {
    let before = text.get(..boundary).unwrap_or(text);
    let last = before
        .iter()
        .rposition(|byte| matches!(byte, b'\n' | b'\r'));
    last.map_or(0, |at| at.saturating_add(1))
}

/// The offset of the first byte that is not part of a code point, or `None` where all is UTF-8.
pub fn invalid_at(text: &[u8]) -> Option<usize> {
    Some(str::from_utf8(text).err()?.valid_up_to())
}

/// The start of the code point that the byte at `offset` belongs to.
fn code_point_at_or_before(text: &[u8], offset: usize) -> usize {
    let first = offset.saturating_sub(3);
    (first..=offset)
        .rev()
        .find(|&at| text.get(at).is_none_or(|&byte| !is_continuation(byte)))
        .unwrap_or(offset)
}

/// `10xxxxxx`: a byte inside a code point (RFC 3629, section 3).
fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// At most `size` bytes of the text before `end`, cut between code points, and where they start.
fn before(text: &[u8], end: usize, size: usize) -> Option<(&str, usize)> {
    let start = code_point_at_or_before(text, end.saturating_sub(size));
    Some((str::from_utf8(text.get(start..end)?).ok()?, start))
}

/// The end of the code point that starts at `offset`.
fn code_point_end(text: &[u8], offset: usize) -> usize {
    let next = offset.saturating_add(1);
    let rest = text.get(next..).unwrap_or_default();
    let inside = rest
        .iter()
        .take(3)
        .take_while(|&&byte| is_continuation(byte));
    next.saturating_add(inside.count())
}

fn is_cluster_boundary(text: &[u8], offset: usize) -> bool {
    let mut cursor = GraphemeCursor::new(offset, text.len(), true);
    let end = code_point_end(text, offset);
    let size = WINDOW.saturating_add(end.saturating_sub(offset));
    let Some((chunk, start)) = before(text, end, size) else {
        return true;
    };
    loop {
        match cursor.is_boundary(chunk, start) {
            Ok(is_boundary) => return is_boundary,
            Err(GraphemeIncomplete::PreContext(end)) => match before(text, end, CONTEXT) {
                Some((context, start)) => cursor.provide_context(context, start),
                None => return true,
            },
            // The chunk holds the code point after the offset, so nothing else can be asked for.
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    /// The definition, read from the whole text from its start.
    fn by_definition(text: &str, offset: usize) -> usize {
        let cluster = text
            .grapheme_indices(true)
            .map(|(at, _)| at)
            .chain([text.len()])
            .take_while(|&at| at <= offset)
            .last()
            .unwrap();
        if offset.min(text.len()) - cluster <= REACH {
            return cluster;
        }
        (0..=offset)
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap()
    }

    fn assert_everywhere(text: &str) {
        for offset in 0..=text.len() {
            assert_eq!(
                at_or_before(text.as_bytes(), offset),
                by_definition(text, offset),
                "offset {offset} of {} bytes",
                text.len()
            );
        }
    }

    #[test]
    fn never_inside_a_cluster() {
        let family = "👩‍👩‍👧‍👦";
        assert_eq!(at_or_before(family.as_bytes(), family.len() - 1), 0);
        assert_eq!(at_or_before("e\u{301}x".as_bytes(), 2), 0);
        assert_eq!(at_or_before("e\u{301}x".as_bytes(), 3), 3);
        assert_eq!(at_or_before(b"", 0), 0);
        assert_eq!(at_or_before(b"abc", usize::MAX), 3);
    }

    #[test]
    fn runs_longer_than_any_window() {
        let flags = "🇧🇷".repeat(2_000);
        assert_eq!(
            at_or_before(flags.as_bytes(), flags.len() - 1),
            flags.len() - 8
        );
        assert_eq!(
            at_or_before(flags.as_bytes(), flags.len() - 5),
            flags.len() - 8
        );

        // A joiner far behind its emoji still binds the next one.
        let bound = format!("👩{}\u{200d}👩", "\u{301}".repeat(6_000));
        let joiner = bound.len() - 4;
        assert_eq!(at_or_before(bound.as_bytes(), joiner), joiner);
        let unbound = format!("a{}\u{200d}👩", "\u{301}".repeat(6_000));
        assert_eq!(
            at_or_before(unbound.as_bytes(), joiner),
            by_definition(&unbound, joiner)
        );
        assert_everywhere(&format!("👩{}\u{200d}👩", "\u{301}".repeat(300)));
        assert_everywhere(&format!("a{}\u{200d}👩", "\u{301}".repeat(300)));
    }

    #[test]
    fn a_cluster_longer_than_the_reach_is_cut_between_code_points() {
        let marks = format!("a{}", "\u{301}".repeat(2_000));
        assert_eq!(at_or_before(marks.as_bytes(), REACH), 0);
        assert_eq!(at_or_before(marks.as_bytes(), REACH + 1), REACH + 1);
        assert_eq!(at_or_before(marks.as_bytes(), REACH + 2), REACH + 1);
    }

    #[test]
    fn bytes_that_are_not_utf8_do_no_harm() {
        for text in [
            &b"\xff\xff\xff\xff\xff"[..],
            b"\x80\x80\x80\x80\x80\x80",
            b"a\xe6\xbc",
        ] {
            for offset in 0..=text.len() {
                assert!(at_or_before(text, offset) <= offset);
            }
        }
    }

    /// What clusters are made of: letters, marks, joiners, flags, emoji, conjuncts, Hangul.
    fn hostile_text() -> impl Strategy<Value = String> {
        let part = prop::sample::select(vec![
            "a",
            "\r",
            "\n",
            "\r\n",
            "é",
            "e\u{301}",
            "\u{301}",
            "漢",
            "🙂",
            "👩",
            "\u{200d}",
            "👍🏽",
            "🇧",
            "🇷",
            "क",
            "\u{94d}",
            "ष",
            "\u{93f}",
            "각",
            "ᄀ",
            "ᅡ",
            "ᆨ",
            "\u{600}",
            "\u{fe0f}",
            "\u{0}",
            "\u{e0067}",
            "\u{20e3}",
            "\u{0e33}",
            "\u{ad}",
        ]);
        prop::collection::vec((part, 1..40_usize), 0..12).prop_map(|parts| {
            parts
                .iter()
                .map(|(part, times)| part.repeat(*times))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn is_the_definition(text in hostile_text()) {
            assert_everywhere(&text);
        }

        #[test]
        fn is_the_definition_on_any_text(text in any::<String>()) {
            assert_everywhere(&text);
        }

        #[test]
        fn no_bytes_make_it_panic(text in any::<Vec<u8>>(), offset in any::<usize>()) {
            prop_assert!(at_or_before(&text, offset) <= offset.min(text.len()));
        }
    }
}
