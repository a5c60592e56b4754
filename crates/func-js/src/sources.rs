//! An app's files as modules: which file an import means, and every reachable file made ready
//! before any code runs, so that a broken app is refused whole.
//!
//! Imports reach only the app's own files and the built-in module `millrace`.

use std::collections::BTreeMap;

use millrace_base::{Error, ErrorCode, Name};
use millrace_func::App;

use crate::transpile::{Import, Module, Position, json_module, transpile};

/// The name of the module that the engine provides.
pub(crate) const BUILTIN: &str = "millrace";

/// The endings of files that are code.
const CODE_ENDINGS: [&str; 4] = [".ts", ".mts", ".js", ".mjs"];

/// What is tried behind an import that names no file.
const TRIED: [&str; 10] =
    ["", ".ts", ".mts", ".js", ".mjs", ".json", "/index.ts", "/index.mts", "/index.js", "/index.mjs"];

/// Every module that an app's services reach, by path.
pub(crate) struct Sources {
    /// The app's name.
    app: String,
    modules: BTreeMap<String, Module>,
}

/// A file at the app's top that is a service.
pub(crate) struct ServiceFile {
    pub(crate) name: Name,
    pub(crate) path: String,
}

/// An `app-refused` error, at a place in a file.
pub(crate) fn refused(path: &str, position: Option<Position>, message: &str) -> Error {
    let place = match position {
        Some(Position { line, column }) => format!("{path}:{line}:{column}"),
        None => path.to_owned(),
    };
    Error::new(ErrorCode::AppRefused, format!("{place}: {message}"))
}

/// The services of an app, in the order of their names.
///
/// # Errors
/// `app-refused` for a file whose name is not a service's name, and for two files of one name.
pub(crate) fn service_files(app: &App) -> Result<Vec<ServiceFile>, Error> {
    let mut services: Vec<ServiceFile> = Vec::new();
    for path in app.files.keys() {
        let Some(ending) = CODE_ENDINGS.iter().find(|ending| path.ends_with(**ending)) else {
            continue;
        };
        let is_declaration = path.ends_with(".d.ts") || path.ends_with(".d.mts");
        if path.contains('/') || path.starts_with('_') || is_declaration {
            continue;
        }
        let stem = &path[..path.len() - ending.len()];
        let name = Name::new(stem).map_err(|error| refused(path, None, &error.to_string()))?;
        if let Some(other) = services.iter().find(|service| service.name == name) {
            return Err(refused(path, None, &format!("{} is the same service", other.path)));
        }
        services.push(ServiceFile { name, path: path.clone() });
    }
    services.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(services)
}

impl Sources {
    /// Reads the services and everything they import.
    ///
    /// # Errors
    /// `app-refused` with file, line and column for the first file that does not parse and the
    /// first import that does not resolve.
    pub(crate) fn read(app: &App, services: &[ServiceFile]) -> Result<Self, Error> {
        let mut modules = BTreeMap::new();
        let mut queue: Vec<String> = services.iter().map(|service| service.path.clone()).collect();
        while let Some(path) = queue.pop() {
            if modules.contains_key(&path) {
                continue;
            }
            let module = read_module(app, &path)?;
            if !app.is_kept {
                refuse_unused_packages(&path, &module)?;
            }
            for import in &module.imports {
                match resolve(&path, &import.specifier, |path| app.files.contains_key(path)) {
                    Ok(found) if found == BUILTIN => {}
                    Ok(found) => queue.push(found),
                    Err(message) => return Err(refused(&path, Some(import.position), &message)),
                }
            }
            modules.insert(path, module);
        }
        Ok(Self { app: app.name.to_string(), modules })
    }

    /// Whose they are: the app's name.
    pub(crate) fn app(&self) -> &str {
        &self.app
    }

    /// The module at a path that [`Sources::resolve`] gave.
    pub(crate) fn module(&self, path: &str) -> Option<&Module> {
        self.modules.get(path)
    }

    /// The path that `specifier` means in the module `base`.
    pub(crate) fn resolve(&self, base: &str, specifier: &str) -> Result<String, String> {
        resolve(base, specifier, |path| self.modules.contains_key(path))
    }

    /// The source's position of a position in a module's code.
    pub(crate) fn source_position(&self, path: &str, generated: Position) -> Option<Position> {
        self.modules.get(path).map(|module| module.map.source(generated))
    }
}

/// Refuses imports of packages that nothing uses. TypeScript leaves them out, so the app would run. But who writes one
/// believes that packages can be imported. An app that was accepted before stays accepted.
fn refuse_unused_packages(path: &str, module: &Module) -> Result<(), Error> {
    let is_package = |import: &&Import| import.specifier != BUILTIN && !import.specifier.starts_with('.');
    match module.unused.iter().find(is_package) {
        Some(Import { specifier, position }) => {
            let message = format!(
                "cannot import {specifier:?}: an app imports \"millrace\" and its own files, as in \"./file\". Nothing of this \
                 import is used: remove it, or write `import type` if it is for types"
            );
            Err(refused(path, Some(*position), &message))
        }
        None => Ok(()),
    }
}

