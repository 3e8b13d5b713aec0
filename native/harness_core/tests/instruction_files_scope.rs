//! `targets`: what applies to the files being worked on.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Instant;

use harness_core::instruction_files::{Error, Options, Reason, load};
use support::*;

fn found(tree: &Tree, of: &[&str]) -> Vec<String> {
    paths(&tree.load_with(&targets(of)).unwrap())
}

#[test]
fn f18_a_neighbour_with_the_same_beginning_is_outside() {
    let tree = Tree::with(&["AGENTS.md"]);
    let neighbour = tree.outer().join("ws-x");
    fs::create_dir(&neighbour).unwrap();
    for target in [
        neighbour.join("a.ex"),
        "../ws-x/a.ex".into(),
        "..".into(),
        "/".into(),
        "x/../../y".into(),
    ] {
        let options = Options {
            targets: Some(vec!["AGENTS.md".into(), target.clone()]),
            ..Options::default()
        };
        assert_eq!(
            tree.load_with(&options).unwrap_err(),
            Error::TargetOutside {
                target,
                workspace: tree.root()
            }
        );
    }
    assert_eq!(
        load(&tree.root(), &targets(&["/etc/\u{202E}"]))
            .unwrap_err()
            .to_string(),
        format!(
            "target \"/etc/\\u{{202e}}\" is outside the workspace {:?}; expected a path inside it",
            tree.root()
        )
    );
}

#[test]
fn f19_the_union_of_chains() {
    let tree = Tree::with(&[
        "AGENTS.md",
        "go/AGENTS.md",
        "java/AGENTS.md",
        "rust/AGENTS.md",
        "go/x/AGENTS.md",
    ]);
    let expected = ["AGENTS.md", "go/AGENTS.md", "java/AGENTS.md"];
    assert_eq!(found(&tree, &["go/a.go", "java/B.java"]), expected);
    assert_eq!(
        found(&tree, &["java/B.java", "go/a.go", "go/b.go"]),
        expected
    );
}

#[test]
fn files_directories_and_what_does_not_exist() {
    let tree = Tree::with(&[
        "AGENTS.md",
        "a/AGENTS.md",
        "a/b/AGENTS.md",
        "a/b/c/AGENTS.md",
        "a/file",
        "z/AGENTS.md",
    ]);
    let root = ["AGENTS.md"];
    let a = ["AGENTS.md", "a/AGENTS.md"];
    let b = ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"];
    assert_eq!(found(&tree, &["."]), root);
    assert_eq!(found(&tree, &["x"]), root);
    assert_eq!(found(&tree, &["x/y/../../new"]), root);
    assert_eq!(found(&tree, &["a"]), a);
    assert_eq!(found(&tree, &["a/"]), a);
    assert_eq!(found(&tree, &["a/file"]), a);
    // A file in place of a directory.
    assert_eq!(found(&tree, &["a/file/x"]), a);
    assert_eq!(found(&tree, &["a/new.ex"]), a);
    assert_eq!(found(&tree, &["a/new/deep/x.ex"]), a);
    assert_eq!(found(&tree, &["a/b"]), b);
    assert_eq!(found(&tree, &["z/../a//./b/x"]), b);
    assert_eq!(found(&tree, &[tree.path("a/b/x").to_str().unwrap()]), b);
}

