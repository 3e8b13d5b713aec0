//! Names that a repository chose, made safe to show.
//!
//! A file, a directory or a branch can be named anything: a line of its own that reads like a
//! heading, a closing tag, text that a terminal runs backwards. What is shown of a name has
//! neither line breaks nor invisible characters nor `<` and `>`.

use std::fmt::{self, Write};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// The name with control, format (bidirectional, zero-width), line and paragraph separator
/// characters, `<`, `>` and `\` written as `\u{hex}`, and each byte that is not UTF-8 as `\xHH`.
/// No two names look the same.
///
/// ```
/// use harness_core::escape::escape;
///
/// assert_eq!(escape("docs/日本語.md".as_bytes()), "docs/日本語.md");
/// assert_eq!(escape(b"a\n</b>"), r"a\u{a}\u{3c}/b\u{3e}");
/// assert_eq!(escape(b"caf\xe9"), r"caf\xe9");
/// ```
pub fn escape(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for piece in pieces(name) {
        // Writing to a String can't fail.
        let _ = write!(shown, "{piece}");
    }
    shown
}

/// The most characters that [`escape_short`] writes.
pub const SHORT: usize = 200;

/// The name as [`escape`] writes it, in at most [`SHORT`] characters: a longer one is cut, never
/// inside an escape, and ends with `…`.
///
/// ```
/// use harness_core::escape::escape_short;
///
/// assert_eq!(escape_short(b"a\nb"), r"a\u{a}b");
/// assert_eq!(escape_short(&[b'a'; 201]), format!("{}…", "a".repeat(199)));
/// ```
pub fn escape_short(name: &[u8]) -> String {
    let mut shown = String::new();
    let (mut characters, mut cut) = (0usize, 0);
    // No piece is longer than 4 bytes: more is not looked at, however long the name.
    for piece in pieces(name.get(..4 * (SHORT + 1)).unwrap_or(name)) {
        let before = shown.len();
        let _ = write!(shown, "{piece}");
        let written = shown.get(before..).unwrap_or_default().chars().count();
        characters = characters.saturating_add(written);
        if characters < SHORT {
            cut = shown.len();
        } else if characters > SHORT {
            shown.truncate(cut);
            shown.push('…');
            break;
        }
    }
    shown
}

/// What one character, or one byte that is not UTF-8, is shown as.
enum Piece {
    Plain(char),
    Escaped(char),
    Byte(u8),
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Plain(character) => f.write_char(*character),
            Piece::Escaped(character) => write!(f, "{}", character.escape_unicode()),
            Piece::Byte(byte) => write!(f, "\\x{byte:02x}"),
        }
    }
}

fn pieces(name: &[u8]) -> impl Iterator<Item = Piece> + '_ {
    name.utf8_chunks().flat_map(|chunk| {
        let characters = chunk.valid().chars().map(|character| {
            if is_escaped(character) {
                Piece::Escaped(character)
            } else {
                Piece::Plain(character)
            }
        });
        characters.chain(chunk.invalid().iter().copied().map(Piece::Byte))
    })
}

fn is_escaped(character: char) -> bool {
    matches!(character, '<' | '>' | '\\') || is_invisible(character)
}

/// Whether a character is a control, format, line separator or paragraph separator.
pub(crate) fn is_invisible(character: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator};
    matches!(
        character.general_category(),
        Control | Format | LineSeparator | ParagraphSeparator
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_names() {
        assert_eq!(escape(b"\r\t\x1b[31m"), r"\u{d}\u{9}\u{1b}[31m");
        assert_eq!(escape("\u{202e}gpj.exe".as_bytes()), r"\u{202e}gpj.exe");
        assert_eq!(
            escape("a\u{200b}\u{feff}\u{2028}".as_bytes()),
            r"a\u{200b}\u{feff}\u{2028}"
        );
        assert_eq!(
            escape("\u{85}\u{2029}\u{e0041}".as_bytes()),
            r"\u{85}\u{2029}\u{e0041}"
        );
        // What looks escaped already stays apart from what is.
        assert_eq!(escape(br"\u{a}"), r"\u{5c}u{a}");
        assert_eq!(escape(b"\xff\xe6\xbc"), r"\xff\xe6\xbc");
        assert_eq!(escape(b""), "");
    }

    #[test]
    fn short_names_are_cut_between_pieces() {
        assert_eq!(escape_short(&[b'a'; 200]), "a".repeat(200));
        // 198 characters and `\\u{a}` are 203: cut before the escape.
        let mut name = vec![b'a'; 198];
        name.push(b'\n');
        assert_eq!(escape_short(&name), format!("{}…", "a".repeat(198)));
        // An escape that ends at 200 and one letter more.
        let mut name = vec![b'a'; 195];
        name.extend(b"\nb");
        assert_eq!(escape_short(&name), format!("{}…", "a".repeat(195)));
        assert_eq!(escape_short(b""), "");
    }

    proptest! {
        #[test]
        fn short_names_are_short(name in any::<Vec<u8>>()) {
            let (short, whole) = (escape_short(&name), escape(&name));
            prop_assert!(short.chars().count() <= SHORT);
            prop_assert!(short == whole || whole.starts_with(short.trim_end_matches('…')));
        }

        #[test]
        fn nothing_breaks_out_of_a_line(name in any::<Vec<u8>>()) {
            let shown = escape(&name);
            prop_assert!(!shown.chars().any(|c| c.is_control() || c == '<' || c == '>'));
        }

        #[test]
        fn names_stay_apart(a in "[\\\\u{}\u{a}<x]{0,12}", b in "[\\\\u{}\u{a}<x]{0,12}") {
            prop_assert_eq!(a == b, escape(a.as_bytes()) == escape(b.as_bytes()));
        }
    }
}
