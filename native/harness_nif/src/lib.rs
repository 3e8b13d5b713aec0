//! Glue between the BEAM and `harness_core`: decode the terms, call the core, encode the answer.
//!
//! Modules are named after those of the core. A function whose time grows with its input is
//! exported on a dirty scheduler; where small work is common it is exported twice, and the
//! Elixir module that calls it chooses by size.

mod assembly;
mod boundary;
mod escape;
mod git;
mod host_environment;
mod instruction_files;
mod lint;
mod loop_detection;
mod markdown;
mod plan;
mod report;
mod tokens;
mod trace;

rustler::init!("Elixir.Engine.Harness.Native", load = load);

fn load(_env: rustler::Env, _info: rustler::Term) -> bool {
    // The caller gets a panic as an exception; it is not printed over the user's terminal too.
    std::panic::set_hook(Box::new(|_| {}));
    true
}

fn binary<'a>(env: rustler::Env<'a>, bytes: &[u8]) -> rustler::Term<'a> {
    let mut binary = rustler::NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}
