//! Whose repositories are read: the user's own, and those that the user calls safe.

use super::config::User;
use super::place::{Place, unreadable};
use super::{Options, Reason, Unknown};
use gix::bstr::ByteSlice;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Every directory and file that decides what is read belongs to the user, or is called safe.
pub(super) fn check(place: &Place, options: &Options) -> Result<(), Unknown> {
    let me = super::super::system::user();
    let checked = [
        place.git_file.as_deref(),
        place.work_tree.as_deref(),
        Some(place.git_dir.as_path()),
        Some(place.common_dir.as_path()),
    ];
    for path in checked.into_iter().flatten() {
        let Some(owner) = stranger(path, me, options.sudo_uid)? else {
            continue;
        };
        let user = User::read(options, None);
        if calls_safe(&user, place) {
            return Ok(());
        }
        let mut message = format!("{} belongs to user {owner}, not to {me}", path.display());
        if let Some(lost) = user.lost {
            message.push_str("; safe.directory could not be read whole: ");
            message.push_str(&lost.message);
        }
        return Err(Unknown::new(Reason::Refused, message));
    }
    Ok(())
}

/// The owner of a path, or of what it leads to, who is not the user.
fn stranger(path: &Path, me: u32, sudo_uid: Option<u32>) -> Result<Option<u32>, Unknown> {
    let found = [fs::symlink_metadata(path), fs::metadata(path)];
    for found in found {
        let owner = found.map_err(|error| unreadable(path, &error))?.uid();
        // Root may act for the one who called sudo.
        if owner != me && (me != 0 || sudo_uid != Some(owner)) {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// As git decides: an empty value forgets those before it, `*` is all, a trailing `/*` is all
/// beneath, `.` is a workspace that is itself the top of a repository, and any other relative path
/// is nothing. (git-config(1), safe.directory; git's setup.c since 2.46)
fn calls_safe(user: &User, place: &Place) -> bool {
    let directory = place.work_tree.as_deref().unwrap_or(&place.git_dir);
    let mut safe = false;
    for value in user.strings("safe.directory") {
        if value.is_empty() {
            safe = false;
        } else if value == "*" {
            safe = true;
        } else if value == "." {
            safe |= place.workspace == directory;
        } else if let Ok(path) = user.interpolate(value.as_bstr()) {
            safe |= path.is_absolute() && names(&path, directory);
        }
    }
    safe
}

fn names(path: &Path, directory: &Path) -> bool {
    let (path, beneath) = match path.as_os_str().as_bytes().strip_suffix(b"/*") {
        Some([]) => (Path::new("/"), true),
        Some(above) => (Path::new(OsStr::from_bytes(above)), true),
        None => (path, false),
    };
    fs::canonicalize(path).is_ok_and(|path| match beneath {
        true => directory != path && directory.starts_with(&path),
        false => directory == path,
    })
}
