//! The pure layers carry clippy's bans on clocks, files, threads and hash order.
//!
//! Clippy reads one `clippy.toml`, the nearest above a crate's manifest, and merges nothing, so
//! the pure crates share one file through links.

use super::Finding;
use super::tree::Tree;

/// Where the bans are written.
const BANS: &str = "crates/base/clippy.toml";
const PURE: &[&str] = &[
    "api",
    "avpath",
    "avro",
    "base",
    "driver",
    "format",
    "func",
    "func-objects",
    "func-records",
    "func-remote",
    "guidance",
    "log",
    "registry",
    "replica",
    "shard",
    "store",
];

/// Pure crates whose bans are missing, different or switched off.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let bans = tree.get(BANS);
    for name in PURE.iter().filter(|name| tree.exists(&format!("crates/{name}"))) {
        let file = format!("crates/{name}/clippy.toml");
        if tree.get(&file).is_none() || tree.get(&file) != bans {
            findings.push(Finding::new(&file, 1, format!("link it: ln -s ../base/clippy.toml {file}")));
        }
        let manifest = format!("crates/{name}/Cargo.toml");
        let inherits = tree.get(&manifest).is_some_and(|text| text.contains("[lints]\nworkspace = true"));
        if !inherits {
            findings.push(Finding::new(&manifest, 1, "the bans need `[lints]` with `workspace = true`"));
        }
    }
    for lint in ["disallowed_methods", "disallowed_types"] {
        let line = format!("{lint} = \"deny\"");
        if !tree.get("Cargo.toml").is_some_and(|text| text.contains(&line)) {
            findings.push(Finding::new("Cargo.toml", 1, format!("[workspace.lints.clippy] needs `{line}`")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[workspace.lints.clippy]\ndisallowed_methods = \"deny\"\ndisallowed_types = \"deny\"\n";
    const INHERITS: &str = "[lints]\nworkspace = true\n";

    fn files_of(own: Option<&str>, lints: &str, manifest: &str) -> Vec<String> {
        let mut files = vec![
            ("Cargo.toml", lints),
            ("crates/base/Cargo.toml", INHERITS),
            (BANS, "bans"),
            ("crates/shard/Cargo.toml", manifest),
        ];
        files.extend(own.map(|text| ("crates/shard/clippy.toml", text)));
        check(&Tree::of(&files)).into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn every_pure_crate_carries_the_same_bans() {
        assert_eq!(files_of(Some("bans"), LINTS, INHERITS), [""; 0]);
        assert_eq!(files_of(None, LINTS, INHERITS), ["crates/shard/clippy.toml"]);
        assert_eq!(files_of(Some("others"), LINTS, INHERITS), ["crates/shard/clippy.toml"]);
        assert_eq!(files_of(Some("bans"), LINTS, "[package]"), ["crates/shard/Cargo.toml"]);
        assert_eq!(files_of(Some("bans"), "", INHERITS), ["Cargo.toml", "Cargo.toml"]);
    }
}
