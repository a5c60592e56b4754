//! Links in Markdown lead somewhere: the file exists, and so does the heading.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

/// Relative links that do not resolve.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links_of(text) {
            if let Some(problem) = problem_with(tree, path, &target) {
                findings.push(Finding::new(path, line, format!("link `{target}`: {problem}")));
            }
        }
    }
    findings
}

fn problem_with(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if has_scheme(target) {
        return None;
    }
    if target.starts_with('/') {
        return Some("write it relative to this file".to_owned());
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = match file {
        "" => from.to_owned(),
        _ => match resolve(from, file) {
            Some(path) => path,
            None => return Some("leads out of the repository".to_owned()),
        },
    };
    if !tree.exists(&path) {
        return Some("no such file".to_owned());
    }
    let anchor = anchor.filter(|_| path.ends_with(".md"))?;
    let is_there = anchors_of(tree.get(&path)?).contains_key(anchor);
    (!is_there).then(|| format!("no heading `#{anchor}` in {path}"))
}

fn has_scheme(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+'))
}

/// The path from the root that `relative` names in the file `from`; `None` when it is above the root.
fn resolve(from: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Line and target of every link: `[text](target "title")` and `[name]: target`, outside code.
fn links_of(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (line, content) in prose_lines(text) {
        let prose = without_code_spans(content);
        let mut rest = prose.as_str();
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            // A target may hold balanced parentheses; the one that closes the link does not match one inside.
            let mut depth = 0_usize;
            let end = rest.find(|c| match c {
                '(' => {
                    depth += 1;
                    false
                }
                ')' if depth > 0 => {
                    depth -= 1;
                    false
                }
                _ => c == ')',
            });
            let Some(end) = end else { break };
            links.push((line, target_of(&rest[..end])));
            rest = &rest[end..];
        }
        let definition = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        if let Some((_, target)) = definition.filter(|(name, _)| !name.starts_with('^')) {
            links.push((line, target_of(target)));
        }
    }
    links.retain(|(_, target)| !target.is_empty());
    links
}

/// Without the title and the angle brackets that may be around it.
fn target_of(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((target, _)) => target.to_owned(),
        None => text.split_whitespace().next().unwrap_or_default().to_owned(),
    }
}

/// The lines outside fenced code, with their numbers from 1.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some((index + 1, line)),
            _ => {}
        }
        None
    })
}

fn without_code_spans(line: &str) -> String {
    let pieces: Vec<&str> = line.split('`').collect();
    let is_code = |index: usize| index % 2 == 1 && index + 1 < pieces.len();
    pieces.iter().enumerate().filter(|(index, _)| !is_code(*index)).map(|(_, piece)| *piece).collect()
}

/// The anchors a forge makes of a file's headings: lower case, words joined by `-`, a number
/// after those that occur again; and explicit `<a id="…">`.
fn anchors_of(text: &str) -> BTreeMap<String, usize> {
    let mut anchors: BTreeMap<String, usize> = BTreeMap::new();
    for (line, content) in prose_lines(text) {
        for piece in content.split("id=\"").skip(1) {
            anchors.insert(piece.split('"').next().unwrap_or_default().to_owned(), line);
        }
        let heading = content.trim_start_matches('#');
        let level = content.len() - heading.len();
        if !(1..=6).contains(&level) || !heading.starts_with(' ') {
            continue;
        }
        let slug = slug_of(heading.trim());
        let mut unique = slug.clone();
        let mut number = 0;
        while anchors.contains_key(&unique) {
            number += 1;
            unique = format!("{slug}-{number}");
        }
        anchors.insert(unique, line);
    }
    anchors
}

fn slug_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<(usize, String)> {
        let other = "# The `one` title: yes\n## Same\n## Same\n<a id=\"own\"></a>\n";
        let tree =
            Tree::of(&[("docs/a.md", text), ("docs/b/other.md", other), ("README.md", "# Top\n"), ("src/x.rs", "")]);
        check(&tree).into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    #[test]
    fn links_that_resolve_pass() {
        let good = "# Here\n[a](b/other.md) ![i](../src/x.rs) [c](<../README.md> \"title\") [d](#here)\n\
            [e](b/other.md#the-one-title-yes) [f](b/other.md#same-1) [g](b/other.md#own) [h](b/) [i](..)\n\
            [web](https://example.org/x#y) <mailto:a@b.c>\n[ref]: b/other.md\n[^1]: A note, see [a](b).\n";
        assert_eq!(messages(good), []);
    }

    #[test]
    fn links_that_do_not_are_named_with_their_line() {
        let cases = [
            ("\n[a](gone.md)", 2, "no such file"),
            ("[a](../../out.md)", 1, "leads out of the repository"),
            ("[a](/README.md)", 1, "write it relative to this file"),
            ("[a](b/other.md#two)", 1, "no heading `#two` in docs/b/other.md"),
            ("[a](#gone)", 1, "no heading `#gone` in docs/a.md"),
            ("[x] and\n[x]: gone.md", 2, "no such file"),
            ("[w](b/other.md) [z](gone(1).md)", 1, "link `gone(1).md`: no such file"),
        ];
        for (text, line, problem) in cases {
            let found = messages(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].0, line, "{text}");
            assert!(found[0].1.contains(problem), "{found:?}");
        }
    }

    #[test]
    fn code_is_not_searched() {
        assert_eq!(messages("`[a](gone.md)` and\n```md\n[a](gone.md)\n# x\n```\n~~~\n[b](gone)\n~~~\n"), []);
    }
}
