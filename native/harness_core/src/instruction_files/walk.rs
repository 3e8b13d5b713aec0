//! The walk: each directory is opened once, listed once, and its instruction file read at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, FileType, fstat, statat};
use rustix::io::Errno;

use super::content::{self, Content};
use super::git;
use super::identity::{Id, Identity, file_type};
use super::listing::{self, Buffer};
use super::names::{Match, Names};
use super::open::{Fault, Looked, Opener, open_dir};
use super::order::join;
use super::reason::{Reason, Unused, errno_name, is_shortage};
use super::rules::Rules;
use super::scope::Scope;
use super::snapshot::{Kind, Recorder};
use super::work::{Batch, Stack, StopOnPanic, Work};
use super::{Error, Limits, Nested};

/// So many directories are walked before further threads are started: a small workspace is done
/// sooner than they are.
const ALONE: usize = 256;

/// What stays the same during a walk.
pub(super) struct Plan<'a> {
    pub(super) workspace: &'a Path,
    pub(super) opener: &'a Opener,
    pub(super) names: &'a Names,
    pub(super) scope: &'a Scope,
    pub(super) gitignore: bool,
    pub(super) nested: Nested,
    pub(super) limits: Limits,
}

/// An instruction file that counts in its directory.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) path: Vec<u8>,
    pub(super) id: Id,
    pub(super) is_link: bool,
    /// Whether it lies in a nested repository.
    pub(super) nested: bool,
}

/// A wanted name that doesn't count because of another in its directory.
#[derive(Debug)]
pub(super) struct Surplus {
    pub(super) path: Vec<u8>,
    pub(super) id: Option<Id>,
    pub(super) by: Vec<u8>,
}

/// What was found, in no particular order.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    pub(super) surplus: Vec<Surplus>,
    pub(super) unused: Vec<Unused>,
    pub(super) recorders: Vec<Recorder>,
    pub(super) contents: HashMap<Id, Content>,
}

/// An open directory.
#[derive(Debug)]
struct Directory {
    fd: OwnedFd,
    path: Vec<u8>,
    depth: usize,
    rules: Option<Arc<Rules>>,
    nested: bool,
}

type Node = Arc<Directory>;

/// What the workers of a walk share.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    work: Work<Node>,
    directories: AtomicUsize,
    files: AtomicUsize,
    error: Mutex<Option<Error>>,
    /// Each file's content is read once, however many names it has. `None` while it is read.
    contents: Mutex<HashMap<Id, Option<Content>>>,
}

impl Shared<'_> {
    fn fail(&self, error: Error) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        drop(first);
        self.work.stop();
    }

    fn shortage(&self, errno: Errno) {
        self.fail(Error::Resources {
            error: errno_name(errno),
        });
    }
}

