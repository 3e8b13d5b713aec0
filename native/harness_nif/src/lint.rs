use harness_core::lint::{self, Kind, Warning};
use rustler::{Binary, NifUnitEnum};

#[derive(NifUnitEnum)]
enum KindTerm {
    ClockTime,
    Uuid,
    SessionId,
    OpaqueBlob,
}

impl From<Kind> for KindTerm {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::ClockTime => KindTerm::ClockTime,
            Kind::Uuid => KindTerm::Uuid,
            Kind::SessionId => KindTerm::SessionId,
            Kind::OpaqueBlob => KindTerm::OpaqueBlob,
        }
    }
}

/// `[{kind, count, offset, length}]`
#[rustler::nif(schedule = "DirtyCpu")]
fn lint_warnings(text: Binary) -> Vec<(KindTerm, usize, usize, usize)> {
    let warnings = lint::warnings(&text).into_iter();
    warnings
        .map(
            |Warning {
                 kind,
                 count,
                 offset,
                 len,
             }| (kind.into(), count, offset, len),
        )
        .collect()
}
