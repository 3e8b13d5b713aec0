//! Facts about the host that the harness runs on.

pub mod git;
