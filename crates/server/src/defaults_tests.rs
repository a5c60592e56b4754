//! The defaults in the guides and in `--help` are those of the code. Users rely on them, so a change needs both
//! places.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::CommandFactory;
use millrace_base::limits;
use millrace_func::Limits;
use millrace_node::{DataDirectory, Durability};

use super::{HOUR_MS, MEMORY_SHARE, Settings, default_memory_bytes};
use crate::cli::{Cli, ServeArgs};

fn guide(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(name);
    std::fs::read_to_string(path).expect("a guide")
}

/// The first two columns of the table below a line of a guide, as far as it goes.
fn table(guide: &str, head: &str) -> BTreeMap<String, String> {
    let rows = guide.split_once(head).expect("the table's head").1.lines().skip(2);
    let row = |line: &str| {
        let mut cells = line.strip_prefix('|')?.split('|').map(|cell| cell.trim().replace('`', ""));
        Some((cells.next()?, cells.next()?))
    };
    rows.map_while(row).collect()
}

/// `10,000`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `64 MiB`
fn bytes(number: usize) -> String {
    let (unit, name) = if number >= 1 << 20 { (1 << 20, "MiB") } else { (1 << 10, "KiB") };
    assert_eq!(number % unit, 0, "a whole number of {name}");
    format!("{} {name}", number / unit)
}

fn seconds(duration: Duration) -> String {
    assert_eq!(duration.subsec_nanos(), 0, "whole seconds");
    format!("{} s", duration.as_secs())
}

fn assert_same(documented: &BTreeMap<String, String>, code: &[(&str, String)]) {
    let code: BTreeMap<String, String> = code.iter().map(|(key, text)| ((*key).to_owned(), text.clone())).collect();
    assert_eq!(*documented, code);
}

#[test]
fn limits_of_an_app() {
    // All fields by name, so that a new limit needs its row.
    let Limits {
        cpu_ms,
        memory_bytes,
        stack_bytes,
        // Apps cannot set it.
        key_bytes: _,
        call_depth,
        input_bytes,
        output_bytes,
        writes_per_call,
        value_bytes,
        pending_operations,
        messages_per_call,
        wait_ms,
    } = Limits::default();
    let code = [
        ("cpu_ms", grouped(cpu_ms)),
        ("memory_bytes", bytes(memory_bytes)),
        ("stack_bytes", bytes(stack_bytes)),
        ("call_depth", grouped(call_depth as u64)),
        ("input_bytes", bytes(input_bytes)),
        ("output_bytes", bytes(output_bytes)),
        ("value_bytes", bytes(value_bytes)),
        ("writes_per_call", grouped(writes_per_call as u64)),
        ("pending_operations", grouped(pending_operations as u64)),
        ("messages_per_call", grouped(messages_per_call as u64)),
        ("wait_ms", grouped(wait_ms)),
    ];
    assert_same(&table(&guide("functions.md"), "| limit | default | bounds | when it is passed |"), &code);
}

/// What each flag of `millrace serve` is without it.
fn settings() -> Vec<(&'static str, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let Settings {
        apps,
        http,
        node,
        front,
        s3,
        s3_front,
        s3_lifecycle_day_ms,
        log,
        log_json,
        key_file,
        are_keys_named,
    } = Settings::of(&ServeArgs::default()).expect("defaults");
    assert!(apps.is_empty() && !log_json && front.allowed_hosts.is_empty() && front.tls.is_none());
    assert!(front.cors_origins.is_empty() && key_file.ends_with("keys.json"));
    assert!(s3.is_none() && s3_front.domains.is_empty() && !s3_front.allows_signature_version_2);
    assert!(!s3_front.is_null_store);
    assert!(front.keys.is_none() && !are_keys_named, "there is no data directory here");
    assert_eq!(node.cores, std::thread::available_parallelism().map_or(1, usize::from));
    assert_eq!((node.memory_bytes, MEMORY_SHARE), (default_memory_bytes(), 2));
    let shards = DataDirectory::open(folder.path(), node.shards).expect("made").shard_count();
    let durability = match node.durability {
        Durability::Fsync => "fsync",
        Durability::Os => "os",
        Durability::None => "none",
    };
    vec![
        ("--data", node.data.display().to_string()),
        ("--http", http.to_string()),
        ("--s3-region", s3_front.region),
        ("--s3-lifecycle-day-ms", s3_lifecycle_day_ms.to_string()),
        ("--cores", "one for each processor".to_owned()),
        ("--shards", shards.to_string()),
        ("--memory", "half of the machine's".to_owned()),
        ("--durability", durability.to_owned()),
        ("--keys", "keys.json in the data directory, if it is there".to_owned()),
        ("--retention-hours", (node.retention_ms / HOUR_MS).to_string()),
        ("--queue-ms", node.queue_ms.to_string()),
        ("--connections", format!("{} for each core", front.limits.connections)),
        ("--log", log),
    ]
}

