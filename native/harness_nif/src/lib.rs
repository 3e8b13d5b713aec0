//! glue
rustler::init!("Elixir.Engine.Harness.Native");
