use crate::binary;
use harness_core::environment::git::{self, Options, Reason, Unknown};
use rustler::{Atom, Binary, Encoder, Env, Term};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod atoms {
    rustler::atoms! {
        nil,
        refused, bare, filter, config, include, worktree, unsupported, submodule, missing, corrupt,
        unreadable, bound, timeout
    }
}

/// `{home | nil, xdg_config_home | nil, system_config | nil, sudo_uid | nil, index_bytes, time_limit}`
type OptionsTerm<'a> = (
    Option<Binary<'a>>,
    Option<Binary<'a>>,
    Option<Binary<'a>>,
    Option<u32>,
    u64,
    u64,
);

/// `{branch | nil | unknown, head | nil, dirty | unknown}`; unknown is `{reason, message}`
#[rustler::nif(schedule = "DirtyIo")]
fn git_state<'a>(env: Env<'a>, workspace: Binary<'a>, options: OptionsTerm<'a>) -> Term<'a> {
    let (home, xdg_config_home, system_config, sudo_uid, max_index_bytes, time_limit_ms) = options;
    let options = Options {
        home: home.map(path),
        xdg_config_home: xdg_config_home.map(path),
        system_config: system_config.map(path),
        sudo_uid,
        max_index_bytes,
        time_limit_ms,
    };
    let state = git::state(Path::new(OsStr::from_bytes(&workspace)), &options);
    let branch = match state.branch {
        Ok(Some(name)) => binary(env, &name),
        Ok(None) => atoms::nil().encode(env),
        Err(unknown) => encode(env, &unknown),
    };
    let dirty = match state.dirty {
        Ok(dirty) => dirty.encode(env),
        Err(unknown) => encode(env, &unknown),
    };
    (branch, state.head, dirty).encode(env)
}

fn path(bytes: Binary<'_>) -> PathBuf {
    OsStr::from_bytes(&bytes).into()
}

fn encode<'a>(env: Env<'a>, unknown: &Unknown) -> Term<'a> {
    (reason(unknown.reason), &unknown.message).encode(env)
}

fn reason(reason: Reason) -> Atom {
    match reason {
        Reason::Refused => atoms::refused(),
        Reason::Bare => atoms::bare(),
        Reason::Filter => atoms::filter(),
        Reason::Config => atoms::config(),
        Reason::Include => atoms::include(),
        Reason::Worktree => atoms::worktree(),
        Reason::Unsupported => atoms::unsupported(),
        Reason::Submodule => atoms::submodule(),
        Reason::Missing => atoms::missing(),
        Reason::Corrupt => atoms::corrupt(),
        Reason::Unreadable => atoms::unreadable(),
        Reason::Bound => atoms::bound(),
        Reason::Timeout => atoms::timeout(),
    }
}
