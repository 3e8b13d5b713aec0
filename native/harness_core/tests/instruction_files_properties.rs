//! Random workspaces, against a recursion that is too simple to be wrong.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use harness_core::instruction_files::{Loaded, Options};
use proptest::prelude::*;
use support::*;

#[derive(Clone, Debug)]
enum Entry {
    Text,
    Blank,
    Latin,
    NearMiss,
    Directory,
    Other,
    Link(String),
    DirectoryLink(String),
}

fn directory() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        "[a-c]",
        Just("a b".into()),
        Just("a-b".into()),
        Just("é".into()),
        Just("A".into())
    ];
    proptest::collection::vec(name, 0..5).prop_map(|names| names.join("/"))
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        6 => Just(Entry::Text),
        1 => Just(Entry::Blank),
        1 => Just(Entry::Latin),
        1 => Just(Entry::NearMiss),
        1 => Just(Entry::Directory),
        2 => Just(Entry::Other),
        2 => directory().prop_map(Entry::Link),
        2 => directory().prop_map(Entry::DirectoryLink),
    ]
}

/// Makes what can be made; what is in the way of another entry is left out.
fn build(entries: &[(String, Entry)]) -> Tree {
    let tree = Tree::new();
    for (number, (dir, entry)) in entries.iter().enumerate() {
        if fs::create_dir_all(tree.path(dir)).is_err() {
            continue;
        }
        let path = |name: &str| tree.path(dir).join(name);
        let up = "../".repeat(if dir.is_empty() {
            0
        } else {
            dir.matches('/').count() + 1
        });
        let _ = match entry {
            Entry::Text => fs::write(path("AGENTS.md"), number.to_string()),
            Entry::Blank => fs::write(path("AGENTS.md"), " \n"),
            Entry::Latin => fs::write(path("AGENTS.md"), b"x\xE9"),
            Entry::NearMiss => fs::write(path("Agents.MD"), "x"),
            Entry::Directory => fs::create_dir(path("AGENTS.md")),
            Entry::Other => fs::write(path("README.md"), "x"),
            Entry::Link(to) => {
                std::os::unix::fs::symlink(format!("./{up}./{to}/AGENTS.md"), path("AGENTS.md"))
            }
            Entry::DirectoryLink(to) => {
                std::os::unix::fs::symlink(format!("./{up}./{to}"), path("link"))
            }
        };
    }
    tree
}

/// Every name of interest below `dir`: real texts, and all the others.
fn oracle(root: &Path, dir: &Path, texts: &mut Vec<Vec<Vec<u8>>>, others: &mut BTreeSet<Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let relative = path
            .strip_prefix(root)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec();
        let status = fs::symlink_metadata(&path).unwrap();
        if name == "AGENTS.md" {
            let text = fs::read_to_string(&path);
            if status.is_file() && text.is_ok_and(|text| !text.trim().is_empty()) {
                texts.push(
                    relative
                        .split(|byte| *byte == b'/')
                        .map(<[u8]>::to_vec)
                        .collect(),
                );
            } else {
                others.insert(relative);
            }
        } else if name.eq_ignore_ascii_case("AGENTS.md") {
            others.insert(relative);
        }
        if status.is_dir() {
            oracle(root, &path, texts, others);
        }
    }
}

fn not_used(loaded: &Loaded) -> BTreeSet<Vec<u8>> {
    loaded
        .unused
        .iter()
        .map(|unused| unused.path.clone())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_file_is_found_once_in_order(entries in proptest::collection::vec((directory(), entry()), 0..40)) {
        let tree = build(&entries);
        let loaded = tree.load();
        let (mut texts, mut others) = (Vec::new(), BTreeSet::new());
        oracle(&tree.root(), &tree.root(), &mut texts, &mut others);
        texts.sort_by_key(|parts| (parts.len(), parts.clone()));
        let expected: Vec<Vec<u8>> = texts.iter().map(|parts| parts.join(&b'/')).collect();
        let found: Vec<Vec<u8>> = loaded.sources.iter().map(|source| source.path.clone()).collect();
        prop_assert_eq!(found, expected);
        for source in &loaded.sources {
            prop_assert_eq!(fs::read_to_string(tree.path(&source.path)).unwrap(), source.text.as_str());
        }
        prop_assert_eq!(loaded.unused.len(), others.len());
        prop_assert_eq!(not_used(&loaded), others);
    }

    #[test]
    fn a_target_gives_the_part_of_the_whole_that_lies_above_it(
        entries in proptest::collection::vec((directory(), entry()), 0..40),
        dirs in proptest::collection::vec(directory(), 1..4),
    ) {
        // A link to a file that is out of scope counts itself; see the tests of scope.
        let is_link = |entry: &Entry| matches!(entry, Entry::Link(_));
        let tree = build(&entries.into_iter().filter(|(_, entry)| !is_link(entry)).collect::<Vec<_>>());
        let scoped = Options {
            targets: Some(dirs.iter().map(|dir| tree.path(dir).join("new.ex")).collect()),
            ..Options::default()
        };
        let above = |path: &[u8]| {
            let parent = Path::new(std::ffi::OsStr::from_bytes(path)).parent().unwrap();
            dirs.iter().any(|dir| Path::new(dir).starts_with(parent))
        };
        let whole: Vec<_> = tree.load().sources.into_iter().filter(|source| above(&source.path)).collect();
        prop_assert_eq!(tree.load_with(&scoped).unwrap().sources, whole);
    }
}
