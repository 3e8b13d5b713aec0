//! The state read without git, beside what git says of the same repositories.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

use harness_core::environment::git::{Options, Reason, State, state};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// Each state's name and how git makes it; `$W` is the workspace that is asked about, at first a
/// directory that is empty, and the current one.
const STATES: &[(&str, &str)] = &[
    ("no repository", "touch a"),
    ("unborn", "git init -q"),
    ("unborn, untracked", "git init -q; touch a"),
    ("unborn, staged", "git init -q; touch a; git add a"),
    ("unborn, another branch", "git init -q -b feature/x"),
    ("clean", "base"),
    ("staged", "base; echo 2 > a; git add a"),
    (
        "staged, then reverted on disk",
        "base; cp a k; echo 2 > a; git add a; mv k a",
    ),
    ("modified", "base; echo 22 > a"),
    ("modified, same size", "base; echo 2 > a"),
    ("same content, other time", "base; touch -d 2001-01-01 a"),
    ("deleted", "base; rm a"),
    ("deleted and staged", "base; git rm -q a"),
    ("removed from the index only", "base; git rm -q --cached a"),
    ("untracked", "base; touch new"),
    ("untracked in a folder", "base; mkdir -p x/y; touch x/y/z"),
    ("empty folders", "base; mkdir -p x/y/z"),
    (
        "ignored only",
        "base; echo '*.o' > .gitignore; git add .; commit; touch x.o; mkdir d; touch d/y.o",
    ),
    (
        "ignored folder",
        "base; echo 'out/' > .gitignore; git add .; commit; mkdir out; touch out/a",
    ),
    (
        "negated pattern",
        "base; printf '*.o\\n!keep.o\\n' > .gitignore; git add .; commit; touch keep.o",
    ),
    (
        "info/exclude",
        "base; echo '*.o' > .git/info/exclude; touch x.o",
    ),
    (
        "core.excludesFile of the repository",
        "base; echo '*.o' > $R/ex; git config core.excludesFile $R/ex; touch x.o",
    ),
    (
        "core.excludesFile of the user",
        "base; echo '*.o' > $HOME/ex; git config --global core.excludesFile '~/ex'; touch x.o",
    ),
    (
        "core.excludesFile, relative",
        "base; mkdir d; echo '*.o' > d/ex; git add .; commit; git config core.excludesFile d/ex; touch x.o; W=$W/d",
    ),
    (
        "core.excludesFile of odd letters",
        "base; echo '*.o' > \"$R/e #;=x\"; git config core.excludesFile \"$R/e #;=x\"; touch x.o",
    ),
    (
        "the user's include",
        "base; echo '*.o' > $HOME/ex; git config -f $HOME/more core.excludesFile '~/ex'; git config --global include.path more; touch x.o",
    ),
    (
        "the user's includes, one of them missing",
        "base; echo '*.o' > $HOME/ex; git config -f $HOME/more core.excludesFile '~/ex'; git config --global include.path '~/none'; git config --global --add include.path '~/more'; touch x.o",
    ),
    (
        "the user's include for this directory",
        "base; echo '*.o' > $HOME/ex; git config -f $HOME/more core.excludesFile '~/ex'; git config --global includeIf.gitdir:$R/.path '~/more'; touch x.o",
    ),
    (
        "the user's include for another directory",
        "base; echo '*.o' > $HOME/ex; git config -f $HOME/more core.excludesFile '~/ex'; git config --global includeIf.gitdir:$R/other/.path '~/more'; touch x.o",
    ),
    (
        "the user's include for this branch",
        "base; echo '*.o' > $HOME/ex; git config -f $HOME/more core.excludesFile '~/ex'; git config --global includeIf.onbranch:ma*.path '~/more'; touch x.o",
    ),
    (
        "the user's include for another branch",
        "base; echo '*.o' > $HOME/ex; git config -f $HOME/more core.excludesFile '~/ex'; git config --global includeIf.onbranch:side.path '~/more'; touch x.o",
    ),
    (
        "autocrlf of the user, without a value",
        "base; printf 'x\\r\\n' > c; printf '[core]\\n autocrlf\\n' >> $HOME/.gitconfig; git add . 2>/dev/null; commit; touch -d 2001-01-01 c",
    ),
    (
        "the user's usual ignore file",
        "base; mkdir -p $HOME/.config/git; echo '*.o' > $HOME/.config/git/ignore; touch x.o",
    ),
    (
        "tracked though ignored",
        "base; echo 'b' > .gitignore; echo 1 > b; git add -f .; commit",
    ),
    (
        "tracked though ignored, modified",
        "base; echo 'b' > .gitignore; echo 1 > b; git add -f .; commit; echo 22 > b",
    ),
    (
        "conflict",
        "base; git checkout -q -b o; echo o > a; git add .; commit; git checkout -q main; echo m > a; git add .; commit; git merge -q o || true",
    ),
    ("detached", "base; git checkout -q --detach"),
    (
        "detached, modified",
        "base; git checkout -q --detach; echo 22 > a",
    ),
    ("on a tag", "base; git tag v1; git checkout -q v1"),
    ("packed references", "base; git pack-refs --all"),
    ("packed objects", "base; git gc -q"),
    ("packed, staged", "base; git gc -q; echo 2 > a; git add a"),
    (
        "worktree",
        "base; git worktree add -q -b side $R/side; W=$R/side",
    ),
    (
        "worktree, modified",
        "base; git worktree add -q -b side $R/side; W=$R/side; echo 22 > $W/a",
    ),
    (
        "worktree's parent",
        "base; git worktree add -q -b side $R/side; echo 22 > $R/side/a",
    ),
    (
        "worktree of a bare repository",
        "base; git clone -q --bare . $R/bare; git -C $R/bare worktree add -q -b side $R/side; W=$R/side",
    ),
    (
        "separate git dir",
        "git init -q --separate-git-dir $R/away; echo 1 > a; git add .; commit",
    ),
    (
        "separate git dir, untracked",
        "git init -q --separate-git-dir $R/away; touch a",
    ),
    (
        "submodule's own",
        "sub; W=$W/m; git -C m checkout -q -b inner",
    ),
    ("submodule, clean", "sub"),
    ("submodule, modified", "sub; echo 22 > m/a"),
    ("submodule, untracked", "sub; touch m/new"),
    (
        "submodule, other commit",
        "sub; cd m; echo 3 > a; git add .; commit; cd ..",
    ),
    (
        "submodule, not checked out",
        "sub; git clone -q $W $R/c; W=$R/c",
    ),
    (
        "sub-folder of a repository",
        "base; mkdir d; echo 1 > d/f; git add .; commit; W=$W/d",
    ),
    (
        "sub-folder, dirty elsewhere",
        "base; mkdir d; echo 1 > d/f; git add .; commit; touch new; W=$W/d",
    ),
    ("by a link", "base; touch new; ln -s $W $R/l; W=$R/l"),
    ("mode changed", "base; chmod +x a"),
    (
        "mode changed, core.fileMode off",
        "base; git config core.fileMode false; chmod +x a",
    ),
    ("type changed", "base; rm a; ln -s b a"),
    ("link", "base; ln -s a l; git add .; commit"),
    (
        "link changed",
        "base; ln -s a l; git add .; commit; ln -sf b l",
    ),
    (
        "folder in the place of a file",
        "base; rm a; mkdir a; touch a/x",
    ),
    (
        "assumed unchanged",
        "base; git update-index --assume-unchanged a; echo 22 > a",
    ),
    (
        "skipped in the work tree",
        "base; git update-index --skip-worktree a; echo 22 > a",
    ),
    (
        "sparse checkout",
        "base; mkdir d e; echo 1 > d/f; echo 1 > e/f; git add .; commit; git sparse-checkout set -q --cone d 2>/dev/null || git sparse-checkout set --cone d",
    ),
    ("intent to add", "base; echo 1 > n; git add -N n"),
    (
        "split index",
        "base; git update-index --split-index; echo 1 > n; git add n; commit",
    ),
    (
        "split index, modified",
        "base; git update-index --split-index; echo 22 > a",
    ),
    (
        "untracked cache",
        "base; git update-index --untracked-cache 2>/dev/null; git status >/dev/null; touch new",
    ),
    (
        "index of version 4",
        "base; git update-index --index-version 4",
    ),
    (
        "autocrlf, carriage returns on disk",
        "base; git config core.autocrlf true; printf 'x\\r\\n' > c; git add . 2>/dev/null; commit; touch -d 2001-01-01 c",
    ),
    (
        "text attribute, carriage returns on disk",
        "base; echo '* text eol=crlf' > .gitattributes; printf 'x\\r\\n' > c; git add . 2>/dev/null; commit; touch -d 2001-01-01 c",
    ),
    (
        "ident",
        "base; echo 'i ident' > .gitattributes; echo '$Id$' > i; git add .; commit; rm i; git checkout -q i; touch -d 2001-01-01 i",
    ),
    (
        "working-tree-encoding",
        "base; echo 'u working-tree-encoding=UTF-16LE' > .gitattributes; printf 'x\\000' > u; git add .; commit; touch -d 2001-01-01 u",
    ),
    ("nested repository", "base; git init -q n"),
    (
        "nested repository with a commit",
        "base; git init -q n; cd n; echo 1 > a; git add .; commit; cd ..",
    ),
    (
        "nested repository, ignored",
        "base; echo n > .gitignore; git add .; commit; git init -q n",
    ),
    (
        "alternates",
        "base; git clone -q -s . $R/c; W=$R/c; echo 2 > $W/a; git -C $W add a",
    ),
    ("alternates, clean", "base; git clone -q -s . $R/c; W=$R/c"),
    (
        "shallow",
        "base; echo 2 > a; git add .; commit; git clone -q --depth 1 file://$W $R/c; W=$R/c",
    ),
    (
        "racy",
        "base; echo 2 > a; git add a; echo 3 > a; git commit -q --allow-empty -m r",
    ),
    (
        "during a rebase",
        "base; git checkout -q -b o; echo o > a; git add .; commit; git checkout -q main; echo m > a; git add .; commit; git rebase -q o 2>/dev/null >&2 || true",
    ),
    ("stash", "base; echo 22 > a; git stash -q"),
    (
        "untracked files not shown",
        "base; git config status.showUntrackedFiles no; touch new",
    ),
    ("no index", "base; rm .git/index"),
    (
        "a .git that is no repository",
        "base; mkdir -p d/.git; W=$W/d",
    ),
    (
        "branch of odd bytes",
        "base; git checkout -q -b \"$(printf 'b\\351<x>')\"",
    ),
    (
        "names of odd bytes",
        "base; touch \"$(printf 'n\\351')\"; git add .; commit",
    ),
    (
        "hooks",
        "base; printf '#!/bin/sh\\ntouch %s/ran\\n' $R > .git/hooks/post-index-change; chmod +x .git/hooks/*",
    ),
    ("fifo beside files", "base; mkfifo pipe"),
    (
        "HEAD is a link",
        "base; rm .git/HEAD; ln -s refs/heads/main .git/HEAD",
    ),
    (
        "commit-graph and multi-pack index",
        "base; git gc -q; git commit-graph write --reachable; git multi-pack-index write 2>/dev/null",
    ),
    (
        "hash of the index skipped",
        "base; git config index.skipHash true; echo 2 > b; git add b; commit",
    ),
];

