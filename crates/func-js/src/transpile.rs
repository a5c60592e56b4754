//! From a file as the user wrote it to a module as QuickJS reads it: types stripped, syntax
//! checked, imports listed, and a map from positions in the output back to the source.
//!
//! Types are stripped, not checked. Enums, namespaces and parameter properties become the
//! JavaScript they stand for.

use std::path::Path;

use millrace_base::limits;
use oxc_allocator::Allocator;
use oxc_ast::ast::{ImportDeclaration, ImportDeclarationSpecifier, Program, Statement};
use oxc_codegen::{Codegen, CodegenOptions};
use oxc_diagnostics::{Diagnostics, OxcDiagnostic};
use oxc_parser::Parser;
use oxc_semantic::SemanticBuilder;
use oxc_span::SourceType;
use oxc_transformer::{TransformOptions, Transformer};

/// Stack for what is not nested.
const LEAST_STACK_BYTES: usize = 1 << 20;

/// Stack for each byte of a file: each may begin a level of nesting. The deepest measured takes under half of it.
const STACK_BYTES_PER_BYTE: usize = 4 << 10;

/// A place in a source file, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// What is wrong with a source, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceError {
    pub(crate) message: String,
    pub(crate) position: Position,
}

/// An import of a module: as written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) specifier: String,
    pub(crate) position: Position,
}

/// A module ready to be compiled.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) code: String,
    pub(crate) imports: Vec<Import>,
    /// Imports that are no types' and that nothing uses, which TypeScript leaves out.
    pub(crate) unused: Vec<Import>,
    pub(crate) map: PositionMap,
}

/// From positions in generated code to positions in the source: (line, column) → (line, column),
/// all from 0, in the order of the generated ones. Empty where code is the source.
#[derive(Debug, Default)]
pub(crate) struct PositionMap(Vec<[u32; 4]>);

impl PositionMap {
    /// The source's position that became `generated`.
    pub(crate) fn source(&self, generated: Position) -> Position {
        let (line, column) = (generated.line.saturating_sub(1), generated.column.saturating_sub(1));
        let after = self.0.partition_point(|entry| (entry[0], entry[1]) <= (line, column));
        match after.checked_sub(1).and_then(|index| self.0.get(index)) {
            Some(entry) if entry[0] == line => Position { line: entry[2] + 1, column: entry[3] + 1 },
            // Before the line's first mapping: the first one after it is nearest.
            _ => match self.0.get(after) {
                Some(entry) => Position { line: entry[2] + 1, column: entry[3] + 1 },
                None => generated,
            },
        }
    }
}

/// Makes a module of a TypeScript or JavaScript file.
///
/// The parser and what follows it call themselves for each level of nesting, and nothing bounds how often: a few
/// kilobytes of parentheses would use up a core's stack, which ends the process. So they run on a thread with stack for
/// a file that is nothing but nesting. What is not used of it is address space and no memory.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn transpile(path: &str, source: &str) -> Result<Module, SourceError> {
    let whole = |message: String| SourceError { message, position: Position { line: 1, column: 1 } };
    if source.len() > limits::CODE_FILE_BYTES {
        return Err(whole(format!(
            "a file of code has at most {} bytes, not {}",
            limits::CODE_FILE_BYTES,
            source.len()
        )));
    }
    let stack_bytes = LEAST_STACK_BYTES + source.len() * STACK_BYTES_PER_BYTE;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("transpile".to_owned()).stack_size(stack_bytes);
        let thread = thread.spawn_scoped(scope, || transpile_here(path, source));
        let thread = thread
            .map_err(|error| whole(format!("no thread with {stack_bytes} bytes of stack to read it: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(whole("the compiler failed on it; this is a defect of Millrace".to_owned())))
    })
}

