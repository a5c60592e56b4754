//! `millrace-history FILE…`: judges histories kept as JSON lines.

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use millrace_history::{History, verdict};

fn main() -> ExitCode {
    let mut is_sound = true;
    let mut count = 0;
    for path in std::env::args().skip(1) {
        count += 1;
        let read = File::open(&path).map_err(|error| error.to_string());
        let read = read.and_then(|file| History::read_lines(BufReader::new(file)).map_err(|error| error.to_string()));
        match read {
            Ok(history) => {
                let verdict = verdict(&history);
                print!("{path}: {verdict}");
                is_sound &= verdict.is_sound();
            }
            Err(error) => {
                eprintln!("{path}: {error}");
                is_sound = false;
            }
        }
    }
    if count == 0 {
        eprintln!("usage: millrace-history FILE…   (histories as JSON lines; fails unless all are sound)");
        return ExitCode::FAILURE;
    }
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
