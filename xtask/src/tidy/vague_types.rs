//! A type is named for what it holds. A few names fit everything, so each of them had come to mean nine things: no type
//! takes such a name, but the one that the design gives it to.

use super::Finding;
use super::rust_source::line_of;
use super::tree::Tree;

/// A name that fits everything, and below which path a type may have it: `Place` is where backups are kept.
const VAGUE: [(&str, Option<&str>); 3] = [("Asked", None), ("Place", Some("crates/backup/")), ("Step", None)];

const DECLARATIONS: [&str; 4] = ["struct", "enum", "trait", "type"];

/// Types, in tests too, that a vague name stands for.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.rust() {
        let code = tree.code(path);
        let mut previous = "";
        for word in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let vague = VAGUE.iter().find(|(name, _)| *name == word && DECLARATIONS.contains(&previous));
            if vague.is_some_and(|(_, below)| below.is_none_or(|below| !path.starts_with(below))) {
                findings.push(Finding::new(
                    path,
                    line_of(code, word.as_ptr() as usize - code.as_ptr() as usize),
                    format!("name the type `{word}` for what it holds"),
                ));
            }
            previous = if word.is_empty() { previous } else { word };
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_with_a_vague_name_is_found() {
        for code in ["struct Place {", "pub(crate) enum Step<'a> {", "type Asked = u8;", "trait Place {"] {
            let found = check(&Tree::of(&[("crates/log/src/a.rs", &format!("//! A.\n{code}\n"))]));
            assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2], "{code}");
        }
    }

    #[test]
    fn variants_longer_names_and_the_place_of_backups_pass() {
        for code in ["WorkerFrame::Step", "struct PathStep;", "enum Kind { Step }", "// struct Step"] {
            assert_eq!(check(&Tree::of(&[("crates/log/src/a.rs", code)])), [], "{code}");
        }
        assert_eq!(check(&Tree::of(&[("crates/backup/src/place.rs", "pub trait Place {")])), []);
    }
}
