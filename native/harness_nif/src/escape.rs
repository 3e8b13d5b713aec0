use harness_core::escape::{escape, escape_short as short};
use rustler::Binary;

#[rustler::nif]
fn escape_name(name: Binary) -> String {
    escape(&name)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn escape_name_dirty(name: Binary) -> String {
    escape(&name)
}

#[rustler::nif]
fn escape_short(name: Binary) -> String {
    short(&name)
}
