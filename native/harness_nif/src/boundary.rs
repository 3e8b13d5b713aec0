use harness_core::boundary;
use rustler::Binary;

#[rustler::nif]
fn boundary_at_or_before(text: Binary, offset: usize) -> usize {
    boundary::at_or_before(&text, offset)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn boundary_at_or_before_dirty(text: Binary, offset: usize) -> usize {
    boundary::at_or_before(&text, offset)
}

#[rustler::nif]
fn boundary_line_at_or_before(text: Binary, boundary: usize) -> usize {
    boundary::line_at_or_before(&text, boundary)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn boundary_line_at_or_before_dirty(text: Binary, boundary: usize) -> usize {
    boundary::line_at_or_before(&text, boundary)
}

#[rustler::nif]
fn boundary_invalid_at(text: Binary) -> Option<usize> {
    boundary::invalid_at(&text)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn boundary_invalid_at_dirty(text: Binary) -> Option<usize> {
    boundary::invalid_at(&text)
}
