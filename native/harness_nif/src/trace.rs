use harness_core::trace::{Context, otlp};
use rustler::{Binary, Encoder, Env, Term};

mod atoms {
    rustler::atoms! { ok, error }
}

/// `{service, provider | nil, unix_ms, trace_id, traceparent | nil}`
type GivenContext<'a> = (&'a str, Option<&'a str>, i64, Binary<'a>, Option<&'a str>);

/// `{:ok, json} | {:error, message}`. The ids are those of all spans, one after another.
#[rustler::nif(schedule = "DirtyCpu")]
fn trace_otlp<'a>(
    env: Env<'a>,
    events: Binary<'a>,
    (service, provider, unix_ms, trace_id, traceparent): GivenContext<'a>,
    span_ids: Binary<'a>,
) -> Term<'a> {
    let (span_ids, _) = span_ids.as_chunks();
    let context = Context {
        service,
        provider,
        unix_ms,
        trace_id: trace_id.as_slice().try_into().unwrap_or_default(),
        traceparent,
        span_ids,
    };
    match otlp(&events, &context) {
        Ok(json) => (atoms::ok(), json).encode(env),
        Err(error) => (atoms::error(), error.to_string()).encode(env),
    }
}