/// Walks the workspace. `rules` are those of the directories above it; `threads` is asked only if
/// there is work for more than one.
pub(super) fn walk(
    plan: &Plan<'_>,
    rules: Option<Arc<Rules>>,
    threads: impl FnOnce() -> usize,
) -> Result<Found, Error> {
    let shared = Shared {
        plan,
        work: Work::new(),
        directories: AtomicUsize::new(0),
        files: AtomicUsize::new(0),
        error: Mutex::new(None),
        contents: Mutex::new(HashMap::new()),
    };
    let mut found = Found::default();
    thread::scope(|scope| {
        let guard = StopOnPanic(&shared.work);
        let mut first = Worker::new(&shared);
        let mut helpers = Vec::new();
        if !first.run_alone(rules, ALONE) {
            for _ in 1..threads() {
                shared.work.add_worker();
                let helper = thread::Builder::new().spawn_scoped(scope, || {
                    let guard = StopOnPanic(&shared.work);
                    let mut worker = Worker::new(&shared);
                    worker.run();
                    drop(guard);
                    worker.into_found()
                });
                match helper {
                    Ok(helper) => helpers.push(helper),
                    Err(_) => shared.work.remove_worker(),
                }
            }
            first.run();
        }
        drop(guard);
        found = first.into_found();
        for helper in helpers {
            match helper.join() {
                Ok(more) => found.absorb(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    if let Some(error) = shared
        .error
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        return Err(error);
    }
    let contents = shared
        .contents
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    found.contents = contents
        .into_iter()
        .filter_map(|(id, content)| content.map(|content| (id, content)))
        .collect();
    Ok(found)
}

impl Found {
    fn absorb(&mut self, mut other: Found) {
        self.candidates.append(&mut other.candidates);
        self.surplus.append(&mut other.surplus);
        self.unused.append(&mut other.unused);
        self.recorders.append(&mut other.recorders);
    }
}

/// A thread's part of the walk.
struct Worker<'a> {
    shared: &'a Shared<'a>,
    stack: Stack<Node>,
    reader: Reader<'a>,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        let reader = Reader {
            shared,
            plan: shared.plan,
            buffer: Buffer::new(),
            recorder: Recorder::default(),
            found: Found::default(),
        };
        Worker {
            shared,
            stack: Stack::new(),
            reader,
        }
    }

    /// Reads the workspace itself, and walks on until the given number of directories has been
    /// seen; `true` if that was all.
    fn run_alone(&mut self, rules: Option<Arc<Rules>>, most: usize) -> bool {
        if let Some(batch) = self.reader.root(rules) {
            self.stack.push(batch);
        }
        while self.shared.directories.load(Ordering::Relaxed) < most {
            if self.shared.work.stopped() || !self.step() {
                return true;
            }
        }
        false
    }

    fn run(&mut self) {
        loop {
            while !self.shared.work.stopped() && self.step() {
                self.shared.work.share(&mut self.stack);
            }
            if self.shared.work.stopped() || !self.shared.work.take(&mut self.stack) {
                return;
            }
        }
    }

    /// Reads the next directory; `false` if there is none.
    fn step(&mut self) -> bool {
        let reader = &mut self.reader;
        let Some(read) = self.stack.next(|parent, name| reader.enter(&parent, name)) else {
            return false;
        };
        // On top, so that the walk is depth first.
        if let Some(batch) = read {
            self.stack.push(batch);
        }
        true
    }

    fn into_found(mut self) -> Found {
        self.reader.found.recorders.push(self.reader.recorder);
        self.reader.found
    }
}

/// What the listing of one directory showed.
#[derive(Default)]
struct Entries {
    /// Names of sub-directories, each with its NUL.
    directories: Vec<u8>,
    /// Ranks of the wanted names.
    wanted: Vec<usize>,
    /// Near misses, and the rank of what they miss.
    near: Vec<(Vec<u8>, usize)>,
    git: bool,
    gitignore: bool,
}

/// Reads directories, one at a time.
struct Reader<'a> {
    shared: &'a Shared<'a>,
    plan: &'a Plan<'a>,
    buffer: Buffer,
    recorder: Recorder,
    found: Found,
}

