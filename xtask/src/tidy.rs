//! The checks of `cargo xtask tidy`, and how they are run and reported.
//!
//! A check is a function from the sources (a [`Tree`]) or the dependency graph (a [`Graph`]) to
//! findings. Both are plain data, so every check is tested on bad samples written down in its
//! own file.

mod built_in_apps;
mod error_pages;
mod exceptions;
mod graph;
mod layers;
mod length;
mod library_code;
mod licences;
mod links;
mod machine_paths;
mod module_docs;
mod modules;
mod parts;
mod pins;
mod purity;
mod retired_words;
mod rust_source;
mod sentences;
mod spdx;
mod test_programs;
mod tree;
mod type_size;
mod vague_types;
mod walk;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use graph::Graph;
use tree::Tree;

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Path from the repository's root, `/` between parts.
    file: String,
    /// Counts from 1.
    line: usize,
    /// What is wrong and what to do.
    message: String,
    /// It is told and fails nothing.
    is_warning: bool,
}

impl Finding {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into(), is_warning: false }
    }

    fn warning(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::new(file, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_warning { "warning: " } else { "" };
        write!(formatter, "{}:{}: {kind}{}", self.file, self.line, self.message)
    }
}

const SOURCE_CHECKS: [fn(&Tree) -> Vec<Finding>; 17] = [
    built_in_apps::check,
    error_pages::check,
    length::check,
    library_code::check,
    links::check,
    machine_paths::check,
    module_docs::check,
    modules::check,
    walk::check,
    parts::check,
    pins::check,
    purity::check,
    retired_words::check,
    sentences::check,
    test_programs::check,
    type_size::check,
    vague_types::check,
];

const GRAPH_CHECKS: [fn(&Graph, &Tree) -> Vec<Finding>; 2] = [layers::check, licences::check];

/// Runs every check over the repository that holds this crate.
pub fn main() -> ExitCode {
    let started = Instant::now();
    // As it is run, not as it was built: checkouts may share what they build.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&own).parent().unwrap_or(Path::new("."));
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot list the sources: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut findings: Vec<Finding> = SOURCE_CHECKS.iter().flat_map(|check| check(&tree)).collect();
    match Graph::read(root) {
        Ok(graph) => findings.extend(GRAPH_CHECKS.iter().flat_map(|check| check(&graph, &tree))),
        Err(error) => findings.push(Finding::new("Cargo.lock", 1, format!("cargo metadata --locked: {error}"))),
    }
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    let seconds = started.elapsed().as_secs_f32();
    let checks = SOURCE_CHECKS.len() + GRAPH_CHECKS.len();
    let warnings = findings.iter().filter(|finding| finding.is_warning).count();
    let breaches = findings.len() - warnings;
    eprintln!("tidy: {checks} checks, {} files, {breaches} findings, {warnings} warnings, {seconds:.1} s", tree.len());
    if breaches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
