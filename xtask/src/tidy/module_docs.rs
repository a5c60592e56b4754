//! Every module says first what it is for.

use super::Finding;
use super::tree::{Tree, is_generated};

/// Rust files that do not open with `//!`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let is_bad = |text: &str| !is_generated(text) && !opens_with_docs(text);
    let bad = tree.rust().filter(|(_, text)| is_bad(text));
    bad.map(|(path, _)| Finding::new(path, 1, "open the file with `//!`: what it is for and what it promises"))
        .collect()
}

fn opens_with_docs(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| line.strip_prefix("//!").is_some_and(|docs| !matches!(docs.trim(), "" | "placeholder")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_open_with_docs_pass() {
        for good in ["//! What it is for.\nuse a;", "\n//! What it is for.", "// @generated\nx"] {
            assert_eq!(check(&Tree::of(&[("a.rs", good)])), [], "{good}");
        }
        for bad in ["", "use a;\n//! Late.", "// Not docs.", "//!\nuse a;", "//! placeholder"] {
            assert_eq!(check(&Tree::of(&[("a.rs", bad)])).len(), 1, "{bad}");
        }
    }
}
