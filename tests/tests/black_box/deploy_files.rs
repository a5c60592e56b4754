//! What the files in `deploy/` tell systemd and Docker to run does run.

use std::path::Path;
use std::process::Command;

use millrace_tests::{Connection, Foreground, binary, has_programs, repository, wait_until};

use crate::cluster::bases;

fn file(path: &str) -> String {
    std::fs::read_to_string(repository().join("deploy").join(path)).expect("the file is there")
}

/// The command of a service of a compose file, as a list in one line.
fn command_of(compose: &str, service: &str) -> Vec<String> {
    let (_, from) = compose.split_once(&format!("\n  {service}:\n")).expect("the service is there");
    let (_, list) = from.split_once("    command: ").expect("it has a command");
    serde_json::from_str(list.lines().next().expect("a line")).expect("a list of words")
}

#[test]
fn the_compose_file_makes_a_cluster_that_serves() {
    let compose = file("docker/cluster.yaml");
    let folder = tempfile::tempdir().expect("a folder");
    let [http_base, peer_base, _] = bases();
    // Where the containers have addresses, this machine has ports.
    let here = |word: String| {
        let mut word = word.replace("/cluster", folder.path().to_str().expect("text"));
        for node in 1..=3 {
            word = word.replace(&format!("10.77.0.1{node}:8080"), &format!("127.0.0.1:{}", http_base + node - 1));
            word = word.replace(&format!("10.77.0.1{node}:7000"), &format!("127.0.0.1:{}", peer_base + node - 1));
        }
        word
    };
    let run = |service: &str| {
        let mut command = Command::new(binary());
        command.args(command_of(&compose, service).into_iter().map(here));
        command
    };
    for once in ["init", "keys"] {
        let output = run(once).output().expect("started");
        assert!(output.status.success(), "{once}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut nodes: Vec<Foreground> = ["n1", "n2", "n3"].map(|node| Foreground::start(&mut run(node))).into();
    for (node, command) in (1..).zip(&mut nodes) {
        let has_address =
            compose.contains(&format!("  n{node}:\n")) && compose.contains(&format!("10.77.0.1{node} }}"));
        assert!(has_address, "n{node} has the address that `init` gives it");
        let address = ([127, 0, 0, 1], http_base + node - 1).into();
        wait_until("the node is ready", || {
            assert!(command.is_running(), "{}", command.err());
            let reply = Connection::open(address).and_then(|mut client| client.request("GET", "/readyz", &[], b""));
            reply.is_ok_and(|reply| reply.status == 200)
        });
    }
    for node in &mut nodes {
        node.interrupt();
    }
    for node in &mut nodes {
        assert!(node.ended().success(), "{}", node.err());
    }
}

#[test]
fn the_unit_of_systemd_is_one_and_its_commands_are_taken() {
    let unit = file("systemd/millrace.service");
    let commands: Vec<&str> = unit.lines().filter_map(|line| line.split_once("ExecStart=")).map(|(_, of)| of).collect();
    assert_eq!(commands.len(), 2, "one node alone, and one of a cluster");
    for command in commands {
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("/usr/local/bin/millrace"));
        let folder = tempfile::tempdir().expect("a folder");
        let nowhere = folder.path().join("file");
        std::fs::write(&nowhere, "").expect("written");
        let place = nowhere.to_str().expect("text");
        let words = words.map(|word| word.replace("/var/lib/millrace", place));
        let output = Command::new(binary()).args(words).output().expect("started");
        let error = String::from_utf8_lossy(&output.stderr);
        // It understands the flags, and misses the directory.
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(place), "{error}");
    }
    if Path::new("/run/systemd/system").exists() && has_programs(&["systemd-analyze"]) {
        let path = repository().join("deploy/systemd/millrace.service");
        let output = Command::new("systemd-analyze").arg("verify").arg(path).output().expect("started");
        let said = String::from_utf8_lossy(&output.stderr);
        let complaints = said.lines().filter(|line| line.contains("millrace.service"));
        // The program is not installed here.
        let complaints: Vec<&str> = complaints.filter(|line| !line.contains("is not executable")).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}
