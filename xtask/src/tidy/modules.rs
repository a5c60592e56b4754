//! Modules that `docs/architecture.md` names exist, so that its reading order can be followed.

use super::Finding;
use super::tree::Tree;

const PAGE: &str = "docs/architecture.md";

/// Modules named there, as in `` `crates/shard`: `run`, `host` ``, that the crate does not have.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let lines = tree.get(PAGE).unwrap_or_default().lines().enumerate();
    let named = lines.flat_map(|(index, line)| named_in(line).into_iter().map(move |named| (index + 1, named)));
    named
        .filter(|(_, (crate_path, module))| !has_module(tree, crate_path, module))
        .map(|(line, (crate_path, module))| {
            Finding::new(PAGE, line, format!("`{crate_path}` has no module `{module}`"))
        })
        .collect()
}

fn has_module(tree: &Tree, crate_path: &str, module: &str) -> bool {
    let file = format!("{crate_path}/src/{module}.rs");
    let folder = format!("{crate_path}/src/{module}");
    tree.exists(&file) || tree.exists(&folder)
}

/// Crates and modules of a line. A crate is code that begins with `crates/`, as a link or not; the code behind a colon, and
/// behind commas after that, are its modules, unless it is an item (`Backend::call`).
fn named_in(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut of_crate = None;
    let mut before = "";
    for (index, piece) in line.split('`').enumerate() {
        if index % 2 == 0 {
            before = match piece.strip_prefix("](") {
                Some(link) => link.split_once(')').map_or("", |(_, behind)| behind),
                None => piece,
            };
        } else if piece.starts_with("crates/") {
            of_crate = Some((piece, ": "));
        } else if let Some((crate_path, separator)) = of_crate {
            of_crate = (before == separator).then_some((crate_path, ", "));
            let is_module = piece.chars().all(|each| each.is_ascii_lowercase() || "_/".contains(each));
            found.extend(of_crate.filter(|_| is_module).map(|(crate_path, _)| (crate_path, piece)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_are_gone_are_found_with_their_lines() {
        let page = "| 2. accept | [`crates/http`](../crates/http/src): `listen`, `serve` | `x` |\n\
                    | 6. translate | [`crates/api`](../crates/api/src/backend.rs): `Backend::call` | |\n\
                    | 3. run | `crates/shard`: `replies`; [`func::Engine`](../crates/func) | `node`: `core/queue` |\n\
                    | 4. send | `crates/http`: `plain`; hyper for the rest | `elsewhere` |";
        let files = [
            (PAGE, page),
            ("crates/http/src/listen.rs", ""),
            ("crates/http/src/serve.rs", ""),
            ("crates/http/src/plain/mod.rs", ""),
        ];
        let findings: Vec<_> = check(&Tree::of(&files)).into_iter().map(|each| (each.line, each.message)).collect();
        assert_eq!(findings, [(3, "`crates/shard` has no module `replies`".to_owned())]);
    }
}
