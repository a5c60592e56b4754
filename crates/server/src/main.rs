//! The `millrace` binary: command line, configuration, wiring.
//!
//! Promises: every failure ends with one sentence that says what to change, on standard error,
//! and exit code 1 (2 for a wrong command line). Must not hold logic that the crates below
//! should: it reads settings, builds the parts, and connects them.

mod apps;
mod backup;
mod bucket_place;
mod calls;
mod cli;
mod cluster;
mod data_commands;
mod dev;
mod keys;
mod logging;
mod many_dead_letters;
mod overdue;
mod python_worker;
mod s3;
mod s3_users;
mod serve;
mod settings;
mod settings_file;
mod table;
mod users;
mod worker_check;
mod workflows;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long freed memory is kept before the system gets it back. The allocator's own second is time
/// enough for a checkpoint to free and take tens of MiB several times over. Even 50 ms left some 25 MiB more at the
/// peak of `black_box/memory.rs`. Giving it back at once cost no CPU that could be measured (`bench/compare.sh`).
const PURGE_DELAY_MS: std::ffi::c_long = 0;

/// `mi_option_purge_delay`, which the bindings leave out; the same in versions 2 and 3.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// A sentence for the operator.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // SAFETY: it only must not run beside other threads, and there are none yet.
    // The environment's MIMALLOC_PURGE_DELAY stays the stronger one.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) };
    let cli = Cli::parse();
    if !matches!(cli.command, Command::Serve(_) | Command::Dev(_)) {
        end_with_the_reader();
    }
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Dev(args) => dev::run(&args),
        Command::Call(args) => calls::call(&args),
        Command::State(args) => calls::state(&args),
        Command::Invocations(args) => workflows::invocations(&args),
        Command::DeadLetters(args) => workflows::dead_letters(&args),
        Command::Schedules(args) => workflows::schedules(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Deploy(args) => apps::deploy(&args),
        Command::Apps(args) => apps::apps(&args),
        Command::Keys(args) => keys::run(&args),
        Command::S3(args) => s3::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Inspect(args) => data_commands::inspect(&args),
        Command::Repair(args) => data_commands::repair(&args),
        Command::Types(args) => data_commands::types(&args),
        Command::WorkerCheck(args) => worker_check::check(&args),
        Command::Bench(args) => return calls::bench(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("millrace: {failure}");
            if failure.is::<Incomplete>() { ExitCode::from(INCOMPLETE) } else { ExitCode::FAILURE }
        }
    }
}

/// The exit code of a command that is done, though something is missing that nobody can read any more.
const INCOMPLETE: u8 = 3;

/// Says what is missing.
#[derive(Debug)]
pub(crate) struct Incomplete(pub String);

impl std::fmt::Display for Incomplete {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Incomplete {}

/// The exit code of a program that SIGPIPE has ended.
const CLOSED_PIPE: i32 = 128 + 13;

/// Ends quietly when whoever reads standard output has gone, as `head` does. The signal itself stays ignored: it would also
/// end a command whose connection breaks.
fn end_with_the_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let what = panic.payload_as_str().unwrap_or_default();
        if what.starts_with("failed printing to stdout") && what.contains("Broken pipe") {
            std::process::exit(CLOSED_PIPE);
        }
        report(panic);
    }));
}