fn transpile_here(path: &str, source: &str) -> Result<Module, SourceError> {
    let is_typescript = path.ends_with(".ts") || path.ends_with(".mts");
    let source_type = if is_typescript { SourceType::ts() } else { SourceType::mjs() };
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, source_type).parse();
    check(source, &parsed.diagnostics)?;
    let mut program = parsed.program;
    let semantic = SemanticBuilder::new().with_check_syntax_error(true).with_enum_eval(true).build(&program);
    check(source, &semantic.diagnostics)?;
    if !is_typescript {
        let imports = imports(source, &program);
        return Ok(Module { code: source.to_owned(), imports, unused: Vec::new(), map: PositionMap::default() });
    }
    let written = imports_of_values(source, &program);
    let scoping = semantic.semantic.into_scoping();
    let options = TransformOptions::default();
    let transformed = Transformer::new(&allocator, Path::new(path), &options).build_with_scoping(scoping, &mut program);
    check(source, &transformed.diagnostics)?;
    let imports = imports(source, &program);
    let unused = written.into_iter().filter(|import| !imports.contains(import)).collect();
    // Indented, a file of nothing but nesting would grow with the square of its length, to gigabytes.
    let options = CodegenOptions { source_map_path: Some(path.into()), indent_width: 0, ..CodegenOptions::default() };
    let generated = Codegen::new().with_options(options).build(&program);
    let mut map = PositionMap::default();
    if let Some(source_map) = &generated.map {
        let tokens = source_map.get_tokens();
        map.0.extend(tokens.map(|t| [t.get_dst_line(), t.get_dst_col(), t.get_src_line(), t.get_src_col()]));
        map.0.sort_unstable();
    }
    Ok(Module { code: generated.code, imports, unused, map })
}

/// Makes a module whose default export is a JSON file's value.
///
/// # Errors
/// Where the file is not JSON.
pub(crate) fn json_module(source: &str) -> Result<Module, SourceError> {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(source);
    if let Err(error) = parsed {
        let position = Position { line: error.line().max(1) as u32, column: error.column().max(1) as u32 };
        return Err(SourceError { message: format!("not valid JSON: {error}"), position });
    }
    // A JSON string is a JavaScript string literal.
    let literal = serde_json::Value::String(source.to_owned());
    Ok(Module {
        code: format!("export default JSON.parse({literal});\n"),
        imports: Vec::new(),
        unused: Vec::new(),
        map: PositionMap::default(),
    })
}

fn check(source: &str, diagnostics: &Diagnostics) -> Result<(), SourceError> {
    match diagnostics.errors().next() {
        Some(diagnostic) => Err(source_error(source, diagnostic)),
        None => Ok(()),
    }
}

fn source_error(source: &str, diagnostic: &OxcDiagnostic) -> SourceError {
    let mut message = diagnostic.message.to_string();
    if let Some(help) = &diagnostic.help {
        message.push_str(": ");
        message.push_str(help);
    }
    let offset = diagnostic.labels.first().map_or(0, |label| label.offset());
    SourceError { message, position: position(source, offset) }
}

