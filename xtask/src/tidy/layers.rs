//! Dependencies point one way only.
//!
//! The table is the whole truth. A crate may depend on the workspace crates named beside it and on no others. Each of
//! those stands above it in the table, so no cycle can be written down.

use super::Finding;
use super::graph::{Crate, Graph};
use super::tree::Tree;

/// Each crate and the workspace crates it may depend on, lowest layer first.
const LAYERS: &[(&str, &[&str])] = &[
    ("millrace-base", &[]),
    ("millrace-format", &["millrace-base"]),
    // Knows disks and clocks, not keys or entries.
    ("millrace-io", &[]),
    // Signatures of S3 as clients make them.
    ("millrace-signing", &["millrace-base"]),
    // Files by their names and bytes: it does not know what they are for.
    ("millrace-backup", &[]),
    ("millrace-manifest", &["millrace-base", "millrace-io"]),
    ("millrace-log", &["millrace-base", "millrace-format", "millrace-io", "millrace-manifest"]),
    // Bodies of objects: it does not know what they are for.
    ("millrace-blobs", &["millrace-base", "millrace-io"]),
    ("millrace-store", &["millrace-base", "millrace-format"]),
    // Who asks, for every front: it knows no protocol.
    ("millrace-access", &["millrace-base"]),
    ("millrace-api", &["millrace-base", "millrace-access"]),
    // What bodies are checked by: the front, the node and the engine of objects take the same.
    ("millrace-checksum", &["millrace-base", "millrace-api"]),
    ("millrace-func", &["millrace-base", "millrace-api"]),
    ("millrace-func-js", &["millrace-base", "millrace-api", "millrace-func"]),
    // Frames of workers: it makes them and reads them, and does not carry them.
    ("millrace-func-remote", &["millrace-base", "millrace-format", "millrace-api", "millrace-func"]),
    // Values and paths into them: pure, and of no use to know what they are kept in.
    ("millrace-avro", &["millrace-base"]),
    ("millrace-avpath", &["millrace-base", "millrace-avro"]),
    // Its state travels as the files of an app.
    ("millrace-registry", &["millrace-base", "millrace-api", "millrace-avro", "millrace-avpath"]),
    (
        "millrace-func-records",
        &["millrace-base", "millrace-api", "millrace-func", "millrace-avro", "millrace-avpath", "millrace-registry"],
    ),
    ("millrace-func-objects", &["millrace-base", "millrace-api", "millrace-checksum", "millrace-func"]),
    ("millrace-shard", &["millrace-base", "millrace-format", "millrace-store", "millrace-api", "millrace-func"]),
    // Who holds a shard's log and what of it is committed: it knows nothing of what the entries say.
    ("millrace-replica", &["millrace-base", "millrace-format"]),
    // Messages between nodes: it carries them, and does not know what they say.
    ("millrace-peers", &["millrace-base", "millrace-io", "millrace-replica"]),
    // Who owns what: documents and decisions, and not how nodes talk.
    ("millrace-guidance", &["millrace-base"]),
    // A core without its thread: the node runs it, and so does the simulator.
    (
        "millrace-driver",
        &[
            "millrace-base",
            "millrace-format",
            "millrace-io",
            "millrace-log",
            "millrace-store",
            "millrace-api",
            "millrace-func",
            "millrace-shard",
            "millrace-replica",
        ],
    ),
    (
        "millrace-node",
        &[
            "millrace-guidance",
            "millrace-peers",
            "millrace-replica",
            "millrace-base",
            "millrace-format",
            "millrace-io",
            "millrace-manifest",
            "millrace-log",
            "millrace-store",
            "millrace-api",
            "millrace-backup",
            "millrace-blobs",
            "millrace-checksum",
            "millrace-func",
            "millrace-func-js",
            "millrace-shard",
            "millrace-driver",
            "millrace-peers",
        ],
    ),
    // A front sees operations only: never the node, the shard or the store.
    ("millrace-records", &["millrace-base", "millrace-api", "millrace-avro", "millrace-registry"]),
    ("millrace-s3", &["millrace-base", "millrace-access", "millrace-api", "millrace-checksum"]),
    ("millrace-http", &["millrace-base", "millrace-access", "millrace-api", "millrace-records"]),
    // Beside the fronts: only the binary knows who performs what functions ask of the outside.
    ("millrace-fetch", &["millrace-base", "millrace-func"]),
    // Sockets and waiting: what is said over them is the engine's.
    ("millrace-workers", &["millrace-base", "millrace-func", "millrace-func-remote", "millrace-fetch"]),
    // Stands where a server would, so it knows what workers are told and nothing of what it leads to.
    (
        "millrace-worker-check",
        &["millrace-base", "millrace-format", "millrace-func", "millrace-fetch", "millrace-workers"],
    ),
    // Speaks the public protocols, so it can be used without the server's crates.
    ("millrace-client", &["millrace-signing"]),
    // Measures any server, so it knows none.
    ("millrace-loadgen", &["millrace-signing"]),
    (
        "millrace-server",
        &[
            "millrace-base",
            "millrace-access",
            "millrace-format",
            "millrace-backup",
            "millrace-io",
            "millrace-manifest",
            "millrace-log",
            "millrace-store",
            "millrace-api",
            "millrace-func",
            "millrace-func-js",
            "millrace-node",
            "millrace-func-objects",
            "millrace-func-records",
            "millrace-http",
            "millrace-s3",
            "millrace-fetch",
            "millrace-func-remote",
            "millrace-workers",
            "millrace-worker-check",
            "millrace-peers",
            "millrace-replica",
            "millrace-client",
            "millrace-loadgen",
        ],
    ),
    // Judges what clients saw, so it knows nothing of the server.
    ("millrace-history", &[]),
    (
        "millrace-sim",
        &[
            "millrace-history",
            "millrace-base",
            "millrace-format",
            "millrace-io",
            "millrace-manifest",
            "millrace-log",
            "millrace-store",
            "millrace-api",
            "millrace-func",
            "millrace-func-remote",
            "millrace-shard",
            "millrace-replica",
            "millrace-driver",
        ],
    ),
    // Black box: it sees what any client sees.
    ("millrace-tests", &["millrace-client", "millrace-history"]),
    ("millrace-bench", &["millrace-base", "millrace-loadgen"]),
    // Looks at every decoder, and nothing depends on it.
    (
        "millrace-fuzz-targets",
        &[
            "millrace-backup",
            "millrace-base",
            "millrace-blobs",
            "millrace-access",
            "millrace-format",
            "millrace-io",
            "millrace-manifest",
            "millrace-log",
            "millrace-store",
            "millrace-api",
            "millrace-func",
            "millrace-func-js",
            "millrace-func-objects",
            "millrace-s3",
            "millrace-driver",
            "millrace-avro",
            "millrace-avpath",
            "millrace-registry",
            "millrace-func-records",
            "millrace-func-objects",
            "millrace-replica",
            "millrace-peers",
            "millrace-records",
            "millrace-s3",
            "millrace-http",
            "millrace-loadgen",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that a crate's tests may use, and nothing else of it.
const FOR_TESTS: &[(&str, &[&str])] = &[
    // A whole node runs over the simulated disk.
    ("millrace-sim", &["millrace-blobs", "millrace-func-objects", "millrace-node"]),
];

/// Outside packages that only some crates may name, with the reason.
const CONFINED: &[(&[&str], &[&str], &str)] = &[
    (&["rquickjs", "rquickjs-core", "rquickjs-sys"], &["millrace-func-js"], "an engine stays behind the engine trait"),
    (&["oxc_*"], &["millrace-func-js"], "an engine stays behind the engine trait"),
    (&["fjall", "lsm-tree"], &["millrace-store"], "the checkpoint stays behind the store"),
    (
        &["hyper", "hyper-util", "h2", "http", "http-body-util"],
        &[
            "millrace-http",
            "millrace-records",
            "millrace-s3",
            "millrace-fetch",
            "millrace-client",
            "millrace-fuzz-targets",
        ],
        "only fronts and the fetcher know HTTP",
    ),
    (
        &["tokio-rustls", "rustls", "rustls-native-certs", "rustls-pki-types"],
        &["millrace-http", "millrace-s3", "millrace-fetch", "millrace-client", "millrace-peers"],
        "only fronts, the fetcher, the client and links between nodes know TLS",
    ),
    (&["url"], &["millrace-func"], "a URL is read in one place, so that what is judged is what is connected to"),
    (&["ring"], &["millrace-workers"], "requests to workers are signed in one place; rustls has it by itself"),
    (
        &["clap"],
        &["millrace-loadgen", "millrace-server", "millrace-sim", "millrace-bench", "millrace-tests", "xtask"],
        "only programs have a command line (and the load generator, which several share)",
    ),
    (
        &["toml"],
        &["millrace-func", "millrace-server", "millrace-fuzz-targets", "xtask"],
        "configuration is read in `server`, an app's in `func`",
    ),
    (&["argon2"], &["millrace-func"], "password hashing is offered through `func`"),
    (
        &["rand", "getrandom", "fastrand"],
        &["millrace-client", "millrace-loadgen", "millrace-server", "millrace-sim", "millrace-tests", "millrace-bench"],
        "randomness comes in through `io` or as an argument",
    ),
    (
        &["tokio"],
        &[
            "millrace-node",
            "millrace-http",
            "millrace-s3",
            "millrace-fetch",
            "millrace-workers",
            "millrace-worker-check",
            "millrace-client",
            "millrace-peers",
            "millrace-server",
            "millrace-tests",
            "millrace-bench",
        ],
        "lower layers are not async",
    ),
];

/// Crates that no async runtime may reach, not even through others.
const SYNC: &[&str] = &[
    "millrace-backup",
    "millrace-manifest",
    "millrace-access",
    "millrace-avro",
    "millrace-avpath",
    "millrace-registry",
    "millrace-func-records",
    "millrace-func-objects",
    "millrace-base",
    "millrace-format",
    "millrace-io",
    "millrace-log",
    "millrace-store",
    "millrace-api",
    "millrace-func",
    "millrace-func-js",
    "millrace-shard",
    "millrace-replica",
    "millrace-guidance",
    "millrace-driver",
];
const ASYNC: &[&str] = &["tokio", "hyper", "mio", "async-std", "smol", "async-executor"];

/// Edges that the tables do not allow.
pub fn check(graph: &Graph, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &graph.crates {
        let text = tree.get(&member.manifest).unwrap_or_default();
        for (name, problem) in problems_of(member, graph) {
            findings.push(Finding::new(&member.manifest, line_naming(text, &name), problem));
        }
    }
    findings
}

/// The dependency and what is wrong with it.
fn problems_of(member: &Crate, graph: &Graph) -> Vec<(String, String)> {
    let own = member.name.as_str();
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == own) else {
        return vec![(own.to_owned(), format!("`{own}` has no place in LAYERS of xtask/src/tidy/layers.rs"))];
    };
    let mut problems = Vec::new();
    for dependency in &member.dependencies {
        let name = dependency.name.as_str();
        if graph.crates.iter().any(|other| other.name == name) {
            let for_tests = FOR_TESTS.iter().any(|(crate_name, names)| *crate_name == own && names.contains(&name));
            if !allowed.contains(&name) && name != own && !(dependency.is_dev && for_tests) {
                problems.push((name.to_owned(), format!("`{own}` must not depend on `{name}`")));
            }
            continue;
        }
        let confined = CONFINED.iter().find(|(packages, ..)| packages.iter().any(|pattern| matches(pattern, name)));
        if let Some((_, homes, reason)) = confined {
            // Tests may use what they need to talk to the crate.
            if !dependency.is_dev && !homes.contains(&own) {
                problems.push((name.to_owned(), format!("`{own}` must not depend on `{name}`: {reason}")));
            }
        }
    }
    if SYNC.contains(&own) {
        for name in ASYNC.iter().filter(|name| member.reached.contains(**name)) {
            let problem = format!("`{own}` reaches `{name}` through its dependencies: it must not be async");
            problems.push(((*name).to_owned(), problem));
        }
    }
    problems
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// The line of a manifest that begins with `name`; the first if none does.
fn line_naming(manifest: &str, name: &str) -> usize {
    let names_it = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(names_it).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::graph::Dependency;

    fn member(name: &str, dependencies: &[(&str, bool)]) -> Crate {
        let dependency = |(name, is_dev): &(&str, bool)| Dependency { name: (*name).to_owned(), is_dev: *is_dev };
        Crate {
            name: name.to_owned(),
            manifest: "Cargo.toml".to_owned(),
            dependencies: dependencies.iter().map(dependency).collect(),
            ..Crate::default()
        }
    }

    fn messages(name: &str, dependencies: &[(&str, bool)]) -> Vec<String> {
        let mut crates: Vec<Crate> =
            LAYERS.iter().filter(|(other, _)| *other != name).map(|(other, _)| member(other, &[])).collect();
        crates.push(member(name, dependencies));
        let manifest = dependencies.iter().map(|(name, _)| format!("{name}.workspace = true\n")).collect::<String>();
        let tree = Tree::of(&[("Cargo.toml", &format!("[dependencies]\n{manifest}"))]);
        check(&Graph { crates, packages: vec![] }, &tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn allowed_edges_lead_to_lower_layers_only() {
        for (index, (name, allowed)) in LAYERS.iter().enumerate() {
            for target in *allowed {
                let below = LAYERS[..index].iter().any(|(lower, _)| lower == target);
                assert!(below, "{name} → {target} leads up");
            }
        }
    }

    #[test]
    fn upward_and_sideways_edges_are_refused_at_their_line() {
        assert_eq!(
            messages("millrace-http", &[("millrace-api", false), ("millrace-node", false)]),
            ["Cargo.toml:3: `millrace-http` must not depend on `millrace-node`"]
        );
        for (name, target) in [
            ("millrace-base", "millrace-api"),
            ("millrace-http", "millrace-store"),
            ("millrace-http", "millrace-shard"),
            ("millrace-fetch", "millrace-http"),
            ("millrace-fetch", "millrace-shard"),
            ("millrace-node", "millrace-fetch"),
            ("millrace-client", "millrace-api"),
            ("millrace-func", "millrace-func-js"),
            ("millrace-shard", "millrace-func-js"),
            ("millrace-node", "millrace-http"),
            ("millrace-log", "millrace-func"),
            ("millrace-tests", "millrace-node"),
        ] {
            assert_eq!(messages(name, &[(target, false)]).len(), 1, "{name} → {target}");
            assert_eq!(messages(name, &[(target, true)]).len(), 1, "{name} → {target}, in tests");
        }
        assert_eq!(messages("millrace-new", &[]).len(), 1);
    }

    #[test]
    fn confined_packages_stay_home_but_may_serve_tests() {
        for (name, package) in [
            ("millrace-func", "rquickjs"),
            ("millrace-fetch", "url"),
            ("millrace-node", "rustls-native-certs"),
            ("millrace-node", "oxc_parser"),
            ("millrace-shard", "fjall"),
            ("millrace-node", "hyper"),
            ("millrace-node", "clap"),
            ("millrace-node", "toml"),
            ("millrace-node", "tokio-rustls"),
            ("millrace-shard", "tokio"),
            ("millrace-store", "rand"),
        ] {
            assert_eq!(messages(name, &[(package, false)]).len(), 1, "{name} → {package}");
            assert_eq!(messages(name, &[(package, true)]), [""; 0], "{name} → {package}, in tests");
        }
        assert_eq!(messages("millrace-store", &[("fjall", false), ("slab", false)]), [""; 0]);
    }

    #[test]
    fn async_runtimes_do_not_reach_the_lower_layers() {
        let mut store = member("millrace-store", &[]);
        store.reached.insert("tokio".to_owned());
        let mut node = member("millrace-node", &[]);
        node.reached.insert("tokio".to_owned());
        let findings = check(&Graph { crates: vec![store, node], packages: vec![] }, &Tree::default());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.starts_with("`millrace-store` reaches `tokio`"));
    }
}
