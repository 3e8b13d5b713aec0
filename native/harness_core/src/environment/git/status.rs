//! Whether anything differs from `HEAD`, by gitoxide, up to the first difference.

use super::repository::{Repository, failed};
use super::{Options, Reason, Unknown};
use gix::bstr::{BStr, BString};
use gix::sec::Trust;
use gix::status::plumbing::index_as_worktree::traits::{FastEq, SubmoduleStatus};
use gix::status::plumbing::index_as_worktree::{Change, EntryStatus};
use gix::status::plumbing::index_as_worktree_with_renames::{Entry, VisitEntry};
use gix::worktree::stack::state::attributes;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Submodules in submodules.
const DEPTH: u8 = 8;

#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub options: &'a Options,
    pub stop: &'a Arc<AtomicBool>,
    pub depth: u8,
}

impl Context<'_> {
    /// Whether anything differs in what was found.
    pub(super) fn dirty(
        &self,
        found: &Result<Option<Repository>, Unknown>,
    ) -> Result<bool, Unknown> {
        match found {
            Ok(Some(repository)) => self.compare(repository),
            Ok(None) => Ok(false),
            Err(unknown) => Err(unknown.clone()),
        }
    }

    fn compare(&self, repository: &Repository) -> Result<bool, Unknown> {
        let (repo, work_tree) = repository.open(self.options)?;
        let index = repo.index_or_empty().map_err(failed)?;

        let mut staged = false;
        let tree = repo.head_tree_id_or_empty().map_err(failed)?;
        repo.tree_index_status(
            &tree,
            &index,
            None,
            gix::status::tree_index::TrackRenames::Disabled,
            |_, _, _| {
                staged = true;
                Ok(ControlFlow::Break(()))
            },
        )
        .map_err(failed)?;
        if staged {
            return Ok(true);
        }

        let untracked = repo
            .config_snapshot()
            .string("status.showUntrackedFiles")
            .is_none_or(|value| !["no", "false", "off", "0"].iter().any(|no| value == *no));
        let mut visit = Visit {
            attributes: repo
                .attributes_only(&index, attributes::Source::WorktreeThenIdMapping)
                .map_err(failed)?,
            dirty: false,
            unknown: None,
            stop: self.stop,
        };
        let submodules = Submodules::default();
        let dirwalk_options = match untracked {
            true => Some(repo.dirwalk_options().map_err(failed)?),
            false => None,
        };
        let outcome = repo.index_worktree_status(
            &index,
            None::<BString>,
            &mut visit,
            FastEq,
            submodules.clone(),
            &mut gix::progress::Discard,
            self.stop,
            gix::status::index_worktree::Options {
                sorting: None,
                dirwalk_options,
                rewrites: None,
                thread_limit: Some(1),
            },
        );
        if visit.dirty {
            return Ok(true);
        }
        outcome.map_err(failed)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Unknown::new(Reason::Timeout, "told to stop"));
        }
        let mut unknown = visit.unknown.take();
        for (path, id) in submodules.take() {
            let reason = match self.submodule(&work_tree.join(OsStr::from_bytes(&path)), &id) {
                Ok(false) => continue,
                Ok(true) if !ignoring(&repo) => return Ok(true),
                Ok(true) => "changed, and some changes are to be ignored".to_owned(),
                Err(unknown) => unknown.message,
            };
            let message = format!("submodule {path}: {reason}");
            unknown.get_or_insert(Unknown::new(Reason::Submodule, message));
        }
        unknown.map_or(Ok(false), Err)
    }

    /// A submodule is a repository of its own, held to the same rules.
    fn submodule(&self, directory: &Path, id: &gix::hash::oid) -> Result<bool, Unknown> {
        if std::fs::symlink_metadata(directory.join(".git")).is_err() {
            return Ok(false);
        }
        if self.depth >= DEPTH {
            return Err(Unknown::new(
                Reason::Bound,
                format!("more than {DEPTH} levels"),
            ));
        }
        let depth = self.depth.saturating_add(1);
        let context = Context { depth, ..*self };
        match context.dirty(&Repository::find(directory, self.options)) {
            Ok(false) => head_differs(directory, id),
            dirty => dirty,
        }
    }
}

/// Whether any configuration says to ignore changes of submodules.
fn ignoring(repo: &gix::Repository) -> bool {
    let config = repo.config_snapshot();
    if config.string("diff.ignoreSubmodules").is_some() {
        return true;
    }
    match repo.submodules() {
        Ok(None) => false,
        Ok(Some(mut all)) => all.any(|one| !matches!(one.ignore(), Ok(None))),
        Err(_) => true,
    }
}

/// Takes changes in, and stops at the first one that is certain.
struct Visit<'a> {
    attributes: gix::AttributeStack<'a>,
    dirty: bool,
    unknown: Option<Unknown>,
    stop: &'a AtomicBool,
}

impl Visit<'_> {
    fn has_filter(&mut self, path: &BStr) -> bool {
        let mut found = self.attributes.selected_attribute_matches(["filter"]);
        match self.attributes.at_entry(path, None) {
            Ok(entry) => entry.matching_attributes(&mut found),
            // What can't be looked up is not taken for clean.
            Err(_) => return true,
        };
        found
            .iter_selected()
            .any(|one| matches!(one.assignment.state, gix::attrs::StateRef::Value(_)))
    }
}

impl<'index> VisitEntry<'index> for Visit<'_> {
    type ContentChange = ();
    type SubmoduleStatus = ();

    fn visit_entry(&mut self, entry: Entry<'index, (), ()>) {
        // What a filter would have to compare.
        let filtered = match &entry {
            Entry::Modification {
                rela_path,
                status:
                    EntryStatus::NeedsUpdate(_)
                    | EntryStatus::Change(Change::Modification {
                        executable_bit_changed: false,
                        ..
                    }),
                ..
            } => self.has_filter(rela_path).then(|| rela_path.to_string()),
            _ => None,
        };
        if let Some(path) = filtered {
            let message = format!("{path} needs a filter to be compared");
            self.unknown
                .get_or_insert(Unknown::new(Reason::Filter, message));
        } else if entry.summary().is_some() {
            self.dirty = true;
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The submodules met, which are read after everything else: they cost most.
#[derive(Clone, Default)]
struct Submodules(Arc<Mutex<Vec<(BString, gix::ObjectId)>>>);

impl Submodules {
    fn take(&self) -> Vec<(BString, gix::ObjectId)> {
        self.0
            .lock()
            .map(|mut met| std::mem::take(&mut *met))
            .unwrap_or_default()
    }
}

impl SubmoduleStatus for Submodules {
    type Output = ();

    fn status(&mut self, entry: &gix::index::Entry, path: &BStr) -> gix::Result<Option<()>> {
        if let Ok(mut met) = self.0.lock() {
            met.push((path.to_owned(), entry.id));
        }
        Ok(None)
    }
}

fn head_differs(directory: &Path, id: &gix::hash::oid) -> Result<bool, Unknown> {
    let options = gix::open::Options::isolated().with(Trust::Reduced);
    let repo = options.open(directory).map_err(failed)?.to_thread_local();
    match repo.head_id() {
        Ok(head) => Ok(head.detach().as_ref() != id),
        // Nothing is committed in it: git compares with nothing.
        Err(_) => Ok(false),
    }
}