/// The line and column (in characters) of a byte offset.
fn position(source: &str, offset: u32) -> Position {
    let mut end = (offset as usize).min(source.len());
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    let before = &source[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() as u32 + 1;
    Position { line, column: before[line_start..].chars().count() as u32 + 1 }
}

fn imports(source: &str, program: &Program<'_>) -> Vec<Import> {
    let literals = program.body.iter().filter_map(|statement| match statement {
        Statement::ImportDeclaration(import) => Some(&import.source),
        Statement::ExportAllDeclaration(export) => Some(&export.source),
        Statement::ExportFromDeclaration(export) => Some(&export.source),
        _ => None,
    });
    literals
        .map(|literal| Import { specifier: literal.value.to_string(), position: position(source, literal.span.start) })
        .collect()
}

/// Imports without the word `type`.
fn imports_of_values(source: &str, program: &Program<'_>) -> Vec<Import> {
    let is_type = |one: &ImportDeclarationSpecifier<'_>| match one {
        ImportDeclarationSpecifier::ImportSpecifier(named) => named.import_kind.is_type(),
        _ => false,
    };
    let is_of_values = |import: &ImportDeclaration<'_>| {
        let named = import.specifiers.as_ref().filter(|named| !named.is_empty());
        import.import_kind.is_value() && named.is_none_or(|named| !named.iter().all(is_type))
    };
    let imports = program.body.iter().filter_map(|statement| match statement {
        Statement::ImportDeclaration(import) if is_of_values(import) => Some(&import.source),
        _ => None,
    });
    imports
        .map(|literal| Import { specifier: literal.value.to_string(), position: position(source, literal.span.start) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_go_and_what_has_a_meaning_at_run_time_stays() {
        let source = r#"
import type { A } from "./types";
import { B, c } from "./both";
enum Color { Red = 1, Green }
class Point { constructor(public x: number, private y = 2) {} }
export const p: Point = new Point(c as number);
export const color: Color = Color.Green satisfies Color;
function f<T>(this: B, a?: T): asserts a is T {}
"#;
        let module = transpile("a.ts", source).expect("valid");
        let specifiers: Vec<&str> = module.imports.iter().map(|import| import.specifier.as_str()).collect();
        assert_eq!(specifiers, ["./both"]);
        for gone in ["interface", "import type", ": Point", "satisfies", "B"] {
            assert!(!module.code.replace("./both", "").contains(gone), "{gone} in {}", module.code);
        }
        assert!(module.code.contains("Color") && module.code.contains("this.x = x"), "{}", module.code);
    }

    /// With each level indented it would be 800 MB.
    #[test]
    fn a_file_of_nothing_but_nesting_stays_small() {
        let source = format!("{}{}", "{".repeat(20_000), "}".repeat(20_000));
        let module = transpile("a.ts", &source).expect("valid");
        assert!(module.code.len() < 4 * source.len(), "{} bytes", module.code.len());
    }

    #[test]
    fn errors_name_line_and_column() {
        let error = transpile("a.ts", "const a = 1;\nconst ä: = 2;\n").expect_err("invalid");
        assert_eq!(error.position, Position { line: 2, column: 10 }, "{error:?}");
        let error = transpile("a.js", "let a;\nlet a;\n").expect_err("declared twice");
        assert_eq!(error.position.line, 1, "{error:?}");
        assert!(transpile("a.js", "const a: number = 1").is_err());
        assert_eq!(json_module("{\n]").expect_err("invalid").position, Position { line: 2, column: 1 });
    }

    #[test]
    fn positions_map_back() {
        let source =
            "interface Long {\n  a: number;\n}\n\n\nexport function fail(): never {\n    throw new Error(\"x\");\n}\n";
        let module = transpile("a.ts", source).expect("valid");
        let offset = module.code.find("new Error").expect("kept") as u32;
        let generated = position(&module.code, offset);
        assert_ne!(generated.line, 7, "the map has nothing to do");
        assert_eq!(module.map.source(generated), Position { line: 7, column: 11 });
        assert_eq!(module.imports, []);
    }

    /// Each would end the process on a stack of a fixed size.
    #[test]
    fn nesting_of_any_kind_is_read_or_refused() {
        const BYTES: usize = 60_000;
        let kinds = [
            ("", "(", "1", ")", ""),
            ("x = ", "[", "1", "]", ""),
            ("x = ", "{a:", "1", "}", ""),
            ("", "{", ";", "}", ""),
            ("", "if(1)", ";", "", ""),
            ("", "if(1);else ", ";", "", ""),
            ("", "a:", ";", "", ""),
            ("let x: ", "A<", "A", ">", ";"),
            ("let x: ", "A[", "0", "]", ";"),
            ("let x: ", "(", "A", ")", ";"),
            ("let x: ", "{a:", "A", "}", ";"),
            ("let x: ", "A extends B ? C : ", "A", "", ";"),
            ("x = ", "a=>", "1", "", ""),
            ("x = ", "`${", "1", "}`", ""),
            ("x = ", "!", "1", "", ""),
            ("x = ", "- ", "1", "", ""),
            ("x = ", "new ", "a", "", ""),
            ("x = ", "1+", "1", "", ""),
            ("x = ", "1**", "1", "", ""),
            ("x = ", "a=", "1", "", ""),
            ("x = ", "a?1:", "1", "", ""),
            ("x = ", "a??", "1", "", ""),
            ("x = a", ".b", "", "", ""),
            ("x = a", "()", "", "", ""),
            ("x = a", "!", "", "", ""),
            ("x = a", " as A", "", "", ""),
            ("x = ", "<A>", "1", "", ""),
            ("x = ", "async()=>", "1", "", ""),
            ("x = ", "function(){", ";", "}", ""),
            ("x = ", "class{a=", "1", "}", ""),
            ("", "namespace a{", "export const b = 1;", "}", ""),
            ("", "let[", "a", "]=1;", ""),
            ("let ", "[", "a", "]", " = 1"),
            ("let ", "{a:", "a", "}", " = 1"),
        ];
        for ending in [".ts", ".js"] {
            for (before, opens, middle, closes, behind) in kinds {
                let levels = BYTES / (opens.len() + closes.len());
                let source = [before, &opens.repeat(levels), middle, &closes.repeat(levels), behind].concat();
                // Both are right, and which it is changes with the compiler.
                let _ = transpile(&format!("deep{ending}"), &source);
            }
        }
        let large = " ".repeat(limits::CODE_FILE_BYTES + 1);
        assert!(transpile("large.ts", &large).is_err());
        assert!(transpile("large.ts", &large[1..]).is_ok());
    }
}
