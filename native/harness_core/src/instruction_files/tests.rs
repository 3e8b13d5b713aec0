//! What needs a switch that users don't have: fallbacks, small limits, the number of threads.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::rules::Rules;
use super::*;

/// The ways to open files: as on current Linux, without `openat2`, without `/proc` and `O_PATH`.
fn ways() -> [System; 3] {
    [
        SYSTEM,
        System {
            openat2: false,
            ..SYSTEM
        },
        System {
            openat2: false,
            paths: false,
            ..SYSTEM
        },
    ]
}

fn workspace() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().canonicalize().unwrap().join("ws");
    fs::create_dir(&root).unwrap();
    (outer, root)
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn every_way_of_opening_gives_the_same() {
    let (outer, root) = workspace();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    write(&root, "real/x", "text");
    write(&root, "real/deep/y", "deep");
    symlink("real/deep", root.join("alias")).unwrap();
    symlink("/", root.join("slash")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("self", root.join("self")).unwrap();
    symlink(".", root.join("here")).unwrap();
    // 39 links in a row to a file, so that the link in the table is the 40th, the last one allowed.
    symlink("../real/x", root.join("real/l38")).unwrap();
    for n in 0..38 {
        symlink(format!("l{}", n + 1), root.join(format!("real/l{n}"))).unwrap();
    }
    symlink("l0", root.join("real/over")).unwrap();

    let not_a_file = Reason::NotRegular {
        kind: Kind::Directory,
    };
    let table: Vec<(&str, Result<&str, Reason>)> = vec![
        ("../real/x", Ok("text")),
        ("../real//./x", Ok("text")),
        ("../real/deep/../x", Ok("text")),
        ("../alias/y", Ok("deep")),
        // `..` goes up from where the link led to.
        ("../alias/../x", Ok("text")),
        ("../here/here/real/deep/y", Ok("deep")),
        ("../real/l0", Ok("text")),
        ("../real/over", Err(Reason::LinkLoop)),
        ("../self", Err(Reason::LinkLoop)),
        ("../self/x", Err(Reason::LinkLoop)),
        ("../none", Err(Reason::DanglingLink)),
        ("../none/../real/x", Err(Reason::DanglingLink)),
        ("../real/x/", Err(Reason::DanglingLink)),
        ("../real/x/.", Err(Reason::DanglingLink)),
        ("../real/x/..", Err(Reason::DanglingLink)),
        ("../real", Err(not_a_file.clone())),
        ("..", Err(not_a_file.clone())),
        ("../here/", Err(not_a_file)),
        ("../../secret", Err(Reason::EscapingLink)),
        ("../../ws/real/x", Err(Reason::EscapingLink)),
        ("../up/secret", Err(Reason::EscapingLink)),
        ("../../none", Err(Reason::EscapingLink)),
        ("../slash/etc/passwd", Err(Reason::AbsoluteLink)),
        ("/etc/passwd", Err(Reason::AbsoluteLink)),
        ("/proc/self/exe", Err(Reason::AbsoluteLink)),
    ];
    fs::create_dir(root.join("at")).unwrap();
    for (target, expected) in table {
        let link = root.join("at/AGENTS.md");
        symlink(target, &link).unwrap();
        for (way, system) in ways().iter().enumerate() {
            let loaded = load_with(&root, &Options::default(), system).unwrap();
            let found = match (loaded.sources.as_slice(), loaded.unused.as_slice()) {
                ([source], []) => Ok(source.text.as_str()),
                ([], [unused]) => Err(unused.reason.clone()),
                other => unreachable!("{target}: {other:?}"),
            };
            assert_eq!(found, expected, "{target}, way {way}");
        }
        fs::remove_file(link).unwrap();
    }
}

#[test]
fn every_way_refuses_what_is_not_regular() {
    let (_outer, root) = workspace();
    fs::create_dir_all(root.join("AGENTS.md")).unwrap();
    fs::create_dir_all(root.join("a")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("a/AGENTS.md"),
        fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    for system in ways() {
        let loaded = load_with(&root, &Options::default(), &system).unwrap();
        assert_eq!(loaded.sources, []);
        let reasons: Vec<_> = loaded
            .unused
            .into_iter()
            .map(|unused| unused.reason)
            .collect();
        assert_eq!(
            reasons,
            [
                Reason::NotRegular {
                    kind: Kind::Directory
                },
                Reason::NotRegular { kind: Kind::Fifo }
            ]
        );
    }
}

/// The file, and a directory on the way to it, are swapped with links that lead out.
#[test]
fn every_way_stays_inside_while_links_change() {
    let (outer, root) = workspace();
    fs::create_dir(outer.path().join("out")).unwrap();
    fs::write(outer.path().join("out/x"), "secret").unwrap();
    write(&root, "real/x", "inside");
    write(&root, "a/AGENTS.md", "inside");
    symlink("../via/x", root.join("AGENTS.md")).unwrap();
    let swap = |target: &str, place: &str| {
        symlink(target, outer.path().join("new")).unwrap();
        fs::rename(outer.path().join("new"), root.join(place)).unwrap();
    };
    swap("via/x", "AGENTS.md");
    swap("real", "via");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let loads = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                swap("../out", "via");
                swap("../../out/x", "a/AGENTS.md");
                swap("real", "via");
                swap("../real/x", "a/AGENTS.md");
            }
        });
        let loads: Vec<_> = ways()
            .iter()
            .flat_map(|system| std::iter::repeat_n(system, 500))
            .map(|system| load_with(&root, &Options::default(), system))
            .collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        loads
    });
    for loaded in loads {
        let loaded = loaded.unwrap();
        assert!(
            loaded.sources.iter().all(|source| source.text == "inside"),
            "{loaded:?}"
        );
        for unused in loaded.unused {
            let duplicate = Reason::DuplicateOf {
                path: b"AGENTS.md".to_vec(),
            };
            let expected = [Reason::EscapingLink, Reason::Vanished, duplicate];
            assert!(expected.contains(&unused.reason), "{unused:?}");
        }
    }
}

