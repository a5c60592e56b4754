//! A crate has one integration-test program: each further one links the whole crate again. One that needs a process of its own
//! says so, and why, in its head.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

/// Begins the sentence that gives the reason.
const REASON: &str = "A program of its own";

/// Programs beyond a crate's first that give no reason.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut programs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in tree.rust() {
        let Some((folder, inner)) = path.split_once("/tests/") else { continue };
        let is_program = tree.exists(&format!("{folder}/Cargo.toml"))
            && (!inner.contains('/') || inner.ends_with("/main.rs") && inner.matches('/').count() == 1);
        let head = text.lines().take_while(|line| line.starts_with("//!"));
        if is_program && !head.collect::<String>().contains(REASON) {
            programs.entry(folder).or_default().push(path);
        }
    }
    let further = programs.values().flat_map(|paths| match &paths[..] {
        [_] => &[][..],
        paths => paths,
    });
    let message =
        format!("one of several test programs of its crate: make it a module, or say \"{REASON}: …\" in its head");
    further.map(|path| Finding::new(path, 1, message.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = ("crates/a/Cargo.toml", "");
        let files: Vec<_> = files.iter().copied().chain([manifest]).collect();
        check(&Tree::of(&files)).into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn one_program_with_many_modules_passes() {
        let one =
            [("crates/a/tests/all/main.rs", ""), ("crates/a/tests/all/b.rs", ""), ("crates/a/tests/all/c/mod.rs", "")];
        assert_eq!(files(&one), [""; 0]);
        assert_eq!(files(&[("crates/a/tests/b.rs", ""), ("crates/b/tests/b.rs", "")]), [""; 0]);
    }

    #[test]
    fn more_need_a_reason() {
        let more =
            [("crates/a/tests/all/main.rs", ""), ("crates/a/tests/b.rs", "//! B.\n"), ("crates/a/tests/all/c.rs", "")];
        assert_eq!(files(&more), ["crates/a/tests/all/main.rs", "crates/a/tests/b.rs"]);
        let reason = "//! B.\n//!\n//! A program of its own: it counts what is allocated.\n";
        assert_eq!(files(&[("crates/a/tests/all/main.rs", ""), ("crates/a/tests/b.rs", reason)]), [""; 0]);
        assert_eq!(
            files(&[("crates/a/tests/b.rs", ""), ("crates/a/tests/c.rs", "x(\"A program of its own\")")]).len(),
            2
        );
    }
}
