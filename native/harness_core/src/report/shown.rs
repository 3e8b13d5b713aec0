use crate::escape::is_invisible;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One line without invisible characters, whoever wrote it: control, format and separator
/// characters become `\u{hex}`. What was escaped before is left as it is.
///
/// ```
/// use harness_core::report::Shown;
///
/// assert_eq!(Shown::from("a\u{202e}\n".to_owned()).as_str(), r"a\u{202e}\u{a}");
/// assert_eq!(Shown::from(r"a\u{a}".to_owned()).as_str(), r"a\u{a}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Shown(String);

impl Shown {
    /// The line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Self {
        if !text.contains(is_invisible) {
            return Shown(text);
        }
        let mut line = String::with_capacity(text.len());
        for character in text.chars() {
            if is_invisible(character) {
                line.extend(character.escape_unicode());
            } else {
                line.push(character);
            }
        }
        Shown(line)
    }
}

impl From<Shown> for String {
    fn from(shown: Shown) -> String {
        shown.0
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
