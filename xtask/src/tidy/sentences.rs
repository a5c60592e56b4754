//! Prose is short: a sentence in Markdown or in a comment of Rust has at most 25 words, and a code span is one of them.
//! In Markdown it names its subject: it does not begin with a clause such as "What a replica lacks".
//! Tables, headings, code and HTML are not prose.

use super::Finding;
use super::exceptions::PAGES_WITH_LONG_SENTENCES;
use super::tree::{Tree, is_generated};

const WORDS: usize = 25;

/// A statement that begins with one of these has a clause for its subject.
const HEADLESS: [&str; 5] = ["What", "Who", "Whatever", "Whichever", "Whoever"];

/// Where comments are looked at.
const SOURCES: [&str; 6] = ["bench/", "crates/", "history/", "sim/", "tests/", "xtask/"];

/// Sentences that are too long, and a warning for each excepted page that has none.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = check_except(tree, PAGES_WITH_LONG_SENTENCES);
    for (path, text) in tree.rust() {
        if SOURCES.iter().any(|folder| path.starts_with(folder)) && !is_generated(text) {
            let sentences = comments(tree, path, text).into_iter().flat_map(|comment| sentences(&comment));
            findings.extend(sentences.filter_map(|sentence| too_long(path, &sentence)));
        }
    }
    findings
}

fn check_except(tree: &Tree, exceptions: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        let is_excepted = exceptions.contains(&path);
        let sentences = sentences(&(1..).zip(text.lines()).collect::<Vec<_>>());
        let long: Vec<Finding> = sentences.iter().filter_map(|sentence| too_long(path, sentence)).collect();
        if is_excepted && long.is_empty() {
            let message = "this page has no long sentence: take it out of xtask/src/tidy/exceptions.rs";
            findings.push(Finding::warning(path, 1, message));
        }
        if !is_excepted {
            findings.extend(long);
        }
        findings.extend(sentences.iter().filter_map(|sentence| headless(path, sentence)));
    }
    let gone = exceptions.iter().filter(|page| !tree.exists(page));
    findings.extend(gone.map(|page| Finding::warning(page, 1, "this page is gone: take it out of the exceptions")));
    findings
}

/// A line's number, from 1, and its text.
type Line<'a> = (usize, &'a str);

/// A file's comments without their marks. Comments of one kind on lines that follow each other are one comment.
fn comments<'a>(tree: &'a Tree, path: &str, text: &str) -> Vec<Vec<Line<'a>>> {
    let mut comments: Vec<Vec<Line<'a>>> = Vec::new();
    // The kind of the comment before, and the line where it would go on.
    let mut open = ("", 0);
    let (mut line, mut counted) = (1, 0);
    for (offset, comment) in tree.comments(path) {
        line += text[counted..offset].matches('\n').count();
        counted = offset;
        let own_line = text[..offset].rsplit('\n').next().is_some_and(|before| before.trim().is_empty());
        let mark = ["///", "//!", "//"].into_iter().find(|mark| comment.starts_with(mark)).unwrap_or_default();
        // Each line of a block comment may have a mark of its own.
        let in_block: &[char] = if mark.is_empty() { &['/', '*', '!', ' '] } else { &[] };
        let lines = comment[mark.len()..].split('\n').map(|text| text.trim_start_matches(in_block));
        if own_line && !mark.is_empty() && open == (mark, line) {
            comments.last_mut().expect("it is open").extend((line..).zip(lines));
        } else {
            comments.push((line..).zip(lines).collect());
        }
        open = if own_line { (mark, line + 1) } else { ("", 0) };
    }
    comments
}

/// The words of a sentence, with their lines.
type Sentence = Vec<(usize, String)>;

fn too_long(path: &str, sentence: &Sentence) -> Option<Finding> {
    let told = || {
        let message = format!("{} words in a sentence; {WORDS} is the limit: {} …", sentence.len(), start_of(sentence));
        Finding::new(path, sentence[0].0, message)
    };
    (sentence.len() > WORDS).then(told)
}

/// A statement whose subject is a clause.
fn headless(path: &str, sentence: &Sentence) -> Option<Finding> {
    let is_question = sentence.last().is_some_and(|(_, word)| word.ends_with('?'));
    let (line, _) = sentence.first().filter(|(_, word)| !is_question && HEADLESS.contains(&word.as_str()))?;
    let message = format!("a sentence whose subject is a clause; name the subject: {} …", start_of(sentence));
    Some(Finding::new(path, *line, message))
}

fn start_of(sentence: &Sentence) -> String {
    sentence.iter().take(8).map(|(_, word)| word.as_str()).collect::<Vec<_>>().join(" ")
}

/// All sentences. The mark of a list's item is not one of their words.
fn sentences(lines: &[Line<'_>]) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    for block in blocks(lines) {
        let mut sentence = Vec::new();
        for (line, word) in block {
            let is_mark = sentence.is_empty() && (word == "-" || word == "*");
            let is_end = word.ends_with(['.', ';', ':', '!', '?']);
            if !is_mark {
                sentence.push((line, word));
            }
            if is_end {
                sentences.push(std::mem::take(&mut sentence));
            }
        }
        if !sentence.is_empty() {
            sentences.push(sentence);
        }
    }
    sentences
}

