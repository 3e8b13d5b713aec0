//! Configuration: the user's, which is trusted, and a repository's, which is data.

use super::place::{Head, Place, corrupt, regular, unreadable};
use super::repository::Repository;
use super::{Options, Reason, Unknown};
use gix::bstr::{BStr, BString};
use gix::config::file::includes::{self, conditional};
use gix::config::{File, Source, file};
use gix::refs::FullName;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A configuration is text that people write.
const BYTES: u64 = 1 << 20;

/// The system's configuration and the user's, in ascending precedence.
#[derive(Default)]
pub(super) struct User {
    files: Vec<File>,
    home: Option<PathBuf>,
    xdg: Option<PathBuf>,
    /// Why a part of it could not be read.
    pub lost: Option<Unknown>,
}

impl User {
    /// With what `includeIf` includes for a repository. Without one, as git decides whose
    /// repositories are read, no condition on its directory or branch holds.
    pub(super) fn read(options: &Options, repository: Option<&Repository>) -> Self {
        let home = options.home.clone();
        let xdg = options.xdg_config_home.clone();
        let xdg = xdg.filter(|path| path.is_absolute());
        let xdg = xdg.or_else(|| home.as_ref().map(|home| home.join(".config")));
        let paths = [
            (options.system_config.clone(), Source::System),
            (xdg.as_ref().map(|xdg| xdg.join("git/config")), Source::Git),
            (
                home.as_ref().map(|home| home.join(".gitconfig")),
                Source::User,
            ),
        ];
        let mut user = User {
            files: Vec::new(),
            home: home.clone(),
            xdg,
            lost: None,
        };
        let branch = repository.and_then(|repository| match &repository.head {
            Ok(Head::Branch(name)) => {
                FullName::try_from(BString::from([b"refs/heads/", name.as_slice()].concat())).ok()
            }
            _ => None,
        });
        let condition = conditional::Context {
            git_dir: repository.map(|repository| repository.place.git_dir.as_path()),
            branch_name: branch.as_ref().map(FullName::as_ref),
        };
        for (path, source) in paths {
            let Some(path) = path else { continue };
            match with_includes(&path, source, home.as_deref(), condition) {
                Ok(file) => user.files.extend(file),
                Err(unknown) => user.lost = Some(lost(&unknown.message)),
            }
        }
        user
    }

    /// A value, the last one winning.
    pub(super) fn string(&self, key: &str) -> Option<BString> {
        last(&self.files, key)
    }

    /// All values, in the order in which they are said.
    pub(super) fn strings(&self, key: &str) -> impl Iterator<Item = BString> {
        self.files
            .iter()
            .filter_map(move |file| file.strings(key))
            .flatten()
    }

    /// Where a file lies that git looks for when no configuration names another.
    pub(super) fn usual(&self, name: &str) -> Option<PathBuf> {
        self.xdg.as_ref().map(|xdg| xdg.join("git").join(name))
    }

    /// A path of a configuration. `~/` is the home directory; what else git would replace, another
    /// user's home and its own installation (`%(prefix)/`), is not known here.
    /// (git-config(1), Values, pathname)
    pub(super) fn interpolate(&self, value: &BStr) -> Result<PathBuf, Unknown> {
        match (value.strip_prefix(b"~/"), &self.home) {
            (Some(rest), Some(home)) => Ok(home.join(OsStr::from_bytes(rest))),
            _ if [&b"~"[..], b"%(prefix)/", b":("]
                .iter()
                .any(|start| value.starts_with(start)) =>
            {
                Err(lost(&format!("{value} names no path that is known")))
            }
            _ => Ok(PathBuf::from(OsStr::from_bytes(value))),
        }
    }
}

/// The value that wins. A key alone, without `=`, is true.
fn last(files: &[File], key: &str) -> Option<BString> {
    files.iter().rev().find_map(|file| {
        let alone = || matches!(file.boolean(key), Ok(Some(true))).then(|| "true".into());
        file.string(key).or_else(alone)
    })
}