#[test]
fn settings_in_the_help() {
    let mut command = Cli::command();
    let serve = command.find_subcommand_mut("serve").expect("the command");
    let default = |argument: &clap::Arg| {
        let help = argument.get_long_help().or(argument.get_help())?.to_string();
        let text = help.split_once("[default: ")?.1.split_once(']')?.0.to_owned();
        Some((format!("--{}", argument.get_long()?), text))
    };
    assert_same(&serve.get_arguments().filter_map(default).collect(), &settings());
}

#[test]
fn settings_in_the_guide() {
    let guide = guide("operations.md");
    let (_, rows) = guide.split_once("| flag | variable | key | default | |").expect("the table's head");
    let code: BTreeMap<&str, String> = settings().into_iter().collect();
    let mut compared = 0;
    for row in rows.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let flag = cells[1].split(' ').next().unwrap_or_default();
        match code.get(flag) {
            Some(default) => assert_eq!(&cells[4].replace(',', ""), &default.replace(',', ""), "{flag}"),
            None => assert!(["none", "no"].contains(&cells[4].as_str()), "{row}"),
        }
        compared += usize::from(code.contains_key(flag));
    }
    assert_eq!(compared, code.len(), "every flag that has a default is in the table");
    let retention = format!("are kept for {} hours (`--retention-hours`", code["--retention-hours"]);
    assert!(guide.replace('\n', " ").contains(&retention), "{retention:?}");
    let retention = format!("Kept for `--retention-hours`, {} by default", code["--retention-hours"]);
    assert!(self::guide("workflows.md").contains(&retention), "{retention:?}");
}

#[test]
fn limits_of_http() {
    let millrace_http::Options { limits: front, timeouts, .. } = millrace_http::Options::default();
    let slow = |timeout, what| format!("{}, and 1 s more for every 16 KiB {what}", seconds(timeout));
    let year_ms = 365 * 24 * HOUR_MS;
    assert_eq!((limits::HTTP2_FRAMES, limits::HTTP2_FRAMES_PER_SECOND), (1_000, 100));
    let code = [
        ("body of a call or route", bytes(front.body_bytes)),
        ("archive of an app", bytes(front.archive_bytes)),
        ("request line and headers", format!("{}, {} headers", bytes(front.header_bytes), front.headers)),
        (
            "HTTP/2 frames of one connection that carry no request (priorities, windows, pings, settings)",
            "1,000, and 100 more for each second, 16 for each request, 1 for every 256 bytes sent".to_owned(),
        ),
        ("headers to arrive", seconds(timeouts.headers)),
        ("body to arrive", slow(timeouts.body, "that came")),
        ("reply to be taken by the client", slow(timeouts.write, "taken")),
        ("connection without a request", seconds(timeouts.idle)),
        ("connections of one core", grouped(front.connections as u64)),
        ("requests at once on one HTTP/2 connection", front.streams.to_string()),
        (
            "delay_ms of a call that is sent",
            if limits::DELAY_MS == 10 * year_ms { "ten years" } else { "?" }.to_owned(),
        ),
        (
            "fields in one reply of /state/{service}/{key}",
            format!("{}, and {} of them", grouped(limits::SCAN_ROWS as u64), bytes(limits::SCAN_BYTES)),
        ),
        ("items of a page", format!("{}, at most {}", limits::PAGE_ITEMS, grouped(limits::MOST_PAGE_ITEMS as u64))),
        ("inputs and outputs in one reply about workflows or dead letters", bytes(limits::PAGE_BYTES)),
        ("slow bodies and large replies in memory, of one core", bytes(front.buffered_bytes)),
        ("requests in flight when the server stops", seconds(timeouts.drain)),
    ];
    assert_same(&table(&guide("http.md"), "| what | default | beyond it |"), &code);
}

#[test]
fn options_of_a_fetch() {
    let guide = guide("workflows.md");
    let code = [
        ("method", "GET".to_owned()),
        ("headers", "none".to_owned()),
        ("body", "none".to_owned()),
        ("timeoutMs", grouped(limits::FETCH_TIMEOUT_MS)),
        ("retries", limits::FETCH_RETRIES.to_string()),
    ];
    assert_same(&table(&guide, "| option | default | |"), &code);
    for most in [
        format!("at most {} |", bytes(limits::FETCH_REQUEST_BYTES)),
        format!("exchange, {} at most |", grouped(limits::FETCH_LONGEST_MS)),
        format!("came; {} at most |", limits::FETCH_MOST_RETRIES),
        format!("`bytes()`; at most {}.", bytes(limits::FETCH_RESPONSE_BYTES)),
    ] {
        assert!(guide.contains(&most), "{most:?}");
    }
}