/// The words of each paragraph and list item, with their lines.
fn blocks(lines: &[Line<'_>]) -> Vec<Vec<(usize, String)>> {
    let (mut blocks, mut block) = (Vec::new(), Vec::new());
    let (mut is_code, mut is_comment) = (false, false);
    for (number, line) in lines {
        let line = line.trim();
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        is_code ^= is_fence;
        is_comment |= line.starts_with("<!--");
        let is_prose = !is_fence && !is_code && !is_comment && !line.is_empty() && !line.starts_with(['|', '#', '<']);
        is_comment &= !line.contains("-->");
        if !is_prose || is_item(line) {
            blocks.push(with_whole_spans(std::mem::take(&mut block)));
        }
        if is_prose {
            block.extend(without_targets(line).split_whitespace().map(|word| (*number, word.to_owned())));
        }
    }
    blocks.push(with_whole_spans(block));
    blocks
}

/// Words of which each code span is one, also where it goes on in the next line.
fn with_whole_spans(words: Vec<(usize, String)>) -> Vec<(usize, String)> {
    let opens_or_closes = |word: &str| word.matches('`').count() % 2 == 1;
    let mut left = words.iter().filter(|(_, word)| opens_or_closes(word)).count();
    let mut whole: Vec<(usize, String)> = Vec::with_capacity(words.len());
    let mut is_open = false;
    for (line, word) in words {
        let turns = opens_or_closes(&word);
        left -= usize::from(turns);
        match whole.last_mut().filter(|_| is_open) {
            Some((_, span)) => *span = format!("{span} {word}"),
            None => whole.push((line, word)),
        }
        // A mark without its like opens nothing.
        is_open = if turns { !is_open && left > 0 } else { is_open };
    }
    whole
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
        lines_in("docs/a.md", text)
    }

    fn lines_in(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
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
    fn a_statement_names_its_subject_and_a_question_need_not() {
        for text in ["What it lacks comes later.", "Short. Whoever wants it waits.", "- Who asks, waits: so it is."] {
            assert_eq!(lines_of(text), [1], "{text}");
        }
        for text in ["What is it?", "# What it is", "| What it is |", "**What was not run.** Nothing.", "So what."] {
            assert_eq!(lines_of(text), [0; 0], "{text}");
        }
        assert_eq!(lines_in("crates/a/src/lib.rs", "// What it lacks comes later."), [0; 0]);
    }

    #[test]
    fn a_code_span_is_one_word_over_lines_too() {
        assert_eq!(lines_of(&format!("`{}\n{}` {}", words(20), words(20), words(24))), [0; 0]);
        assert_eq!(lines_of(&format!("`{}` {}", words(20), words(25))), [1]);
        assert_eq!(lines_of(&format!("A lone ` and {}", words(25))), [1]);
    }

    #[test]
    fn comments_of_every_kind_are_joined_over_lines() {
        for mark in ["//", "///", "//!", "    //"] {
            let text = format!("fn f() {{}}\n{mark} Short. {}\n{mark} {}\nfn g() {{}}", words(13), words(13));
            assert_eq!(lines_in("crates/a/src/lib.rs", &text), [2], "{mark}");
        }
        assert_eq!(lines_in("sim/src/a.rs", &format!("f(); // {}", words(26))), [1]);
        assert_eq!(lines_in("sim/src/a.rs", &format!("\n/* {}\n * {} */", words(13), words(14))), [2]);
        assert_eq!(lines_in("sim/src/a.rs", &format!("f(); // {}\n// {}", words(13), words(14))), [0; 0]);
    }

    #[test]
    fn a_sentence_in_a_comment_ends_with_its_comment_block_or_item() {
        for between in ["\n", "\n\n// ", "\nf();\n// ", "\n//\n// ", "\n// - ", "\n//  * ", "\n// 2. ", "\n// # "] {
            let text = format!("// {}{between}{}", words(20), words(20));
            let text = if between == "\n" { text.replacen("// ", "/// ", 1).replace('\n', "\n// ") } else { text };
            assert_eq!(lines_in("bench/src/a.rs", &text), [0; 0], "{between:?}");
        }
    }

    #[test]
    fn what_is_no_prose_in_a_comment_is_not_counted() {
        let long = words(40);
        for text in [
            format!("/// ```\n/// {long}\n/// ```"),
            format!("//! | {long} |"),
            format!("f(\"// {long}\");"),
            format!("// @generated\n// {long}"),
        ] {
            assert_eq!(lines_in("crates/a/src/lib.rs", &text), [0; 0], "{text}");
        }
        // A fence that nobody closes ends with its comment.
        assert_eq!(lines_in("crates/a/src/lib.rs", &format!("// ```\nf();\n// {long}")), [3]);
        assert_eq!(lines_in("fuzz/a.rs", &format!("// {long}")), [0; 0]);
        assert_eq!(lines_in("crates/a/src/a.ts", &format!("// {long}")), [0; 0]);
    }

    #[test]
    fn only_markdown_is_a_page_and_exceptions_that_need_none_are_told() {
        let long = words(40);
        let tree = Tree::of(&[("a.md", &long), ("b.md", "Short."), ("c.rs", &long), ("d.md", &long)]);
        let findings = check_except(&tree, &["a.md", "b.md", "gone.md"]);
        let told: Vec<_> = findings.iter().map(|finding| (finding.file.as_str(), finding.is_warning)).collect();
        assert_eq!(told, [("b.md", true), ("d.md", false), ("gone.md", true)]);
    }
}
