//! The guide lists every metric that `/metrics` has, and no other.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_tests::{MovedClock, Server, ServerOptions, free_address, repository, wait_until};

use crate::cluster::Demo;

/// The names of samples as a query has them. A histogram's name is without `_bucket` and the like.
fn metrics(text: &str) -> BTreeSet<String> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let name = |(name, kind)| if kind == "counter" { format!("{name}_total") } else { str::to_owned(name) };
    kinds.map(name).collect()
}

/// The names in the guide's table. `…_x_total` is the name before it with another end.
fn documented(guide: &str) -> BTreeSet<String> {
    let rows = guide.lines().filter(|line| line.starts_with("| `millrace_"));
    let mut names = BTreeSet::new();
    for cell in rows.filter_map(|line| line.split('|').nth(1)) {
        let mut stem = String::new();
        for name in cell.split('`').filter(|part| part.contains('_')) {
            let name = match name.strip_prefix('…') {
                Some(end) => format!("{stem}{end}"),
                None => name.to_owned(),
            };
            stem = name.trim_end_matches("_total").rsplit_once('_').map_or("", |(stem, _)| stem).to_owned();
            assert!(names.insert(name.clone()), "{name} is there twice");
        }
    }
    names
}

#[test]
fn the_guide_lists_every_metric_and_no_other() {
    let s3 = free_address().to_string();
    let server = Server::start(ServerOptions::examples(&["counter"]).with(&["--s3", &s3]));
    assert_eq!(server.value("counter/c/add", "1"), 1);
    let text = server.request("GET", "/metrics", &[], b"").text();
    let guide = std::fs::read_to_string(repository().join("docs/guide/operations.md")).expect("the guide");
    assert_eq!(metrics(&text), documented(&guide));
}

#[test]
fn a_shard_that_is_ahead_of_the_clock_is_shown_and_logged_once() {
    let Some(mut clock) = MovedClock::new() else { return };
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--cores", "1");
    clock.give(&mut options);
    let mut server = Server::start(options);
    let lead = |server: &Server| server.metric("millrace_shard_clock_lead_seconds");
    let warnings = |server: &Server| server.errors().matches("the time of a shard is ahead").count();
    assert_eq!(server.value("counter/c/add", "1"), 1);
    assert_eq!(lead(&server), 0.0);
    clock.forward(Duration::from_secs(3600));
    assert_eq!(server.value("counter/c/add", "1"), 2);
    clock.set_right();
    let is_shown = |server: &Server| {
        // The server notices when something wakes it.
        let _counted = server.value("counter/c/add", "1");
        (3_000.0..3_600.1).contains(&lead(server))
    };
    wait_until("the lead is shown", || is_shown(&server));
    wait_until("the log says it", || warnings(&server) == 1);
    server.kill();
    server.restart();
    wait_until("it is shown after a restart as well", || is_shown(&server));
    // The log is a new one.
    wait_until("the log says it once more", || warnings(&server) == 1);
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_shown(&server));
    assert_eq!(warnings(&server), 1, "a core says it once");
}

/// A number of a node of a cluster; `of` is the name with its labels.
fn number(demo: &Demo, node: u16, of: &str) -> Option<u64> {
    let text = demo.request(node, "GET", "/metrics", &[], b"")?.text();
    text.lines().find_map(|line| line.strip_prefix(of)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn a_node_of_a_cluster_shows_what_it_serves_and_what_the_others_lack() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    let sum = |name: &str| (1..=3).map(|node| number(&demo, node, name)).sum::<Option<u64>>();
    wait_until("all six shards are served", || sum("millrace_shards_served") == Some(6));
    assert_eq!(sum("millrace_leads_guidance"), Some(1));
    let lag = "millrace_replication_lag_entries{node=\"2\"}";
    wait_until("node 2 has everything", || [1, 3].iter().all(|node| number(&demo, *node, lag) == Some(0)));
    demo.stop(2);
    assert!(sum_of_others(&demo, "millrace_shards_received_total") > 0, "it has handed its shards on");
    (0..30).for_each(|call| demo.add(call % 6, call));
    wait_until("node 2 lacks entries", || sum_of_others(&demo, lag) >= 30);
    assert!(sum_of_others(&demo, "millrace_replication_lag_bytes{node=\"2\"}") > 1_000);
    let _again = demo.revive(2);
    wait_until("node 2 has everything again", || [1, 3].iter().all(|node| number(&demo, *node, lag) == Some(0)));
}

fn sum_of_others(demo: &Demo, name: &str) -> u64 {
    [1, 3].iter().filter_map(|node| number(demo, *node, name)).sum()
}