const PRELUDE: &str = r#"
    set -eu
    commit() { git commit -q -m m; }
    base() { git init -q; echo 1 > a; git add a; commit; }
    sub() {
        git init -q $R/s; cd $R/s; echo 1 > a; git add a; commit; cd $W
        base; git -c protocol.file.allow=always submodule --quiet add $R/s m; commit
    }
"#;

struct Made {
    root: TempDir,
    workspace: PathBuf,
}

fn command(root: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", root.join("home"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", root)
        .env("GIT_AUTHOR_DATE", "1700000000 +0000")
        .env("GIT_COMMITTER_DATE", "1700000000 +0000")
        .stdin(Stdio::null());
    for (who, name) in [("AUTHOR", "a"), ("COMMITTER", "c")] {
        command.env(format!("GIT_{who}_NAME"), name);
        command.env(format!("GIT_{who}_EMAIL"), "x@example.org");
    }
    command
}

fn make(script: &str) -> Made {
    let root = TempDir::new().unwrap();
    let real = root.path().canonicalize().unwrap();
    let workspace = real.join("w");
    fs::create_dir(&workspace).unwrap();
    fs::create_dir(real.join("home")).unwrap();
    fs::write(
        real.join("home/.gitconfig"),
        "[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n",
    )
    .unwrap();
    let script = format!("{PRELUDE}\n{script}\nprintf %s \"$W\" > $R/workspace");
    let output = command(&real, "sh")
        .args(["-c", &script])
        .env("R", &real)
        .env("W", &workspace)
        .current_dir(&workspace)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}\n{errors}");
    let workspace = OsString::from_vec(fs::read(real.join("workspace")).unwrap());
    Made {
        root,
        workspace: workspace.into(),
    }
}

