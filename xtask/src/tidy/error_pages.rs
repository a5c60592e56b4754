//! Every error code has its page in `docs/errors/`, and every page its code.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const TABLE: &str = "crates/base/src/error.rs";
const PAGES: &str = "docs/errors/";

/// Codes without a page, pages without a code, pages that do not name their code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let codes = tree.get(TABLE).map(codes_of).unwrap_or_default();
    if codes.is_empty() {
        return vec![Finding::new(
            TABLE,
            1,
            "found no row `(Variant, \"code\", \"title\")` of the table of error codes",
        )];
    }
    let mut findings = Vec::new();
    for (code, line) in &codes {
        let page = format!("{PAGES}{code}.md");
        match tree.get(&page) {
            None => findings.push(Finding::new(TABLE, *line, format!("`{code}` has no page {page}"))),
            Some(text) if !text.contains(*code) => {
                findings.push(Finding::new(&page, 1, format!("does not name its code, `{code}`")));
            }
            Some(_) => {}
        }
    }
    for (path, _) in tree.files() {
        let name = path.strip_prefix(PAGES).and_then(|name| name.strip_suffix(".md"));
        if name.is_some_and(|name| name != "README" && !codes.contains_key(name)) {
            findings.push(Finding::new(path, 1, format!("no error code of this name in {TABLE}")));
        }
    }
    findings
}

/// The texts of the rows `(Variant, "text", …`, with their lines.
fn codes_of(text: &str) -> BTreeMap<&str, usize> {
    text.lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let (variant, rest) = line.trim_start().strip_prefix('(')?.split_once(", \"")?;
            let (code, rest) = rest.split_once("\", ")?;
            let is_row = variant.chars().all(char::is_alphanumeric) && rest.starts_with('"');
            is_row.then_some((code, index + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "[\n (Aborted, \"aborted\", \"Refused\"),\n (TooLarge, \"too-large\", \"Large\"),\n]";

    fn messages(pages: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = [(TABLE, ROWS)].into_iter().chain(pages.iter().copied()).collect();
        check(&Tree::of(&files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn codes_and_pages_match_one_to_one() {
        let aborted = ("docs/errors/aborted.md", "# `aborted`\n");
        let large = ("docs/errors/too-large.md", "# too-large: the request is too large\n");
        assert_eq!(messages(&[aborted, large, ("docs/errors/README.md", "# Errors")]), [""; 0]);
        assert_eq!(
            messages(&[aborted]),
            ["crates/base/src/error.rs:3: `too-large` has no page docs/errors/too-large.md"]
        );
        assert!(
            messages(&[aborted, large, ("docs/errors/gone.md", "# gone")])[0].starts_with("docs/errors/gone.md:1: ")
        );
        assert!(messages(&[aborted, (large.0, "# Something else")])[0].contains("does not name its code"));
    }

    #[test]
    fn an_unreadable_table_is_itself_a_finding() {
        assert_eq!(check(&Tree::of(&[(TABLE, "const TABLE: [Row; 0] = [];")])).len(), 1);
    }
}
