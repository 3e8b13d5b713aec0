use crate::binary;
use harness_core::instruction_files::{self, Error, Kind, Loaded, Nested, Options, Reason, Unused};
use rustler::{Atom, Binary, Encoder, Env, NifUnitEnum, Term};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

mod atoms {
    rustler::atoms! {
        ok, error, path, reason, message,
        // what reasons have beside them
        kind, offset, bytes, limit, of, by, expected, errno,
        // reasons
        not_regular, unreadable, not_utf8, too_large, empty, dangling_link, absolute_link,
        escaping_link, link_loop, duplicate, superseded, near_miss, too_deep,
        nested_repository, vanished,
        // kinds
        directory, fifo, socket, character_device, block_device, other,
        // errors
        workspace_missing, workspace_not_a_directory, workspace_unreadable, bad_filename,
        bad_target, target_outside, too_many_files, too_many_directories, resources
    }
}

#[derive(NifUnitEnum)]
enum NestedRepositories {
    Include,
    Skip,
}

/// `{filenames, gitignore, nested_repositories, targets | nil, count_ignored}`
type OptionsTerm<'a> = (
    Vec<String>,
    bool,
    NestedRepositories,
    Option<Vec<Binary<'a>>>,
    bool,
);

#[rustler::nif(schedule = "DirtyIo")]
fn instruction_files_load<'a>(
    env: Env<'a>,
    workspace: Binary<'a>,
    options: OptionsTerm<'a>,
) -> Term<'a> {
    match instruction_files::load(path(&workspace), &decode(options)) {
        Ok(loaded) => encode(env, &loaded),
        Err(error) => (atoms::error(), error_reason(&error), error.to_string()).encode(env),
    }
}

#[rustler::nif(schedule = "DirtyIo")]
fn instruction_files_unchanged<'a>(
    workspace: Binary<'a>,
    options: OptionsTerm<'a>,
    snapshot: Binary<'a>,
) -> bool {
    instruction_files::unchanged(path(&workspace), &decode(options), &snapshot)
}

fn path<'a>(bytes: &'a Binary<'_>) -> &'a Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn decode((filenames, gitignore, nested, targets, count_ignored): OptionsTerm<'_>) -> Options {
    Options {
        filenames,
        gitignore,
        nested_repositories: match nested {
            NestedRepositories::Include => Nested::Include,
            NestedRepositories::Skip => Nested::Skip,
        },
        targets: targets.map(|targets| {
            targets
                .iter()
                .map(|target| path(target).to_owned())
                .collect()
        }),
        count_ignored,
    }
}

/// `{:ok, [{path, text}], [unused], {nested, ignored}, snapshot}`
fn encode<'a>(env: Env<'a>, loaded: &Loaded) -> Term<'a> {
    let sources = loaded.sources.iter();
    let sources: Vec<Term<'a>> = sources
        .map(|source| (binary(env, &source.path), &source.text).encode(env))
        .collect();
    let unused: Vec<Term<'a>> = loaded.unused.iter().map(|one| unused(env, one)).collect();
    let foreign = (loaded.foreign.nested, loaded.foreign.ignored);
    let snapshot = binary(env, &loaded.snapshot);
    (atoms::ok(), sources, unused, foreign, snapshot).encode(env)
}

/// `%{path:, reason:, message:}` and what the reason has beside it.
fn unused<'a>(env: Env<'a>, unused: &Unused) -> Term<'a> {
    let (reason, details) = reason(env, &unused.reason);
    let mut pairs = vec![
        (atoms::path(), binary(env, &unused.path)),
        (atoms::reason(), reason.encode(env)),
        (atoms::message(), unused.reason.to_string().encode(env)),
    ];
    pairs.extend(details);
    // The keys are distinct, which is all that could go wrong.
    Term::map_from_pairs(env, &pairs).unwrap_or_else(|_| Term::map_new(env))
}

fn reason<'a>(env: Env<'a>, reason: &Reason) -> (Atom, Vec<(Atom, Term<'a>)>) {
    match reason {
        Reason::NotRegular { kind } => (
            atoms::not_regular(),
            vec![(atoms::kind(), kind_atom(*kind).encode(env))],
        ),
        Reason::Unreadable { error } => (
            atoms::unreadable(),
            vec![(atoms::errno(), error.encode(env))],
        ),
        Reason::NotUtf8 { offset } => (
            atoms::not_utf8(),
            vec![(atoms::offset(), offset.encode(env))],
        ),
        Reason::TooLarge { bytes, limit } => (
            atoms::too_large(),
            vec![
                (atoms::bytes(), bytes.encode(env)),
                (atoms::limit(), limit.encode(env)),
            ],
        ),
        Reason::Empty => (atoms::empty(), vec![]),
        Reason::DanglingLink => (atoms::dangling_link(), vec![]),
        Reason::AbsoluteLink => (atoms::absolute_link(), vec![]),
        Reason::EscapingLink => (atoms::escaping_link(), vec![]),
        Reason::LinkLoop => (atoms::link_loop(), vec![]),
        Reason::DuplicateOf { path } => {
            (atoms::duplicate(), vec![(atoms::of(), binary(env, path))])
        }
        Reason::Superseded { by } => (atoms::superseded(), vec![(atoms::by(), binary(env, by))]),
        Reason::NearMiss { expected } => (
            atoms::near_miss(),
            vec![(atoms::expected(), expected.encode(env))],
        ),
        Reason::TooDeep { limit } => (atoms::too_deep(), vec![(atoms::limit(), limit.encode(env))]),
        Reason::NestedRepository => (atoms::nested_repository(), vec![]),
        Reason::Vanished => (atoms::vanished(), vec![]),
    }
}

fn kind_atom(kind: Kind) -> Atom {
    match kind {
        Kind::Directory => atoms::directory(),
        Kind::Fifo => atoms::fifo(),
        Kind::Socket => atoms::socket(),
        Kind::CharacterDevice => atoms::character_device(),
        Kind::BlockDevice => atoms::block_device(),
        Kind::Other => atoms::other(),
    }
}

fn error_reason(error: &Error) -> Atom {
    match error {
        Error::WorkspaceMissing(_) => atoms::workspace_missing(),
        Error::WorkspaceNotADirectory(_) => atoms::workspace_not_a_directory(),
        Error::WorkspaceUnreadable { .. } => atoms::workspace_unreadable(),
        Error::NoFilenames | Error::BadFilename(_) => atoms::bad_filename(),
        Error::NoTargets | Error::BadTarget(_) | Error::TargetLoop(_) => atoms::bad_target(),
        Error::TargetOutside { .. } => atoms::target_outside(),
        Error::TooManyFiles { .. } => atoms::too_many_files(),
        Error::TooManyDirectories { .. } => atoms::too_many_directories(),
        Error::Resources { .. } => atoms::resources(),
    }
}
