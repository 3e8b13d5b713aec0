//! Where Markdown is best cut, and what closes a code fence that a cut leaves open.
//!
//! Lines are looked at one by one, through the block quotes and list items that they stand in:
//! fences, headings (`#` and underlined) and blank lines, as in CommonMark 0.31. A cut needs to know
//! no more than that; HTML blocks and tables are ordinary lines here.

use crate::plan::Cut;

/// A code fence, where it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The byte offset of its line.
    pub line: usize,
    /// The byte offset of its run of backticks or tildes.
    pub run: usize,
    /// The run's length in bytes.
    pub len: usize,
}

/// How far beyond the end a line is looked at, to tell whether it is a heading.
const LOOKAHEAD: usize = 64;

/// The places from `near` to `far` at which a text may be cut, the best first: before the last
/// heading, between the last two paragraphs, after the last line, at `far` itself, which is a
/// [boundary](crate::boundary). No heading and no paragraph is looked for inside a code fence.
///
/// ```
/// use harness_core::markdown::{closing, cuts};
///
/// let text = b"# Use\n\nRun:\n\n```sh\nmake all\nmake test\n```\n";
/// let cuts = cuts(text, 7, 35);
/// assert_eq!(cuts.iter().map(|cut| cut.at).collect::<Vec<_>>(), [13, 28, 35]);
/// assert_eq!(closing(text, cuts[0]), "");
/// assert_eq!(closing(text, cuts[1]), "```\n");
/// assert_eq!(closing(text, cuts[2]), "\n```\n");
/// ```
pub fn cuts(text: &[u8], near: usize, far: usize) -> Vec<Cut> {
    let near = near.max(1);
    let mut scan = Scan::default();
    let (mut heading, mut paragraph, mut line) = (None, None, None);
    let mut at: usize = 0;
    loop {
        let fence = scan.open.map(|open| open.fence);
        if at >= near {
            line = Some(Cut { at, fence });
            if scan.after_blank {
                paragraph = line;
            }
        }
        let end = line_end(text, at, far);
        let seen = end.unwrap_or_else(|| {
            let ahead = far.saturating_add(LOOKAHEAD).min(text.len());
            line_end(text, at, ahead).unwrap_or(ahead)
        });
        let mut whole = scan;
        if let Kind::Heading(start) = whole.read(text, at, seen)
            && start >= near
        {
            heading = Some(Cut {
                at: start,
                fence: None,
            });
        }
        match end {
            Some(end) => (scan, at) = (whole, end),
            None => {
                let last = match scan.read(text, at, far) {
                    // With more on its line it would not close the fence.
                    Kind::Closer => Cut { at, fence },
                    _ => Cut {
                        at: far,
                        fence: scan.open.map(|open| open.fence),
                    },
                };
                let cuts = [heading, paragraph, line, Some(last)];
                return cuts.into_iter().flatten().collect();
            }
        }
    }
}

/// What has to follow a prefix so that the code fence open at its end is closed and its line is
/// ended; empty where none is. Inside quotes and list items it is quoted and indented alike.
pub fn closing(text: &[u8], cut: Cut) -> String {
    let Some(Fence { line, run, len }) = cut.fence else {
        return String::new();
    };
    let mut closing = String::new();
    let last = cut.at.checked_sub(1).and_then(|last| text.get(last));
    if !last.copied().is_some_and(is_line_break) {
        closing.push('\n');
    }
    // A list marker would begin a new item.
    let lead = text.get(line..run).unwrap_or_default();
    closing.extend(lead.iter().map(|byte| match byte {
        b'>' => '>',
        b'\t' => '\t',
        _ => ' ',
    }));
    let run = text.get(run..run.saturating_add(len)).unwrap_or_default();
    closing.extend(run.iter().copied().map(char::from));
    closing.push('\n');
    closing
}

/// The offset after the line that begins at `start`, if the line ends at or before `limit`.
fn line_end(text: &[u8], start: usize, limit: usize) -> Option<usize> {
    let line = text.get(start..limit)?;
    let at = line.iter().position(|&byte| is_line_break(byte))?;
    let end = start.saturating_add(at).saturating_add(1);
    let crlf = line.get(at) == Some(&b'\r') && text.get(end) == Some(&b'\n');
    let end = end.saturating_add(usize::from(crlf));
    (end <= limit).then_some(end)
}

fn is_line_break(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// What a line turned out to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A heading, or the underline of one that begins there.
    Heading(usize),
    /// The end of the code fence that was open.
    Closer,
    Other,
}

/// What is known of the text up to the start of a line.
#[derive(Clone, Copy, Default)]
struct Scan {
    /// The code fence that is open.
    open: Option<Open>,
    /// The line before is blank, and in no code fence.
    after_blank: bool,
    /// Where the paragraph began that the line before belongs to, and in how many quotes.
    paragraph: Option<(usize, usize)>,
}

#[derive(Clone, Copy)]
struct Open {
    fence: Fence,
    mark: u8,
    /// The quotes that it stands in, and its columns after the last of them.
    depth: usize,
    indent: usize,
    /// The columns that keep a line in its list item.
    item: usize,
}

