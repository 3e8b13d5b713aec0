//! Which names are instruction files, in order of preference.

use std::ffi::{CStr, CString};

use super::Error;

/// What a name in a directory is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The wanted name of this rank (0 is preferred).
    Exact(usize),
    /// Equal to the wanted name of this rank but for the case of ASCII letters.
    Near(usize),
}

/// The wanted names, validated.
#[derive(Debug)]
pub(super) struct Names(Vec<CString>);

impl Names {
    /// Each name must be one path component that a directory can hold.
    pub(super) fn new(filenames: &[String]) -> Result<Self, Error> {
        if filenames.is_empty() {
            return Err(Error::NoFilenames);
        }
        let mut names = Vec::with_capacity(filenames.len());
        for filename in filenames {
            let bad = matches!(filename.as_str(), "" | "." | ".." | ".git")
                || filename.contains('/')
                || filename.len() > 255;
            match CString::new(filename.as_str()) {
                Ok(name) if !bad => {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                _ => return Err(Error::BadFilename(filename.clone())),
            }
        }
        Ok(Names(names))
    }

    /// The name of the given rank.
    pub(super) fn get(&self, rank: usize) -> Option<&CStr> {
        self.0.get(rank).map(CString::as_c_str)
    }

    /// The name of the given rank, as text for a message.
    pub(super) fn text(&self, rank: usize) -> String {
        self.get(rank)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// An exact match wins over a near one, whatever their ranks.
    pub(super) fn classify(&self, name: &[u8]) -> Option<Match> {
        let mut near = None;
        for (rank, wanted) in self.0.iter().enumerate() {
            let wanted = wanted.to_bytes();
            if wanted.len() == name.len() && wanted.eq_ignore_ascii_case(name) {
                if wanted == name {
                    return Some(Match::Exact(rank));
                }
                near = near.or(Some(Match::Near(rank)));
            }
        }
        near
    }
}
