//! Warns of types that one person cannot hold in mind: more than 12 fields, or more than 40 methods. They fail nothing,
//! as a plain table of settings may have more.

use std::collections::BTreeMap;

use super::Finding;
use super::rust_source::{find_all, line_of, without_tests};
use super::tree::Tree;

const FIELDS: usize = 12;
const METHODS: usize = 40;

/// Warnings for large types of the library code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    // By crate and type: where its first methods are, and how many there are in all of the crate's files.
    let mut methods: BTreeMap<(String, String), (String, usize, usize)> = BTreeMap::new();
    let is_library = |path: &str| path.starts_with("crates/") && path.contains("/src/") || path.starts_with("sim/src/");
    for (path, _) in tree.rust().filter(|(path, _)| is_library(path)) {
        let (code, _) = without_tests(tree.code(path));
        for (name, line, body) in items(&code, "struct") {
            let fields = fields(body);
            if fields > FIELDS {
                let message = format!("`{name}` has {fields} fields; over {FIELDS}, look for the types inside it");
                findings.push(Finding::warning(path, line, message));
            }
        }
        let own_crate = path.split("/src/").next().unwrap_or_default();
        for (name, line, body) in items(&code, "impl").chain(items(&code, "trait")) {
            let entry = methods.entry((own_crate.to_owned(), name)).or_insert_with(|| (path.to_owned(), line, 0));
            entry.2 += methods_of(body);
        }
    }
    for ((_, name), (path, line, count)) in methods.into_iter().filter(|(_, (_, _, count))| *count > METHODS) {
        let message = format!("`{name}` has {count} methods; over {METHODS}, look for the types inside it");
        findings.push(Finding::warning(&path, line, message));
    }
    findings
}

/// Name, line and body of each item of a kind that has braces. Of `impl`, only those of a type itself.
fn items<'a>(code: &'a str, kind: &'a str) -> impl Iterator<Item = (String, usize, &'a str)> {
    find_all(code, kind).filter_map(move |offset| {
        let starts_line = code[..offset].rsplit('\n').next().is_some_and(|before| {
            before
                .split_whitespace()
                .all(|word| word.starts_with("pub") || word.starts_with("unsafe") || word.ends_with(')'))
        });
        let rest = &code[offset + kind.len()..];
        let open = rest.find(['{', ';', '('])?;
        // A field of type `impl Trait` and a tuple have no braces here.
        if !starts_line || !rest[open..].starts_with('{') {
            return None;
        }
        let head = without_generics(&rest[..open]);
        if kind == "impl" && head.split_whitespace().any(|word| word == "for") {
            return None;
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let name: String = head.trim().chars().take_while(|c| is_part(*c)).collect();
        let body = &rest[open..];
        let mut depth = 0_usize;
        let end = body.find(|c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        (!name.is_empty()).then(|| (name, line_of(code, offset), &body[1..end]))
    })
}

/// The text without what stands in angle brackets.
fn without_generics(text: &str) -> String {
    let mut depth = 0_usize;
    let keep = |c: &char| {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => {
                depth -= 1;
                return false;
            }
            _ => {}
        }
        depth == 0
    };
    text.chars().filter(keep).collect()
}

/// How many fields a struct's body has: pieces between commas outside all brackets.
fn fields(body: &str) -> usize {
    let (mut depth, mut count, mut has_colon, mut before) = (0_i32, 0, false, ' ');
    for c in body.chars().chain([',']) {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            // The arrow of a function pointer closes nothing.
            '>' if before != '-' => depth -= 1,
            ':' if depth == 0 => has_colon = true,
            ',' if depth == 0 => count += usize::from(std::mem::take(&mut has_colon)),
            _ => {}
        }
        before = c;
    }
    count
}

/// How many functions stand directly in a body.
fn methods_of(body: &str) -> usize {
    let mut depth = 0_i32;
    let flat: String = body
        .chars()
        .map(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 0 { c } else { ' ' }
        })
        .collect();
    // Blanked bodies leave a brace behind, declarations a semicolon; each `fn` with a name is one.
    find_all(&flat, "fn")
        .filter(|offset| flat[offset + 2..].trim_start().starts_with(|c: char| c.is_alphabetic() || c == '_'))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(files: &[(&str, &str)]) -> Vec<(String, usize, bool)> {
        check(&Tree::of(files)).into_iter().map(|finding| (finding.message, finding.line, finding.is_warning)).collect()
    }

    fn structure(fields: usize) -> String {
        let fields: Vec<String> =
            (0..fields).map(|n| format!("    #[a(b: 1)]\n    pub f{n}: fn(u8, u8) -> Map<u8, [u8; 3]>,\n")).collect();
        format!("//! A.\npub(crate) struct Large<T: Copy> where T: Clone {{\n{}}}\n", fields.concat())
    }

    #[test]
    fn fields_over_the_limit_are_a_warning() {
        assert_eq!(told(&[("crates/a/src/lib.rs", &structure(12))]), []);
        let found = told(&[("crates/a/src/lib.rs", &structure(13))]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0.starts_with("`Large` has 13 fields") && found[0].1 == 2 && found[0].2, "{found:?}");
        assert_eq!(told(&[("crates/a/tests/all/a.rs", &structure(13))]), []);
    }

    #[test]
    fn methods_are_summed_over_the_files_of_a_crate() {
        let part = |count: usize| {
            let methods: Vec<String> =
                (0..count).map(|n| format!("    fn m{n}(&self) {{ if x {{ fn inner() {{}} }} }}\n")).collect();
            format!("impl<T> Large<T> {{\n{}}}\n", methods.concat())
        };
        let (twenty, more) = (part(20), part(21));
        assert_eq!(told(&[("crates/a/src/a.rs", &twenty), ("crates/a/src/b.rs", &twenty)]), []);
        assert_eq!(told(&[("crates/a/src/a.rs", &twenty), ("crates/b/src/b.rs", &more)]), []);
        let found = told(&[("crates/a/src/a.rs", &twenty), ("crates/a/src/b.rs", &more)]);
        assert!(found.len() == 1 && found[0].0.starts_with("`Large` has 41 methods"), "{found:?}");
    }

    #[test]
    fn methods_of_traits_count_for_the_trait_and_tests_for_nobody() {
        let declared: String = (0..41).map(|n| format!("    fn m{n}(&self) -> u8;\n")).collect();
        let found = told(&[("sim/src/a.rs", &format!("pub trait Wide {{\n{declared}}}\n"))]);
        assert!(found.len() == 1 && found[0].0.starts_with("`Wide` has 41 methods"), "{found:?}");
        let implemented: String = (0..41).map(|n| format!("    fn m{n}(&self) -> u8 {{ 0 }}\n")).collect();
        assert_eq!(told(&[("sim/src/a.rs", &format!("impl Wide for Small {{\n{implemented}}}\n"))]), []);
        assert_eq!(
            told(&[("sim/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\nimpl Small {{\n{implemented}}}\n}}\n"))]),
            []
        );
    }
}
