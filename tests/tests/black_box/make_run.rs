//! `make run`, as a person types it. What it prints is true, the port can be chosen, and Ctrl-C stops it in order.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use millrace_tests::{
    Connection, Foreground, binary, free_address, has_programs, interrupt, listen, repository, wait_until,
};

/// Runs `make run` with a port and a data directory. It serves the binary under test, which nothing may build anew
/// while tests run. `-o` tells make that the binary is up to date.
fn make_run(port: u16, data: &Path) -> Foreground {
    let mut command = Command::new("make");
    command.current_dir(repository()).args(["run", "-o", "build", &format!("PORT={port}")]);
    command.arg(format!("DATA={}", data.display())).arg(format!("MILLRACE={}", binary().display()));
    // A make around this test has its own flags and level. This make must not see them.
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    Foreground::start(&mut command)
}

/// Waits until `make run` has greeted, and returns the greeting.
fn greeting(run: &mut Foreground) -> String {
    // The last line of the greeting.
    wait_until("it greets", || !run.is_running() || run.out().contains("user/login\n"));
    assert!(run.is_running(), "{}{}", run.out(), run.err());
    run.out()
}

/// Runs a line of a shell and returns its output.
fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("run");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_it_prints_works_and_ctrl_c_stops_it_in_order() {
    if !has_programs(&["make", "curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (address, data) = (free_address(), folder.path().join("data"));
    let mut run = make_run(address.port(), &data);
    let printed = greeting(&mut run);
    let base = format!("http://127.0.0.1:{}", address.port());
    assert!(printed.contains(&format!("{base}  (data in {})", data.display())), "{printed}");
    for path in ["apps", "openapi.json", "metrics"] {
        assert!(printed.split_whitespace().any(|word| word == format!("{base}/{path}")), "no {path}: {printed}");
        let mut connection = Connection::open(address).expect("it accepts");
        assert_eq!(connection.request("GET", &format!("/{path}"), &[], b"").expect("a reply").status, 200, "{path}");
    }
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| line.starts_with("curl ")).collect();
    let replies: Vec<String> = lines.iter().map(|line| shell(&format!("{line} -sS -w ' %{{http_code}}'"))).collect();
    assert_eq!(replies, ["1 200", r#"{"username":"ada"} 201"#, "ok 200"], "{lines:?}");
    assert!(run.is_running(), "in the foreground");

    // The signal goes to the node alone, so that make says how the node ended. make dies of a Ctrl-C that it gets
    // itself.
    interrupt(std::fs::read_to_string(data.join("pid")).expect("written").trim().parse().expect("a number"));
    let status = run.ended();
    assert!(status.success(), "{status}: {}", run.err());
    assert!(run.err().lines().last().is_some_and(|line| line.ends_with("stopped")), "{}", run.err());
    assert!(!data.join("pid").exists(), "left behind");

    // Now Ctrl-C as the terminal sends it. Acknowledged data must still be there.
    let mut run = make_run(address.port(), &data);
    greeting(&mut run);
    assert_eq!(shell(&format!("{} -sS -w ' %{{http_code}}'", lines[0])), "2 200");
    run.interrupt();
    run.ended();
    wait_until("the node has stopped", || run.err().lines().any(|line| line.ends_with("stopped")));
    assert!(!data.join("pid").exists(), "left behind");
}

#[test]
fn a_taken_port_is_an_error_that_names_the_flag() {
    if !has_programs(&["make"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let taken: SocketAddr = free_address();
    let _listener = listen(taken);
    let mut run = make_run(taken.port(), &folder.path().join("data"));
    assert!(!run.ended().success(), "{}", run.out());
    let errors = run.err();
    let sentence = errors.lines().find(|line| line.starts_with("millrace: ")).unwrap_or_else(|| panic!("{errors}"));
    for word in [taken.to_string().as_str(), "--http", "PORT="] {
        assert!(sentence.contains(word), "no {word}: {sentence}");
    }
    assert!(!run.out().contains("curl"), "it greets all the same: {}", run.out());
}
