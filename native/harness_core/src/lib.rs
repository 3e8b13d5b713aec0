//! The harness's CPU-bound work as pure functions.
//!
//! Nothing here knows the BEAM: every function takes bytes and numbers and answers with plain
//! data, so that it is tested by `cargo test` alone. The answers are *plans*: integers that say
//! where a text is cut and how many units are dropped. Whoever holds the text makes the slices.
//!
//! ```
//! use harness_core::plan::{plan, Content, Layer, Status, Total};
//! use harness_core::tokens::Approximate;
//!
//! let rules: Vec<&[u8]> = vec![b"oldest rule", b"middle rule", b"newest rule"];
//! let content = Content::DropWholeUnits { units: rules, step: None };
//! let layer = Layer { content, budget: 6 };
//! let plan = plan(&Approximate, &[layer], &Total::UNLIMITED)?;
//! assert_eq!(plan.layers[0].status, Status::Trimmed);
//! assert_eq!(plan.layers[0].dropped, 1);
//! assert_eq!(plan.layers[0].tokens, 6);
//! # Ok::<(), harness_core::plan::Error>(())
//! ```
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::panic
    )
)]

pub mod assembly;
pub mod boundary;
pub mod bpe;
pub mod environment;
pub mod escape;
pub mod instruction_files;
pub mod lint;
pub mod loop_detection;
pub mod markdown;
pub mod plan;
pub mod report;
pub mod tokens;
pub mod trace;
