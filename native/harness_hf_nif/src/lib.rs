//! Glue between the BEAM and `harness_hf`: decode the terms, call it, encode the answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use harness_hf::Error;
use rustler::{Atom, Binary, Encoder, Env, Resource, ResourceArc, Term};

mod atoms {
    rustler::atoms! {
        ok, error, not_utf8,
        missing, unreadable, not_regular, too_large, damaged, text_too_large, failed
    }
}

rustler::init!(
    "Elixir.Engine.Harness.Tokenizer.HuggingFace.Native",
    load = on_load
);

fn on_load(_env: Env, _info: Term) -> bool {
    // A panic becomes an error; it is not printed over the user's terminal too.
    std::panic::set_hook(Box::new(|_| {}));
    true
}

struct Tokenizer(Arc<harness_hf::Tokenizer>);

#[rustler::resource_impl]
impl Resource for Tokenizer {}

/// `{:ok, tokenizer} | {:error, {reason, message}}`
#[rustler::nif(schedule = "DirtyIo")]
fn load<'a>(env: Env<'a>, path: Binary<'a>) -> Term<'a> {
    match harness_hf::load(Path::new(OsStr::from_bytes(&path))) {
        Ok(tokenizer) => (atoms::ok(), ResourceArc::new(Tokenizer(tokenizer))).encode(env),
        Err(error) => encode_error(env, &error),
    }
}

/// `{:ok, tokens} | {:error, {:not_utf8, offset}} | {:error, {reason, message}}`
#[rustler::nif(schedule = "DirtyCpu")]
fn count_up_to<'a>(
    env: Env<'a>,
    tokenizer: ResourceArc<Tokenizer>,
    text: Binary<'a>,
    limit: u64,
) -> Term<'a> {
    let text = match str::from_utf8(&text) {
        Ok(text) => text,
        Err(error) => {
            return (atoms::error(), (atoms::not_utf8(), error.valid_up_to())).encode(env);
        }
    };
    match tokenizer.0.count_up_to(text, limit) {
        Ok(tokens) => (atoms::ok(), tokens).encode(env),
        Err(error) => encode_error(env, &error),
    }
}

fn encode_error<'a>(env: Env<'a>, error: &Error) -> Term<'a> {
    (atoms::error(), (reason(error), error.to_string())).encode(env)
}

fn reason(error: &Error) -> Atom {
    match error {
        Error::Missing => atoms::missing(),
        Error::Unreadable(_) => atoms::unreadable(),
        Error::NotRegular(_) => atoms::not_regular(),
        Error::FileTooLarge => atoms::too_large(),
        Error::Damaged(_) => atoms::damaged(),
        Error::TextTooLarge(_) => atoms::text_too_large(),
        Error::Failed(_) => atoms::failed(),
    }
}