impl Reader<'_> {
    /// The workspace itself.
    fn root(&mut self, rules: Option<Arc<Rules>>) -> Option<Batch<Node>> {
        match open_dir(self.plan.opener.root(), c".") {
            Ok(fd) => self.read(Directory {
                fd,
                path: Vec::new(),
                depth: 0,
                rules,
                nested: false,
            }),
            Err(errno) => {
                self.lost(Vec::new(), errno);
                None
            }
        }
    }

    /// A sub-directory, opened from its parent.
    fn enter(&mut self, parent: &Node, name: &CStr) -> Option<Batch<Node>> {
        let path = join(&parent.path, name.to_bytes());
        let depth = parent.depth.saturating_add(1);
        if depth > self.plan.limits.depth {
            self.unused(
                path,
                Reason::TooDeep {
                    limit: self.plan.limits.depth,
                },
            );
            return None;
        }
        match open_dir(parent.fd.as_fd(), name) {
            Ok(fd) => {
                let rules = parent.rules.clone();
                self.read(Directory {
                    fd,
                    path,
                    depth,
                    rules,
                    nested: parent.nested,
                })
            }
            // Removed since it was listed, or replaced by something else, such as a link.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            Err(errno) => {
                if let Ok(stat) = statat(parent.fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                    self.recorder
                        .record(Kind::Itself, &path, Some(&Identity::new(&stat)));
                }
                self.lost(path, errno);
                None
            }
        }
    }

    /// Reads an open directory; gives back its sub-directories that are to be walked.
    fn read(&mut self, mut directory: Directory) -> Option<Batch<Node>> {
        let limit = self.plan.limits.directories;
        if self.shared.directories.fetch_add(1, Ordering::Relaxed) >= limit {
            self.shared.fail(Error::TooManyDirectories { limit });
            return None;
        }
        // Before the listing, so that a change during it shows as a change.
        let listed = fstat(&directory.fd).and_then(|stat| {
            self.recorder
                .record(Kind::Itself, &directory.path, Some(&Identity::new(&stat)));
            self.list(&directory)
        });
        let entries = match listed {
            Ok(entries) => entries,
            Err(errno) => {
                self.lost(directory.path, errno);
                return None;
            }
        };
        let is_nested = entries.git && directory.depth > 0;
        if is_nested && self.plan.nested == Nested::Skip {
            self.unused(directory.path, Reason::NestedRepository);
            return None;
        }
        directory.nested |= is_nested;
        for (name, rank) in &entries.near {
            let expected = self.plan.names.text(*rank);
            self.unused(join(&directory.path, name), Reason::NearMiss { expected });
        }
        if !entries.wanted.is_empty() {
            self.choose(&directory, entries.wanted);
        }
        if self.plan.gitignore && (entries.git || entries.gitignore) {
            // A repository's rules end where another one begins.
            let parent = if is_nested {
                None
            } else {
                directory.rules.take()
            };
            let place = git::Place {
                fd: directory.fd.as_fd(),
                path: &directory.path,
                above: b"",
            };
            let mut seen = git::Seen {
                recorder: &mut self.recorder,
                unused: &mut self.found.unused,
            };
            match git::rules(
                self.plan.opener,
                &place,
                parent,
                entries.git,
                entries.gitignore,
                &mut seen,
            ) {
                Ok(rules) => directory.rules = rules,
                Err(errno) => {
                    self.shared.shortage(errno);
                    return None;
                }
            }
        }
        let directories = self.walked(&directory, entries.directories);
        if directories.is_empty() {
            return None;
        }
        Some(Batch::new(Arc::new(directory), directories))
    }

    fn list(&mut self, directory: &Directory) -> Result<Entries, Errno> {
        let mut entries = Entries::default();
        let names = self.plan.names;
        listing::list(directory.fd.as_fd(), &mut self.buffer, |name, file_type| {
            let bytes = name.to_bytes();
            // What couldn't even be looked at may be a directory; opening it will tell.
            let is_directory = matches!(file_type, FileType::Directory | FileType::Unknown);
            match bytes {
                b".git" => {
                    entries.git |= matches!(
                        file_type,
                        FileType::Directory | FileType::RegularFile | FileType::Symlink
                    );
                    return;
                }
                b".gitignore" => entries.gitignore = true,
                _ => {}
            }
            if is_directory {
                entries
                    .directories
                    .extend_from_slice(name.to_bytes_with_nul());
            }
            match names.classify(bytes) {
                Some(Match::Exact(rank)) => entries.wanted.push(rank),
                Some(Match::Near(rank)) if !is_directory => {
                    entries.near.push((bytes.to_vec(), rank))
                }
                _ => {}
            }
        })?;
        Ok(entries)
    }

    /// The sub-directories that are in scope and not ignored.
    fn walked(&self, directory: &Directory, names: Vec<u8>) -> Vec<u8> {
        let rules = directory.rules.as_deref();
        if rules.is_none() && *self.plan.scope == Scope::All {
            return names;
        }
        let mut walked = Vec::with_capacity(names.len());
        for name in names.split_inclusive(|byte| *byte == 0) {
            let path = join(&directory.path, name.strip_suffix(b"\0").unwrap_or(name));
            if self.plan.scope.holds(&path) && !rules.is_some_and(|rules| rules.ignores(&path)) {
                walked.extend_from_slice(name);
            }
        }
        walked
    }

    /// Of the wanted names in a directory, the one preferred counts, whatever is wrong with it.
    fn choose(&mut self, directory: &Directory, mut ranks: Vec<usize>) {
        ranks.sort_unstable();
        let mut names = ranks
            .into_iter()
            .filter_map(|rank| self.plan.names.get(rank));
        let Some(chosen) = names.next() else { return };
        let path = join(&directory.path, chosen.to_bytes());
        for name in names {
            let surplus = join(&directory.path, name.to_bytes());
            let id = match self.look(directory, name, &surplus) {
                Ok(looked) => Some(Identity::new(&looked.node.stat).id()),
                Err(Fault::File(_)) => None,
                Err(Fault::Shortage(errno)) => return self.shared.shortage(errno),
            };
            self.found.surplus.push(Surplus {
                path: surplus,
                id,
                by: path.clone(),
            });
        }
        let limit = self.plan.limits.files;
        if self.shared.files.fetch_add(1, Ordering::Relaxed) >= limit {
            return self.shared.fail(Error::TooManyFiles { limit });
        }
        match self.load(directory, chosen, &path) {
            Ok((id, is_link)) => {
                let nested = directory.nested;
                self.found.candidates.push(Candidate {
                    path,
                    id,
                    is_link,
                    nested,
                });
            }
            Err(Fault::File(reason)) => self.unused(path, reason),
            Err(Fault::Shortage(errno)) => self.shared.shortage(errno),
        }
    }

    /// Looks at a file, and sees to it that its content is known.
    fn load(
        &mut self,
        directory: &Directory,
        name: &CStr,
        path: &[u8],
    ) -> Result<(Id, bool), Fault> {
        let looked = self.look(directory, name, path)?;
        let id = Identity::new(&looked.node.stat).id();
        if let Entry::Vacant(entry) = self.contents().entry(id) {
            entry.insert(None);
        } else {
            return Ok((id, looked.is_link));
        }
        let content = match self.plan.opener.read(&looked.node) {
            Ok(bytes) => content::from_bytes(bytes),
            Err(Fault::File(reason)) => Content::Unused(reason),
            Err(shortage) => return Err(shortage),
        };
        self.contents().insert(id, Some(content));
        Ok((id, looked.is_link))
    }

    /// Looks at a regular file, and records what would show that it has changed.
    fn look(&mut self, directory: &Directory, name: &CStr, path: &[u8]) -> Result<Looked, Fault> {
        let dir = directory.fd.as_fd();
        // Before the look, so that a change between the two shows as a change.
        let status = |flags| statat(dir, name, flags).ok();
        let itself = status(AtFlags::SYMLINK_NOFOLLOW);
        self.recorder.record(
            Kind::Itself,
            path,
            itself.as_ref().map(Identity::new).as_ref(),
        );
        let is_link = itself.is_some_and(|stat| file_type(&stat) == FileType::Symlink);
        let looked = self.plan.opener.look(dir, &directory.path, name);
        if is_link {
            match &looked {
                Ok(looked) => {
                    let identity = Identity::new(&looked.node.stat);
                    self.recorder.record(Kind::Followed, path, Some(&identity));
                }
                // Refused whatever is there.
                Err(Fault::File(Reason::AbsoluteLink | Reason::EscapingLink)) => {}
                Err(_) => {
                    let followed = status(AtFlags::empty());
                    self.recorder.record(
                        Kind::Followed,
                        path,
                        followed.as_ref().map(Identity::new).as_ref(),
                    );
                }
            }
        }
        let looked = looked?;
        match file_type(&looked.node.stat) {
            FileType::RegularFile => Ok(looked),
            kind => Err(Reason::NotRegular { kind: kind.into() }.into()),
        }
    }

    fn contents(&self) -> MutexGuard<'_, HashMap<Id, Option<Content>>> {
        self.shared
            .contents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory that can't be opened or listed.
    fn lost(&mut self, path: Vec<u8>, errno: Errno) {
        if is_shortage(errno) {
            self.shared.shortage(errno);
        } else if path.is_empty() {
            self.shared
                .fail(super::workspace_error(self.plan.workspace, errno));
        } else {
            self.unused(
                path,
                Reason::Unreadable {
                    error: errno_name(errno),
                },
            );
        }
    }

    fn unused(&mut self, path: Vec<u8>, reason: Reason) {
        self.found.unused.push(Unused { path, reason });
    }
}
