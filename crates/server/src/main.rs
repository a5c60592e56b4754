//! The `millrace` binary: command line, configuration, wiring.
//!
//! Promises: every failure ends with one sentence that says what to change, on standard error,
//! and exit code 1 (2 for a wrong command line). Must not hold logic that the crates below
//! should: it reads settings, builds the parts, and connects them.

mod calls;
mod cli;
mod data_commands;
mod dev;
mod keys;
mod logging;
mod serve;
mod settings;
mod settings_file;
mod table;
mod workflows;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A sentence for the operator.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Dev(args) => dev::run(&args),
        Command::Call(args) => calls::call(&args),
        Command::Invocations(args) => workflows::invocations(&args),
        Command::DeadLetters(args) => workflows::dead_letters(&args),
        Command::Deploy(args) => calls::deploy(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Inspect(args) => data_commands::inspect(&args),
        Command::Repair(args) => data_commands::repair(&args),
        Command::Types(args) => data_commands::types(&args),
        Command::Bench(args) => return calls::bench(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("millrace: {failure}");
            ExitCode::FAILURE
        }
    }
}
