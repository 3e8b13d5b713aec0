//! Ending every descendant. On Linux those that left the process group too: this process is a
//! subreaper, so an orphan becomes its child, and no child left means no descendant left.
//! Elsewhere only the direct child's group is known.

use std::io;
use std::time::{Duration, Instant};

/// A process that can't be killed (another user's, or in the kernel) holds us up no longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lets orphans among the descendants become children of this process.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // SAFETY: takes integers only.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
}

/// A child that has ended or, when that is asked for, was stopped.
pub struct Change {
    pub pid: libc::pid_t,
    pub stopped: bool,
}

/// Waits for the next change of any child and leaves it to be reaped; `None` without children.
pub fn next_end(options: libc::c_int) -> Option<Change> {
    loop {
        // SAFETY: `info` outlives the calls, and waitid has filled it.
        let (result, change) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let result = libc::waitid(libc::P_ALL, 0, &raw mut info, options | libc::WNOWAIT);
            let stopped = info.si_code == libc::CLD_STOPPED;
            let pid = info.si_pid();
            (result, Change { pid, stopped })
        };
        if result == 0 {
            return Some(change);
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Takes the status of a child that has ended.
pub fn reap(pid: libc::pid_t) {
    // SAFETY: a null pointer is where no status is wanted.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
}

/// Wakes a process that somebody stopped.
pub fn wake(pid: libc::pid_t) {
    // SAFETY: takes integers only.
    unsafe { libc::kill(pid, libc::SIGCONT) };
}

/// Kills and reaps until no child is left; the raw wait status of `child`, if it was among them.
pub fn end_all(child: libc::pid_t) -> Option<i32> {
    let give_up = Instant::now().checked_add(PATIENCE);
    let mut status = None;
    loop {
        // The group at one blow; before the child is reaped, so that its number is not another's.
        if status.is_none() {
            kill(child.saturating_neg());
        }
        for descendant in descendants() {
            kill(descendant);
        }
        loop {
            let mut raw = 0;
            // SAFETY: `raw` outlives the call.
            match unsafe { libc::waitpid(-1, &raw mut raw, libc::WNOHANG) } {
                0 => break,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return status,
                pid if pid == child => status = Some(raw),
                _ => {}
            }
        }
        if give_up.is_none_or(|limit| Instant::now() > limit) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// At once and whatever it does.
pub fn kill(pid: libc::pid_t) {
    // SAFETY: takes integers only.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

#[cfg(not(target_os = "linux"))]
fn descendants() -> Vec<libc::pid_t> {
    Vec::new()
}

/// All processes beneath this one, by the parents that /proc names.
#[cfg(target_os = "linux")]
fn descendants() -> Vec<libc::pid_t> {
    let mut children: std::collections::HashMap<i32, Vec<i32>> = Default::default();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![std::process::id().cast_signed()];
    while let Some(pid) = next.pop() {
        // Removed, so that numbers used again can't make a circle.
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(child);
            next.push(child);
        }
    }
    found
}

#[cfg(target_os = "linux")]
fn parent(pid: i32) -> Option<i32> {
    // The name may hold anything, blanks and brackets included: what counts follows its end.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end..)?).ok()?;
    fields.split(' ').nth(2)?.parse().ok()
}
