//! A repository that may be read, and its opening such that nothing it says is run or trusted.

use super::config::{Own, User};
use super::place::{self, Head, Place, regular};
use super::{Options, Reason, Unknown, owner};
use gix::bstr::{BString, ByteSlice};
use gix::error::Class;
use gix::sec::Trust;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most that reading one object may take; a larger one is an error, not an allocation.
const OBJECT_BYTES: &str = "gitoxide.objects.allocLimit=256m";

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

pub(super) struct Repository {
    pub place: Place,
    pub head: Result<Head, Unknown>,
    own: Result<Own, Unknown>,
}

impl Repository {
    /// The repository of a directory, when it has one that is the user's.
    pub(super) fn find(workspace: &Path, options: &Options) -> Result<Option<Self>, Unknown> {
        let Some(place) = place::find(workspace)? else {
            return Ok(None);
        };
        owner::check(&place, options)?;
        let own = match Own::read(&place) {
            // Where the format is another one, `HEAD` may be too.
            Err(unknown) if unknown.reason == Reason::Unsupported => return Err(unknown),
            own => own,
        };
        let head = place.head();
        Ok(Some(Repository { place, head, own }))
    }

    /// For comparing its work tree with.
    pub(super) fn open(&self, options: &Options) -> Result<(gix::Repository, &Path), Unknown> {
        let place = &self.place;
        let own = self.own.as_ref().map_err(Clone::clone)?;
        own.check_includes()?;
        let work_tree = place.work_tree.as_deref();
        let work_tree = work_tree
            .ok_or_else(|| Unknown::new(Reason::Bare, "a bare repository has no work tree"))?;
        own.check_work_tree(place, work_tree)?;
        for name in ["info/exclude", "info/attributes", "packed-refs"] {
            let path = place.common_dir.join(name);
            if path.exists() {
                regular(&path)?;
            }
        }
        let index = place.git_dir.join("index");
        if index.exists() {
            let size = regular(&index)?;
            let limit = options.max_index_bytes;
            if size > limit {
                let message = format!("the index has {size} bytes, over {limit}");
                return Err(Unknown::new(Reason::Bound, message));
            }
        }
        let user = User::read(options, Some(self));
        if let Some(lost) = &user.lost {
            return Err(lost.clone());
        }
        let repo = gix::open::Options::isolated()
            .with(Trust::Reduced)
            .open_path_as_is(true)
            .config_overrides(overrides(own, &user, work_tree)?)
            .open(place.git_file.as_ref().unwrap_or(&place.git_dir).clone())
            .map_err(failed)?
            .to_thread_local();
        Ok((repo, work_tree))
    }
}

/// The user's values where the repository has none of its own, and the limits.
fn overrides(own: &Own, user: &User, work_tree: &Path) -> Result<Vec<BString>, Unknown> {
    let mut overrides: Vec<BString> = vec![OBJECT_BYTES.into()];
    for key in USER_KEYS {
        if own.string(key).is_none()
            && let Some(value) = user.string(key)
        {
            overrides.push(format!("{key}={value}").into());
        }
    }
    // Trusted sources alone name files, so those of the repository are said again here.
    for (key, usual) in [
        ("core.excludesFile", "ignore"),
        ("core.attributesFile", "attributes"),
    ] {
        let path = match own.string(key).or_else(|| user.string(key)) {
            // A relative one is relative to where git runs: the top of the work tree.
            Some(value) => Some(work_tree.join(user.interpolate(value.as_bstr())?)),
            None => user.usual(usual),
        };
        if let Some(path) = path.filter(|path| regular(path).is_ok()) {
            let mut text = BString::from(format!("{key}="));
            text.extend_from_slice(path.as_os_str().as_bytes());
            overrides.push(text);
        }
    }
    Ok(overrides)
}

pub(super) fn failed(error: gix::Error) -> Unknown {
    let reason = match error.dominant_class() {
        Some(Class::NotFound) => Reason::Missing,
        Some(Class::ResourceExhaustion(_)) => Reason::Bound,
        Some(Class::PermissionDenied) => Reason::Unreadable,
        Some(Class::Unsupported) => Reason::Unsupported,
        Some(Class::Cancelled) => Reason::Timeout,
        _ => Reason::Corrupt,
    };
    Unknown::new(reason, error.to_string())
}
