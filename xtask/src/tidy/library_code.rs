//! Library code does not panic on what it is given and does not print: errors are returned, and
//! what the operator should see goes through `tracing`.

use super::Finding;
use super::rust_source::{find_all, line_of, without_tests};
use super::tree::Tree;

const BANNED: [(&str, &str); 12] = [
    (".unwrap()", "return the error, or `.expect(\"why it cannot fail\")`"),
    (".unwrap_err()", "return the value, or match"),
    (".expect(\"\")", "say why it cannot fail"),
    ("panic!", "return an error"),
    ("todo!", "finish it or return `not-yet-supported`"),
    ("unimplemented!", "finish it or return `not-yet-supported`"),
    ("dbg!", "remove it"),
    ("println!", PRINTING),
    ("print!", PRINTING),
    ("eprintln!", PRINTING),
    ("eprint!", PRINTING),
    ("process::exit", "return an error; only the binary ends the process"),
];
const PRINTING: &str = "use `tracing`, or write to a writer that the caller gives";

/// The binary talks to a person, so it prints and exits.
const MAY_PRINT: &str = "crates/server/";

/// The sources of libraries under `crates/`, each with its code without tests.
pub fn library_sources(tree: &Tree) -> Vec<(&str, String)> {
    let mut test_files = Vec::new();
    let mut sources = Vec::new();
    for (path, _) in tree.rust().filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/")) {
        let (code, modules) = without_tests(tree.code(path));
        for module in modules {
            test_files.extend(places_of(path, &module));
        }
        sources.push((path, code));
    }
    let is_test = |path: &str| is_test_file(path) || test_files.iter().any(|file| path.starts_with(file));
    sources.retain(|(path, _)| !is_test(path));
    sources
}

/// Panics and prints in the libraries under `crates/`, tests aside.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in library_sources(tree) {
        for (word, advice) in BANNED {
            let is_allowed = path.starts_with(MAY_PRINT) && (advice == PRINTING || word == "process::exit");
            for offset in find_all(&code, word).filter(|_| !is_allowed) {
                findings.push(Finding::new(
                    path,
                    line_of(&code, offset),
                    format!("`{word}` in library code: {advice}"),
                ));
            }
        }
    }
    findings
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("_tests.rs") || path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Where a module declared in the file at `path` may be.
fn places_of(path: &str, module: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let inside = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    vec![format!("{inside}/{module}.rs"), format!("{inside}/{module}/")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_lines(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        check(&Tree::of(files)).into_iter().map(|finding| (finding.file, finding.line)).collect()
    }

    #[test]
    fn each_banned_word_is_found() {
        for (word, _) in BANNED {
            let text = format!("//! Docs.\nfn f() {{ x{}{word}(1) }}", if word.starts_with('.') { "" } else { "; " });
            let found = check_lines(&[("crates/a/src/lib.rs", &text)]);
            assert_eq!(found, [("crates/a/src/lib.rs".to_owned(), 2)], "{word}");
        }
    }

    #[test]
    fn words_in_comments_strings_and_longer_names_are_not() {
        let text = "// x.unwrap()\nfn f() { g(\"panic!\"); x.unwrap_or(1); y.expect(\"a reason\"); debug_println!(); }";
        assert_eq!(check_lines(&[("crates/a/src/lib.rs", text)]), []);
    }

    #[test]
    fn tests_and_other_folders_are_free() {
        let bad = "fn f() { x.unwrap() }";
        let tests = format!("#[cfg(test)]\nmod tests {{ {bad} }}\n#[cfg(test)]\nmod fake;");
        let free = [
            ("crates/a/src/b.rs", tests.as_str()),
            ("crates/a/src/b/fake.rs", bad),
            ("crates/a/src/c_tests.rs", bad),
            ("crates/a/tests/d.rs", bad),
            ("sim/src/lib.rs", bad),
        ];
        assert_eq!(check_lines(&free), []);
    }

    #[test]
    fn the_binary_prints_but_does_not_unwrap() {
        let text = "fn main() { println!(); std::process::exit(1); }\nfn g() { x.unwrap() }";
        assert_eq!(check_lines(&[("crates/server/src/main.rs", text)]), [("crates/server/src/main.rs".to_owned(), 2)]);
    }
}
