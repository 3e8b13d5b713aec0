use harness_core::environment::hardware::{Unknown, affinity, hardware};
use harness_core::environment::system::{system, user};
use harness_core::environment::tree::tree;
use harness_core::environment::workspace_root;
use rustler::{Atom, Binary, Env, Term};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

mod atoms {
    rustler::atoms! { malformed, unreadable, unsupported }
}

/// `{:ok, value} | {:error, {reason, message}}`
type Fact<T> = Result<T, (Atom, String)>;

/// `{system, kernel, cpu_cores, memory_limit_bytes}`
#[rustler::nif(schedule = "DirtyIo")]
fn host_environment_host() -> (String, String, Fact<f64>, Fact<u64>) {
    let (system, hardware) = (system(), hardware(Path::new("/"), affinity()));
    (
        system.name,
        system.kernel,
        hardware.cpu_cores.map_err(unknown),
        hardware.memory_limit_bytes.map_err(unknown),
    )
}

/// `{:ok, path} | {:error, message}`
#[rustler::nif(schedule = "DirtyIo")]
fn host_environment_root<'a>(env: Env<'a>, workspace: Binary) -> Result<Term<'a>, String> {
    workspace_root(Path::new(OsStr::from_bytes(&workspace)))
        .map(|root| crate::binary(env, root.as_os_str().as_bytes()))
        .map_err(|error| error.to_string())
}

#[rustler::nif(schedule = "DirtyIo")]
fn host_environment_tree(workspace: Binary, depth: u32) -> Fact<String> {
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    tree(Path::new(OsStr::from_bytes(&workspace)), depth)
        .map_err(|error| (atoms::unreadable(), io::Error::from(error).to_string()))
}

/// The effective user.
#[rustler::nif]
fn host_environment_user() -> u32 {
    user()
}

fn unknown(unknown: Unknown) -> (Atom, String) {
    let reason = match unknown {
        Unknown::Malformed => atoms::malformed(),
        Unknown::Unreadable => atoms::unreadable(),
        Unknown::Unsupported => atoms::unsupported(),
    };
    (reason, unknown.to_string())
}
