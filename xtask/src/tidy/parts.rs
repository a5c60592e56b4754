//! The parts of a shard keep to themselves. Each folder of `crates/shard/src` is a part: its types have private fields, it
//! imports only its context and the layers below. Nothing of any crate takes a whole shard to change, but the core that owns it.

use super::Finding;
use super::rust_source::{find_all, line_of, without_tests};
use super::tree::Tree;

const SOURCES: &str = "crates/shard/src/";

/// Modules that hold no part's state: what parts are handed, and how requests and messages are named.
const SHARED: [&str; 10] =
    ["built_in", "checks", "context", "outgoing", "peer", "question", "request", "retry", "typed_reply", "world"];

/// Parts that are made of other parts, or are handed them. What one of the others is made of is nobody's business.
const BELOW: [(&str, &[&str]); 3] = [
    (
        "bookkeeping",
        &["dead_letters", "failures", "inbox", "journals", "outbox", "results", "schedules", "signals", "starts"],
    ),
    ("workflows", &["bookkeeping", "failures", "journals", "results"]),
    ("execution", &["bookkeeping", "coordination", "locks", "participation", "results", "workflows"]),
];

/// It owns the shards of a core, and hands each its inputs.
const OWNER: &str = "crates/driver/src/core.rs";

/// Fields that others see, imports from other parts, functions that take a whole shard.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.rust().filter(|(path, _)| path.starts_with("crates/") && *path != OWNER) {
        let is_test = path.split('/').any(|part| part.trim_end_matches(".rs").ends_with("tests"));
        if is_test {
            continue;
        }
        let (code, _) = without_tests(tree.code(path));
        for offset in find_all(&code, "mut Shard").filter(|offset| is_reference(&code[..*offset])) {
            let message = "`&mut Shard`: take the part or the context that is needed; only `Shard` changes a shard";
            findings.push(Finding::new(path, line_of(&code, offset), message));
        }
        let Some(inner) = path.strip_prefix(SOURCES) else { continue };
        let part = inner.split('/').next().unwrap_or_default();
        if part != inner && !SHARED.contains(&part) {
            imports(path, part, &code, &mut findings);
            fields(path, part, &code, &mut findings);
        }
    }
    findings
}

/// Whether a reference's sign, with or without a lifetime, stands before.
fn is_reference(before: &str) -> bool {
    let before = before.trim_end();
    let lifetime = before.rfind('&').is_some_and(|sign| {
        let between = before[sign + 1..].trim();
        between.strip_prefix('\'').is_some_and(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
    });
    before.ends_with('&') || lifetime
}

/// The parts that a part is made of, or is handed.
fn below(part: &str) -> &'static [&'static str] {
    BELOW.iter().find(|(name, _)| *name == part).map_or(&[][..], |(_, below)| below)
}

/// What a part names of the rest of the crate.
fn imports(path: &str, part: &str, code: &str, findings: &mut Vec<Finding>) {
    let below = below(part);
    let depth = path[SOURCES.len()..].matches('/').count() - usize::from(path.ends_with("/mod.rs"));
    for offset in find_all(code, "crate") {
        let Some(rest) = code[offset + "crate".len()..].strip_prefix("::") else { continue };
        for module in first_segments(rest) {
            let module = module.as_str();
            if module != part && !SHARED.contains(&module) && !below.contains(&module) {
                let message =
                    format!("`crate::{module}`: the part `{part}` imports only its context and the layers below");
                findings.push(Finding::new(path, line_of(code, offset), message));
            }
        }
    }
    // One `super` for each folder between the file and the part leads to the part itself; one more leads out.
    let out = "super::".repeat(depth + 1);
    for offset in find_all(code, &out).filter(|offset| !code[..*offset].ends_with("super::")) {
        let message = format!("`{out}`: the part `{part}` imports only its context and the layers below");
        findings.push(Finding::new(path, line_of(code, offset), message));
    }
}

