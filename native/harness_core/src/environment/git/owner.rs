//! Whose repositories are read: the user's own, and those that the user calls safe.

use super::place::{Place, regular, unreadable};
use super::{Options, Reason, Unknown};
use gix::bstr::{BStr, BString, ByteSlice};
use gix::config::{File, Source, file};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{ffi::OsStr, fs};

/// A configuration is text that people write.
const CONFIG_BYTES: u64 = 1 << 20;

/// The system's configuration and the user's, in ascending precedence.
pub(super) struct User {
    files: Vec<File>,
    home: Option<PathBuf>,
    xdg: Option<PathBuf>,
}

impl User {
    pub(super) fn read(options: &Options) -> Self {
        let home = options.home.clone();
        let xdg = options
            .xdg_config_home
            .clone()
            .filter(|path| path.is_absolute());
        let xdg = xdg.or_else(|| home.as_ref().map(|home| home.join(".config")));
        let paths = [
            (options.system_config.clone(), Source::System),
            (xdg.as_ref().map(|xdg| xdg.join("git/config")), Source::Git),
            (
                home.as_ref().map(|home| home.join(".gitconfig")),
                Source::User,
            ),
        ];
        let files = paths
            .into_iter()
            .filter_map(|(path, source)| config(&path?, source, home.as_deref()).ok()?);
        User {
            files: files.collect(),
            home,
            xdg,
        }
    }

    /// A value, the last one winning.
    pub(super) fn string(&self, key: &str) -> Option<BString> {
        self.files.iter().rev().find_map(|file| file.string(key))
    }

    /// The file that `key` names, or the usual one of that name.
    pub(super) fn file(&self, key: &str, usual: &str) -> Option<BString> {
        match self.string(key) {
            Some(value) => Some(self.interpolate(value.as_bstr())),
            None => {
                let path = self.xdg.as_ref()?.join("git").join(usual);
                Some(path.as_os_str().as_bytes().into())
            }
        }
    }

    /// `~/` is the user's home directory.
    pub(super) fn interpolate(&self, value: &BStr) -> BString {
        match (value.strip_prefix(b"~/"), &self.home) {
            (Some(rest), Some(home)) => home
                .join(OsStr::from_bytes(rest))
                .as_os_str()
                .as_bytes()
                .into(),
            _ => value.to_owned(),
        }
    }

    /// As git decides by `safe.directory`: an empty value forgets those before it, `*` is all,
    /// a trailing `/*` is all beneath.
    fn calls_safe(&self, directory: &Path) -> bool {
        let directory = directory.as_os_str().as_bytes();
        let values = self
            .files
            .iter()
            .filter_map(|file| file.strings("safe.directory"));
        let mut safe = false;
        for value in values.flatten() {
            if value.is_empty() {
                safe = false;
            } else if value == "*" {
                safe = true;
            } else {
                let value = self.interpolate(value.as_bstr());
                let (path, beneath) = match value.strip_suffix(b"/*") {
                    Some(path) => (path, true),
                    None => (value.as_slice(), false),
                };
                let Ok(path) = fs::canonicalize(OsStr::from_bytes(path)) else {
                    continue;
                };
                let rest = directory.strip_prefix(path.as_os_str().as_bytes());
                safe |= match rest {
                    Some(rest) if beneath => rest.starts_with(b"/") || path == Path::new("/"),
                    Some(rest) => rest.is_empty(),
                    None => false,
                };
            }
        }
        safe
    }
}

/// A configuration file without what it includes; `None` when there is none.
pub(super) fn config(
    path: &Path,
    source: Source,
    home: Option<&Path>,
) -> Result<Option<File>, Unknown> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(None);
    }
    let size = regular(path)?;
    if size > CONFIG_BYTES {
        let message = format!("{} has {size} bytes, over {CONFIG_BYTES}", path.display());
        return Err(Unknown::new(Reason::Bound, message));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file::Metadata::from(source).at(path);
    let corrupt = |_| super::place::corrupt(path, "is not a configuration that can be read");
    let mut file =
        File::from_bytes_no_includes(&bytes, metadata, Default::default()).map_err(corrupt)?;
    // The user's own configuration may be spread over files; a repository's is not followed.
    if matches!(source, Source::User | Source::Git | Source::System) {
        let context = gix::config::path::interpolate::Context {
            home_dir: home,
            ..Default::default()
        };
        let includes = file::includes::Options::follow(context, Default::default());
        let options = file::init::Options {
            includes,
            ..Default::default()
        };
        // A file that can't be included leaves the rest as it is.
        let _ = file.resolve_includes(options);
    }
    Ok(Some(file))
}

/// Every directory and file that decides what is read belongs to the user, or is called safe.
pub(super) fn check(place: &Place, user: &User, sudo_uid: Option<u32>) -> Result<(), Unknown> {
    let me = rustix::process::geteuid().as_raw();
    let checked = [
        place.git_file.as_deref(),
        place.work_tree.as_deref(),
        Some(place.git_dir.as_path()),
        Some(place.common_dir.as_path()),
    ];
    for path in checked.into_iter().flatten() {
        let found = fs::symlink_metadata(path).map_err(|error| unreadable(path, &error))?;
        let owner = found.uid();
        // Root may act for the one who called sudo.
        let mine = owner == me || (me == 0 && sudo_uid == Some(owner));
        let directory = place.work_tree.as_deref().unwrap_or(&place.git_dir);
        if !mine && !user.calls_safe(directory) {
            let message = format!("{} belongs to user {owner}, not to {me}", path.display());
            return Err(Unknown::new(Reason::Refused, message));
        }
    }
    Ok(())
}
