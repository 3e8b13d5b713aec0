//! Instruction files on real file systems; tests are named after the cases they show.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use harness_core::instruction_files::{Error, Kind, Nested, Options, Reason, load};
use support::*;

/// Names that a listing gives in any order; the order wanted is worked out by hand.
#[test]
fn f02_order() {
    let tree = Tree::with(&[
        "zz/é/AGENTS.md",
        "a/b/AGENTS.md",
        "a-b/AGENTS.md",
        "a/AGENTS.md",
        "a b/AGENTS.md",
        "Z/AGENTS.md",
        "AAA/AGENTS.md",
        "0a/AGENTS.md",
        "AGENTS.md",
    ]);
    let expected = [
        "AGENTS.md",
        "0a/AGENTS.md",
        "AAA/AGENTS.md",
        "Z/AGENTS.md",
        "a/AGENTS.md",
        "a b/AGENTS.md",
        "a-b/AGENTS.md",
        "a/b/AGENTS.md",
        "zz/é/AGENTS.md",
    ];
    assert_eq!(paths(&tree.load()), expected);
}

/// Another machine lists the same names in another order: here, that of another creation.
#[test]
fn f02_order_of_creation_does_not_matter() {
    let files: Vec<String> = (0..200).map(|n| format!("d{n}/AGENTS.md")).collect();
    let forward = Tree::with(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let backward = Tree::with(&files.iter().rev().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(forward.load().sources, backward.load().sources);
}

#[test]
fn f03_loops_of_directory_links() {
    let tree = Tree::with(&["AGENTS.md", "a/AGENTS.md"]);
    tree.link("a/loop", "..");
    tree.link("self", ".");
    tree.link("x", "y");
    tree.link("y", "x");
    let start = Instant::now();
    let loaded = tree.load();
    assert_eq!(paths(&loaded), ["AGENTS.md", "a/AGENTS.md"]);
    assert_eq!(loaded.unused, []);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn f04_root_dot_git_is_a_file() {
    let tree = Tree::with(&["AGENTS.md", "a/AGENTS.md"]);
    tree.write(".git", "gitdir: ../elsewhere/.git/worktrees/ws\n");
    let skip = Options {
        nested_repositories: Nested::Skip,
        ..gitignore()
    };
    for options in [Options::default(), skip] {
        let loaded = tree.load_with(&options).unwrap();
        assert_eq!(paths(&loaded), ["AGENTS.md", "a/AGENTS.md"]);
        assert_eq!(loaded.unused, []);
        assert_eq!(loaded.foreign.nested, 0);
    }
}

#[test]
fn f05_dot_git_is_not_walked() {
    let tree = Tree::with(&[
        ".git/AGENTS.md",
        ".git/x/AGENTS.md",
        "sub/.git/AGENTS.md",
        "sub/a",
    ]);
    let loaded = tree.load();
    assert_eq!(loaded.sources, []);
    assert_eq!(loaded.unused, []);
}

#[test]
fn f06_one_file_under_two_wanted_names() {
    let tree = Tree::with(&["AGENTS.md"]);
    tree.link("CLAUDE.md", "AGENTS.md");
    let loaded = tree
        .load_with(&filenames(&["AGENTS.md", "CLAUDE.md"]))
        .unwrap();
    assert_eq!(paths(&loaded), ["AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [because("CLAUDE.md", duplicate_of("AGENTS.md"))]
    );
    // With the preference the other way round the link counts, since the file doesn't.
    let loaded = tree
        .load_with(&filenames(&["CLAUDE.md", "AGENTS.md"]))
        .unwrap();
    assert_eq!(paths(&loaded), ["CLAUDE.md"]);
    assert_eq!(
        unused(&loaded),
        [because("AGENTS.md", duplicate_of("CLAUDE.md"))]
    );
}

#[test]
fn f07_escaping_links() {
    let tree = Tree::with(&["AGENTS.md"]);
    let outside = tree.outer().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.md"), "secret").unwrap();
    fs::write(outside.join("AGENTS.md"), "secret").unwrap();
    tree.link("sub/AGENTS.md", "../../outside/secret.md");
    tree.link("ext", &outside);
    tree.link("rel", "../outside");
    // Out by a directory link on the way, and out and in again.
    tree.link("via/AGENTS.md", "../rel/secret.md");
    tree.link("back/AGENTS.md", "../../ws/AGENTS.md");
    tree.link("gone/AGENTS.md", "../../no/such/file");
    let loaded = tree.load();
    assert_eq!(paths(&loaded), ["AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [
            because("back/AGENTS.md", Reason::EscapingLink),
            because("gone/AGENTS.md", Reason::EscapingLink),
            because("sub/AGENTS.md", Reason::EscapingLink),
            because("via/AGENTS.md", Reason::EscapingLink),
        ]
    );
}

#[test]
fn f08_workspace_given_in_many_ways() {
    let tree = Tree::with(&["AGENTS.md", "a/AGENTS.md"]);
    let link = tree.outer().join("link");
    std::os::unix::fs::symlink(tree.root(), &link).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let expected = tree.load().sources;
    assert_eq!(expected.len(), 2);
    for given in [
        text(&link),
        text(&link) + "/",
        text(&tree.root()) + "/",
        text(&tree.root()) + "/a/..",
        text(&tree.root()) + "//.",
    ] {
        assert_eq!(
            load(Path::new(&given), &Options::default())
                .unwrap()
                .sources,
            expected,
            "{given}"
        );
    }
}

#[test]
fn f09_byte_order_mark() {
    let tree = Tree::new();
    tree.write("AGENTS.md", b"\xEF\xBB\xBFone");
    tree.write("a/AGENTS.md", b"t\xEF\xBB\xBFwo");
    tree.write("b/AGENTS.md", b"\xEF\xBB\xBF\xEF\xBB\xBFtwice");
    let loaded = tree.load();
    let texts: Vec<&str> = loaded
        .sources
        .iter()
        .map(|source| source.text.as_str())
        .collect();
    assert_eq!(texts, ["one", "t\u{FEFF}wo", "\u{FEFF}twice"]);
}

#[test]
fn f10_not_utf8() {
    let tree = Tree::with(&["AGENTS.md"]);
    tree.write("latin/AGENTS.md", b"caf\xE9");
    tree.write("bom/AGENTS.md", b"\xEF\xBB\xBFcaf\xE9");
    tree.write("utf16/AGENTS.md", b"\xFF\xFEh\0i\0");
    tree.write("cut/AGENTS.md", b"caf\xC3");
    let loaded = tree.load();
    assert_eq!(paths(&loaded), ["AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [
            because("bom/AGENTS.md", Reason::NotUtf8 { offset: 6 }),
            because("cut/AGENTS.md", Reason::NotUtf8 { offset: 3 }),
            because("latin/AGENTS.md", Reason::NotUtf8 { offset: 3 }),
            because("utf16/AGENTS.md", Reason::NotUtf8 { offset: 0 }),
        ]
    );
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    assert!(fs::symlink_metadata(path).unwrap().file_type().is_fifo());
}

#[test]
fn f11_not_regular() {
    let tree = Tree::with(&["AGENTS.md", "dir/AGENTS.md/AGENTS.md"]);
    tree.dir("fifo");
    fifo(&tree.path("fifo/AGENTS.md"));
    tree.dir("pipe");
    fifo(&tree.path("pipe/x"));
    tree.link("pipe/AGENTS.md", "x");
    tree.dir("sock");
    let _socket = UnixListener::bind(tree.path("sock/AGENTS.md")).unwrap();
    tree.link("todir/AGENTS.md", "../dir");
    tree.link("toroot/AGENTS.md", "..");
    let start = Instant::now();
    let loaded = tree.load();
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "waited for a writer"
    );
    // A directory of that name is no instruction file, but a directory like others.
    assert_eq!(paths(&loaded), ["AGENTS.md", "dir/AGENTS.md/AGENTS.md"]);
    let not = |kind| Reason::NotRegular { kind };
    assert_eq!(
        unused(&loaded),
        [
            because("dir/AGENTS.md", not(Kind::Directory)),
            because("fifo/AGENTS.md", not(Kind::Fifo)),
            because("pipe/AGENTS.md", not(Kind::Fifo)),
            because("sock/AGENTS.md", not(Kind::Socket)),
            because("todir/AGENTS.md", not(Kind::Directory)),
            because("toroot/AGENTS.md", not(Kind::Directory)),
        ]
    );
}

#[test]
fn f12_devices_and_huge_files() {
    let tree = Tree::with(&["AGENTS.md"]);
    tree.link("zero/AGENTS.md", "/dev/zero");
    tree.dir("huge");
    let huge = fs::File::create(tree.path("huge/AGENTS.md")).unwrap();
    huge.set_len(5 << 30).unwrap();
    tree.write("limit/AGENTS.md", vec![b'x'; 1 << 20]);
    tree.write("over/AGENTS.md", vec![b'x'; (1 << 20) + 1]);
    let start = Instant::now();
    let loaded = tree.load();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(paths(&loaded), ["AGENTS.md", "limit/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [
            because(
                "huge/AGENTS.md",
                Reason::TooLarge {
                    bytes: 5_368_709_120,
                    limit: 1_048_576
                }
            ),
            because(
                "over/AGENTS.md",
                Reason::TooLarge {
                    bytes: 1_048_577,
                    limit: 1_048_576
                }
            ),
            because("zero/AGENTS.md", Reason::AbsoluteLink),
        ]
    );
}

#[test]
fn f13_near_misses() {
    let tree = Tree::with(&[
        "agents.md",
        "both/agents.md",
        "both/AGENTS.md",
        "Agents.md/x",
    ]);
    let loaded = tree.load();
    assert_eq!(paths(&loaded), ["both/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [
            because("agents.md", near_miss("AGENTS.md")),
            because("both/agents.md", near_miss("AGENTS.md")),
        ]
    );
    // Spelt as wanted, it is no near miss of another wanted name.
    let loaded = tree
        .load_with(&filenames(&["AGENTS.md", "agents.md"]))
        .unwrap();
    assert_eq!(paths(&loaded), ["agents.md", "both/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [because("both/agents.md", superseded_by("both/AGENTS.md"))]
    );
}

#[test]
fn f14_empty() {
    let tree = Tree::with(&["AGENTS.md"]);
    tree.write("a/AGENTS.md", "");
    tree.write("b/AGENTS.md", "\n \t\r\n");
    tree.write("c/AGENTS.md", b"\xEF\xBB\xBF");
    tree.write("d/AGENTS.md", "\u{3000}\u{2028}\u{A0}");
    tree.write("e/AGENTS.md", "<!-- a comment is text -->");
    tree.write("f/AGENTS.md", "\u{200B}");
    let loaded = tree.load();
    // A deeper file that is empty doesn't shadow the one above it. U+200B is no White_Space.
    assert_eq!(paths(&loaded), ["AGENTS.md", "e/AGENTS.md", "f/AGENTS.md"]);
    let empty: Vec<_> = ["a", "b", "c", "d"]
        .map(|dir| because(&format!("{dir}/AGENTS.md"), Reason::Empty))
        .into();
    assert_eq!(unused(&loaded), empty);
}

#[test]
fn f23_crlf_is_kept() {
    let tree = Tree::new();
    tree.write("AGENTS.md", "one\r\ntwo\r\n");
    assert_eq!(tree.load().sources[0].text, "one\r\ntwo\r\n");
}

#[test]
fn f24_mode_000() {
    let tree = Tree::with(&[
        "AGENTS.md",
        "file/AGENTS.md",
        "dir/AGENTS.md",
        "list/AGENTS.md",
        "ok/AGENTS.md",
    ]);
    tree.link("through/AGENTS.md", "../dir/AGENTS.md");
    tree.mode("file/AGENTS.md", 0);
    tree.mode("dir", 0);
    // May be listed, but nothing in it may be opened.
    tree.mode("list", 0o444);
    let loaded = as_ordinary_user(|| tree.load());
    assert_eq!(paths(&loaded), ["AGENTS.md", "ok/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [
            because("dir", unreadable("EACCES")),
            because("file/AGENTS.md", unreadable("EACCES")),
            because("list/AGENTS.md", unreadable("EACCES")),
            because("through/AGENTS.md", unreadable("EACCES")),
        ]
    );
    tree.mode("", 0);
    let error = as_ordinary_user(|| tree.load_with(&Options::default())).unwrap_err();
    assert_eq!(
        error,
        Error::WorkspaceUnreadable {
            path: tree.root(),
            error: "EACCES".to_owned()
        }
    );
    for path in ["", "dir", "list"] {
        tree.mode(path, 0o755);
    }
}

#[test]
fn the_first_name_counts_whatever_is_wrong_with_it() {
    let tree = Tree::new();
    for dir in ["empty", "latin", "dangling", "directory"] {
        tree.write(format!("{dir}/CLAUDE.md"), "other");
    }
    tree.write("empty/AGENTS.md", "");
    tree.write("latin/AGENTS.md", b"\xE9");
    tree.link("dangling/AGENTS.md", "nothing");
    tree.dir("directory/AGENTS.md");
    tree.write("only/CLAUDE.md", "only");
    let loaded = tree
        .load_with(&filenames(&["AGENTS.md", "CLAUDE.md"]))
        .unwrap();
    assert_eq!(paths(&loaded), ["only/CLAUDE.md"]);
    let other = |dir: &str| {
        because(
            &format!("{dir}/CLAUDE.md"),
            superseded_by(&format!("{dir}/AGENTS.md")),
        )
    };
    assert_eq!(
        unused(&loaded),
        [
            because("dangling/AGENTS.md", Reason::DanglingLink),
            other("dangling"),
            because(
                "directory/AGENTS.md",
                Reason::NotRegular {
                    kind: Kind::Directory
                }
            ),
            other("directory"),
            because("empty/AGENTS.md", Reason::Empty),
            other("empty"),
            because("latin/AGENTS.md", Reason::NotUtf8 { offset: 0 }),
            other("latin"),
        ]
    );
}

#[test]
fn each_directory_prefers_for_itself() {
    let names = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md"];
    let tree = Tree::with(&[
        "AGENTS.md",
        "CLAUDE.md",
        "a/CLAUDE.md",
        "b/AGENTS.override.md",
        "b/AGENTS.md",
    ]);
    let loaded = tree.load_with(&filenames(&names)).unwrap();
    assert_eq!(
        paths(&loaded),
        ["AGENTS.md", "a/CLAUDE.md", "b/AGENTS.override.md"]
    );
    assert_eq!(
        unused(&loaded),
        [
            because("CLAUDE.md", superseded_by("AGENTS.md")),
            because("b/AGENTS.md", superseded_by("b/AGENTS.override.md")),
        ]
    );
}

#[test]
fn links_inside_are_read() {
    let tree = Tree::with(&["docs/guide.md", "docs/AGENTS.md", "a/.keep"]);
    tree.link("AGENTS.md", "docs/AGENTS.md");
    tree.link("a/AGENTS.md", "../docs/./guide.md");
    // Through a directory link, which isn't walked.
    tree.link("alias", "docs");
    tree.link("b/AGENTS.md", "../alias/guide.md");
    tree.link("c/AGENTS.md", "../nothing");
    tree.link("d/AGENTS.md", "AGENTS.md");
    tree.link("e/AGENTS.md", tree.path("docs/AGENTS.md"));
    tree.link("f/AGENTS.md", "../docs/guide.md/");
    let loaded = tree.load();
    // The real file's place counts; of two links to a file that has no place, the first in order.
    assert_eq!(paths(&loaded), ["a/AGENTS.md", "docs/AGENTS.md"]);
    assert_eq!(loaded.sources[0].text, "docs/guide.md");
    assert_eq!(
        unused(&loaded),
        [
            because("AGENTS.md", duplicate_of("docs/AGENTS.md")),
            because("b/AGENTS.md", duplicate_of("a/AGENTS.md")),
            because("c/AGENTS.md", Reason::DanglingLink),
            because("d/AGENTS.md", Reason::LinkLoop),
            because("e/AGENTS.md", Reason::AbsoluteLink),
            because("f/AGENTS.md", Reason::DanglingLink),
        ]
    );
}

#[test]
fn hard_links_count_once_and_equal_files_twice() {
    let tree = Tree::with(&["b/AGENTS.md"]);
    tree.dir("a/x");
    fs::hard_link(tree.path("b/AGENTS.md"), tree.path("a/x/AGENTS.md")).unwrap();
    tree.dir("c");
    fs::hard_link(tree.path("b/AGENTS.md"), tree.path("c/AGENTS.md")).unwrap();
    tree.write("d/AGENTS.md", "b/AGENTS.md");
    let loaded = tree.load();
    assert_eq!(paths(&loaded), ["b/AGENTS.md", "d/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [
            because("c/AGENTS.md", duplicate_of("b/AGENTS.md")),
            because("a/x/AGENTS.md", duplicate_of("b/AGENTS.md")),
        ]
    );
}

#[test]
fn a_text_that_is_a_path_is_a_text() {
    // What a link becomes on a system without links.
    let tree = Tree::new();
    tree.write("AGENTS.md", "CLAUDE.md");
    assert_eq!(tree.load().sources[0].text, "CLAUDE.md");
}

#[test]
fn hostile_names() {
    let names: [&[u8]; 6] = [
        b"<",
        b"</instructions>",
        b"new\nline",
        "\u{202E}gpj".as_bytes(),
        b"\xFF\xFE",
        b"\x1B[31m",
    ];
    let tree = Tree::new();
    for name in names {
        tree.write([name, b"/AGENTS.md"].concat(), "x");
        tree.write([name, b"/agents.md"].concat(), "x");
    }
    let loaded = tree.load();
    // Bytewise: 1B, `<`, n, E2 80 AE, FF; then `<` once more a level deeper.
    let expected: [&[u8]; 6] = [
        b"\x1B[31m/AGENTS.md",
        b"</AGENTS.md",
        b"new\nline/AGENTS.md",
        "\u{202E}gpj/AGENTS.md".as_bytes(),
        b"\xFF\xFE/AGENTS.md",
        b"</instructions>/AGENTS.md",
    ];
    let found: Vec<&[u8]> = loaded
        .sources
        .iter()
        .map(|source| source.path.as_slice())
        .collect();
    assert_eq!(found, expected);
    assert_eq!(loaded.unused.len(), 6);
    let loaded = tree
        .load_with(&filenames(&["agents.md", "AGENTS.md"]))
        .unwrap();
    for unused in &loaded.unused {
        let message = unused.reason.to_string();
        assert!(
            !message.contains(['\n', '\u{202E}', '\u{1B}']),
            "{message:?}"
        );
    }
}

#[test]
fn too_deep() {
    let tree = Tree::new();
    let dir = |depth: usize| vec!["d"; depth].join("/");
    tree.write(dir(128) + "/AGENTS.md", "deepest");
    tree.write(dir(129) + "/AGENTS.md", "too deep");
    let loaded = tree.load();
    assert_eq!(paths(&loaded), [dir(128) + "/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [because(&dir(129), Reason::TooDeep { limit: 128 })]
    );
}

#[test]
fn paths_longer_than_the_system_takes_in_one_call() {
    // 40 levels of 200 bytes: 8,000 bytes, where a path of one call has at most 4,095.
    let tree = Tree::new();
    let name = "n".repeat(200);
    let mut dir = rustix::fs::open(
        tree.root(),
        rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let mut path = String::new();
    for _ in 0..40 {
        let mode = rustix::fs::Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(&dir, &name, mode).unwrap();
        dir = rustix::fs::openat(
            &dir,
            &name,
            rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        path += &format!("{name}/");
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(
        &dir,
        "real.md",
        flags,
        rustix::fs::Mode::from_raw_mode(0o644),
    )
    .unwrap();
    rustix::io::write(&file, b"far").unwrap();
    rustix::fs::symlinkat("real.md", &dir, "AGENTS.md").unwrap();
    let loaded = tree.load();
    assert_eq!(paths(&loaded), [path + "AGENTS.md"]);
    assert_eq!(loaded.sources[0].text, "far");
}

#[test]
fn nested_repositories() {
    let tree = Tree::with(&[
        "AGENTS.md",
        "sub/AGENTS.md",
        "sub/x/AGENTS.md",
        "tree/AGENTS.md",
        "z/AGENTS.md",
    ]);
    tree.dir("sub/.git");
    tree.write("tree/.git", "gitdir: ../.git/worktrees/tree\n");
    let loaded = tree.load();
    assert_eq!(loaded.sources.len(), 5);
    assert_eq!(loaded.foreign.nested, 3);
    let skip = Options {
        nested_repositories: Nested::Skip,
        ..Options::default()
    };
    let loaded = tree.load_with(&skip).unwrap();
    assert_eq!(paths(&loaded), ["AGENTS.md", "z/AGENTS.md"]);
    assert_eq!(
        unused(&loaded),
        [
            because("sub", Reason::NestedRepository),
            because("tree", Reason::NestedRepository)
        ]
    );
    assert_eq!(loaded.foreign.nested, 0);
}

#[test]
fn bad_workspaces() {
    let tree = Tree::with(&["file"]);
    let error = |path: &Path| load(path, &Options::default()).unwrap_err();
    assert_eq!(
        error(&tree.path("none")),
        Error::WorkspaceMissing(tree.path("none"))
    );
    assert_eq!(error(Path::new("")), Error::WorkspaceMissing("".into()));
    assert_eq!(
        error(&tree.path("file")),
        Error::WorkspaceNotADirectory(tree.path("file"))
    );
    assert_eq!(
        error(Path::new("/no/such\n")).to_string(),
        "workspace \"/no/such\\n\" does not exist; expected an existing directory"
    );
    assert!(matches!(
        error(Path::new("a\0b")),
        Error::WorkspaceUnreadable { .. }
    ));
}

#[test]
fn bad_filenames() {
    let tree = Tree::new();
    assert_eq!(
        tree.load_with(&filenames(&[])).unwrap_err(),
        Error::NoFilenames
    );
    let long = "x".repeat(256);
    for bad in ["", ".", "..", ".git", "a/b", "/", "a\0", &long] {
        let error = tree.load_with(&filenames(&["AGENTS.md", bad])).unwrap_err();
        assert_eq!(error, Error::BadFilename(bad.to_owned()));
    }
}

#[test]
fn an_empty_workspace() {
    let loaded = Tree::new().load();
    assert_eq!(loaded.sources, []);
    assert_eq!(loaded.unused, []);
}

/// Directories are swapped with links that lead out, again and again, while they are walked.
#[test]
fn directories_replaced_by_links_during_the_walk() {
    let tree = Tree::with(&["AGENTS.md"]);
    let secret = tree.outer().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("AGENTS.md"), "secret").unwrap();
    for n in 0..50 {
        tree.write(format!("d{n}/AGENTS.md"), "inside");
    }
    let change = || {
        for n in 0..50 {
            let (dir, aside) = (tree.path(format!("d{n}")), tree.outer().join("aside"));
            fs::rename(&dir, &aside).unwrap();
            std::os::unix::fs::symlink(&secret, &dir).unwrap();
            fs::remove_file(&dir).unwrap();
            fs::rename(&aside, &dir).unwrap();
        }
    };
    meanwhile(change, || {
        for _ in 0..200 {
            let loaded = tree.load();
            assert_eq!(text(&loaded.sources[0].path), "AGENTS.md");
            assert!(loaded.sources.iter().all(|source| source.text != "secret"));
        }
    });
}

/// A file is swapped with links that lead out and with named pipes, while it is opened.
#[test]
fn files_replaced_during_the_walk() {
    let tree = Tree::with(&["a/AGENTS.md"]);
    let [secret, link, pipe, file] =
        ["secret", "link", "pipe", "file"].map(|name| tree.outer().join(name));
    fs::write(&secret, "secret").unwrap();
    let place = tree.path("a/AGENTS.md");
    let change = || {
        std::os::unix::fs::symlink("../../secret", &link).unwrap();
        fs::rename(&link, &place).unwrap();
        fs::write(&file, "inside").unwrap();
        fs::rename(&file, &place).unwrap();
        fifo(&pipe);
        fs::rename(&pipe, &place).unwrap();
    };
    meanwhile(change, || {
        for _ in 0..5000 {
            let loaded = tree.load();
            for source in loaded.sources {
                assert!(
                    matches!(source.text.as_str(), "inside" | "a/AGENTS.md"),
                    "{source:?}"
                );
            }
            for unused in loaded.unused {
                let fifo = Reason::NotRegular { kind: Kind::Fifo };
                let expected = [
                    Reason::EscapingLink,
                    fifo,
                    Reason::Vanished,
                    Reason::DanglingLink,
                ];
                assert!(expected.contains(&unused.reason), "{unused:?}");
            }
        }
    });
}

/// Files appear and disappear while they are walked: each load has what stays.
#[test]
fn files_removed_during_the_walk() {
    let tree = Tree::with(&["AGENTS.md", "stays/AGENTS.md"]);
    tree.dir("goes");
    let change = || {
        tree.write("goes/AGENTS.md", "goes");
        fs::remove_file(tree.path("goes/AGENTS.md")).unwrap();
    };
    meanwhile(change, || {
        for _ in 0..500 {
            let loaded = tree.load();
            let found = paths(&loaded);
            assert!(
                found.contains(&"AGENTS.md".to_owned())
                    && found.contains(&"stays/AGENTS.md".to_owned())
            );
            for unused in loaded.unused {
                assert!(
                    matches!(unused.reason, Reason::Vanished | Reason::Empty),
                    "{unused:?}"
                );
            }
        }
    });
}

#[test]
fn f08_relative_workspace_and_the_top_of_the_file_system() {
    let tree = Tree::with(&["AGENTS.md", "a/AGENTS.md"]);
    let up = "../".repeat(std::env::current_dir().unwrap().components().count());
    let relative = format!("{up}.{}", tree.root().to_str().unwrap());
    assert_eq!(
        load(Path::new(&relative), &Options::default())
            .unwrap()
            .sources,
        tree.load().sources
    );
    // The whole of it would take long; a chain shows that paths in it are relative as well.
    let options = Options {
        targets: Some(vec![tree.path("a/x")]),
        ..Options::default()
    };
    let loaded = load(Path::new("/"), &options).unwrap();
    let expected = tree.path("a/AGENTS.md");
    let last = &loaded.sources.last().unwrap().path;
    assert_eq!(
        text(last),
        expected.to_str().unwrap().trim_start_matches('/')
    );
}

/// Enough directories for more than one thread: each has the caller's identity, not the process's.
#[test]
fn f24_every_thread_has_the_caller_s_identity() {
    let tree = Tree::new();
    for n in 0..600 {
        tree.write(format!("{n}/locked/AGENTS.md"), "secret");
        tree.mode(&format!("{n}/locked"), 0);
    }
    let loaded = as_ordinary_user(|| tree.load());
    assert_eq!(loaded.sources, []);
    assert_eq!(loaded.unused.len(), 600);
    assert!(
        loaded
            .unused
            .iter()
            .all(|unused| unused.reason == unreadable("EACCES"))
    );
    for n in 0..600 {
        tree.mode(&format!("{n}/locked"), 0o755);
    }
}

#[test]
fn reasons_in_words() {
    let table = [
        (
            Reason::NotRegular { kind: Kind::Fifo },
            "not a regular file but a named pipe",
        ),
        (unreadable("EACCES"), "can't be read (EACCES)"),
        (
            Reason::NotUtf8 { offset: 3 },
            "not UTF-8 (first bad byte at offset 3)",
        ),
        (
            Reason::TooLarge {
                bytes: 1_048_577,
                limit: 1_048_576,
            },
            "too large (1048577 bytes; at most 1048576 are read)",
        ),
        (Reason::Empty, "empty"),
        (Reason::DanglingLink, "a link to nothing"),
        (
            Reason::AbsoluteLink,
            "a link by an absolute path, which isn't followed",
        ),
        (
            Reason::EscapingLink,
            "a link that leads out of the workspace",
        ),
        (Reason::LinkLoop, "a link that leads through too many links"),
        (
            duplicate_of("a\n/AGENTS.md"),
            "the same file as \"a\\n/AGENTS.md\"",
        ),
        (
            superseded_by("AGENTS.md"),
            "\"AGENTS.md\" is preferred in this directory",
        ),
        (
            near_miss("AGENTS.md"),
            "spelt differently from \"AGENTS.md\", so it isn't read",
        ),
        (
            Reason::TooDeep { limit: 128 },
            "deeper than 128 directories, not entered",
        ),
        (
            Reason::NestedRepository,
            "a repository of its own, left out by nested_repositories",
        ),
        (Reason::Vanished, "gone before it could be read"),
    ];
    for (reason, words) in table {
        assert_eq!(reason.to_string(), words);
    }
}

#[test]
fn errors_in_words() {
    let table = [
        (
            Error::TooManyFiles { limit: 10_000 },
            "the workspace holds more than 10000 instruction files; at most 10000 are allowed \
             (use targets to load those of some paths)",
        ),
        (
            Error::WorkspaceNotADirectory("/f".into()),
            "workspace \"/f\" is not a directory; expected an existing directory",
        ),
        (
            Error::WorkspaceUnreadable {
                path: "/f".into(),
                error: "EACCES".into(),
            },
            "workspace \"/f\" can't be read (EACCES); expected a directory that this user may read",
        ),
        (
            Error::NoFilenames,
            "filenames is empty; expected at least one name, such as \"AGENTS.md\"",
        ),
        (
            Error::BadFilename("a/b".into()),
            "filenames holds \"a/b\"; expected names of 1 to 255 bytes without \"/\" and NUL, \
             other than \".\", \"..\" and \".git\"",
        ),
        (
            Error::NoTargets,
            "targets is empty; expected at least one path, or no targets at all for the whole workspace",
        ),
        (
            Error::BadTarget("a\0".into()),
            "target \"a\\0\" is not a path; expected a path that is not empty and holds no NUL",
        ),
        (
            Error::TargetLoop("l".into()),
            "target \"l\" leads through more than 40 links; expected a path without a loop of links",
        ),
        (
            Error::TooManyDirectories { limit: 1_000_000 },
            "the workspace holds more than 1000000 directories; at most 1000000 are allowed \
             (use targets to load those of some paths)",
        ),
        (
            Error::Resources {
                error: "EMFILE".into(),
            },
            "the system refused resources (EMFILE) while the workspace was read; free some and load again",
        ),
    ];
    for (error, words) in table {
        assert_eq!(error.to_string(), words);
    }
}
