//! The binary `campanile`: reads the command line and runs one of its commands.

#![warn(clippy::print_stdout, reason = "`println!` panics when its reader is gone; `say!` does not")]

mod app;
mod cli;
mod config;
mod data_folder;
mod escape;
#[cfg(feature = "failpoints")]
mod failpoint;
mod http;
mod lease;
mod open_files;

use std::process::ExitCode;

/// With the C library's allocator, a third of the engine's time went into allocation: 38 → 27 to 33 µs per notification
/// (decision 0024).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    failpoint::arm();
    // Installed first, because every use of TLS needs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    cli::run()
}
