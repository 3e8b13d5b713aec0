//! `gitignore: true`, and counting what it would leave out.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use std::process::Command;

use harness_core::instruction_files::{Options, load};
use support::*;

fn found(tree: &Tree) -> Vec<String> {
    paths(&tree.load_with(&gitignore()).unwrap())
}

#[test]
fn f20_an_ignored_file_loads_an_ignored_directory_does_not() {
    let tree = Tree::with(&["AGENTS.md", "node_modules/dep/AGENTS.md", "src/AGENTS.md"]);
    tree.write(".gitignore", "AGENTS.md\nnode_modules\n");
    assert_eq!(found(&tree), ["AGENTS.md", "src/AGENTS.md"]);
    // Off by default.
    assert_eq!(tree.load().sources.len(), 3);
}

#[test]
fn rules_of_every_shape() {
    let dirs = [
        "build", "a/build", "a/b/out", "out", "keep/x", "keep/y", "log{1}", "log1", "t mp", "x/y/z",
    ];
    let tree = Tree::with(
        &dirs
            .map(|dir| format!("{dir}/AGENTS.md"))
            .each_ref()
            .map(String::as_str),
    );
    tree.write(
        ".gitignore",
        b"\xEF\xBB\xBF/build/\r\n# comment\nout\n\xFF\xFE\n[z\nkeep/*\n!keep/y\nlog{1}\nt\\ mp\nx/**/z/\n",
    );
    assert_eq!(
        found(&tree),
        ["log1/AGENTS.md", "a/build/AGENTS.md", "keep/y/AGENTS.md"]
    );
}

#[test]
fn deeper_rules_override() {
    let tree = Tree::with(&[
        "gen/AGENTS.md",
        "a/gen/AGENTS.md",
        "a/own/AGENTS.md",
        "own/AGENTS.md",
    ]);
    tree.write(".gitignore", "gen\n");
    tree.write("a/.gitignore", "!gen\n/own\n");
    assert_eq!(found(&tree), ["own/AGENTS.md", "a/gen/AGENTS.md"]);
}

#[test]
fn info_exclude() {
    let tree = Tree::with(&["secret/AGENTS.md", "back/AGENTS.md"]);
    tree.write(".git/info/exclude", "secret\nback\n");
    tree.write(".gitignore", "!back\n");
    assert_eq!(found(&tree), ["back/AGENTS.md"]);
}

#[test]
fn info_exclude_of_a_work_tree() {
    let tree = Tree::with(&["secret/AGENTS.md", "AGENTS.md"]);
    let repository = tree.outer().join("main/.git");
    std::fs::create_dir_all(repository.join("worktrees/ws")).unwrap();
    std::fs::create_dir_all(repository.join("info")).unwrap();
    std::fs::write(repository.join("info/exclude"), "secret\n").unwrap();
    std::fs::write(repository.join("worktrees/ws/commondir"), "../..\n").unwrap();
    for gitdir in [
        repository.join("worktrees/ws").to_str().unwrap(),
        "../main/.git/worktrees/ws",
    ] {
        tree.write(".git", format!("gitdir: {gitdir}\n"));
        assert_eq!(found(&tree), ["AGENTS.md"], "{gitdir}");
    }
}

#[test]
fn a_nested_repository_has_its_own_rules() {
    let tree = Tree::with(&["gen/AGENTS.md", "sub/gen/AGENTS.md", "sub/own/AGENTS.md"]);
    tree.write(".gitignore", "gen\n");
    tree.write("sub/.git/info/exclude", "own\n");
    assert_eq!(found(&tree), ["sub/gen/AGENTS.md"]);
}