#[test]
fn a_file_that_grows_after_the_look_is_bounded() {
    let (_outer, root) = workspace();
    write(&root, "AGENTS.md", "12345678");
    for system in ways() {
        let opener = Opener::new(open_root(&root).unwrap(), 10, system.openat2, system.paths);
        let looked = opener.look(opener.root(), b"", c"AGENTS.md").unwrap();
        fs::write(root.join("AGENTS.md"), "x".repeat(100_000)).unwrap();
        let fault = opener.read(&looked.node).unwrap_err();
        // One byte over the limit was read, no more.
        assert_eq!(
            fault,
            open::Fault::File(Reason::TooLarge {
                bytes: 11,
                limit: 10
            })
        );
        fs::write(root.join("AGENTS.md"), "12345678").unwrap();
    }
}

#[test]
fn what_was_looked_at_is_what_is_read() {
    let (outer, root) = workspace();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    for system in ways() {
        write(&root, "AGENTS.md", "looked at");
        let opener = Opener::new(open_root(&root).unwrap(), 100, system.openat2, system.paths);
        let looked = opener.look(opener.root(), b"", c"AGENTS.md").unwrap();
        fs::remove_file(root.join("AGENTS.md")).unwrap();
        symlink("../secret", root.join("AGENTS.md")).unwrap();
        assert_eq!(opener.read(&looked.node).unwrap(), b"looked at");
        fs::remove_file(root.join("AGENTS.md")).unwrap();
    }
}

#[test]
fn limits_are_those_of_the_contract() {
    assert_eq!((MAX_FILE_BYTES, MAX_DEPTH), (1_048_576, 128));
    assert_eq!((MAX_FILES, MAX_DIRECTORIES), (10_000, 1_000_000));
}

/// What counts is a file that its directory prefers, be it used or not.
#[test]
fn more_files_than_allowed() {
    let (_outer, root) = workspace();
    for n in 0..9 {
        write(&root, &format!("{n}/AGENTS.md"), "");
        write(&root, &format!("{n}/agents.md"), "");
        write(&root, &format!("{n}/CLAUDE.md"), "");
    }
    let filenames = vec!["AGENTS.md".to_owned(), "CLAUDE.md".to_owned()];
    let options = Options {
        filenames,
        ..Options::default()
    };
    let with = |files| System {
        limits: Limits {
            files,
            ..SYSTEM.limits
        },
        ..SYSTEM
    };
    assert!(load_with(&root, &options, &with(9)).is_ok());
    assert_eq!(
        load_with(&root, &options, &with(8)).unwrap_err(),
        Error::TooManyFiles { limit: 8 }
    );
}

