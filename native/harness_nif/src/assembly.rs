use harness_core::assembly;
use rustler::Binary;

/// `[{sha256, prefix_sha256}]`
#[rustler::nif]
fn assembly_hashes(prompt: Binary, layers: Vec<(usize, usize)>) -> Vec<(String, String)> {
    assembly::hashes(&prompt, &layers)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn assembly_hashes_dirty(prompt: Binary, layers: Vec<(usize, usize)>) -> Vec<(String, String)> {
    assembly::hashes(&prompt, &layers)
}
