//! Workspaces on the real file system.

#![allow(dead_code, clippy::unwrap_used, clippy::missing_panics_doc)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use harness_core::instruction_files::{Error, Loaded, Options, Reason, load};

/// A workspace `ws` in a directory that also has room for what lies outside of it.
pub struct Tree {
    outer: tempfile::TempDir,
}

impl Tree {
    pub fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        // Ordinary users must get in, for the tests that drop root's file-system identity.
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(outer.path().join("ws")).unwrap();
        Tree { outer }
    }

    /// With `text` being each file's path, so that it shows which file was read.
    pub fn with(files: &[&str]) -> Self {
        let tree = Tree::new();
        for file in files {
            tree.write(file, file);
        }
        tree
    }

    pub fn outer(&self) -> PathBuf {
        self.outer.path().canonicalize().unwrap()
    }

    pub fn root(&self) -> PathBuf {
        self.outer().join("ws")
    }

    pub fn path(&self, path: impl AsRef<[u8]>) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(path.as_ref()));
        assert!(path.is_relative(), "{path:?} is outside of the tree");
        self.root().join(path)
    }

    pub fn write(&self, path: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn dir(&self, path: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    pub fn link(&self, path: impl AsRef<[u8]>, target: impl AsRef<Path>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn load(&self) -> Loaded {
        self.load_with(&Options::default()).unwrap()
    }

    pub fn load_with(&self, options: &Options) -> Result<Loaded, Error> {
        load(&self.root(), options)
    }
}

pub fn filenames(names: &[&str]) -> Options {
    Options {
        filenames: names.iter().map(ToString::to_string).collect(),
        ..Options::default()
    }
}

pub fn gitignore() -> Options {
    Options {
        gitignore: true,
        ..Options::default()
    }
}

pub fn targets(targets: &[&str]) -> Options {
    Options {
        targets: Some(targets.iter().map(PathBuf::from).collect()),
        ..Options::default()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The sources' paths, in order.
pub fn paths(loaded: &Loaded) -> Vec<String> {
    loaded
        .sources
        .iter()
        .map(|source| text(&source.path))
        .collect()
}

/// What was not used, in order.
pub fn unused(loaded: &Loaded) -> Vec<(String, Reason)> {
    loaded
        .unused
        .iter()
        .map(|unused| (text(&unused.path), unused.reason.clone()))
        .collect()
}

pub fn because(path: &str, reason: Reason) -> (String, Reason) {
    (path.to_owned(), reason)
}

pub fn duplicate_of(path: &str) -> Reason {
    Reason::DuplicateOf { path: path.into() }
}

pub fn superseded_by(path: &str) -> Reason {
    Reason::Superseded { by: path.into() }
}

pub fn near_miss(expected: &str) -> Reason {
    Reason::NearMiss {
        expected: expected.to_owned(),
    }
}

pub fn unreadable(error: &str) -> Reason {
    Reason::Unreadable {
        error: error.to_owned(),
    }
}

/// Runs `work` on a thread whose file-system identity is that of an ordinary user: root may read
/// everything, which would hide the faults to be shown. Threads started by it inherit that.
pub fn as_ordinary_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const NOBODY: u32 = 65_534;

    #[allow(unsafe_code)]
    fn drop_identity() {
        // SAFETY: both calls change nothing but the calling thread's credentials.
        unsafe {
            libc::setfsgid(NOBODY);
            libc::setfsuid(NOBODY);
        }
    }

    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                drop_identity();
                work()
            })
            .join()
            .unwrap()
    })
}

/// Runs `work` while another thread repeats `change`; ends with `work`, however that ends.
pub fn meanwhile(change: impl Fn() + Sync, work: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                change();
            }
        });
        let _stop = Stop(&stop);
        work();
    });
}
