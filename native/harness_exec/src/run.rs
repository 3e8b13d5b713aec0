//! One command, from its start until nothing of it is left.

use crate::capture::Capture;
use crate::family;
use crate::protocol::{Reply, Request, Status};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs it. `None` when one of `lifelines` closed, and so nobody waits for the answer.
///
/// When the direct child ends, what it left running is killed at once, and what the pipes still
/// hold is read: a descendant that keeps a pipe open delays nothing.
pub fn run(request: &Request, lifelines: [i32; 2]) -> Option<Result<Reply, String>> {
    let limit = request.max_output as usize;
    let deadline = Instant::now().checked_add(Duration::from_millis(request.timeout_ms.into()));
    let mut child = match command(request).spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = request.program.display();
            let directory = request.directory.display();
            return Some(Err(format!("can't run {program} in {directory}: {error}")));
        }
    };
    let pid = child.id().cast_signed();
    let ended = watch(pid);
    let mut pipes = [
        child
            .stdout
            .take()
            .map(OwnedFd::from)
            .map(std::fs::File::from),
        child
            .stderr
            .take()
            .map(OwnedFd::from)
            .map(std::fs::File::from),
    ];
    let mut captures = [Capture::default(), Capture::default()];
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            family::end_all(pid);
            return Some(Err(format!("can't watch the program: {error}")));
        }
    };
    let [port, guardian] = lifelines;
    let mut timed_out = false;
    loop {
        let left = deadline.map_or(Duration::MAX, |end| {
            end.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            timed_out = true;
            break;
        }
        let [out, err] = &pipes;
        let descriptor =
            |pipe: &Option<std::fs::File>| pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let ready = poll(
            [
                port,
                guardian,
                ended.as_raw_fd(),
                descriptor(out),
                descriptor(err),
            ],
            left,
        );
        let [
            port_ready,
            guardian_ready,
            ended_ready,
            out_ready,
            err_ready,
        ] = ready;
        if port_ready || guardian_ready {
            family::end_all(pid);
            return None;
        }
        for ((pipe, capture), ready) in pipes
            .iter_mut()
            .zip(&mut captures)
            .zip([out_ready, err_ready])
        {
            if ready && !read_once(pipe, capture, limit) {
                *pipe = None;
            }
        }
        if ended_ready {
            break;
        }
    }
    let raw = family::end_all(pid);
    for (pipe, capture) in pipes.iter_mut().zip(&mut captures) {
        drain(pipe, capture, limit);
    }
    let status = match raw {
        _ if timed_out => Status::Timeout,
        Some(raw) if libc::WIFSIGNALED(raw) => Status::Signal(libc::WTERMSIG(raw).cast_unsigned()),
        Some(raw) => Status::Exit(libc::WEXITSTATUS(raw).cast_unsigned()),
        None => return Some(Err("the program's end was not seen".into())),
    };
    let [stdout, stderr] = captures.map(|capture| capture.finish(limit));
    Some(Ok(Reply {
        status,
        stdout,
        stderr,
    }))
}

fn command(request: &Request) -> Command {
    let mut command = Command::new(&request.program);
    command
        .args(&request.arguments)
        .env_clear()
        .envs(
            request
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .current_dir(&request.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let parent = std::process::id();
    // SAFETY: only async-signal-safe calls.
    unsafe { command.pre_exec(move || prepare(parent)) };
    command
}

/// In the child, before the program: a session of its own, no signal ignored or blocked (the VM
/// ignores some), and death when its parent dies.
fn prepare(parent: u32) -> io::Result<()> {
    // SAFETY: async-signal-safe calls on integers and on a set that outlives them.
    unsafe {
        if libc::setsid() == -1 {
            return Err(io::Error::last_os_error());
        }
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // It may have died before the line above.
        if libc::getppid().cast_unsigned() != parent {
            libc::_exit(127);
        }
    }
    Ok(())
}

/// A pipe that closes when the child has ended. It isn't reaped, so that its number stays its own;
/// the orphans that end meanwhile are, so that they don't fill the process table.
fn watch(pid: libc::pid_t) -> io::Result<io::PipeReader> {
    let (reader, writer) = io::pipe()?;
    std::thread::Builder::new().spawn(move || {
        let _writer = writer;
        while let Some(ended) = family::next_end(libc::WEXITED) {
            if ended.pid == pid {
                break;
            }
            family::reap(ended.pid);
        }
    })?;
    Ok(reader)
}

fn poll<const N: usize>(descriptors: [i32; N], left: Duration) -> [bool; N] {
    let events = libc::POLLIN;
    let mut fds = descriptors.map(|fd| libc::pollfd {
        fd,
        events,
        revents: 0,
    });
    // Rounded up: a poll that ends too early would spin until the deadline.
    let timeout = i32::try_from(left.as_millis().saturating_add(1)).unwrap_or(i32::MAX);
    // SAFETY: the array outlives the call and N is its length.
    let count = unsafe { libc::poll(fds.as_mut_ptr(), N as libc::nfds_t, timeout) };
    fds.map(|fd| count > 0 && fd.revents != 0)
}

/// False at the stream's end.
fn read_once(pipe: &mut Option<std::fs::File>, capture: &mut Capture, limit: usize) -> bool {
    let mut buffer = [0; 65_536];
    match pipe.as_mut().map(|pipe| pipe.read(&mut buffer)) {
        Some(Ok(count)) => {
            capture.add(buffer.get(..count).unwrap_or_default(), limit);
            count > 0
        }
        Some(Err(error)) => error.kind() == io::ErrorKind::Interrupted,
        None => false,
    }
}

/// What a pipe holds now. A pipe holds 1 MiB at most (pipe(7)), so somebody beyond our reach who
/// got hold of it and goes on writing does not hold us up.
fn drain(pipe: &mut Option<std::fs::File>, capture: &mut Capture, limit: usize) {
    for _ in 0..64 {
        let fd = pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let [ready] = poll([fd], Duration::ZERO);
        if !ready || !read_once(pipe, capture, limit) {
            break;
        }
    }
}
