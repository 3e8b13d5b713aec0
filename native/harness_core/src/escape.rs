//! Names that a repository chose, made safe to show.
//!
//! A file, a directory or a branch can be named anything: a line of its own that reads like a
//! heading, a closing tag, text that a terminal runs backwards. What is shown of a name has
//! neither line breaks nor invisible characters nor `<` and `>`.

use std::fmt::Write;
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
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_escaped(character) {
                shown.extend(character.escape_unicode());
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String can't fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
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

    proptest! {
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
