//! Prose is short: a sentence in Markdown has at most 25 words. Tables, headings, code and HTML are not prose.

use super::Finding;
use super::exceptions::PAGES_WITH_LONG_SENTENCES;
use super::tree::Tree;

const WORDS: usize = 25;

/// Sentences that are too long, and a warning for each excepted page that has none.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_except(tree, PAGES_WITH_LONG_SENTENCES)
}

fn check_except(tree: &Tree, exceptions: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        let is_excepted = exceptions.contains(&path);
        let long = long_sentences(text);
        if is_excepted && long.is_empty() {
            let message = "this page has no long sentence: take it out of xtask/src/tidy/exceptions.rs";
            findings.push(Finding::warning(path, 1, message));
        }
        if !is_excepted {
            findings.extend(long.into_iter().map(|(line, message)| Finding::new(path, line, message)));
        }
    }
    let gone = exceptions.iter().filter(|page| !tree.exists(page));
    findings.extend(gone.map(|page| Finding::warning(page, 1, "this page is gone: take it out of the exceptions")));
    findings
}

/// Line and message of each sentence that is too long.
fn long_sentences(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for block in blocks(text) {
        let mut sentence: Vec<(usize, &str)> = Vec::new();
        for (index, (line, word)) in block.iter().enumerate() {
            sentence.push((*line, word));
            let is_last = index + 1 == block.len();
            if !is_last && !word.ends_with(['.', ';', ':', '!', '?']) {
                continue;
            }
            if sentence.len() > WORDS {
                let start: Vec<&str> = sentence.iter().take(8).map(|(_, word)| *word).collect();
                let message =
                    format!("{} words in a sentence; {WORDS} is the limit: {} …", sentence.len(), start.join(" "));
                found.push((sentence[0].0, message));
            }
            sentence.clear();
        }
    }
    found
}

/// The words of each paragraph and list item, with their lines from 1.
fn blocks(text: &str) -> Vec<Vec<(usize, String)>> {
    let (mut blocks, mut block) = (Vec::new(), Vec::new());
    let (mut is_code, mut is_comment) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        is_code ^= is_fence;
        is_comment |= line.starts_with("<!--");
        let is_prose = !is_fence && !is_code && !is_comment && !line.is_empty() && !line.starts_with(['|', '#', '<']);
        is_comment &= !line.contains("-->");
        if !is_prose || is_item(line) {
            blocks.push(std::mem::take(&mut block));
        }
        if is_prose {
            block.extend(without_targets(line).split_whitespace().map(|word| (index + 1, word.to_owned())));
        }
    }
    blocks.push(block);
    blocks
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || line.starts_with("* ") || number.len() < line.len() && number.starts_with(". ")
}

/// A line whose links are only their texts.
fn without_targets(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        kept.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    fn lines_of(text: &str) -> Vec<usize> {
        check_except(&Tree::of(&[("docs/a.md", text)]), &[]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_limit_is_inclusive_and_the_line_is_where_the_sentence_begins() {
        assert_eq!(lines_of(&words(25)), [0; 0]);
        assert_eq!(lines_of(&words(26)), [1]);
        assert_eq!(lines_of(&format!("Short.\nShort: {}\n{}.", words(20), words(6))), [2]);
    }

    #[test]
    fn sentences_end_at_marks_items_and_blocks() {
        for mark in [". ", "; ", ": ", "! ", "? ", "\n\n", "\n- ", "\n2. ", "\n# Title\n", "\n| cell |\n"] {
            assert_eq!(lines_of(&format!("{}{mark}{}", words(20), words(20))), [0; 0], "{mark:?}");
        }
        assert_eq!(lines_of(&format!("{}\n{}", words(20), words(20))), [1]);
    }

    #[test]
    fn what_is_no_prose_is_not_counted() {
        let long = words(40);
        for text in [
            format!("```sh\n{long}\n```"),
            format!("| {long} |"),
            format!("# {long}"),
            format!("<!-- check: run\n{long}\n-->"),
            format!("[{}](a.md \"{long}\").", words(25)),
        ] {
            assert_eq!(lines_of(&text), [0; 0], "{text}");
        }
        assert_eq!(lines_of(&format!("```\n```\n<!-- x -->\n{long}")), [4]);
    }

    #[test]
    fn only_markdown_is_looked_at_and_exceptions_that_need_none_are_told() {
        let long = words(40);
        let tree = Tree::of(&[("a.md", &long), ("b.md", "Short."), ("c.rs", &long), ("d.md", &long)]);
        let findings = check_except(&tree, &["a.md", "b.md", "gone.md"]);
        let told: Vec<_> = findings.iter().map(|finding| (finding.file.as_str(), finding.is_warning)).collect();
        assert_eq!(told, [("b.md", true), ("d.md", false), ("gone.md", true)]);
    }
}