impl Made {
    fn options(&self) -> Options {
        Options {
            home: Some(self.root.path().join("home")),
            system_config: None,
            time_limit_ms: 60_000,
            ..Options::default()
        }
    }

    fn state(&self) -> State {
        state(&self.workspace, &self.options())
    }

    fn git(&self, arguments: &[&str]) -> Vec<u8> {
        let root = self.root.path().canonicalize().unwrap();
        let output = command(&root, "git")
            .args(arguments)
            .current_dir(&self.workspace)
            .output()
            .unwrap();
        output.stdout
    }
}

/// Every file below: its time, size and content.
fn files(root: &Path) -> BTreeMap<PathBuf, (SystemTime, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let content = match about.is_file() {
                true => fs::read(&path).unwrap(),
                false => Vec::new(),
            };
            if about.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (about.modified().unwrap(), about.ino(), content));
        }
    }
    found
}

#[test]
fn agrees_with_git_and_writes_nothing() {
    let mut wrong = Vec::new();
    for (name, script) in STATES {
        let made = make(script);
        let before = files(made.root.path());
        let ours = made.state();
        assert_eq!(
            before,
            files(made.root.path()),
            "{name}: something was written"
        );

        let branch = made.git(&["branch", "--show-current"]);
        let branch = branch.trim_ascii_end();
        let dirty = !made.git(&["status", "--porcelain"]).is_empty();
        let theirs = (
            Ok((!branch.is_empty()).then(|| branch.to_owned())),
            Ok(dirty),
        );
        if (ours.branch.clone(), ours.dirty.clone()) != theirs {
            wrong.push(format!("{name}\n  git:  {theirs:?}\n  here: {ours:?}"));
        }
        let head = made.git(&["rev-parse", "--verify", "-q", "HEAD"]);
        if let Some(ours) = ours.head {
            assert_eq!(ours.as_bytes(), &head[..7], "{name}");
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        STATES.len(),
        wrong.join("\n")
    );
}

#[test]
fn e02_a_detached_head_has_seven_digits() {
    let state = make("base; git checkout -q --detach").state();
    assert_eq!(state.branch, Ok(None));
    assert_eq!(state.head.unwrap().len(), 7);
}

const HOSTILE: &str = r#"
    base
    echo 'f filter=x diff=x' > .gitattributes; echo 1 > f; git add .; commit
    for n in fsmonitor clean process textconv hook askpass diff pager ssh gpg alias editor; do
        printf '#!/bin/sh\ntouch %s/ran-%s\ncat\n' $R $n > $R/$n; chmod +x $R/$n
    done
    printf '[core]\n\tfsmonitor = %s/fsmonitor\n' $R > $R/included
    git config core.fsmonitor $R/fsmonitor
    git config core.hooksPath $R/hooks; mkdir $R/hooks; cp $R/hook $R/hooks/post-index-change
    git config filter.x.clean $R/clean
    git config diff.x.textconv $R/textconv
    git config diff.external $R/diff
    git config core.pager $R/pager
    git config core.askPass $R/askpass
    git config core.sshCommand $R/ssh
    git config core.editor $R/editor
    git config gpg.program $R/gpg
    git config alias.status "!$R/alias"
    touch -d 2001-01-01 f
"#;

fn ran(made: &Made) -> Vec<String> {
    let names = fs::read_dir(made.root.path()).unwrap();
    let names = names.map(|one| one.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("ran-")).collect();
    names.sort();
    names
}

#[test]
fn e05_nothing_that_the_repository_names_is_run() {
    for more in [
        "",
        "git config filter.x.process $R/process",
        "git config include.path $R/included",
    ] {
        let made = make(&format!("{HOSTILE}\n{more}"));
        let _ = fs::remove_file(made.root.path().join("ran-fsmonitor"));
        for name in ran(&made) {
            fs::remove_file(made.root.path().join(name)).unwrap();
        }
        let state = made.state();
        assert_eq!(ran(&made), Vec::<String>::new(), "{more}");
        assert_eq!(state.branch, Ok(Some(b"main".to_vec())));
        let reason = match more.contains("include") {
            true => Reason::Include,
            false => Reason::Filter,
        };
        assert_eq!(state.dirty.unwrap_err().reason, reason, "{more}");
        // The control: git does run them, so the check above can fail.
        made.git(&["status", "--porcelain"]);
        let ran = ran(&made);
        assert!(ran.contains(&"ran-fsmonitor".to_owned()), "{ran:?}");
    }
}

#[test]
fn a_certain_change_counts_beside_a_filtered_file() {
    let made = make(&format!("{HOSTILE}\ntouch new"));
    assert_eq!(made.state().dirty, Ok(true));
}

#[test]
fn e14_untracked_files_without_end() {
    let made = make("base");
    let folder = made.workspace.join("many");
    fs::create_dir(&folder).unwrap();
    for n in 0..200_000 {
        fs::File::create(folder.join(n.to_string())).unwrap();
    }
    assert_eq!(made.state().dirty, Ok(true));
}

#[test]
fn e15_another_users_repository() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root may give a directory away.
    }
    for which in [".git", "."] {
        let made = make("base; touch new");
        let path = made.workspace.join(which);
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        // Reading it would be another reason.
        fs::write(
            made.workspace.join(".git/config"),
            "[[[ not a configuration",
        )
        .unwrap();
        let refused = made.state();
        assert_eq!(refused.branch.clone().unwrap_err().reason, Reason::Refused);
        assert_eq!(refused.dirty.unwrap_err().reason, Reason::Refused);

        fs::write(made.workspace.join(".git/config"), "").unwrap();
        let root = made.workspace.parent().unwrap().display().to_string();
        let config = made.root.path().join("home/.gitconfig");
        let cases = [
            ("*".to_owned(), true),
            (format!("{root}/w"), true),
            (format!("{root}/*"), true),
            (root.clone(), false),
            (format!("{root}/other"), false),
            ("*\n\tdirectory =".to_owned(), false),
            (".".to_owned(), true),
            ("./".to_owned(), false),
            ("w".to_owned(), false),
            ("%(prefix)/w".to_owned(), false),
            ("~/../w".to_owned(), true),
            ("~nobody-of-this-name/w".to_owned(), false),
            (format!("{root}/w/"), true),
            (format!("{root}/none"), false),
        ];
        for (value, safe) in cases {
            fs::write(&config, format!("[safe]\n\tdirectory = {value}\n")).unwrap();
            assert_eq!(made.state().dirty == Ok(true), safe, "{which} {value}");
            let git = made.git(&["status", "--porcelain"]);
            assert_eq!(!git.is_empty(), safe, "git: {which} {value}");
        }
        fs::write(&config, "").unwrap();
        // `.` is only the top of a work tree.
        fs::create_dir(made.workspace.join("d")).unwrap();
        fs::write(&config, "[safe]\n\tdirectory = .\n").unwrap();
        let below = state(&made.workspace.join("d"), &made.options());
        assert_eq!(below.dirty.unwrap_err().reason, Reason::Refused);
        fs::write(&config, "[safe\n").unwrap();
        let message = made.state().dirty.unwrap_err().message;
        assert!(
            message.contains("safe.directory could not be read whole"),
            "{message}"
        );
        fs::write(&config, "").unwrap();
        let options = Options {
            sudo_uid: Some(12_345),
            ..made.options()
        };
        assert_eq!(state(&made.workspace, &options).dirty, Ok(true));
    }
}

