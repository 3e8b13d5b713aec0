//! `unchanged`: what a cache may go by.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::thread::sleep;
use std::time::Duration;

use harness_core::instruction_files::{Options, unchanged};
use support::*;

/// Long enough for what was made before to count.
fn settle() {
    sleep(Duration::from_millis(2100));
}

/// What it is called, and what it does.
type Change<'a> = (&'a str, &'a dyn Fn(&Tree));

fn is_unchanged(tree: &Tree, options: &Options, snapshot: &[u8]) -> bool {
    unchanged(&tree.root(), options, snapshot)
}

/// Each change, made to a tree of its own that has settled, must be seen.
fn seen(options: &Options, prepare: impl Fn(&Tree), changes: &[Change<'_>]) {
    let trees: Vec<Tree> = changes
        .iter()
        .map(|_| {
            let tree = Tree::new();
            prepare(&tree);
            tree
        })
        .collect();
    settle();
    for (tree, (name, change)) in trees.iter().zip(changes) {
        let snapshot = tree.load_with(options).unwrap().snapshot;
        assert!(is_unchanged(tree, options, &snapshot), "before: {name}");
        change(tree);
        assert!(!is_unchanged(tree, options, &snapshot), "after: {name}");
    }
}

#[test]
fn f15_f16_changes_are_seen() {
    let prepare = |tree: &Tree| {
        tree.write("AGENTS.md", "root");
        tree.write("a/AGENTS.md", "deep");
        tree.write("a/CLAUDE.md", "other");
        tree.dir("empty/deeper");
        tree.write("store/real.md", "real");
        tree.link("l/AGENTS.md", "../store/real.md");
        tree.link("dangling/AGENTS.md", "../.git/later");
        tree.dir(".git");
    };
    let same_size_and_time = |tree: &Tree, path: &str, text: &str| {
        let path = tree.path(path);
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, text).unwrap();
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
    };
    seen(
        &Options::default(),
        prepare,
        &[
            ("same size, mtime set back", &|tree| {
                same_size_and_time(tree, "AGENTS.md", "tOOr")
            }),
            ("behind a link", &|tree| {
                same_size_and_time(tree, "store/real.md", "REAL")
            }),
            ("edited", &|tree| tree.write("a/AGENTS.md", "longer text")),
            ("removed", &|tree| {
                fs::remove_file(tree.path("a/AGENTS.md")).unwrap()
            }),
            ("added", &|tree| tree.write("empty/deeper/AGENTS.md", "new")),
            ("renamed directory", &|tree| {
                fs::rename(tree.path("a"), tree.path("b")).unwrap()
            }),
            ("new directory", &|tree| tree.dir("empty/deeper/new")),
            ("mode", &|tree| tree.mode("a/AGENTS.md", 0o600)),
            ("directory's mode", &|tree| tree.mode("empty/deeper", 0o700)),
            ("replaced by an equal file", &|tree| {
                tree.write("new", "root");
                fs::rename(tree.path("new"), tree.path("AGENTS.md")).unwrap();
            }),
            ("dangling link's target made", &|tree| {
                tree.write(".git/later", "now")
            }),
            ("workspace replaced", &|tree| {
                fs::rename(tree.root(), tree.outer().join("old")).unwrap();
                tree.write("AGENTS.md", "root");
            }),
            ("workspace gone", &|tree| {
                fs::remove_dir_all(tree.root()).unwrap()
            }),
            ("near miss", &|tree| tree.write("a/agents.md", "x")),
        ],
    );
}

#[test]
fn changes_of_rules_are_seen() {
    let prepare = |tree: &Tree| {
        tree.write(".gitignore", "gen\n");
        tree.write("gen/AGENTS.md", "x");
        tree.dir(".git/info");
        tree.dir("sub/.git");
        tree.write("AGENTS.md", "x");
    };
    let changes: &[Change<'_>] = &[
        ("edited", &|tree| tree.write(".gitignore", "nothing\n")),
        ("exclude made", &|tree| {
            tree.write(".git/info/exclude", "x\n")
        }),
        ("exclude of a nested one", &|tree| {
            tree.write("sub/.git/info/exclude", "x\n")
        }),
    ];
    seen(&gitignore(), prepare, changes);
    // Where they are only counted, those above sources matter.
    seen(
        &Options {
            count_ignored: true,
            ..Options::default()
        },
        prepare,
        &changes[..2],
    );
    let above: &[Change<'_>] = &[("repository made above", &|tree| {
        symlink("x", tree.outer().join(".git")).unwrap();
    })];
    seen(&gitignore(), |tree| tree.write("AGENTS.md", "x"), above);
}

#[test]
fn other_things_asked_for_are_another_answer() {
    let tree = Tree::with(&["AGENTS.md", "a/AGENTS.md", "b/AGENTS.md"]);
    tree.link("alias", "a");
    settle();
    let asked = Options::default();
    let snapshot = tree.load().snapshot;
    assert!(is_unchanged(&tree, &asked, &snapshot));
    for other in [
        gitignore(),
        filenames(&["AGENTS.md", "CLAUDE.md"]),
        targets(&["a/x"]),
        Options {
            count_ignored: true,
            ..Options::default()
        },
        Options {
            nested_repositories: harness_core::instruction_files::Nested::Skip,
            ..Options::default()
        },
    ] {
        assert!(!is_unchanged(&tree, &other, &snapshot), "{other:?}");
    }
    // A scoped load sees its chain alone …
    let scoped = targets(&["a/x"]);
    let snapshot = tree.load_with(&scoped).unwrap().snapshot;
    tree.write("b/AGENTS.md", "changed");
    assert!(is_unchanged(&tree, &scoped, &snapshot));
    // … and where its target's links lead.
    let scoped = targets(&["alias/x"]);
    let snapshot = tree.load_with(&scoped).unwrap().snapshot;
    assert!(is_unchanged(&tree, &scoped, &snapshot));
    fs::remove_file(tree.path("alias")).unwrap();
    tree.link("alias", "b");
    assert!(!is_unchanged(&tree, &scoped, &snapshot));
}

#[test]
fn what_changed_just_before_the_load_is_read_again() {
    let tree = Tree::with(&["AGENTS.md"]);
    let snapshot = tree.load().snapshot;
    assert!(!is_unchanged(&tree, &Options::default(), &snapshot));
    settle();
    assert!(
        !is_unchanged(&tree, &Options::default(), &snapshot),
        "time doesn't heal a racy snapshot"
    );
    let snapshot = tree.load().snapshot;
    assert!(is_unchanged(&tree, &Options::default(), &snapshot));
}

#[test]
fn a_damaged_snapshot_has_changed() {
    let tree = Tree::with(&["AGENTS.md", "a/AGENTS.md"]);
    for n in 0..1200 {
        tree.dir(format!("d/{n}"));
    }
    settle();
    let snapshot = tree.load().snapshot;
    let options = Options::default();
    assert!(is_unchanged(&tree, &options, &snapshot));
    assert!(!is_unchanged(&tree, &options, b""));
    for position in (0..snapshot.len()).step_by(97) {
        let mut damaged = snapshot.clone();
        damaged[position] ^= 0x41;
        assert!(!is_unchanged(&tree, &options, &damaged), "byte {position}");
        assert!(
            !is_unchanged(&tree, &options, &snapshot[..position]),
            "cut at {position}"
        );
    }
    let longer = [snapshot.as_slice(), b"x"].concat();
    assert!(!is_unchanged(&tree, &options, &longer));
}
