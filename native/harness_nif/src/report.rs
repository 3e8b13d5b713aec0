use harness_core::report::{Report, page::page};
use rustler::serde::{from_term, to_term};
use rustler::{Atom, Encoder, Env, NifResult, Term};

mod atoms {
    rustler::atoms! { ok, error }
}

/// A report's keys and words, which are atoms in Elixir: `to_term` makes an atom of a name only
/// where the VM has it already.
const NAMES: &str = "schema version harness agent workspace tokenizer prompt layers compared foreign warnings \
    diff inputs name estimated bytes tokens budget total_budget give_way strict \
    bytes_per_100_tokens sha256 separators text count strategy status limit step at \
    tokens_before bytes_before offset cut_at units prefix_sha256 items kept given id index \
    rank reason message nested ignored layer kind length same first_difference common settings \
    changes byte before after change identity instruction_files project_context business_rules \
    task_state keep_or_drop drop_whole_units truncate_tail empty trimmed dropped grapheme line \
    markdown cut unused added changed moved unsent";

/// `{:ok, json} | {:error, message}`, of a map of the report's shape with strings for keys.
#[rustler::nif(schedule = "DirtyCpu")]
fn report_to_json(report: Term<'_>) -> Result<String, String> {
    let report = decode(report)?;
    report.to_json().map_err(|error| error.to_string())
}

/// `{:ok, html} | {:error, message}`
#[rustler::nif(schedule = "DirtyCpu")]
fn report_to_html(report: Term<'_>) -> Result<String, String> {
    Ok(page(&decode(report)?))
}

/// `{:ok, map} | {:error, message}`; each map has its type's name as its `:__struct__`, too.
#[rustler::nif(schedule = "DirtyCpu")]
fn report_from_json<'a>(env: Env<'a>, json: &str) -> NifResult<Term<'a>> {
    for name in NAMES.split(' ') {
        Atom::from_str(env, name)?;
    }
    Ok(match Report::from_json(json) {
        Ok(report) => (atoms::ok(), to_term(env, report)?).encode(env),
        Err(error) => (atoms::error(), error.to_string()).encode(env),
    })
}

// A derived Deserialize asks rustler for a map that names its Rust type; a JSON value asks for
// nothing.
fn decode(term: Term<'_>) -> Result<Report, String> {
    let value: serde_json::Value = from_term(term).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}