fn lost(message: &str) -> Unknown {
    Unknown::new(Reason::Config, message)
}

/// The user's own configuration may be spread over files.
fn with_includes(
    path: &Path,
    source: Source,
    home_dir: Option<&Path>,
    condition: conditional::Context<'_>,
) -> Result<Option<File>, Unknown> {
    let Some(mut file) = without_includes(path, source)? else {
        return Ok(None);
    };
    let context = gix::config::path::interpolate::Context {
        home_dir,
        ..Default::default()
    };
    let options = file::init::Options {
        includes: includes::Options::follow(context, condition),
        ..Default::default()
    };
    file.resolve_includes(options)
        .map_err(|error| corrupt(path, &format!("includes what can't be read: {error}")))?;
    Ok(Some(file))
}

fn without_includes(path: &Path, source: Source) -> Result<Option<File>, Unknown> {
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(path, &error)),
    }
    let size = regular(path)?;
    if size > BYTES {
        let message = format!("{} has {size} bytes, over {BYTES}", path.display());
        return Err(Unknown::new(Reason::Bound, message));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file::Metadata::from(source).at(path);
    File::from_bytes_no_includes(&bytes, metadata, Default::default())
        .map(Some)
        .map_err(|_| corrupt(path, "is not a configuration that can be read"))
}

/// A repository's own configuration: what all its work trees share, and this one's.
pub(super) struct Own(Vec<File>);

impl Own {
    pub(super) fn read(place: &Place) -> Result<Self, Unknown> {
        let shared = place.common_dir.join("config");
        let single = place.git_dir.join("config.worktree");
        let mut files = Vec::new();
        files.extend(without_includes(&shared, Source::Local)?);
        files.extend(without_includes(&single, Source::Worktree)?);
        let own = Own(files);
        own.check_format()?;
        Ok(own)
    }

    /// A value, the last one winning.
    pub(super) fn string(&self, key: &str) -> Option<BString> {
        last(&self.0, key)
    }

    /// (gitrepository-layout(5), git-config(1), extensions)
    fn check_format(&self) -> Result<(), Unknown> {
        for (key, read) in [
            ("core.repositoryFormatVersion", &["0", "1"][..]),
            ("extensions.refStorage", &["files"]),
            ("extensions.objectFormat", &["sha1"]),
        ] {
            if let Some(value) = self.string(key)
                && !read.iter().any(|read| value == *read)
            {
                let message = format!("{key} = {value} is not read");
                return Err(Unknown::new(Reason::Unsupported, message));
            }
        }
        Ok(())
    }

    /// What a repository includes is not followed.
    pub(super) fn check_includes(&self) -> Result<(), Unknown> {
        let names = |file: &File| {
            file.sections().any(|section| {
                let name = section.header().name();
                name.eq_ignore_ascii_case(b"include") || name.eq_ignore_ascii_case(b"includeIf")
            })
        };
        if self.0.iter().any(names) {
            let message = "the configuration includes other files";
            return Err(Unknown::new(Reason::Include, message));
        }
        Ok(())
    }

    /// `core.worktree` is what submodules and `--separate-git-dir` write; anything else is refused.
    pub(super) fn check_work_tree(&self, place: &Place, work_tree: &Path) -> Result<(), Unknown> {
        for file in &self.0 {
            if let Some(value) = file.string("core.worktree") {
                let named = place.git_dir.join(OsStr::from_bytes(&value));
                if fs::canonicalize(&named).ok().as_deref() != Some(work_tree) {
                    let message = format!("core.worktree is {value}");
                    return Err(Unknown::new(Reason::Worktree, message));
                }
            }
            let shared = place.git_dir == place.common_dir;
            if shared && matches!(file.boolean("core.bare"), Ok(Some(true))) {
                return Err(Unknown::new(Reason::Bare, "core.bare is true"));
            }
        }
        Ok(())
    }
}