fn read_module(app: &App, path: &str) -> Result<Module, Error> {
    let content = app.files.get(path).map_or(&[][..], Vec::as_slice);
    let source = std::str::from_utf8(content).map_err(|_| refused(path, None, "the file is not UTF-8"))?;
    if source.contains('\0') {
        return Err(refused(path, None, "the file contains a NUL character"));
    }
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let module = if path.ends_with(".json") { json_module(source) } else { transpile(path, source) };
    module.map_err(|error| refused(path, Some(error.position), &error.message))
}

fn resolve(base: &str, specifier: &str, exists: impl Fn(&str) -> bool) -> Result<String, String> {
    if specifier == BUILTIN {
        return Ok(BUILTIN.to_owned());
    }
    if !(specifier.starts_with("./") || specifier.starts_with("../")) {
        return Err(format!(
            "cannot import {specifier:?}: an app imports \"millrace\" and its own files, as in \"./file\""
        ));
    }
    let mut parts: Vec<&str> = base.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Err(format!("cannot import {specifier:?}: it lies outside of the app's folder"));
                }
            }
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let candidates = TRIED.iter().map(|ending| format!("{path}{ending}"));
    // TypeScript's own habit: the import names the file that the compiler would write.
    let compiled = [(".js", ".ts"), (".mjs", ".mts")];
    let sources = compiled.iter().filter_map(|(js, ts)| path.strip_suffix(js).map(|stem| format!("{stem}{ts}")));
    let is_module = |path: &String| {
        let is_code = CODE_ENDINGS.iter().any(|ending| path.ends_with(ending)) || path.ends_with(".json");
        is_code && exists(path)
    };
    candidates
        .chain(sources)
        .find(is_module)
        .ok_or_else(|| format!("cannot import {specifier:?}: the app has no such module"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(files: &[(&str, &str)]) -> App {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec())).collect();
        App { files, ..App::new(Name::new("app").expect("a name")) }
    }

    #[test]
    fn imports_stay_inside_the_app() {
        let files = ["a.ts", "lib/b.ts", "lib/index.js", "data.json", "notes.txt"];
        let resolve = |base: &str, specifier: &str| resolve(base, specifier, |path| files.contains(&path));
        for (base, specifier, found) in [
            ("a.ts", "./lib/b", "lib/b.ts"),
            ("a.ts", "./lib/b.ts", "lib/b.ts"),
            ("a.ts", "./lib/b.js", "lib/b.ts"),
            ("a.ts", "./lib", "lib/index.js"),
            ("lib/b.ts", "../a", "a.ts"),
            ("lib/b.ts", "../data.json", "data.json"),
            ("lib/b.ts", "millrace", "millrace"),
        ] {
            assert_eq!(resolve(base, specifier), Ok(found.to_owned()), "{specifier}");
        }
        for specifier in ["../a", "./lib/../../a", "/a.ts", "fs", "./missing", "./notes.txt", "", "https://x/y.js"] {
            assert!(resolve("a.ts", specifier).is_err(), "{specifier}");
        }
    }

    #[test]
    fn services_are_the_code_at_the_top() {
        let app = app(&[
            ("b.ts", ""),
            ("a.mjs", ""),
            ("_helper.ts", ""),
            ("types.d.ts", ""),
            ("lib/c.ts", ""),
            ("millrace.toml", ""),
        ]);
        let services = service_files(&app).expect("valid");
        let paths: Vec<&str> = services.iter().map(|service| service.path.as_str()).collect();
        assert_eq!(paths, ["a.mjs", "b.ts"]);
        assert!(service_files(&self::app(&[("a b.ts", "")])).is_err());
        assert!(service_files(&self::app(&[("a.ts", ""), ("a.js", "")])).is_err());
    }

    #[test]
    fn an_import_of_a_package_that_nothing_uses_is_refused() {
        for (text, is_refused) in [
            ("import lodash from 'lodash';", true),
            ("import { z, type Z } from 'zod';", true),
            ("import * as fs from 'node:fs';", true),
            ("import { z } from 'zod'; let a: z;", true),
            ("import type { Z } from 'zod'; let a: Z;", false),
            ("import { type Z } from 'zod'; let a: Z;", false),
            ("import { b } from './b';", false),
            ("import { service } from 'millrace';", false),
        ] {
            let app = app(&[("a.ts", text), ("b.ts", "")]);
            let services = service_files(&app).expect("valid");
            let error = Sources::read(&app, &services).err();
            assert_eq!(error.is_some(), is_refused, "{text}: {error:?}");
            if let Some(error) = error {
                assert!(error.message.contains("Nothing of this import is used"), "{}", error.message);
            }
            let kept = App { is_kept: true, ..app };
            assert!(Sources::read(&kept, &services).is_ok(), "an app that was accepted goes on: {text}");
        }
    }

    #[test]
    fn a_broken_import_is_refused_with_its_place() {
        let app = app(&[("a.ts", "import { x } from \"./lib/b\";\nx();\n"), ("lib/b.ts", "\n  export * from './c';")]);
        let services = service_files(&app).expect("valid");
        let error = Sources::read(&app, &services).err().expect("refused");
        assert_eq!(error.code, ErrorCode::AppRefused);
        assert!(error.message.starts_with("lib/b.ts:2:17: "), "{}", error.message);
    }
}
