//! Which directories git's rules leave out.
//!
//! The rules are those of `.gitignore` files and of the repository's `info/exclude`; the user's
//! global file is left aside, because it differs between machines. Only directories are asked
//! about: an instruction file that is itself listed in a `.gitignore` is still loaded. What git
//! tracks in spite of a rule can't be seen without its index, so such a directory counts as ignored.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The rules of one file, and those that they override.
#[derive(Debug)]
pub(super) struct Rules {
    parent: Option<Arc<Rules>>,
    matcher: Gitignore,
    /// The rules' directory, as how much of a path in the workspace to cut off …
    cut: usize,
    /// … or what to put before it, when that directory lies above the workspace.
    above: Vec<u8>,
}

impl Rules {
    /// Whether the directory at `path` (in the workspace) is ignored, its parents not being so.
    pub(super) fn ignores(&self, path: &[u8]) -> bool {
        let mut rules = self;
        loop {
            let rest = path.get(rules.cut..).unwrap_or_default();
            let matched = if rules.above.is_empty() {
                rules.matcher.matched(as_path(rest), true)
            } else {
                let full = [rules.above.as_slice(), rest].concat();
                rules.matcher.matched(as_path(&full), true)
            };
            match (matched, rules.parent.as_deref()) {
                (Match::Ignore(_), _) => return true,
                (Match::Whitelist(_), _) | (Match::None, None) => return false,
                (Match::None, Some(parent)) => rules = parent,
            }
        }
    }

    /// Puts the rules of `text`, which apply to the directory at `path`, on top of `parent`.
    pub(super) fn push(
        parent: Option<Arc<Rules>>,
        path: &[u8],
        above: &[u8],
        text: &[u8],
    ) -> Option<Arc<Rules>> {
        let cut = if path.is_empty() {
            0
        } else {
            path.len().saturating_add(1)
        };
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let mut rules = parent;
        // The first part is overridden by the next one.
        for matcher in matchers(&lines) {
            rules = Some(Arc::new(Rules {
                parent: rules,
                matcher,
                cut,
                above: above.to_vec(),
            }));
        }
        rules
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// One matcher, or none without rules; more if the rules are too many for one. As git does, a line
/// that is no rule is passed over.
fn matchers(lines: &[&[u8]]) -> Vec<Gitignore> {
    let mut builder = GitignoreBuilder::new(".");
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Ok(line) = std::str::from_utf8(line) {
            let _ = builder.add_line(None, &literal_braces(line));
        }
    }
    match builder.build() {
        Ok(matcher) if matcher.is_empty() => Vec::new(),
        Ok(matcher) => vec![matcher],
        Err(_) if lines.len() < 2 => Vec::new(),
        Err(_) => {
            let (first, rest) = lines.split_at(lines.len() / 2);
            [matchers(first), matchers(rest)].concat()
        }
    }
}

/// To git a brace is a character like others; to the matcher it opens a list of alternatives.
fn literal_braces(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    let mut in_class = false;
    let mut after_backslash = false;
    for character in line.chars() {
        if !after_backslash {
            match character {
                '[' => in_class = true,
                ']' => in_class = false,
                '{' | '}' if !in_class => escaped.push('\\'),
                _ => {}
            }
        }
        after_backslash = character == '\\' && !after_backslash;
        escaped.push(character);
    }
    escaped
}
