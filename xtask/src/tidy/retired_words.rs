//! One word for one thing: names that `docs/internals/glossary.md` replaced do not come back, neither in Rust identifiers
//! nor in backticks in the pages about the code.

use std::borrow::Cow;

use super::Finding;
use super::exceptions::RETIRED_WORDS;
use super::rust_source::line_of;
use super::tree::Tree;

/// A retired word: where it is retired, and what replaced it.
struct Retired {
    /// In lower case, a part of an identifier (`home` is one of `home_shard` and of `ToHome`); otherwise a whole identifier.
    word: &'static str,
    /// Paths where it had the retired meaning. Elsewhere it may mean something else, as a branch of an Avro union.
    below: &'static [&'static str],
    instead: &'static str,
}

const CORE: &[&str] = &["crates/shard/", "crates/driver/", "crates/node/", "sim/", "docs/"];
const SHARD: &[&str] = &["crates/shard/", "sim/", "docs/"];
const DRIVER: &[&str] = &["crates/driver/", "crates/node/", "docs/"];
const HTTP: &[&str] = &["crates/http/", "docs/"];
/// Frames of the log's format and of messages between cores keep their name.
const ENGINES: &[&str] = &["crates/func/", "crates/func-js/", "crates/func-records/", "crates/shard/"];
/// The simulator keeps a ledger of what its clients know.
const STORE: &[&str] = &["crates/store/", "crates/shard/", "docs/"];
const RESULTS: &[&str] = &[
    "crates/format/",
    "crates/shard/",
    "crates/driver/",
    "crates/node/",
    "crates/api/",
    "crates/http/",
    "sim/",
    "docs/",
];
const LETTERS: &[&str] = &[
    "crates/format/",
    "crates/shard/",
    "crates/driver/",
    "crates/node/",
    "crates/api/",
    "crates/http/",
    "crates/server/",
    "crates/client/",
    "sim/",
    "docs/",
];

const RETIRED: [Retired; 25] = [
    Retired { word: "home", below: SHARD, instead: "coordinator" },
    Retired { word: "homes", below: SHARD, instead: "coordinators" },
    Retired { word: "branch", below: SHARD, instead: "participation" },
    Retired { word: "branches", below: SHARD, instead: "participations" },
    Retired { word: "Part", below: SHARD, instead: "PreparedWrites" },
    Retired { word: "life", below: SHARD, instead: "participation id" },
    Retired { word: "outcome", below: RESULTS, instead: "invocation result" },
    Retired { word: "outcomes", below: RESULTS, instead: "invocation results" },
    Retired { word: "frame", below: ENGINES, instead: "activation" },
    Retired { word: "frames", below: ENGINES, instead: "activations" },
    Retired { word: "unbound", below: CORE, instead: "unplaced route" },
    Retired { word: "ledger", below: STORE, instead: "append-only map" },
    Retired { word: "ledgers", below: STORE, instead: "append-only maps" },
    Retired { word: "letter", below: LETTERS, instead: "dead letter" },
    Retired { word: "letters", below: LETTERS, instead: "dead letters" },
    Retired { word: "departures", below: HTTP, instead: "reply batch" },
    Retired { word: "owed", below: HTTP, instead: "unsent" },
    Retired { word: "Waits", below: HTTP, instead: "PendingReply" },
    Retired { word: "slots", below: DRIVER, instead: "pending replies" },
    Retired { word: "carried", below: CORE, instead: "shard mail" },
    Retired { word: "Noted", below: &["crates/", "sim/", "docs/"], instead: "a name for what it holds" },
    Retired { word: "Noticed", below: &["crates/", "sim/", "docs/"], instead: "a name for what it holds" },
    Retired { word: "Seen", below: &["crates/", "sim/", "docs/"], instead: "a name for what it holds" },
    Retired { word: "read_at_once", below: &["crates/", "sim/", "docs/"], instead: "fast read" },
    Retired { word: "operate_rarely", below: &["crates/", "sim/", "docs/"], instead: "cold dispatch" },
];

/// Where Markdown speaks about the code. Guides are about the users' own names.
const PAGES: [&str; 3] = ["docs/internals/", "docs/decisions/", "docs/architecture.md"];

/// It says what each retired word is now.
const GLOSSARY: &str = "docs/internals/glossary.md";

/// Retired words, and a warning for each exception that is not needed.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_except(tree, RETIRED_WORDS)
}

