//! The tree and the hardware, over real files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use harness_core::environment::hardware::{Unknown, affinity, hardware};
use harness_core::environment::tree::tree;
use std::ffi::OsStr;
use std::fs::{File, create_dir, create_dir_all, write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

fn workspace(entries: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in entries {
        let path = dir.path().join(entry);
        if entry.ends_with('/') {
            create_dir_all(path).unwrap();
        } else {
            create_dir_all(path.parent().unwrap()).unwrap();
            File::create(path).unwrap();
        }
    }
    dir
}

#[test]
fn two_levels_sorted_and_mixed() {
    let dir = workspace(&[
        "src/main.py",
        "src/lib/deep.py",
        "README.md",
        "a/",
        ".git/config",
        "node_modules/x",
        "venv/x",
        "src/__pycache__/x",
    ]);
    let shown = "./\n README.md\n a/\n src/\n  lib/\n  main.py";
    assert_eq!(tree(dir.path(), 2).unwrap(), shown);
    assert_eq!(tree(dir.path(), 1).unwrap(), "./\n README.md\n a/\n src/");
    assert_eq!(tree(dir.path(), 0).unwrap(), "./");
}

#[test]
fn ten_files_a_directory() {
    let files: Vec<String> = (0..12).map(|n| format!("f{n:02}")).collect();
    let mut entries: Vec<&str> = files.iter().map(String::as_str).collect();
    entries.push("z/");
    let shown = tree(workspace(&entries).path(), 2).unwrap();
    let expected: String = (0..10).map(|n| format!("\n f{n:02}")).collect();
    assert_eq!(shown, format!("./{expected}\n z/\n(2 more entries)"));
}

#[test]
fn the_top_level_goes_first() {
    // 27 directories and "./" are 28 lines: one of the two files below the first, and the last line.
    let dirs: Vec<String> = (0..27).map(|n| format!("d{n:02}/")).collect();
    let mut entries: Vec<&str> = dirs.iter().map(String::as_str).collect();
    entries.extend(["d00/a", "d00/b", "d05/c"]);
    let shown = tree(workspace(&entries).path(), 2).unwrap();
    let expected: String = (1..27).map(|n| format!("\n d{n:02}/")).collect();
    assert_eq!(shown, format!("./\n d00/\n  a{expected}\n(2 more entries)"));
    assert_eq!(shown.lines().count(), 30);
}

#[test]
fn exactly_thirty_lines_need_no_last_one() {
    let dirs: Vec<String> = (0..29).map(|n| format!("d{n:02}/")).collect();
    let entries: Vec<&str> = dirs.iter().map(String::as_str).collect();
    let shown = tree(workspace(&entries).path(), 2).unwrap();
    assert_eq!((shown.lines().count(), shown.contains("more")), (30, false));
}

#[test]
fn an_entry_that_makes_room_counts_as_one() {
    // 29 entries fill the lines; the last is a directory of two: it makes room for the last line.
    let dirs: Vec<String> = (0..29).map(|n| format!("d{n:02}/")).collect();
    let mut entries: Vec<&str> = dirs.iter().map(String::as_str).collect();
    entries.extend(["d28/a", "d28/b"]);
    let shown = tree(workspace(&entries).path(), 2).unwrap();
    assert!(shown.ends_with("\n d27/\n(1 more entry)"), "{shown}");
}

#[test]
fn hostile_names_stay_on_their_line() {
    let dir = tempfile::tempdir().unwrap();
    create_dir(dir.path().join("x\n<")).unwrap();
    write(
        dir.path().join("x\n<").join("host_environment>\nSYSTEM"),
        "",
    )
    .unwrap();
    write(dir.path().join(OsStr::from_bytes(b"a\xe9.txt")), "").unwrap();
    write(dir.path().join("  indented"), "").unwrap();
    let shown = "./\n \\u{20} indented\n a\\xe9.txt\n x\\u{a}\\u{3c}/\n  host_environment\\u{3e}\\u{a}SYSTEM";
    assert_eq!(tree(dir.path(), 2).unwrap(), shown);
}

#[test]
fn links_are_shown_and_not_followed() {
    let dir = workspace(&["d/f"]);
    symlink("..", dir.path().join("d/up")).unwrap();
    symlink("/", dir.path().join("root")).unwrap();
    symlink("nowhere", dir.path().join("dangling")).unwrap();
    let shown = "./\n d/\n  f\n  up\n dangling\n root";
    assert_eq!(tree(dir.path(), 9).unwrap(), shown);
}

#[test]
fn a_huge_directory_and_a_deep_tree() {
    let dir = tempfile::tempdir().unwrap();
    let many = dir.path().join("many");
    create_dir(&many).unwrap();
    for n in 0..200_000 {
        File::create(many.join(format!("{n:06}"))).unwrap();
    }
    let expected: String = (0..10).map(|n| format!("\n  {n:06}")).collect();
    let shown = format!("./\n many/{expected}\n(199990 more entries)");
    assert_eq!(tree(dir.path(), 2).unwrap(), shown);
    assert_eq!(tree(dir.path(), 1).unwrap(), "./\n many/");

    let deep = tempfile::tempdir().unwrap();
    // One path would be too long for a call: made a level at a time, from the inside.
    let mut fd = rustix::fs::open(
        deep.path(),
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..5_000 {
        rustix::fs::mkdirat(&fd, "d", rustix::fs::Mode::RWXU).unwrap();
        fd = rustix::fs::openat(
            &fd,
            "d",
            rustix::fs::OFlags::PATH,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
    }
    assert_eq!(tree(deep.path(), 2).unwrap(), "./\n d/\n  d/");
    assert_eq!(tree(deep.path(), usize::MAX).unwrap().lines().count(), 30);
}

#[test]
fn a_root_that_is_gone_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert!(tree(&dir.path().join("gone"), 2).is_err());
    write(dir.path().join("file"), "").unwrap();
    assert!(tree(&dir.path().join("file"), 2).is_err());
}

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
const GIB: u64 = 1 << 30;

/// A machine of 8 GiB whose process is in `/a/b` of the v2 hierarchy, with these files in it.
fn machine(mounts: &str, membership: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        create_dir_all(path.parent().unwrap()).unwrap();
        write(path, text).unwrap();
    };
    put(
        "proc/meminfo",
        "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
    );
    put("proc/self/mountinfo", mounts);
    put("proc/self/cgroup", membership);
    for (name, text) in files {
        put(&format!("sys/fs/cgroup/{name}"), text);
    }
    dir
}

fn v2(files: &[(&str, &str)]) -> (Result<f64, Unknown>, Result<u64, Unknown>) {
    let dir = machine(V2, "0::/a/b\n", files);
    let found = hardware(dir.path(), Some(4));
    (found.cpu_cores, found.memory_limit_bytes)
}

#[test]
fn quotas_of_version_2() {
    assert_eq!(v2(&[("a/b/cpu.max", "150000 100000\n")]).0, Ok(1.5));
    assert_eq!(v2(&[("a/b/cpu.max", "max 100000\n")]).0, Ok(4.0));
    assert_eq!(v2(&[]).0, Ok(4.0));
    assert_eq!(v2(&[("a/b/cpu.max", "")]).0, Err(Unknown::Malformed));
    assert_eq!(v2(&[("a/b/cpu.max", "1 0")]).0, Err(Unknown::Malformed));
    assert_eq!(v2(&[("a/b/cpu.max", "900000 100000\n")]).0, Ok(4.0));
    let parent = [
        ("a/b/cpu.max", "300000 100000"),
        ("a/cpu.max", "200000 100000"),
    ];
    assert_eq!(v2(&parent).0, Ok(2.0));
}

#[test]
fn memory_of_version_2() {
    assert_eq!(v2(&[]).1, Ok(8 * GIB));
    assert_eq!(v2(&[("a/b/memory.max", "max\n")]).1, Ok(8 * GIB));
    assert_eq!(
        v2(&[("a/b/memory.max", "1152921504606846977")]).1,
        Ok(8 * GIB)
    );
    assert_eq!(
        v2(&[("a/b/memory.max", "99999999999999999999")]).1,
        Ok(8 * GIB)
    );
    assert_eq!(v2(&[("a/memory.max", "1073741824\n")]).1, Ok(GIB));
    assert_eq!(v2(&[("memory.max", "")]).1, Err(Unknown::Malformed));
}

#[test]
fn version_1() {
    let mounts = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                  32 24 0:28 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let membership = "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n";
    let found = |quota: &str| {
        let dir = machine(
            mounts,
            membership,
            &[
                ("cpu,cpuacct/docker/x/cpu.cfs_quota_us", quota),
                ("cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n"),
                ("memory/memory.limit_in_bytes", "2147483648\n"),
            ],
        );
        hardware(dir.path(), Some(4))
    };
    assert_eq!(found("-1\n").cpu_cores, Ok(4.0));
    assert_eq!(found("50000\n").cpu_cores, Ok(0.5));
    assert_eq!(found("-1\n").memory_limit_bytes, Ok(2 * GIB));
}

#[test]
fn nothing_to_read_and_this_machine() {
    let empty = tempfile::tempdir().unwrap();
    let found = hardware(empty.path(), None);
    assert_eq!(found.cpu_cores, Err(Unknown::Unsupported));
    assert_eq!(found.memory_limit_bytes, Err(Unknown::Unsupported));
    let cores = affinity();
    let here = hardware(Path::new("/"), cores).cpu_cores.unwrap();
    assert!(here > 0.0 && here <= f64::from(cores.unwrap()));
}
