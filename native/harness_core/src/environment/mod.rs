//! Facts about the host, found without running anything.

pub mod git;
pub mod hardware;
pub mod tree;
