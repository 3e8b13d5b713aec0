//! The one order in which paths are listed: shallow first, then by components, bytewise.

use std::cmp::Ordering;

/// Compares two `/`-separated relative paths: first by depth, then component by component.
///
/// Ascending order is ascending precedence ("the deeper, the stronger"). A plain comparison of the
/// bytes would put `a b/x` before `a/x`, because a space is less than a slash.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    depth(a)
        .cmp(&depth(b))
        .then_with(|| a.split(is_slash).cmp(b.split(is_slash)))
}

/// How many directories lie above the last component.
fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| is_slash(byte)).count()
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// `dir/name`, or `name` when `dir` is the workspace itself (the empty path).
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len().saturating_add(name.len()).saturating_add(1));
    path.extend_from_slice(dir);
    if !dir.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