/// The modules that a path behind `crate::` begins with: several in braces.
fn first_segments(rest: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let name = |text: &str| text.trim_start().chars().take_while(|c| is_part(*c)).collect::<String>();
    let Some(list) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let (mut depth, mut names, mut start) = (0_usize, Vec::new(), 0);
    for (index, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(name(&list[start..index]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(name(&list[start..index]));
                start = index + 1;
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Fields that more than the part sees. Of a type that only the part can name, nobody else sees a field. A type with a
/// lifetime is a context or a view, which holds no state. A part that is a field of its owner keeps its own fields.
fn fields(path: &str, part: &str, code: &str, findings: &mut Vec<Finding>) {
    let own = format!("pub(in crate::{part})");
    let is_root = path.ends_with("/mod.rs") && path[SOURCES.len()..].matches('/').count() == 1;
    let is_shown = |text: &str| {
        let is_inside =
            text.starts_with(&own) || text.starts_with("pub(self)") || text.starts_with("pub(super)") && !is_root;
        text.starts_with("pub") && !is_inside
    };
    let below = below(part);
    let is_part = |line: &str| {
        let named = line.rsplit(": ").next().unwrap_or_default().trim_end_matches(',');
        code.lines().any(|import| {
            let is_of_part = below.iter().any(|module| import.starts_with(&format!("use crate::{module}::")));
            is_of_part && import.split(|c: char| !c.is_alphanumeric()).any(|word| word == named)
        })
    };
    for (_, first, body) in bodies(code).filter(|(before, ..)| is_shown(before)) {
        let shown = |(_, line): &(usize, &str)| is_shown(line.trim_start()) && !is_part(line);
        for (index, _) in body.lines().enumerate().filter(shown) {
            let message = format!("a field of the part `{part}` is visible outside it: give it a method");
            findings.push(Finding::new(path, first + index, message));
        }
    }
}

/// Of each struct with braces and without a lifetime: its line up to `struct`, the first line of the braces, and their text.
fn bodies(code: &str) -> impl Iterator<Item = (&str, usize, &str)> {
    find_all(code, "struct").filter_map(|offset| {
        let rest = &code[offset..];
        let open = rest.find(['{', ';', '(', '<']).filter(|open| rest[*open..].starts_with('{'))?;
        let end = rest[open..].find('}').map_or(rest.len(), |length| open + length);
        let before = code[..offset].rsplit('\n').next().unwrap_or_default().trim_start();
        Some((before, line_of(code, offset + open), &rest[open + 1..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn fields_of_parts_are_private() {
        let text = "pub struct Locks {\n    held: u8,\n    pub(crate) waiting: u8,\n    pub all: u8,\n}\npub struct Pair(pub u8);\n";
        assert_eq!(lines("crates/shard/src/locks/mod.rs", text), [3, 4]);
        assert_eq!(lines("crates/shard/src/context/mod.rs", text), [0; 0], "the context is shared");
        assert_eq!(lines("crates/shard/src/shard.rs", text), [0; 0], "not a part");
        let own = "pub struct Row {\n    pub(in crate::locks) a: u8,\n    pub(super) b: u8,\n}\n";
        assert_eq!(lines("crates/shard/src/locks/rows.rs", own), [0; 0]);
        assert_eq!(lines("crates/shard/src/locks/mod.rs", own), [3], "there it is seen by the whole crate");
        let inner = "struct A {\n    pub a: u8,\n}\npub(super) struct B {\n    pub b: u8,\n}\n";
        assert_eq!(lines("crates/shard/src/locks/rows.rs", inner), [0; 0], "only the part can name them");
        assert_eq!(lines("crates/shard/src/locks/mod.rs", inner), [5], "the crate can name the second");
        let view = "pub(crate) struct Context<'a> {\n    pub rows: &'a u8,\n}\n";
        assert_eq!(lines("crates/shard/src/locks/mod.rs", view), [0; 0], "a context holds nothing");
        let owner =
            "use crate::inbox::Inbox;\npub(crate) struct Books {\n    pub inbox: Inbox,\n    pub count: u8,\n}\n";
        assert_eq!(lines("crates/shard/src/bookkeeping/mod.rs", owner), [4], "an inbox keeps its own fields");
    }

    #[test]
    fn parts_import_their_context_and_themselves() {
        let good = "use millrace_base::Error;\nuse crate::context::Rows;\nuse crate::locks::rows::Row;\nuse crate::{context::Rows, request::{A, B}};\n";
        assert_eq!(lines("crates/shard/src/locks/mod.rs", good), [0; 0]);
        let bad =
            "use crate::inbox::Inbox;\nfn f(x: &crate::shard::Shard) {}\nuse crate::{context::Rows, outbox::{A, B}};\n";
        assert_eq!(lines("crates/shard/src/locks/mod.rs", bad), [1, 2, 3]);
        assert_eq!(lines("crates/shard/src/shard.rs", bad), [0; 0], "not a part");
        let of_small = "use crate::inbox::Inbox;\nuse crate::locks::Locks;\n";
        assert_eq!(lines("crates/shard/src/bookkeeping/mod.rs", of_small), [2], "it is made of inboxes, not of locks");
    }

    #[test]
    fn one_super_too_many_leads_out_of_the_part() {
        assert_eq!(lines("crates/shard/src/locks/mod.rs", "use super::inbox::Inbox;\n"), [1]);
        assert_eq!(lines("crates/shard/src/locks/rows.rs", "use super::Locks;\n"), [0; 0]);
        assert_eq!(lines("crates/shard/src/locks/rows.rs", "use super::super::inbox::Inbox;\n"), [1]);
        let tests = "#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::inbox::Inbox;\n}\n";
        assert_eq!(lines("crates/shard/src/locks/mod.rs", tests), [0; 0]);
        assert_eq!(lines("crates/shard/src/locks/tests.rs", "use crate::inbox::Inbox;\n"), [0; 0]);
    }

    #[test]
    fn nobody_takes_a_whole_shard_to_change() {
        for text in [
            "fn f(shard: &mut Shard) {}",
            "trait T {\n    fn f(&self, shard: &'a mut Shard);\n}",
            "struct S<'a> {\n    shard: &'a mut Shard,\n}",
        ] {
            assert_eq!(lines("crates/shard/src/run.rs", text).len(), 1, "{text}");
            assert_eq!(lines("crates/driver/src/question.rs", text).len(), 1, "{text}");
        }
        for text in ["fn f(shard: &Shard) {}", "fn f(shards: &mut Shards) {}", "let mut Shard = 1;", "// &mut Shard"] {
            assert_eq!(lines("crates/shard/src/run.rs", text), [0; 0], "{text}");
        }
        assert_eq!(lines("crates/driver/src/core.rs", "fn f(shard: &mut Shard) {}"), [0; 0]);
    }
}