impl Scan {
    /// Reads the line from `start` to `end`.
    fn read(&mut self, text: &[u8], start: usize, end: usize) -> Kind {
        let line = text.get(start..end).unwrap_or_default();
        if let Some(open) = self.open {
            match open.line(line) {
                Some(kind) => {
                    if kind == Kind::Closer {
                        self.open = None;
                    }
                    return kind;
                }
                // Its quote or list item is over, and so is the fence.
                None => self.open = None,
            }
        }
        let lead = Lead::of(line);
        let rest = line.get(lead.len..).unwrap_or_default();
        let paragraph = self.paragraph.take();
        self.after_blank = rest.iter().copied().all(is_blank);
        if self.after_blank {
            return Kind::Other;
        }
        if let Some((mark, len)) = fence_run(rest) {
            self.open = Some(Open {
                fence: Fence {
                    line: start,
                    run: start.saturating_add(lead.len),
                    len,
                },
                mark,
                depth: lead.depth,
                indent: lead.indent,
                item: lead.item,
            });
            return Kind::Other;
        }
        if is_heading(rest) {
            return Kind::Heading(start);
        }
        let begun = match paragraph {
            Some((at, depth)) if lead.item == 0 && depth == lead.depth => {
                if is_underline(rest) {
                    return Kind::Heading(at);
                }
                at
            }
            _ => start,
        };
        self.paragraph = Some((begun, lead.depth));
        Kind::Other
    }
}

impl Open {
    /// What a line is to the open fence; `None` where it is not inside any more.
    fn line(self, line: &[u8]) -> Option<Kind> {
        let mut at: usize = 0;
        for _ in 0..self.depth {
            at = at.saturating_add(spaces(line, at).1);
            if line.get(at) != Some(&b'>') {
                return None;
            }
            at = at.saturating_add(1);
            at = at.saturating_add(usize::from(line.get(at) == Some(&b' ')));
        }
        let (columns, bytes) = spaces(line, at);
        let rest = line.get(at.saturating_add(bytes)..).unwrap_or_default();
        if rest.iter().copied().all(is_blank) {
            return Some(Kind::Other);
        }
        if columns < self.item {
            return None;
        }
        let run = rest.iter().take_while(|&&byte| byte == self.mark).count();
        let after = rest.get(run..).unwrap_or_default();
        let closes = run >= self.fence.len
            && columns <= self.indent.saturating_add(3)
            && after.iter().copied().all(is_blank);
        Some(if closes { Kind::Closer } else { Kind::Other })
    }
}

/// What a line begins with: quotes, list markers and white space.
#[derive(Default)]
struct Lead {
    len: usize,
    /// How many quotes.
    depth: usize,
    /// The columns after the last of them.
    indent: usize,
    /// The columns up to the content of the last list item that begins here; 0 if none does.
    item: usize,
}

impl Lead {
    fn of(line: &[u8]) -> Self {
        let mut lead = Self::default();
        loop {
            let (columns, bytes) = spaces(line, lead.len);
            lead.len = lead.len.saturating_add(bytes);
            lead.indent = lead.indent.saturating_add(columns);
            let rest = line.get(lead.len..).unwrap_or_default();
            if rest.first() == Some(&b'>') {
                let space = usize::from(rest.get(1) == Some(&b' '));
                lead.len = lead.len.saturating_add(1).saturating_add(space);
                lead.depth = lead.depth.saturating_add(1);
                (lead.indent, lead.item) = (0, 0);
            } else if let Some(marker) = list_marker(rest) {
                lead.len = lead.len.saturating_add(marker);
                lead.indent = lead.indent.saturating_add(marker);
                lead.item = lead.indent.saturating_add(1);
            } else {
                return lead;
            }
        }
    }
}

/// The columns and bytes of the white space at an offset; a tab leads to a multiple of four.
fn spaces(line: &[u8], at: usize) -> (usize, usize) {
    let mut columns: usize = 0;
    let mut bytes: usize = 0;
    for byte in line.get(at..).unwrap_or_default() {
        columns = match byte {
            b' ' => columns.saturating_add(1),
            b'\t' => (columns | 3).saturating_add(1),
            _ => break,
        };
        bytes = bytes.saturating_add(1);
    }
    (columns, bytes)
}

/// The length of a list marker in front of white space: `-`, `+`, `*`, `1.`, `1)`.
fn list_marker(rest: &[u8]) -> Option<usize> {
    let len = match rest.first()? {
        b'-' | b'+' | b'*' => 1,
        b'0'..=b'9' => {
            let digits = rest.iter().take(10).take_while(|b| b.is_ascii_digit());
            let digits = digits.count();
            let is_marker = digits < 10 && matches!(rest.get(digits), Some(b'.' | b')'));
            is_marker.then(|| digits.saturating_add(1))?
        }
        _ => return None,
    };
    matches!(rest.get(len), Some(b' ' | b'\t')).then_some(len)
}

/// The run that opens a code fence: three or more, and with backticks no other after them.
fn fence_run(rest: &[u8]) -> Option<(u8, usize)> {
    let mark = *rest.first()?;
    let len = rest.iter().take_while(|&&byte| byte == mark).count();
    let info = rest.get(len..).unwrap_or_default();
    let opens = match mark {
        b'`' => !info.contains(&b'`'),
        b'~' => true,
        _ => false,
    };
    (opens && len >= 3).then_some((mark, len))
}

fn is_heading(rest: &[u8]) -> bool {
    let level = rest.iter().take_while(|&&byte| byte == b'#').count();
    (1..=6).contains(&level) && rest.get(level).copied().is_none_or(is_blank)
}

/// What makes a heading of the paragraph above it.
fn is_underline(rest: &[u8]) -> bool {
    let Some(&mark @ (b'=' | b'-')) = rest.first() else {
        return false;
    };
    let run = rest.iter().take_while(|&&byte| byte == mark).count();
    let after = rest.get(run..).unwrap_or_default();
    after.iter().copied().all(is_blank)
}