#[test]
fn a_workspace_inside_a_repository_has_the_rules_above_it() {
    let tree = Tree::with(&[
        "pkg/AGENTS.md",
        "pkg/gen/AGENTS.md",
        "pkg/a/AGENTS.md",
        "pkg/b/AGENTS.md",
    ]);
    tree.write(".gitignore", "gen\n/pkg/a\n/b\n");
    let load = || paths(&load(&tree.path("pkg"), &gitignore()).unwrap());
    // No repository, no rules from above.
    assert_eq!(load().len(), 4);
    tree.dir(".git");
    assert_eq!(load(), ["AGENTS.md", "b/AGENTS.md"]);
}

#[test]
fn a_list_of_rules_that_cannot_be_read_is_reported() {
    let tree = Tree::with(&["AGENTS.md", "a/AGENTS.md"]);
    tree.link(".gitignore", "rules");
    tree.write("rules", "a\n");
    tree.dir("a/.gitignore");
    let loaded = tree.load_with(&gitignore()).unwrap();
    assert_eq!(paths(&loaded), ["AGENTS.md", "a/AGENTS.md"]);
    let not_regular = loaded.unused[1].reason.to_string();
    assert_eq!(
        unused(&loaded)[0],
        because(".gitignore", unreadable("ELOOP"))
    );
    assert_eq!(not_regular, "not a regular file but a directory");
}

#[test]
fn what_would_be_left_out_is_counted_when_asked() {
    let tree = Tree::with(&[
        "AGENTS.md",
        "gen/AGENTS.md",
        "gen/deep/AGENTS.md",
        "sub/gen/AGENTS.md",
        "a/AGENTS.md",
    ]);
    tree.write(".gitignore", "gen\nAGENTS.md\n");
    tree.dir("sub/.git");
    let asked = Options {
        count_ignored: true,
        ..Options::default()
    };
    let loaded = tree.load_with(&asked).unwrap();
    assert_eq!(loaded.sources.len(), 5);
    assert_eq!((loaded.foreign.ignored, loaded.foreign.nested), (2, 1));
    assert_eq!(tree.load().foreign.ignored, 0);
}

/// Git itself as the oracle, where it is there.
#[test]
fn as_git_sees_it() {
    let dirs = [
        "a", "a/b", "a/b/c", "ab", "abc", "b", "b/a", "c.d", "c.d/a", "x y", "é", "a/é", "{a,b}",
        "[a]", "-", "b/c.d",
    ];
    let files = dirs.map(|dir| format!("{dir}/AGENTS.md"));
    let rules = [
        "a",
        "/a",
        "a/",
        "a/b",
        "/a/b/",
        "*",
        "*\n!a",
        "*/",
        "a*",
        "?",
        "**/c",
        "a/**",
        "**",
        "a/**/c",
        "c.*",
        "c.d/a",
        "x\\ y",
        "x y ",
        "é",
        "{a,b}",
        "\\{a,b\\}",
        "[a]",
        "[ab]",
        "[!a]",
        "[^a]",
        "\\[a\\]",
        "!a",
        "#a",
        "\\#a",
        "-",
        "a\n!a/b",
        "b/*\n!b/a",
        "/*\n!/b",
        "",
        "/",
        "**/a/",
        "*b",
        "a?c",
        "[a-b]",
        "x*y",
    ];
    let tree = Tree::with(&files.each_ref().map(String::as_str));
    let git = |arguments: &[&str]| {
        Command::new("git")
            .args([
                "-c",
                "core.excludesFile=/dev/null",
                "-c",
                "core.quotePath=false",
            ])
            .args(arguments)
            .current_dir(tree.root())
            .output()
    };
    if git(&["init", "-q"]).is_err() {
        eprintln!("skipped: git is not installed");
        return;
    }
    for rule in rules {
        // Only directories are of interest, so files are never ignored by themselves.
        tree.write(".gitignore", format!("{rule}\n!AGENTS.md\n"));
        let output = git(&["ls-files", "--others", "--exclude-standard"]).unwrap();
        let mut expected: Vec<String> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        expected.retain(|path| path.ends_with("AGENTS.md"));
        let mut found = found(&tree);
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "rule {rule:?}");
    }
}
