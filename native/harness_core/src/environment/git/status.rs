//! Whether anything differs from `HEAD`, by gitoxide, up to the first difference.

use super::owner::{User, config};
use super::place::{Place, regular};
use super::{Options, Reason, Unknown, read};
use gix::bstr::{BStr, BString, ByteSlice};
use gix::config::{File, Source};
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

/// The most that reading one object may take; a larger one is an error, not an allocation.
const OBJECT_BYTES: &str = "gitoxide.objects.allocLimit=256m";

/// Submodules in submodules.
const DEPTH: u8 = 8;

/// What of the user's configuration says how files are compared and which are looked at.
const USER_KEYS: [&str; 10] = [
    "core.autocrlf",
    "core.checkStat",
    "core.eol",
    "core.fileMode",
    "core.ignoreCase",
    "core.safecrlf",
    "core.symlinks",
    "core.trustctime",
    "diff.ignoreSubmodules",
    "status.showUntrackedFiles",
];

pub(super) struct Context<'a> {
    pub place: &'a Place,
    pub options: &'a Options,
    pub user: &'a User,
    pub stop: &'a Arc<AtomicBool>,
    pub depth: u8,
}

impl Context<'_> {
    pub(super) fn dirty(&self) -> Result<bool, Unknown> {
        let own = self.config()?;
        let Some(work_tree) = &self.place.work_tree else {
            return Err(Unknown::new(
                Reason::Bare,
                "a bare repository has no work tree",
            ));
        };
        check_work_tree(&own, self.place, work_tree)?;
        for name in ["info/exclude", "info/attributes", "packed-refs"] {
            let path = self.place.common_dir.join(name);
            if path.exists() {
                regular(&path)?;
            }
        }
        let index_path = self.place.git_dir.join("index");
        if index_path.exists() {
            let size = regular(&index_path)?;
            let limit = self.options.max_index_bytes;
            if size > limit {
                let message = format!("the index has {size} bytes, over {limit}");
                return Err(Unknown::new(Reason::Bound, message));
            }
        }

        let repo = gix::open::Options::isolated()
            .with(Trust::Reduced)
            .open_path_as_is(true)
            .config_overrides(self.overrides(&own))
            .open(match &self.place.git_file {
                Some(file) => file.clone(),
                None => self.place.git_dir.clone(),
            })
            .map_err(failed)?
            .to_thread_local();
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
        match read(directory, self.options, self.user, self.stop, depth).dirty {
            Ok(false) => head_differs(directory, id),
            dirty => dirty,
        }
    }

    /// The repository's own configuration, as far as it is one that is read.
    fn config(&self) -> Result<Vec<File>, Unknown> {
        let mut files = Vec::new();
        files.extend(config(
            &self.place.common_dir.join("config"),
            Source::Local,
            None,
        )?);
        files.extend(config(
            &self.place.git_dir.join("config.worktree"),
            Source::Worktree,
            None,
        )?);
        for file in &files {
            let text = |key| file.string(key).map(|value| value.to_string());
            if let Some(version) = text("core.repositoryFormatVersion")
                && !["0", "1"].contains(&version.as_str())
            {
                return Err(unsupported(format!("version {version} of the format")));
            }
            for (key, usual) in [
                ("extensions.refStorage", "files"),
                ("extensions.objectFormat", "sha1"),
            ] {
                if let Some(value) = text(key)
                    && value != usual
                {
                    return Err(unsupported(format!("{key} = {value}")));
                }
            }
            if file.sections().any(|section| {
                let name = section.header().name().to_ascii_lowercase();
                name == b"include" || name == b"includeif"
            }) {
                return Err(Unknown::new(
                    Reason::Include,
                    "the configuration includes other files",
                ));
            }
        }
        Ok(files)
    }

    /// The user's values where the repository has none of its own, and the limits.
    fn overrides(&self, own: &[File]) -> Vec<BString> {
        let mut overrides: Vec<BString> = vec![OBJECT_BYTES.into()];
        let own = |key: &str| own.iter().rev().find_map(|file| file.string(key));
        for key in USER_KEYS {
            if own(key).is_none()
                && let Some(value) = self.user.string(key)
            {
                overrides.push(format!("{key}={value}").into());
            }
        }
        // Trusted sources alone name files, so those of the repository are said again here.
        for (key, usual) in [
            ("core.excludesFile", "ignore"),
            ("core.attributesFile", "attributes"),
        ] {
            let value = match own(key) {
                Some(value) => Some(self.user.interpolate(value.as_bstr())),
                None => self.user.file(key, usual),
            };
            let Some(value) = value else { continue };
            let path = Path::new(OsStr::from_bytes(&value));
            if regular(path).is_ok() {
                let mut text = BString::from(format!("{key}="));
                text.extend_from_slice(&value);
                overrides.push(text);
            }
        }
        overrides
    }
}

/// `core.worktree` is what submodules and `--separate-git-dir` write; anything else is refused.
fn check_work_tree(own: &[File], place: &Place, work_tree: &Path) -> Result<(), Unknown> {
    for file in own {
        if let Some(value) = file.string("core.worktree") {
            let named = place.git_dir.join(OsStr::from_bytes(&value));
            if std::fs::canonicalize(&named).ok().as_deref() != Some(work_tree) {
                let message = format!("core.worktree is {value}");
                return Err(Unknown::new(Reason::Worktree, message));
            }
        }
        if matches!(file.boolean("core.bare"), Ok(Some(true))) && place.git_dir == place.common_dir
        {
            return Err(Unknown::new(Reason::Bare, "core.bare is true"));
        }
    }
    Ok(())
}

fn unsupported(what: String) -> Unknown {
    Unknown::new(Reason::Unsupported, format!("{what} is not read"))
}

fn failed(error: gix::Error) -> Unknown {
    let message = error.to_string();
    let lower = format!("{error:?}").to_lowercase();
    let reason = if lower.contains("could not be found") || lower.contains("not found") {
        Reason::Missing
    } else {
        Reason::Corrupt
    };
    Unknown::new(reason, message)
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
