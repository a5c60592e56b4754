//! What a test needs of the machine. If that is missing, the test is skipped. libtest hides the output of a test that
//! passes. So a file tells the person who runs all tests.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// Names the file in which `scripts/test.sh` collects the skipped tests.
const LIST: &str = "MILLRACE_TEST_SKIPPED";

/// This variable is set where every program that a test needs has been installed beforehand.
const REQUIRE: &str = "MILLRACE_TEST_REQUIRE";

/// Whether programs exist. Each is run with `--version`. The caller skips the test if one is missing.
///
/// # Panics
/// When a program is missing and `MILLRACE_TEST_REQUIRE=1` says that none may be missing.
#[must_use]
pub fn has_programs(programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| {
        let mut command = Command::new(program);
        let started =
            command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        started.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let Some(missing) = programs.iter().find(is_missing) else { return true };
    let reason = format!("the program {missing} is missing, which scripts/install-missing.sh test installs");
    assert!(std::env::var_os(REQUIRE).is_none_or(|value| value != "1"), "{reason}");
    left_out(&reason);
    false
}

/// Says that the running test is skipped because of something that nobody can install, such as a right.
pub fn left_out(reason: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a test"));
    print!("{line}");
    let Some(list) = std::env::var_os(LIST) else { return };
    let file = std::fs::File::options().append(true).create(true).open(&list);
    // One write, because test programs may run side by side.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{LIST}={}: {error}", list.display()));
}