#[test]
fn what_is_not_known_has_a_reason() {
    let cases = [
        ("git init -q --bare", Reason::Bare),
        ("git init -q --object-format=sha256", Reason::Unsupported),
        (
            "base; git config core.repositoryFormatVersion 1; git config extensions.refStorage reftable",
            Reason::Unsupported,
        ),
        (
            "base; git config core.repositoryFormatVersion 7",
            Reason::Unsupported,
        ),
        ("base; echo '[core' > $HOME/.gitconfig", Reason::Config),
        ("base; mkdir -p $HOME/.config/git/config", Reason::Config),
        (
            "base; rm $HOME/.gitconfig; mkfifo $HOME/.gitconfig",
            Reason::Config,
        ),
        (
            "base; head -c 1100000 /dev/zero > $HOME/.gitconfig",
            Reason::Config,
        ),
        (
            "base; echo '[core' > $HOME/x; git config --global include.path '~/x'",
            Reason::Config,
        ),
        (
            "base; git config --global include.path .gitconfig",
            Reason::Config,
        ),
        (
            "base; git config core.excludesFile '~nobody/x'",
            Reason::Config,
        ),
        (
            "base; git config --global core.attributesFile '%(prefix)/x'",
            Reason::Config,
        ),
        ("base; git config core.worktree /", Reason::Worktree),
        ("base; git config core.worktree $R", Reason::Worktree),
        ("base; echo '[core' > .git/config", Reason::Corrupt),
        ("base; head -c 40 /dev/zero > .git/index", Reason::Corrupt),
        ("base; rm .git/index; mkfifo .git/index", Reason::Corrupt),
        ("base; rm .git/config; mkfifo .git/config", Reason::Corrupt),
        (
            "sub; git config diff.ignoreSubmodules all; echo 22 > m/a",
            Reason::Submodule,
        ),
        (
            "base; echo 'a filter=x' > $HOME/at; git config --global core.attributesFile '~/at'; touch -d 2001-01-01 a",
            Reason::Filter,
        ),
        (
            "base; echo 'a filter=x' > .git/info/attributes; touch -d 2001-01-01 a",
            Reason::Filter,
        ),
        (
            "base; echo '[attr]big filter=x' > .gitattributes; echo 'a big' >> .gitattributes; git add .; commit; touch -d 2001-01-01 a",
            Reason::Filter,
        ),
        (
            "base; find .git/objects -type f -delete; touch -d 2001-01-01 a",
            Reason::Missing,
        ),
    ];
    for (script, reason) in cases {
        let state = make(script).state();
        assert_eq!(
            state.dirty.map_err(|unknown| unknown.reason),
            Err(reason),
            "{script}"
        );
    }
    let small = Options {
        max_index_bytes: 10,
        ..make("base").options()
    };
    let made = make("base");
    assert_eq!(
        state(&made.workspace, &small).dirty.unwrap_err().reason,
        Reason::Bound
    );
}