fn check_except(tree: &Tree, exceptions: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = vec![false; exceptions.len()];
    for (path, text) in tree.files() {
        let Some(code) = searched(tree, path, text) else { continue };
        let words: Vec<&Retired> = RETIRED.iter().filter(|retired| is_below(path, retired.below)).collect();
        for (offset, identifier) in identifiers(&code) {
            for retired in words.iter().filter(|retired| has(identifier, retired.word)) {
                let excepted: Vec<usize> = (0..exceptions.len())
                    .filter(|index| path.starts_with(exceptions[*index].0) && exceptions[*index].1 == retired.word)
                    .collect();
                excepted.iter().for_each(|index| needed[*index] = true);
                if excepted.is_empty() {
                    let message = format!("`{identifier}`: `{}` is retired; write {}", retired.word, retired.instead);
                    findings.push(Finding::new(path, line_of(&code, offset), message));
                }
            }
        }
    }
    for ((prefix, word), _) in exceptions.iter().zip(needed).filter(|(_, is_needed)| !is_needed) {
        let message = format!("no `{word}` is left here: take it out of xtask/src/tidy/exceptions.rs");
        findings.push(Finding::warning(prefix, 1, message));
    }
    findings
}

fn is_below(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// What of a file is searched: the code of Rust, what stands in backticks in Markdown. Bytes keep their lines.
fn searched<'a>(tree: &'a Tree, path: &str, text: &str) -> Option<Cow<'a, str>> {
    if path.ends_with(".rs") && is_below(path, &["crates/", "sim/"]) {
        return Some(tree.code(path).into());
    }
    let is_page = path.ends_with(".md") && is_below(path, &PAGES) && path != GLOSSARY;
    is_page.then(|| text.lines().map(spans).collect::<Vec<_>>().join("\n").into())
}

/// The code spans of a line, without what is no word: paths of files have their own check.
fn spans(line: &str) -> String {
    let spans = line.split('`').enumerate().filter(|(index, _)| index % 2 == 1).map(|(_, span)| span);
    spans.filter(|span| !span.contains('/')).collect::<Vec<_>>().join(" ")
}

/// Every word of a text with its offset.
fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + code[at..].find(is_part)?;
        let end = code[begin..].find(|c| !is_part(c)).map_or(code.len(), |length| begin + length);
        at = end;
        Some((begin, &code[begin..end]))
    })
}

/// Whether an identifier is the retired word, or has it as one of its words.
fn has(identifier: &str, word: &str) -> bool {
    if identifier == word {
        return true;
    }
    if word.contains(|c: char| c.is_ascii_uppercase() || c == '_') {
        return false;
    }
    let words = words_of(identifier);
    // Only the short name of dead letters is retired.
    let is_dead_letter = |index: usize| word.starts_with("letter") && index > 0 && words[index - 1] == "dead";
    (0..words.len()).any(|index| words[index] == word && !is_dead_letter(index))
}

/// `ToHome`, `to_home` and `TO_HOME` are `to` and `home`.
fn words_of(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if c != '_' {
            words.last_mut().expect("there is a first one").extend(c.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<(usize, String)> {
        let findings = check_except(&Tree::of(&[(path, text)]), &[]);
        findings.into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    #[test]
    fn retired_words_are_found_in_every_way_to_write_an_identifier() {
        for code in ["fn home() {}", "let home_shard = 1;", "enum ToHome {}", "const HOME: u8 = 1;", "x.is_at_home()"] {
            let found = messages("crates/shard/src/a.rs", &format!("//! A.\n{code}\n"));
            assert_eq!(found.len(), 1, "{code}");
            assert_eq!(found[0].0, 2);
            assert!(found[0].1.contains("coordinator"), "{found:?}");
        }
    }

    #[test]
    fn comments_strings_other_words_and_other_places_pass() {
        for code in ["// home", "f(\"home\")", "homely()", "dead_letter", "DeadLetters", "DEAD_LETTERS", "part"] {
            assert_eq!(messages("crates/shard/src/a.rs", code), [], "{code}");
        }
        assert_eq!(messages("crates/avro/src/a.rs", "fn branch() {}"), []);
        assert_eq!(messages("tests/src/a.rs", "fn home() {}"), []);
        assert_eq!(messages("crates/shard/src/a.rs", "fn letter() {}").len(), 1);
        assert_eq!(messages("crates/shard/src/a.rs", "struct Part;").len(), 1);
    }

    #[test]
    fn in_pages_only_backticks_count_and_the_glossary_may_name_them() {
        let text = "The home.\nThe `home` of it, `ToBranch`.\n";
        let found = messages("docs/internals/a.md", text);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(messages("docs/guide/a.md", text), []);
        assert_eq!(messages(GLOSSARY, text), []);
        assert_eq!(messages("docs/decisions/a.md", "`/social/home`"), []);
    }

    #[test]
    fn exceptions_hold_for_one_word_below_one_path_and_are_told_when_not_needed() {
        let tree = Tree::of(&[("crates/shard/src/a.rs", "fn home(branch: u8) {}"), ("sim/src/b.rs", "fn home() {}")]);
        let findings = check_except(&tree, &[("crates/shard/", "home"), ("crates/node/", "slots")]);
        let told: Vec<_> = findings.iter().map(|finding| (finding.file.as_str(), finding.is_warning)).collect();
        assert_eq!(told, [("crates/shard/src/a.rs", false), ("sim/src/b.rs", false), ("crates/node/", true)]);
    }
}
