//! Counts the sources that lie in directories which git's rules leave out.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::git::{self, Place, Seen};
use super::open::{Opener, open_dir};
use super::order::join;
use super::reason::is_shortage;
use super::rules::Rules;
use super::snapshot::Recorder;

/// The rules that apply in a directory; of one that is ignored nothing more is asked.
#[derive(Clone)]
enum State {
    Ignored,
    Walked(Option<Arc<Rules>>),
}

/// Looks only at directories above sources, and at each one's rules once.
pub(super) struct Counter<'a> {
    pub(super) opener: &'a Opener,
    pub(super) above: Option<Arc<Rules>>,
    pub(super) recorder: &'a mut Recorder,
}

impl Counter<'_> {
    /// How many of the files at `paths` lie in ignored directories. A directory that is gone counts
    /// as not ignored.
    pub(super) fn count<'p>(
        mut self,
        paths: impl Iterator<Item = &'p [u8]>,
    ) -> Result<usize, Errno> {
        let mut known = HashMap::new();
        let mut count = 0_usize;
        for path in paths {
            match self.is_ignored(path, &mut known) {
                Ok(is_ignored) => count = count.saturating_add(usize::from(is_ignored)),
                Err(errno) if is_shortage(errno) => return Err(errno),
                Err(_) => {}
            }
        }
        Ok(count)
    }

    fn is_ignored(
        &mut self,
        file: &[u8],
        known: &mut HashMap<Vec<u8>, State>,
    ) -> Result<bool, Errno> {
        let mut fd = open_dir(self.opener.root(), c".")?;
        let mut path = Vec::new();
        let mut names = file.split(|byte| *byte == b'/');
        names.next_back();
        let mut rules = match known.get(&path) {
            Some(State::Walked(rules)) => rules.clone(),
            _ => {
                let rules = self.rules(fd.as_fd(), &path, self.above.clone())?;
                known.insert(path.clone(), State::Walked(rules.clone()));
                rules
            }
        };
        for name in names {
            path = join(&path, name);
            let state = known.get(&path).cloned();
            let is_ignored = match &state {
                Some(State::Ignored) => true,
                Some(State::Walked(_)) => false,
                None => rules.as_ref().is_some_and(|rules| rules.ignores(&path)),
            };
            if is_ignored {
                known.insert(path, State::Ignored);
                return Ok(true);
            }
            fd = open_dir(fd.as_fd(), &CString::new(name).map_err(|_| Errno::INVAL)?)?;
            rules = match state {
                Some(State::Walked(rules)) => rules,
                _ => self.rules(fd.as_fd(), &path, rules)?,
            };
            known.insert(path.clone(), State::Walked(rules.clone()));
        }
        Ok(false)
    }

    /// The rules in a directory, as the walk has them.
    fn rules(
        &mut self,
        fd: std::os::fd::BorrowedFd<'_>,
        path: &[u8],
        parent: Option<Arc<Rules>>,
    ) -> Result<Option<Arc<Rules>>, Errno> {
        let has = |name| statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let has_git = has(c".git");
        let parent = if has_git && !path.is_empty() {
            None
        } else {
            parent
        };
        // What is wrong with a list of rules matters only to a load that goes by it.
        let mut seen = Seen {
            recorder: self.recorder,
            unused: &mut Vec::new(),
        };
        git::rules(
            self.opener,
            &Place {
                fd,
                path,
                above: b"",
            },
            parent,
            has_git,
            has(c".gitignore"),
            &mut seen,
        )
    }
}
