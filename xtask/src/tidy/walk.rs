//! The walk of `docs/architecture.md`: every hop names a file, a function in it, and a call that the file makes.
//!
//! A newcomer follows the table with an editor. A row that leads nowhere is worse than none.

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
    for hop in hops {
        let problem = match tree.get(hop.file) {
            None => Some(format!("there is no {}", hop.file)),
            Some(code) if !defines(code, hop.function) => Some(format!("{} has no fn {}", hop.file, hop.function)),
            Some(code) if !code.contains(&format!("{}(", hop.call)) => {
                Some(format!("{} does not call {}", hop.file, hop.call))
            }
            Some(_) => None,
        };
        findings.extend(problem.map(|problem| Finding::new(PAGE, hop.line, problem)));
    }
    findings
}

fn defines(code: &str, function: &str) -> bool {
    [format!("fn {function}("), format!("fn {function}<")].iter().any(|start| code.contains(start))
}

/// The rows that begin with a number: hop, file, function, what happens, call.
fn hops_of(page: &str) -> Vec<Hop<'_>> {
    let mut hops = Vec::new();
    for (line, text) in (1..).zip(page.lines()) {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        if let [number, file, function, _, call] = cells[..]
            && number.parse::<usize>().is_ok()
        {
            hops.push(Hop { line, file, function, call });
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
        assert!(problems("fn run() {}", &row.replace("b.rs", "c.rs"))[0].contains("there is no"));
        assert!(problems("", "no table")[0].contains("0 hops"));
    }
}
