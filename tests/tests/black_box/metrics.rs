//! The guide lists every metric that `/metrics` has, and no other.

use std::collections::BTreeSet;

use millrace_tests::{Server, ServerOptions, free_address, repository};

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
