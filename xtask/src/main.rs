//! The project's own tools, run as `cargo xtask <command>`.
//!
//! `tidy` checks what the compiler and clippy cannot see: which crate may depend on which, how
//! long files and functions are, whether links resolve, whether every error code has its page.
//! It promises to finish in a second or two, and to need no network once dependencies are downloaded. It names a file
//! and a line for everything it reports.

mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask <command>

Commands:
  tidy    check the rules of CONTRIBUTING.md; prints `file:line: message` for every breach and
          fails when there is one
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::main(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
