//! Shares the directories still to be read among a few threads.
//!
//! Each worker goes depth first through a stack of its own, which keeps few directories open; when
//! another has nothing to do, it gives away half of the oldest part of its stack, which holds the
//! largest subtrees. There is no global pool: threads are started by the calling thread, so they
//! share its file-system identity, and are gone when the walk returns.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Sub-directories of one directory (`N`), to be opened from it.
#[derive(Debug)]
pub(super) struct Batch<N> {
    pub(super) node: N,
    /// Each name followed by its NUL.
    names: Vec<u8>,
    /// Where the first name not yet taken starts.
    next: usize,
}

impl<N: Clone> Batch<N> {
    pub(super) fn new(node: N, names: Vec<u8>) -> Self {
        Batch {
            node,
            names,
            next: 0,
        }
    }

    /// Takes one name.
    fn take(&mut self) -> Option<(N, &CStr)> {
        let rest = self.names.get(self.next..)?;
        let name = CStr::from_bytes_until_nul(rest).ok()?;
        self.next = self.next.saturating_add(name.to_bytes_with_nul().len());
        Some((self.node.clone(), name))
    }

    fn is_done(&self) -> bool {
        self.next >= self.names.len()
    }

    /// Splits off about half of the names, if there are at least two.
    fn split(&mut self) -> Option<Self> {
        let rest = self.names.get(self.next..)?;
        let middle = rest.len() / 2;
        let end = rest.get(middle..)?.iter().position(|byte| *byte == 0)?;
        let cut = self
            .next
            .checked_add(middle)?
            .checked_add(end)?
            .checked_add(1)?;
        if cut >= self.names.len() {
            return None;
        }
        let names = self.names.split_off(cut);
        Some(Batch::new(self.node.clone(), names))
    }
}

/// A worker's own stack.
#[derive(Debug)]
pub(super) struct Stack<N>(Vec<Batch<N>>);

impl<N: Clone> Stack<N> {
    pub(super) fn new() -> Self {
        Stack(Vec::new())
    }

    pub(super) fn push(&mut self, batch: Batch<N>) {
        self.0.push(batch);
    }

    /// Calls `visit` with the next name, if there is one.
    pub(super) fn next<R>(&mut self, mut visit: impl FnMut(N, &CStr) -> R) -> Option<R> {
        loop {
            let batch = self.0.last_mut()?;
            let visited = batch.take().map(|(node, name)| visit(node, name));
            // At once, so that a directory is closed when its last sub-directory is open.
            if batch.is_done() {
                self.0.pop();
            }
            if visited.is_some() {
                return visited;
            }
        }
    }

    /// Parts with the oldest work, keeping some.
    fn give(&mut self) -> Option<Batch<N>> {
        if self.0.len() > 1 {
            let oldest = self.0.first_mut()?;
            if let Some(half) = oldest.split() {
                return Some(half);
            }
            return Some(self.0.remove(0));
        }
        self.0.first_mut()?.split()
    }
}

#[derive(Debug)]
struct State<N> {
    batches: Vec<Batch<N>>,
    workers: usize,
    idle: usize,
}

impl<N> State<N> {
    /// Workers for whom nothing is waiting.
    fn unmet(&self) -> usize {
        self.idle.saturating_sub(self.batches.len())
    }
}

/// What the workers share.
#[derive(Debug)]
pub(super) struct Work<N> {
    state: Mutex<State<N>>,
    changed: Condvar,
    /// A copy of `State::unmet` that can be looked at without the lock.
    hungry: AtomicUsize,
    stop: AtomicBool,
}

impl<N: Clone> Work<N> {
    /// For one worker; further ones are [added](Self::add_worker).
    pub(super) fn new() -> Self {
        Work {
            state: Mutex::new(State {
                batches: Vec::new(),
                workers: 1,
                idle: 0,
            }),
            changed: Condvar::new(),
            hungry: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// To be called before a worker's thread is started.
    pub(super) fn add_worker(&self) {
        let mut state = self.lock();
        state.workers = state.workers.saturating_add(1);
    }

    /// To be called when that thread couldn't be started.
    pub(super) fn remove_worker(&self) {
        let mut state = self.lock();
        state.workers = state.workers.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Makes every worker return soon.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // With the lock held, so that nobody is between looking at the flag and waiting.
        let _state = self.lock();
        self.changed.notify_all();
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Gives work away if somebody has none.
    pub(super) fn share(&self, stack: &mut Stack<N>) {
        if self.hungry.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(batch) = stack.give() {
            let mut state = self.lock();
            state.batches.push(batch);
            self.hungry.store(state.unmet(), Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// Waits for work; `false` when all of it is done.
    pub(super) fn take(&self, stack: &mut Stack<N>) -> bool {
        let mut state = self.lock();
        state.idle = state.idle.saturating_add(1);
        loop {
            if self.stopped() {
                return false;
            }
            if let Some(batch) = state.batches.pop() {
                state.idle = state.idle.saturating_sub(1);
                self.hungry.store(state.unmet(), Ordering::Relaxed);
                stack.push(batch);
                return true;
            }
            if state.idle >= state.workers {
                self.changed.notify_all();
                return false;
            }
            self.hungry.store(state.unmet(), Ordering::Relaxed);
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the others when the thread that holds it panics, so that nobody waits for it for ever.
pub(super) struct StopOnPanic<'a, N: Clone>(pub(super) &'a Work<N>);

impl<N: Clone> Drop for StopOnPanic<'_, N> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
