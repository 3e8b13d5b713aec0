use std::num::NonZeroU64;

use crate::markdown::CutTerm;
use crate::tokens::{Tokenizer, vocabulary_error};
use harness_core::bpe::{Counter, Encoding, Remembered};
use harness_core::plan::{
    At, Content, Error, Layer, LayerPlan, MARKER, SEPARATOR, Status, Total, plan,
};
use harness_core::tokens::Approximate;
use rustler::{Atom, Binary, Encoder, Env, NifResult, NifUnitEnum, Term};

mod atoms {
    rustler::atoms! {
        ok, error, not_utf8, over_total,
        keep_or_drop, drop_whole_units, truncate_tail,
        empty, kept, trimmed, dropped
    }
}

/// `{strategy, its option, budget, text | [unit]}`: of `drop_whole_units` the option is the step or
/// `nil`, of `truncate_tail` where the cut is best.
type LayerTerm<'a> = (Atom, Term<'a>, u64, Term<'a>);

/// `{budget, [layer's index]}`, the first to give way first.
type TotalTerm = (u64, Vec<usize>);

#[derive(NifUnitEnum)]
enum AtTerm {
    Grapheme,
    Line,
    Markdown,
}

#[rustler::nif]
fn plan_make<'a>(
    env: Env<'a>,
    tokenizer: Tokenizer,
    layers: Vec<LayerTerm<'a>>,
    total: TotalTerm,
) -> NifResult<Term<'a>> {
    make(env, &tokenizer, layers, &total)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn plan_make_dirty<'a>(
    env: Env<'a>,
    tokenizer: Tokenizer,
    layers: Vec<LayerTerm<'a>>,
    total: TotalTerm,
) -> NifResult<Term<'a>> {
    make(env, &tokenizer, layers, &total)
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
    (budget, give_way): &TotalTerm,
) -> NifResult<Term<'a>> {
    let layers: Vec<Layer<'a>> = layers.into_iter().map(decode).collect::<NifResult<_>>()?;
    let total = Total {
        budget: *budget,
        give_way,
    };
    let exactly = |encoding: Encoding| {
        let bpe = encoding.bpe()?;
        let counter = Counter::new(bpe, Remembered::shared());
        Ok(plan(&counter, &layers, &total))
    };
    let planned = match tokenizer {
        Tokenizer::Approximate => Ok(plan(&Approximate, &layers, &total)),
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
        Err(Error::NotUtf8 {
            layer,
            unit,
            offset,
        }) => (atoms::error(), (atoms::not_utf8(), layer, unit, offset)).encode(env),
        Err(Error::OverTotal { tokens, layers, .. }) => {
            (atoms::error(), (atoms::over_total(), tokens, layers)).encode(env)
        }
    })
}

fn decode<'a>((strategy, option, budget, content): LayerTerm<'a>) -> NifResult<Layer<'a>> {
    let text = || content.decode::<Binary<'a>>().map(|text| text.as_slice());
    let content = if strategy == atoms::keep_or_drop() {
        Content::KeepOrDrop(text()?)
    } else if strategy == atoms::truncate_tail() {
        let at = match option.decode()? {
            AtTerm::Grapheme => At::Grapheme,
            AtTerm::Line => At::Line,
            AtTerm::Markdown => At::Markdown,
        };
        Content::TruncateTail { text: text()?, at }
    } else if strategy == atoms::drop_whole_units() {
        let units: Vec<Binary<'a>> = content.decode()?;
        Content::DropWholeUnits {
            units: units.into_iter().map(|unit| unit.as_slice()).collect(),
            step: option.decode::<Option<u64>>()?.and_then(NonZeroU64::new),
        }
    } else {
        return Err(rustler::Error::BadArg);
    };
    Ok(Layer { content, budget })
}

/// `{status, tokens_before, tokens, limit, dropped, cut | nil, [tokens of each unit]}`
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
        plan.limit,
        plan.dropped,
        plan.cut.map(CutTerm::from),
        &plan.unit_tokens,
    )
        .encode(env)
}
