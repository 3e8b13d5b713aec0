use harness_core::markdown::{Fence, closing, cuts};
use harness_core::plan::Cut;
use rustler::{Binary, NifTuple};

/// `{at, {line, run, length} | nil}`
#[derive(NifTuple)]
pub(crate) struct CutTerm {
    at: usize,
    fence: Option<(usize, usize, usize)>,
}

impl From<Cut> for CutTerm {
    fn from(Cut { at, fence }: Cut) -> Self {
        let fence = fence.map(|Fence { line, run, len }| (line, run, len));
        CutTerm { at, fence }
    }
}

impl From<CutTerm> for Cut {
    fn from(CutTerm { at, fence }: CutTerm) -> Self {
        let fence = fence.map(|(line, run, len)| Fence { line, run, len });
        Cut { at, fence }
    }
}

#[rustler::nif]
fn markdown_cuts(text: Binary, near: usize, far: usize) -> Vec<CutTerm> {
    all_cuts(&text, near, far)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn markdown_cuts_dirty(text: Binary, near: usize, far: usize) -> Vec<CutTerm> {
    all_cuts(&text, near, far)
}

#[rustler::nif]
fn markdown_closing(text: Binary, cut: CutTerm) -> String {
    closing(&text, cut.into())
}

#[rustler::nif(schedule = "DirtyCpu")]
fn markdown_closing_dirty(text: Binary, cut: CutTerm) -> String {
    closing(&text, cut.into())
}

fn all_cuts(text: &[u8], near: usize, far: usize) -> Vec<CutTerm> {
    cuts(text, near, far)
        .into_iter()
        .map(CutTerm::from)
        .collect()
}
