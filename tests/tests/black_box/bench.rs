//! `millrace bench http` shows progress while it runs. Its results agree with each other as JSON, CSV and text.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use millrace_tests::{Foreground, Server, ServerOptions, binary, wait_until};
use serde_json::Value;

fn bench(server: &Server, arguments: &[&str]) -> Foreground {
    let url = format!("{}/call/counter/k{{{{uniform:0:100}}}}/value", server.url());
    let mut command = Command::new(binary());
    Foreground::start(command.args(["bench", "http", &url, "--body", "null", "--connections", "2"]).args(arguments))
}

/// The progress line of one second: its part of the run, the second, the replies a second, p99.
fn second(line: &str) -> (&str, u64, f64, &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| words.iter().position(|found| *found == word).map(|index| &words[index + 1..]);
    let rest = after("s").unwrap_or_else(|| panic!("no second: {line}"));
    let rate = rest[0].strip_suffix("/s").unwrap_or_else(|| panic!("no rate: {line}"));
    let p99 = after("p99").unwrap_or_else(|| panic!("no p99: {line}"));
    assert!(p99[0].parse::<f64>().is_ok_and(|p99| p99 > 0.0), "{line}");
    assert_eq!(after("errors").map(|rest| rest[0]), Some("0"), "{line}");
    (words[0], words[1].parse().expect("a second"), rate.parse().expect("a rate"), p99[1])
}

#[test]
fn progress_is_told_while_it_goes_on() {
    let server = Server::start(ServerOptions::examples(&["counter"]));
    // The run is far longer than this test waits, so the lines that are read come before the end.
    let mut run = bench(&server, &["--warm-up", "1s", "--duration", "10m"]);
    wait_until("two measured seconds are told", || run.err().matches("measured").count() >= 2);
    assert!(run.is_running() && run.out().is_empty(), "{}", run.out());
    let told = run.err();
    let seconds: Vec<_> = told.lines().take(3).map(second).collect();
    let parts: Vec<(&str, u64)> = seconds.iter().map(|(part, second, ..)| (*part, *second)).collect();
    assert_eq!(parts, [("warm-up", 1), ("measured", 1), ("measured", 2)], "{told}");
    for (_, _, rate, unit) in seconds {
        assert!(rate > 0.0 && ["µs", "ms", "s"].contains(&unit), "{told}");
    }
    let mut quiet = bench(&server, &["--quiet", "--warm-up", "0s", "--duration", "200ms"]);
    assert!(quiet.ended().success());
    assert_eq!(quiet.err(), "");
}

/// The rows of a CSV file, each by the names of its columns.
fn csv(path: &Path) -> Vec<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(path).expect("written");
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let row = |line: &str| {
        let values: Vec<f64> = line.split(',').map(|value| value.parse().expect("a number")).collect();
        assert_eq!(values.len(), names.len(), "{line}");
        names.iter().map(ToString::to_string).zip(values).collect()
    };
    lines.map(row).collect()
}

#[test]
fn json_csv_and_the_summary_tell_the_same() {
    let server = Server::start(ServerOptions::examples(&["counter"]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().expect("text").to_owned();
    let files =
        ["--json", &text("run.json"), "--csv", &text("seconds.csv"), "--csv-percentiles", &text("quantiles.csv")];
    let mut run = bench(&server, &[&["--warm-up", "0s", "--duration", "2s"], &files[..]].concat());
    assert!(run.ended().success(), "{}", run.err());
    let report: Value = serde_json::from_slice(&std::fs::read(path("run.json")).expect("written")).expect("JSON");
    assert!(report["requests"].as_u64().is_some_and(|requests| requests > 0), "{report}");

    let seconds = csv(&path("seconds.csv"));
    let told = report["seconds"].as_array().expect("a list");
    assert_eq!((seconds.len(), told.len()), (2, 2), "one row a second");
    for (row, second) in seconds.iter().zip(told) {
        let columns: BTreeMap<String, f64> = serde_json::from_value(second.clone()).expect("numbers");
        assert_eq!(*row, columns);
    }
    let sum: f64 = seconds.iter().map(|row| row["requests"]).sum();
    assert_eq!(Some(sum), report["requests"].as_f64());

    let quantiles: Vec<(f64, f64)> =
        csv(&path("quantiles.csv")).iter().map(|row| (row["quantile"], row["latency_us"])).collect();
    let curve: Vec<(f64, f64)> = serde_json::from_value(report["latency"]["curve"].clone()).expect("pairs");
    assert_eq!(quantiles, curve);
    let p99 = quantiles.iter().find(|(quantile, _)| *quantile == 0.99).expect("p99").1;
    assert_eq!(Some(p99), report["latency"]["p99_us"].as_f64());

    let summary = run.out();
    assert!(summary.contains(&format!("{} in 2 s", report["requests"])), "{summary}");
    assert!(summary.contains("p99 ") && summary.contains("errors       none"), "{summary}");
}
