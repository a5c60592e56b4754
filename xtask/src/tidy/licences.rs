//! Every dependency may be shipped in a binary under Apache-2.0.
//!
//! The list of licences is `deny.toml`'s, so that this check, which needs no network, and
//! `cargo deny`, which also knows advisories, agree.

use std::collections::BTreeMap;

use super::Finding;
use super::graph::Graph;
use super::spdx::is_allowed;
use super::tree::Tree;

const LIST: &str = "deny.toml";

/// Dependencies whose licence is not on the list.
pub fn check(graph: &Graph, tree: &Tree) -> Vec<Finding> {
    let Some((allowed, exceptions)) = tree.get(LIST).and_then(read_list) else {
        return vec![Finding::new(LIST, 1, "needs a list `licenses.allow`")];
    };
    let lock = tree.get("Cargo.lock").unwrap_or_default();
    let mut findings = Vec::new();
    for package in &graph.packages {
        let mut allowed = allowed.clone();
        allowed.extend(exceptions.get(&package.name).cloned().unwrap_or_default());
        let problem = match &package.licence {
            None => "states no licence".to_owned(),
            Some(licence) => match is_allowed(licence, &allowed) {
                Some(true) => continue,
                Some(false) => format!("licence `{licence}` is not in {LIST}"),
                None => format!("licence `{licence}` is not an SPDX expression"),
            },
        };
        let line = lock.lines().position(|line| line == format!("name = \"{}\"", package.name)).unwrap_or_default() + 1;
        findings.push(Finding::new("Cargo.lock", line, format!("{} {}: {problem}", package.name, package.version)));
    }
    findings
}

type List = (Vec<String>, BTreeMap<String, Vec<String>>);

/// The licences for all, and those for single packages.
fn read_list(text: &str) -> Option<List> {
    let table = text.parse::<toml::Table>().ok()?;
    let licences = table.get("licenses")?;
    let texts = |value: &toml::Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let mut exceptions = BTreeMap::new();
    for exception in licences.get("exceptions").and_then(toml::Value::as_array).into_iter().flatten() {
        let name = exception.get("crate").and_then(toml::Value::as_str)?;
        exceptions.insert(name.to_owned(), texts(exception.get("allow")?)?);
    }
    Some((texts(licences.get("allow")?)?, exceptions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::graph::Package;

    const DENY: &str = "[licenses]\nallow = [\"MIT\"]\nexceptions = [{ crate = \"special\", allow = [\"ISC\"] }]\n";

    fn messages(deny: &str, packages: &[(&str, Option<&str>)]) -> Vec<String> {
        let package = |(name, licence): &(&str, Option<&str>)| Package {
            name: (*name).to_owned(),
            version: "1.0.0".to_owned(),
            licence: licence.map(str::to_owned),
        };
        let graph = Graph { packages: packages.iter().map(package).collect(), ..Graph::default() };
        let tree = Tree::of(&[(LIST, deny), ("Cargo.lock", "version = 4\nname = \"bad\"\n")]);
        check(&graph, &tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn only_listed_licences_pass() {
        assert_eq!(messages(DENY, &[("a", Some("MIT OR ISC")), ("special", Some("ISC AND MIT"))]), [""; 0]);
        assert_eq!(
            messages(DENY, &[("bad", Some("ISC")), ("none", None), ("odd", Some("MIT, sort of"))]),
            [
                "Cargo.lock:2: bad 1.0.0: licence `ISC` is not in deny.toml",
                "Cargo.lock:1: none 1.0.0: states no licence",
                "Cargo.lock:1: odd 1.0.0: licence `MIT, sort of` is not an SPDX expression",
            ]
        );
    }

    #[test]
    fn a_missing_list_is_a_finding() {
        assert_eq!(messages("[advisories]", &[]).len(), 1);
    }
}
