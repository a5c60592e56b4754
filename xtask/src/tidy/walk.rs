//! The walk of `docs/architecture.md`: every hop names a file, a function in it, and a call that leads to the next hop.
//!
//! A newcomer follows the table with an editor. A row that leads nowhere is worse than none. The function makes the call
//! itself, or through functions of the same file. The next row has the called function, or names it in its text.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

const PAGE: &str = "docs/architecture.md";

/// More hops than this are not followed by anybody.
const MOST_HOPS: usize = 12;

/// One row of the table.
struct Hop<'a> {
    line: usize,
    file: &'a str,
    function: &'a str,
    text: &'a str,
    call: &'a str,
}

/// Rows that lead nowhere.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else { return Vec::new() };
    let hops = hops_of(page);
    let mut findings = Vec::new();
    if hops.is_empty() || hops.len() > MOST_HOPS {
        findings.push(Finding::new(PAGE, 1, format!("{} hops; 1 to {MOST_HOPS} are wanted", hops.len())));
    }
    for (at, hop) in hops.iter().enumerate() {
        let problem = match tree.get(hop.file) {
            None => Some(format!("there is no {}", hop.file)),
            Some(code) if body(code, hop.function).is_none() => {
                Some(format!("{} has no fn {}", hop.file, hop.function))
            }
            Some(code) if !calls(code, hop) => Some(format!("{} does not call {}", hop.function, hop.call)),
            Some(_) => hops.get(at + 1).filter(|next| !leads(hop, next)).map(|next| {
                format!("{} is neither the function of the next row, {}, nor named there", hop.call, next.function)
            }),
        };
        findings.extend(problem.map(|problem| Finding::new(PAGE, hop.line, problem)));
    }
    findings
}

/// The text of a function between its braces, as rustfmt lays it out.
fn body<'a>(code: &'a str, function: &str) -> Option<&'a str> {
    let starts = [format!("fn {function}("), format!("fn {function}<")];
    let start = starts.iter().find_map(|start| code.find(start))?;
    let line = code[..start].rfind('\n').map_or(0, |at| at + 1);
    let indent = code[line..].len() - code[line..].trim_start_matches(' ').len();
    let end = format!("\n{}}}", " ".repeat(indent));
    let rest = &code[start..];
    Some(rest.find(&end).map_or(rest, |end| &rest[..end]))
}

/// Whether the function, or one of the same file that it calls, makes the call.
fn calls(code: &str, hop: &Hop<'_>) -> bool {
    let call = format!("{}(", hop.call);
    let names: BTreeSet<&str> = code.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()).collect();
    let (mut seen, mut waiting) = (BTreeSet::from([hop.function]), vec![hop.function]);
    while let Some(text) = waiting.pop().map(|name| body(code, name).unwrap_or_default()) {
        if text.contains(&call) {
            return true;
        }
        let called = names
            .iter()
            .filter(|name| [".", "::", " ", "("].iter().any(|before| text.contains(&format!("{before}{name}("))));
        waiting.extend(called.copied().filter(|name| seen.insert(name)));
    }
    false
}

/// Whether the call leads to the next row.
fn leads(hop: &Hop<'_>, next: &Hop<'_>) -> bool {
    let called = hop.call.rsplit(['.', ':']).next().unwrap_or(hop.call);
    called == next.function || next.text.contains(&format!("`{called}`"))
}

/// The rows that begin with a number: hop, file, function, what happens, call.
fn hops_of(page: &str) -> Vec<Hop<'_>> {
    let mut hops = Vec::new();
    for (line, text) in (1..).zip(page.lines()) {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        if let [number, file, function, text, call] = cells[..]
            && number.parse::<usize>().is_ok()
        {
            let [file, function, call] = [file, function, call].map(|cell| cell.trim_matches('`'));
            hops.push(Hop { line, file, function, text, call });
        }
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(code: &str, row: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/a/src/b.rs", code), (PAGE, row)]);
        check(&tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_hop_leads_to_a_function_that_calls() {
        let row = "| 1 | `crates/a/src/b.rs` | `run` | It runs. | `next.go` |";
        assert!(problems("fn run() { next.go(1); }", row).is_empty());
        assert!(problems("fn runs() { next.go(1); }", row)[0].contains("has no fn run"));
        assert!(problems("fn run() { next.stop(1); }", row)[0].contains("does not call next.go"));
        assert!(problems("fn run() { helped(); }\nfn helped() {\n    next.go(1);\n}", row).is_empty());
        assert!(
            problems("fn run() {\n    other();\n}\nfn helped() {\n    next.go(1);\n}", row)[0]
                .contains("does not call")
        );
        assert!(problems("fn run() {}", &row.replace("b.rs", "c.rs"))[0].contains("there is no"));
        assert!(problems("", "no table")[0].contains("0 hops"));
    }

    #[test]
    fn a_call_leads_to_the_next_row() {
        let code = "fn run() { next.go(1); }\nfn go() { next.go(1); }\nfn other() { next.go(1); }";
        let row = |number: usize, function: &str, text: &str| {
            format!("| {number} | `crates/a/src/b.rs` | `{function}` | {text} | `next.go` |")
        };
        let two = |function, text| format!("{}\n{}", row(1, "run", "It runs."), row(2, function, text));
        assert!(problems(code, &two("go", "It goes.")).is_empty());
        assert!(problems(code, &two("other", "What `go` left is taken.")).is_empty());
        assert!(problems(code, &two("other", "It goes."))[0].contains("nor named there"));
    }
}