#[test]
fn more_directories_than_allowed() {
    let (_outer, root) = workspace();
    for n in 0..9 {
        fs::create_dir(root.join(n.to_string())).unwrap();
    }
    let with = |directories| System {
        limits: Limits {
            directories,
            ..SYSTEM.limits
        },
        ..SYSTEM
    };
    assert!(load_with(&root, &Options::default(), &with(10)).is_ok());
    assert_eq!(
        load_with(&root, &Options::default(), &with(9)).unwrap_err(),
        Error::TooManyDirectories { limit: 9 }
    );
}

/// More directories than one thread walks alone, in an uneven tree.
#[test]
fn any_number_of_threads_gives_the_same() {
    let (_outer, root) = workspace();
    for n in 0..1500 {
        let dir = match n % 3 {
            0 => format!("wide/{n}"),
            1 => format!("{}/{n}", vec!["deep"; n % 90].join("/"))
                .trim_start_matches('/')
                .to_owned(),
            _ => format!("{}/{}/{n}", n % 7, n % 11),
        };
        fs::create_dir_all(root.join(&dir)).unwrap();
        if n % 5 == 0 {
            write(&root, &format!("{dir}/AGENTS.md"), &n.to_string());
            write(&root, &format!("{dir}/agents.md"), "x");
        }
    }
    let with = |threads| {
        let system = System {
            threads: Some(threads),
            ..SYSTEM
        };
        let loaded = load_with(&root, &Options::default(), &system).unwrap();
        (loaded.sources, loaded.unused)
    };
    let alone = with(1);
    assert_eq!(alone.0.len(), 300);
    assert_eq!(alone.1.len(), 300);
    for threads in [2, 3, 8, 2, 3, 8] {
        assert_eq!(with(threads), alone);
    }
}

#[test]
fn a_shortage_is_an_error_and_no_unreadable_file() {
    assert!(matches!(
        open::Fault::from(Errno::MFILE),
        open::Fault::Shortage(_)
    ));
    assert!(matches!(
        open::Fault::from(Errno::ACCESS),
        open::Fault::File(_)
    ));
    assert_eq!(
        workspace_error(Path::new("x"), Errno::MFILE),
        Error::Resources {
            error: "EMFILE".to_owned()
        }
    );
}

proptest! {
    #[test]
    fn any_bytes_are_rules(text in proptest::collection::vec(any::<u8>(), 0..200), path in "[a-c*/\\[{é]{1,20}") {
        if let Some(rules) = Rules::push(None, b"", b"", &text) {
            let _ = rules.ignores(path.as_bytes());
        }
    }

    #[test]
    fn any_text_is_rules(text in "[ab*?/!\\\\\\[\\]{}, \n#-]{0,60}", path in "[ab/]{1,10}") {
        if let Some(rules) = Rules::push(None, b"", b"x/", text.as_bytes()) {
            let _ = rules.ignores(path.as_bytes());
        }
    }

    #[test]
    fn any_bytes_are_no_snapshot(body in proptest::collection::vec(any::<u8>(), 0..100)) {
        let root = open_root(Path::new("/")).unwrap();
        prop_assert!(!snapshot::holds(&body, root.as_fd(), b"key", || 1));
        // Nor are those that claim to be whole: racy or not, key of 3, one block.
        let claims = [b"\x00\x03key\x01".as_slice(), &[u8::try_from(body.len()).unwrap()], &body].concat();
        let holds = snapshot::holds(&snapshot::seal(&claims), root.as_fd(), b"key", || 1);
        prop_assert!(!holds || body.is_empty());
        let _ = snapshot::holds(&snapshot::seal(&body), root.as_fd(), b"key", || 1);
    }

    /// Order against its definition: depth, then components.
    #[test]
    fn order_is_by_depth_then_by_components(a in "[a-c /\u{e9}-]{1,8}", b in "[a-c /\u{e9}-]{1,8}") {
        let key = |path: &str| {
            let parts: Vec<Vec<u8>> = path.split('/').map(|part| part.as_bytes().to_vec()).collect();
            (parts.len(), parts)
        };
        prop_assert_eq!(order::compare(a.as_bytes(), b.as_bytes()), key(&a).cmp(&key(&b)));
    }
}

#[test]
fn more_rules_than_one_matcher_takes() {
    let mut text = String::from("first\nlast\n");
    for n in 0..20_000 {
        text += &format!("**/a*{n}b*c?d*[0-9]*{n}\n");
    }
    text += "!last\n";
    let rules = Rules::push(None, b"", b"", text.as_bytes()).unwrap();
    assert!(rules.ignores(b"first"));
    assert!(!rules.ignores(b"last"));
    assert!(rules.ignores(b"x/a777bcxd5777"));
}
