//! The topmost levels of a directory, as a few lines of text.
//!
//! Names are data: [`crate::escape`] writes them. A line that says something about an entry can't
//! be imitated by a name: it has a `/` before what it says, or stands without an indent.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, open};
use rustix::io::Errno;

use crate::escape::escape_short;
use crate::instruction_files::listing::{Buffer, list};
use crate::instruction_files::open::open_dir;

/// The most lines a tree has, the first (`./`) and the last (what was left out) included.
pub const LINES: usize = 30;
/// The most entries of a directory that are shown and are no directories.
pub const FILES: usize = 10;

/// Besides hidden entries: what package managers and interpreters fill.
const SKIPPED: [&[u8]; 3] = [b"node_modules", b"venv", b"__pycache__"];

/// One shown entry.
struct Node {
    name: CString,
    is_dir: bool,
    unreadable: bool,
    children: Vec<usize>,
    /// Entries found in it, shown or not.
    found: u64,
}

/// What a directory holds: how much, and the first of it in bytewise order.
struct Listed {
    first: BTreeSet<(CString, bool)>,
    found: u64,
}

/// The tree of `root`, `depth` levels deep, without a newline at its end.
///
/// Entries of one level go before those of the next until the lines are used up; an entry that is
/// not shown counts as one, whatever is below it. Nothing below `depth` is opened, links are not
/// followed, and no more names are kept than can be shown. A directory that can't be listed says
/// so. The error is that of `root` itself.
pub fn tree(root: &Path, depth: usize) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut buffer = Buffer::new();
    let top = open(root, flags, Mode::empty())?;
    let mut room = LINES.saturating_sub(1);
    let mut nodes = Vec::new();
    let mut left_out = 0u64;
    let (mut top_level, mut level) = (Vec::new(), Vec::new());
    if depth > 0 {
        let listed = look(top.as_fd(), &mut buffer)?;
        (top_level, left_out) = show(listed, &mut room, &mut nodes);
        level = dirs(&top, &top_level, &mut nodes);
    }
    for _ in 1..depth {
        if level.is_empty() {
            break;
        }
        let mut next = Vec::new();
        for (index, fd) in level {
            match look(fd.as_fd(), &mut buffer) {
                Ok(listed) => {
                    let found = listed.found;
                    let (children, more) = show(listed, &mut room, &mut nodes);
                    left_out = left_out.saturating_add(more);
                    next.extend(dirs(&fd, &children, &mut nodes));
                    if let Some(node) = nodes.get_mut(index) {
                        (node.children, node.found) = (children, found);
                    }
                }
                Err(_) => mark_unreadable(&mut nodes, index),
            }
        }
        level = next;
    }
    // The last line needs a line itself: the last entry makes room, and has no child that is shown.
    let mut last = nodes.len();
    if left_out > 0 && room == 0 {
        last = last.saturating_sub(1);
        let below = nodes.get(last).map_or(0, |node| node.found);
        left_out = left_out.saturating_sub(below).saturating_add(1);
    }
    let mut text = String::from("./");
    print(&nodes, &top_level, last, &mut text);
    if left_out > 0 {
        let entries = if left_out == 1 { "entry" } else { "entries" };
        text.push_str(&format!("\n({left_out} more {entries})"));
    }
    Ok(text)
}

/// Keeps the first names in order, whatever the order and number of the listing.
fn look(dir: BorrowedFd<'_>, buffer: &mut Buffer) -> Result<Listed, Errno> {
    let (mut files, mut dirs) = (BTreeSet::new(), BTreeSet::new());
    let mut found = 0u64;
    list(dir, buffer, |name, file_type| {
        let bytes = name.to_bytes();
        if bytes.starts_with(b".") || SKIPPED.contains(&bytes) {
            return;
        }
        found = found.saturating_add(1);
        match file_type {
            FileType::Directory => keep(&mut dirs, name, LINES),
            _ => keep(&mut files, name, FILES),
        }
    })?;
    let dirs = dirs.into_iter().map(|name| (name, true));
    let first = dirs.chain(files.into_iter().map(|name| (name, false)));
    Ok(Listed {
        first: first.collect(),
        found,
    })
}

fn keep(names: &mut BTreeSet<CString>, name: &CStr, most: usize) {
    let is_full = names.len() >= most;
    if is_full && names.last().is_some_and(|last| last.as_c_str() <= name) {
        return;
    }
    names.insert(name.to_owned());
    if names.len() > most {
        names.pop_last();
    }
}

/// Gives lines to a directory's entries; their indices, and how many got none.
fn show(listed: Listed, room: &mut usize, nodes: &mut Vec<Node>) -> (Vec<usize>, u64) {
    let mut children = Vec::new();
    for (name, is_dir) in listed.first.into_iter().take(*room) {
        children.push(nodes.len());
        nodes.push(Node {
            name,
            is_dir,
            unreadable: false,
            children: Vec::new(),
            found: 0,
        });
    }
    *room = room.saturating_sub(children.len());
    let shown = u64::try_from(children.len()).unwrap_or(u64::MAX);
    (children, listed.found.saturating_sub(shown))
}

/// The directories among shown entries, open: no more than there are lines.
fn dirs(parent: &OwnedFd, entries: &[usize], nodes: &mut [Node]) -> Vec<(usize, OwnedFd)> {
    let mut open = Vec::new();
    for &index in entries {
        let Some(node) = nodes.get(index).filter(|node| node.is_dir) else {
            continue;
        };
        match open_dir(parent.as_fd(), &node.name) {
            Ok(fd) => open.push((index, fd)),
            Err(_) => mark_unreadable(nodes, index),
        }
    }
    open
}

fn mark_unreadable(nodes: &mut [Node], index: usize) {
    if let Some(node) = nodes.get_mut(index) {
        node.unreadable = true;
    }
}

/// Prints depth first. A stack of our own: the depth is the caller's choice.
fn print(nodes: &[Node], top_level: &[usize], last: usize, text: &mut String) {
    let mut stack: Vec<(usize, usize)> = top_level.iter().rev().map(|&index| (1, index)).collect();
    while let Some((indent, index)) = stack.pop() {
        let Some(node) = nodes.get(index).filter(|_| index < last) else {
            continue;
        };
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', indent));
        text.push_str(&shown(node.name.to_bytes()));
        if node.is_dir {
            text.push('/');
        }
        if node.unreadable {
            text.push_str(" (unreadable)");
        }
        let below = node.children.iter().rev();
        stack.extend(below.map(|&child| (indent.saturating_add(1), child)));
    }
}

/// A leading space would read as an indent.
fn shown(name: &[u8]) -> String {
    let name = escape_short(name);
    match name.chars().next() {
        Some(first) if first.is_whitespace() => {
            let rest = name.strip_prefix(first).unwrap_or_default();
            format!("{}{rest}", first.escape_unicode())
        }
        _ => name,
    }
}