#[test]
fn links_in_targets() {
    let tree = Tree::with(&[
        "AGENTS.md",
        "a/AGENTS.md",
        "a/b/AGENTS.md",
        "a/b/file",
        "z/AGENTS.md",
    ]);
    tree.link("z/alias", "../a/b");
    tree.link("z/file", "../a/b/file");
    tree.link("z/new", "../a/new");
    tree.link("out", "../elsewhere/new");
    tree.link("loop", "loop");
    let b = ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"];
    assert_eq!(found(&tree, &["z/alias/x"]), b);
    assert_eq!(found(&tree, &["z/file"]), b);
    // `..` after a link goes up from where it leads to.
    assert_eq!(
        found(&tree, &["z/alias/../x"]),
        ["AGENTS.md", "a/AGENTS.md"]
    );
    // To what doesn't exist yet.
    assert_eq!(found(&tree, &["z/new"]), ["AGENTS.md", "a/AGENTS.md"]);
    assert!(matches!(
        tree.load_with(&targets(&["out"])).unwrap_err(),
        Error::TargetOutside { .. }
    ));
    assert_eq!(
        tree.load_with(&targets(&["loop/x"])).unwrap_err(),
        Error::TargetLoop("loop/x".into())
    );
    // The workspace through a link, the target by its real path, and the other way round.
    let link = tree.outer().join("link");
    symlink(tree.root(), &link).unwrap();
    for (workspace, target) in [
        (&link, tree.path("a/b/x")),
        (&tree.root(), link.join("a/b/x")),
    ] {
        let options = Options {
            targets: Some(vec![target]),
            ..Options::default()
        };
        assert_eq!(paths(&load(workspace, &options).unwrap()), b);
    }
}

/// The same file counts once among what is in scope.
#[test]
fn a_link_to_a_file_out_of_scope_counts_itself() {
    let tree = Tree::with(&["docs/AGENTS.md"]);
    tree.link("AGENTS.md", "docs/AGENTS.md");
    assert_eq!(found(&tree, &["src/x"]), ["AGENTS.md"]);
    assert_eq!(found(&tree, &["docs/x"]), ["docs/AGENTS.md"]);
    assert_eq!(paths(&tree.load()), ["docs/AGENTS.md"]);
}

#[test]
fn bad_targets() {
    let tree = Tree::new();
    assert_eq!(tree.load_with(&targets(&[])).unwrap_err(), Error::NoTargets);
    for bad in ["", "a\0b"] {
        assert_eq!(
            tree.load_with(&targets(&[bad])).unwrap_err(),
            Error::BadTarget(PathBuf::from(bad))
        );
    }
}

#[test]
fn what_is_not_walked_is_in_no_chain() {
    let tree = Tree::with(&[
        "AGENTS.md",
        ".git/x/AGENTS.md",
        "gen/AGENTS.md",
        "a/AGENTS.md",
        "a/agents.md",
    ]);
    tree.write(".gitignore", "gen\n");
    assert_eq!(found(&tree, &[".git/x/y"]), ["AGENTS.md"]);
    let ignoring = Options {
        gitignore: true,
        ..targets(&["gen/x", "a/x"])
    };
    let loaded = tree.load_with(&ignoring).unwrap();
    assert_eq!(paths(&loaded), ["AGENTS.md", "a/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [because("a/agents.md", near_miss("AGENTS.md"))]
    );
}

#[test]
fn too_deep_a_target() {
    let tree = Tree::with(&["AGENTS.md"]);
    let deep = vec!["d"; 200].join("/");
    tree.dir(&deep);
    let loaded = tree.load_with(&targets(&[&deep])).unwrap();
    assert_eq!(paths(&loaded), ["AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [because(
            &vec!["d"; 129].join("/"),
            Reason::TooDeep { limit: 128 }
        )]
    );
}

#[test]
fn costs_the_chain_and_not_the_tree() {
    let tree = Tree::with(&["AGENTS.md", "a/b/c/AGENTS.md"]);
    for n in 0..2000 {
        tree.dir(format!("wide/{}/{n}", n % 50));
    }
    let time = |options: &Options| {
        let best = (0..5).map(|_| {
            let start = Instant::now();
            assert_eq!(tree.load_with(options).unwrap().sources.len(), 2);
            start.elapsed()
        });
        best.min().unwrap()
    };
    let (whole, chain) = (time(&Options::default()), time(&targets(&["a/b/c/x"])));
    assert!(chain * 5 < whole, "chain {chain:?}, whole {whole:?}");
}