/// A FIFO where a file is opened by the library: the time limit holds, whatever hangs.
#[test]
fn a_fifo_does_not_hold_the_caller() {
    let made = make("base; mkfifo .gitignore; mkfifo .gitattributes; touch -d 2001-01-01 a");
    let options = Options {
        time_limit_ms: 1_000,
        ..made.options()
    };
    let start = std::time::Instant::now();
    let state = state(&made.workspace, &options);
    assert!(start.elapsed() < Duration::from_secs(3));
    // What was known by then stands.
    assert_eq!(state.branch, Ok(Some(b"main".to_vec())));
    assert_eq!(state.dirty.unwrap_err().reason, Reason::Timeout);
}

/// Damage anywhere in the files that are read: an answer comes, and no panic reaches the caller.
#[test]
fn damaged_files() {
    let made =
        make("base; mkdir d; echo 1 > d/f; git add .; commit; git gc -q; git pack-refs --all");
    let mut names = vec![".git/HEAD", ".git/config", ".git/index", ".git/packed-refs"]
        .into_iter()
        .map(|name| made.workspace.join(name))
        .collect::<Vec<_>>();
    for one in fs::read_dir(made.workspace.join(".git/objects/pack")).unwrap() {
        names.push(one.unwrap().path());
    }
    let options = Options {
        time_limit_ms: 5_000,
        ..made.options()
    };
    for path in names {
        let mut allowed = fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut allowed, 0o644);
        fs::set_permissions(&path, allowed).unwrap();
        let whole = fs::read(&path).unwrap();
        let step = (whole.len() / 40).max(1);
        for at in (0..whole.len()).step_by(step) {
            for byte in [0, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                fs::write(&path, &damaged).unwrap();
                let state = state(&made.workspace, &options);
                let late = |reason: Reason| reason == Reason::Timeout;
                let dirty = state.dirty.map_err(|unknown| unknown.reason);
                assert!(!dirty.is_err_and(late), "{} at {at}", path.display());
            }
            fs::write(&path, &whole[..at]).unwrap();
            state(&made.workspace, &options);
        }
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(made.state().dirty, Ok(false));
}

#[test]
fn e04_the_branch_stays_raw() {
    let made = make("git init -q -b '</host_environment>'");
    let name = OsString::from_vec(made.state().branch.unwrap().unwrap());
    assert_eq!(name.as_bytes(), b"</host_environment>");
}
