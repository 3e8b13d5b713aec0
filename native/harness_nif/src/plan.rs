use crate::tokens::{Tokenizer, vocabulary_error};
use harness_core::bpe::{Counter, Encoding, Remembered};
use harness_core::plan::{Content, Layer, LayerPlan, MARKER, NotUtf8, SEPARATOR, Status, plan};
use harness_core::tokens::Approximate;
use rustler::{Atom, Binary, Encoder, Env, Error, NifResult, Term};

mod atoms {
    rustler::atoms! {
        ok, error, not_utf8,
        keep_or_drop, drop_whole_units, truncate_tail,
        empty, kept, trimmed, dropped
    }
}

/// `{strategy, budget, text | [unit]}`
type LayerTerm<'a> = (Atom, u64, Term<'a>);

#[rustler::nif]
fn plan_make<'a>(
    env: Env<'a>,
    tokenizer: Tokenizer,
    layers: Vec<LayerTerm<'a>>,
) -> NifResult<Term<'a>> {
    make(env, &tokenizer, layers)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn plan_make_dirty<'a>(
    env: Env<'a>,
    tokenizer: Tokenizer,
    layers: Vec<LayerTerm<'a>>,
) -> NifResult<Term<'a>> {
    make(env, &tokenizer, layers)
}

#[rustler::nif]
fn plan_separator() -> &'static str {
    SEPARATOR
}

#[rustler::nif]
fn plan_marker() -> &'static str {
    MARKER
}

fn make<'a>(
    env: Env<'a>,
    tokenizer: &Tokenizer,
    layers: Vec<LayerTerm<'a>>,
) -> NifResult<Term<'a>> {
    let layers: Vec<Layer<'a>> = layers.into_iter().map(decode).collect::<NifResult<_>>()?;
    let exactly = |encoding: Encoding| {
        let bpe = encoding.bpe()?;
        Ok(plan(&Counter::new(bpe, Remembered::shared()), &layers))
    };
    let planned = match tokenizer {
        Tokenizer::Approximate => Ok(plan(&Approximate, &layers)),
        Tokenizer::Cl100kBase => exactly(Encoding::Cl100kBase),
        Tokenizer::O200kBase => exactly(Encoding::O200kBase),
    };
    let planned = match planned {
        Ok(planned) => planned,
        Err(error) => return Ok(vocabulary_error(env, &error)),
    };
    Ok(match planned {
        Ok(plan) => {
            let layers: Vec<Term<'a>> =
                plan.layers.iter().map(|layer| encode(env, layer)).collect();
            (atoms::ok(), layers, plan.tokens).encode(env)
        }
        Err(NotUtf8 {
            layer,
            unit,
            offset,
        }) => (atoms::error(), (atoms::not_utf8(), layer, unit, offset)).encode(env),
    })
}

fn decode<'a>((strategy, budget, content): LayerTerm<'a>) -> NifResult<Layer<'a>> {
    let text = || content.decode::<Binary<'a>>().map(|text| text.as_slice());
    let content = if strategy == atoms::keep_or_drop() {
        Content::KeepOrDrop(text()?)
    } else if strategy == atoms::truncate_tail() {
        Content::TruncateTail(text()?)
    } else if strategy == atoms::drop_whole_units() {
        let units: Vec<Binary<'a>> = content.decode()?;
        Content::DropWholeUnits(units.into_iter().map(|unit| unit.as_slice()).collect())
    } else {
        return Err(Error::BadArg);
    };
    Ok(Layer { content, budget })
}

/// `{status, tokens_before, tokens, dropped, cut_at | nil, [tokens of each unit]}`
fn encode<'a>(env: Env<'a>, plan: &LayerPlan) -> Term<'a> {
    let status = match plan.status {
        Status::Empty => atoms::empty(),
        Status::Kept => atoms::kept(),
        Status::Trimmed => atoms::trimmed(),
        Status::Dropped => atoms::dropped(),
    };
    (
        status,
        plan.tokens_before,
        plan.tokens,
        plan.dropped,
        plan.cut_at,
        &plan.unit_tokens,
    )
        .encode(env)
}
