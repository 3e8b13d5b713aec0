//! Runs one command for the VM, within limits, and leaves no process behind.
//!
//! Two processes, each the other's guard. The first adopts and kills what is left when the second
//! has ended, however that came about; the second runs the command, and kills all when its
//! standard input closes (the port, the caller or the VM is gone) or when the first has died.

// Signals, sessions and waiting have no safe interface in std.
#![allow(unsafe_code)]

mod capture;
mod family;
mod protocol;
mod run;

use std::io;
use std::os::fd::AsRawFd;

fn main() {
    family::adopt_orphans();
    // SAFETY: SIGCHLD may be inherited as ignored, and then nothing could be waited for.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let Ok((guardian, alive)) = io::pipe() else {
        return;
    };
    // SAFETY: no thread has been started yet.
    match unsafe { libc::fork() } {
        -1 => {}
        0 => {
            drop(alive);
            family::adopt_orphans();
            serve(&guardian);
            // The program may have stopped it.
            family::wake(std::os::unix::process::parent_id().cast_signed());
        }
        worker => {
            drop(guardian);
            wait(worker);
            family::end_all(worker);
            drop(alive);
        }
    }
}

fn serve(guardian: &io::PipeReader) {
    // Unbuffered, since poll doesn't see what a buffer holds.
    let mut input = std::fs::File::from(
        match std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned() {
            Ok(input) => input,
            Err(_) => return,
        },
    );
    let reply = match protocol::read_packet(&mut input) {
        Ok(packet) => protocol::parse(&packet),
        Err(error) => Err(format!("can't read the request: {error}")),
    };
    let reply = match reply {
        Ok(request) => run::run(&request, [input.as_raw_fd(), guardian.as_raw_fd()]),
        Err(message) => Some(Err(message)),
    };
    if let Some(reply) = reply {
        // Nobody is left to be told that nobody listens.
        let _ = protocol::write_reply(&mut io::stdout(), &reply);
    }
}

/// Until the worker has ended. It stays a zombie, which `end_all` reaps. The program may have
/// stopped it, and then it keeps no limit any more.
fn wait(worker: libc::pid_t) {
    while let Some(change) = family::next_end(libc::WEXITED | libc::WSTOPPED) {
        if change.stopped || change.pid != worker {
            family::kill(change.pid);
        }
        if change.pid == worker {
            return;
        }
        family::reap(change.pid);
    }
}
