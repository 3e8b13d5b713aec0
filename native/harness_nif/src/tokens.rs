use harness_core::bpe::{self, Counter, Encoding, Remembered};
use harness_core::tokens::Tokenizer as _;
use rustler::{Atom, Binary, Encoder, Env, NifUnitEnum, Term};

mod atoms {
    rustler::atoms! { ok, error, not_utf8, vocabulary }
}

/// Which tokenizer of the core counts.
#[derive(NifUnitEnum)]
pub(crate) enum Tokenizer {
    Approximate,
    Cl100kBase,
    O200kBase,
}

/// The encodings that count exactly.
#[derive(NifUnitEnum)]
enum Exact {
    Cl100kBase,
    O200kBase,
}

impl From<Exact> for Encoding {
    fn from(exact: Exact) -> Self {
        match exact {
            Exact::Cl100kBase => Encoding::Cl100kBase,
            Exact::O200kBase => Encoding::O200kBase,
        }
    }
}

/// `{:error, {:vocabulary, message}}`
pub(crate) fn vocabulary_error<'a>(env: Env<'a>, error: &bpe::Error) -> Term<'a> {
    (atoms::error(), (atoms::vocabulary(), error.to_string())).encode(env)
}

/// Makes the encoding's table, which takes a moment the first time.
#[rustler::nif(schedule = "DirtyCpu")]
fn tokens_prepare<'a>(env: Env<'a>, encoding: Exact) -> Term<'a> {
    match Encoding::from(encoding).bpe() {
        Ok(_) => atoms::ok().encode(env),
        Err(error) => vocabulary_error(env, &error),
    }
}

#[rustler::nif]
fn tokens_count<'a>(env: Env<'a>, encoding: Exact, text: Binary<'a>) -> Term<'a> {
    count(env, encoding, &text)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn tokens_count_dirty<'a>(env: Env<'a>, encoding: Exact, text: Binary<'a>) -> Term<'a> {
    count(env, encoding, &text)
}

/// `{:ok, tokens} | {:error, {:not_utf8, offset}} | {:error, {:vocabulary, message}}`
fn count<'a>(env: Env<'a>, encoding: Exact, text: &[u8]) -> Term<'a> {
    let text = match str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            return (atoms::error(), (atoms::not_utf8(), error.valid_up_to())).encode(env);
        }
    };
    match Encoding::from(encoding).bpe() {
        Ok(bpe) => {
            let counter = Counter::new(bpe, Remembered::shared());
            (atoms::ok(), counter.count(text).alone).encode(env)
        }
        Err(error) => vocabulary_error(env, &error),
    }
}

/// How many results are remembered from now on; 0 turns it off.
#[rustler::nif(schedule = "DirtyCpu")]
fn tokens_remember(capacity: u64) -> Atom {
    Remembered::shared().set_capacity(capacity);
    atoms::ok()
}

/// `{capacity, entries, hits, misses}`
#[rustler::nif]
fn tokens_remembered() -> (u64, u64, u64, u64) {
    let info = Remembered::shared().info();
    (info.capacity, info.entries, info.hits, info.misses)
}
