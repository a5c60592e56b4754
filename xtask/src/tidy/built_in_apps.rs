//! The crates below the fronts name no built-in app. What they have to know of one is in its row in `api`, so that a new
//! one changes none of them. The node implements the trait of each for its fronts, in the file or folder of its name.

use super::Finding;
use super::library_code::library_sources;
use super::rust_source::{find_all, line_of};
use super::tree::Tree;

const CRATES: [&str; 4] = ["crates/func/", "crates/shard/", "crates/driver/", "crates/node/"];

/// Names of built-in apps in code of these crates, tests aside: as constants and as text.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let apps = apps(tree);
    let mut findings = Vec::new();
    for (path, code) in library_sources(tree) {
        if !CRATES.iter().any(|one| path.starts_with(one)) {
            continue;
        }
        let text = tree.get(path).unwrap_or_default();
        for (constant, name) in &apps {
            let own = format!("crates/node/src/{name}");
            if path.strip_prefix(&own).is_some_and(|rest| rest == ".rs" || rest.starts_with('/')) {
                continue;
            }
            let quoted = format!("\"{name}\"");
            let quotes =
                text.match_indices(&quoted).map(|(offset, _)| offset).filter(|at| code[*at..].starts_with('"'));
            for offset in find_all(&code, constant).chain(quotes) {
                let message = format!("the built-in app `{name}` is named: its row in `crates/api` says what it is");
                findings.push(Finding::new(path, line_of(text, offset), message));
            }
        }
    }
    findings
}

/// The constants that hold names of built-in apps, and the names: `pub const RECORDS_APP: &str = "records";`.
fn apps(tree: &Tree) -> Vec<(&str, &str)> {
    let of_api = tree.rust().filter(|(path, _)| path.starts_with("crates/api/src/"));
    let lines = of_api.flat_map(|(_, text)| text.lines());
    let constants = lines.filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \""));
    let constants = constants.filter(|(constant, _)| constant.ends_with("_APP"));
    constants.filter_map(|(constant, rest)| Some((constant, rest.strip_suffix("\";")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: (&str, &str) = ("crates/api/src/key.rs", "/// An app.\npub const KEYS_APP: &str = \"keys\";\n");

    #[test]
    fn a_name_is_found_as_a_constant_and_as_text() {
        let named = "//! The app \"keys\".\nfn f() { g(KEYS_APP); }\nfn h() -> &str { \"keys\" }\n";
        let found = |path: &str| {
            let findings = check(&Tree::of(&[API, (path, named)]));
            findings.into_iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        for path in ["crates/node/src/a.rs", "crates/func/src/keys.rs", "crates/node/src/cluster/keys.rs"] {
            assert_eq!(found(path), [2, 3], "{path}");
        }
        for path in ["crates/node/src/keys.rs", "crates/node/src/keys/mod.rs", "crates/http/src/a.rs"] {
            assert_eq!(found(path), [0_usize; 0], "{path}");
        }
    }

    #[test]
    fn other_words_and_tests_are_no_names() {
        let text = "fn f() { keys(\"the keys\", MONKEYS_APP); }\n#[cfg(test)]\nmod tests { fn t() { f(KEYS_APP, \"keys\"); } }\n";
        assert!(check(&Tree::of(&[API, ("crates/shard/src/a.rs", text)])).is_empty());
        assert!(check(&Tree::of(&[API, ("crates/shard/src/tests.rs", "fn t() { f(KEYS_APP); }\n")])).is_empty());
    }
}
