//! The normal form of a schema's text, which tells whether two texts are the same schema. Also picks one type out of a
//! file of several.
//!
//! The normal form keeps everything that Avro's own parser keeps (documentation, defaults, aliases, order, other
//! properties) and nothing else. It has no whitespace, attributes in the order of their names, full names, short forms.
//! The specification's parsing canonical form drops defaults. The normal form does not: it is a schema that may replace
//! the original.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::limits;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// How deep the JSON of a schema nests. The JSON parser takes no more, so recursion here is bounded by it.
const DEPTH: usize = 120;

/// Nodes that picking one type may visit: more than any schema may have.
const VISITS: usize = 100_000;

/// Bytes of all full names, wherever they are used.
const NAME_BYTES: usize = 4 * limits::SCHEMA_BYTES;

const PRIMITIVES: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

/// Reads the text as JSON. A text that is not JSON may still be a type's bare name; the compiler decides that.
fn parse(text: &str) -> Result<Value, Refusal> {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    match serde_json::from_str(text) {
        Err(_) if is_name(text.trim()) => Ok(Value::String(text.trim().to_owned())),
        parsed => parsed.map_err(|error| Refusal::invalid_schema(format!("the schema is not JSON: {error}"))),
    }
}

/// The normal form of a schema's text.
pub(crate) fn normal_text(text: &str) -> Result<String, Refusal> {
    let value = parse(text)?;
    let normal = Walk::default().schema(&value, "", 0)?;
    let mut out = String::with_capacity(text.len());
    write_sorted(&normal, &mut out);
    Ok(out)
}

/// The text of the type `full_name` alone, out of a file that may define several. Other types that it uses are moved
/// into it. `None` if the text is that type.
pub(crate) fn pick(text: &str, full_name: &str) -> Result<Option<String>, Refusal> {
    let value = parse(text)?;
    if let Value::Object(map) = &value
        && definition_name(map, "").is_some_and(|name| name.full() == full_name)
    {
        return Ok(None);
    }
    let mut walk = Walk { known: Some(BTreeMap::new()), ..Walk::default() };
    walk.learn(&value, "", 0)?;
    let picked = walk.known.as_ref().and_then(|known| known.get(full_name)).cloned();
    let Some((definition, namespace)) = picked else {
        return Err(Refusal::invalid_schema(format!("the file defines no type {full_name:?}")));
    };
    let picked = walk.schema(definition, &namespace, 0)?;
    let mut out = String::new();
    write_sorted(&picked, &mut out);
    Ok(Some(out))
}

/// JSON without whitespace, members in the order of their names.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            out.push('{');
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write_sorted(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_sorted(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

struct QualifiedName {
    namespace: String,
    name: String,
}

impl QualifiedName {
    fn full(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}.{}", self.namespace, self.name) }
    }
}

/// The name that a definition of a named type gives. `None` if it is not a definition.
fn definition_name(map: &Map<String, Value>, enclosing: &str) -> Option<QualifiedName> {
    let kind = map.get("type")?.as_str()?;
    if !matches!(kind, "record" | "error" | "enum" | "fixed") {
        return None;
    }
    let name = map.get("name")?.as_str()?;
    if let Some((namespace, name)) = name.rsplit_once('.') {
        return Some(QualifiedName { namespace: namespace.to_owned(), name: name.to_owned() });
    }
    let namespace = map.get("namespace").and_then(Value::as_str).unwrap_or(enclosing);
    Some(QualifiedName { namespace: namespace.to_owned(), name: name.to_owned() })
}

fn full_name_of_use(name: &str, enclosing: &str) -> String {
    if PRIMITIVES.contains(&name) || name.contains('.') || enclosing.is_empty() {
        name.to_owned()
    } else {
        format!("{enclosing}.{name}")
    }
}

/// One walk over a schema.
#[derive(Default)]
struct Walk<'a> {
    /// Only when picking: every definition by its full name, with the namespace around it.
    known: Option<BTreeMap<String, (&'a Value, String)>>,
    /// Named types already written out.
    given: BTreeSet<String>,
    visits: usize,
    /// Bytes of full names written. A short name may stand for a long one, over and over.
    name_bytes: usize,
}

impl<'a> Walk<'a> {
    fn full(&mut self, name: String) -> Result<Value, Refusal> {
        self.name_bytes += name.len();
        if self.name_bytes > NAME_BYTES {
            return Err(Refusal::invalid_schema("the names in the schema are too long"));
        }
        Ok(Value::String(name))
    }

    fn visit(&mut self, depth: usize) -> Result<(), Refusal> {
        self.visits += 1;
        if depth > DEPTH || self.visits > VISITS {
            return Err(Refusal::invalid_schema("the schema is too large or nests too deeply"));
        }
        Ok(())
    }

    /// Finds every definition.
    fn learn(&mut self, value: &'a Value, namespace: &str, depth: usize) -> Result<(), Refusal> {
        self.visit(depth)?;
        match value {
            Value::Array(branches) => branches.iter().try_for_each(|branch| self.learn(branch, namespace, depth + 1)),
            Value::Object(map) => {
                let name = definition_name(map, namespace);
                let inner = name.as_ref().map_or(namespace, |name| &name.namespace);
                if let (Some(name), Some(known)) = (&name, &mut self.known) {
                    known.entry(name.full()).or_insert_with(|| (value, namespace.to_owned()));
                }
                for nested in ["type", "items", "values"] {
                    if let Some(nested) = map.get(nested).filter(|nested| !nested.is_string()) {
                        self.learn(nested, inner, depth + 1)?;
                    }
                }
                let fields = map.get("fields").and_then(Value::as_array).into_iter().flatten();
                for field in fields.filter_map(|field| field.get("type")) {
                    self.learn(field, inner, depth + 1)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The normal form of a value in the place of a schema.
    fn schema(&mut self, value: &'a Value, namespace: &str, depth: usize) -> Result<Value, Refusal> {
        self.visit(depth)?;
        match value {
            Value::String(name) => self.used(name, namespace, depth),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.schema(branch, namespace, depth + 1));
                Ok(Value::Array(branches.collect::<Result<_, _>>()?))
            }
            Value::Object(map) => match definition_name(map, namespace) {
                Some(name) => self.definition(map, &name, namespace, depth),
                None => self.other(map, namespace, depth),
            },
            other => Ok(other.clone()),
        }
    }

    /// A name in the place of a schema.
    fn used(&mut self, name: &str, namespace: &str, depth: usize) -> Result<Value, Refusal> {
        let full = full_name_of_use(name, namespace);
        let known = self.known.as_ref().and_then(|known| known.get(&full)).cloned();
        match known {
            Some((definition, enclosing)) if !self.given.contains(&full) => {
                self.schema(definition, &enclosing, depth + 1)
            }
            _ => self.full(full),
        }
    }

    fn definition(
        &mut self,
        map: &'a Map<String, Value>,
        name: &QualifiedName,
        enclosing: &str,
        depth: usize,
    ) -> Result<Value, Refusal> {
        let full = name.full();
        let is_new = self.given.insert(full.clone());
        if self.known.is_some() && !is_new {
            return self.full(full);
        }
        let mut normal = Map::new();
        for (key, value) in map {
            match key.as_str() {
                "name" | "namespace" => {}
                "aliases" if is_empty_array(value) => {}
                "fields" => {
                    let fields = self.fields(value, &name.namespace, depth + 1)?;
                    normal.insert(key.clone(), fields);
                }
                _ => drop(normal.insert(key.clone(), value.clone())),
            }
        }
        normal.insert("name".to_owned(), self.full(full)?);
        // Without it, a name that has no namespace would be read as one of the namespace around it.
        if name.namespace.is_empty() && (!enclosing.is_empty() || (self.known.is_some() && depth > 0)) {
            normal.insert("namespace".to_owned(), Value::String(String::new()));
        }
        Ok(Value::Object(normal))
    }

    fn fields(&mut self, value: &'a Value, namespace: &str, depth: usize) -> Result<Value, Refusal> {
        self.visit(depth)?;
        let Value::Array(fields) = value else {
            return Ok(value.clone());
        };
        let mut normal = Vec::with_capacity(fields.len());
        for field in fields {
            let Value::Object(map) = field else {
                normal.push(field.clone());
                continue;
            };
            let mut field = Map::new();
            for (key, value) in map {
                match key.as_str() {
                    "order" if value == "ascending" => {}
                    "aliases" if is_empty_array(value) => {}
                    "type" => drop(field.insert(key.clone(), self.schema(value, namespace, depth + 2)?)),
                    _ => drop(field.insert(key.clone(), value.clone())),
                }
            }
            normal.push(Value::Object(field));
        }
        Ok(Value::Array(normal))
    }

    /// Arrays, maps, and types with properties.
    fn other(&mut self, map: &'a Map<String, Value>, namespace: &str, depth: usize) -> Result<Value, Refusal> {
        let kind = map.get("type").and_then(Value::as_str);
        let nested = match kind {
            Some("array") => Some("items"),
            Some("map") => Some("values"),
            _ => None,
        };
        let mut normal = Map::new();
        for (key, value) in map {
            let is_schema = Some(key.as_str()) == nested || (key == "type" && nested.is_none());
            let value = if is_schema { self.schema(value, namespace, depth + 1)? } else { value.clone() };
            normal.insert(key.clone(), value);
        }
        if normal.len() == 1 && kind.is_some() && nested.is_none() {
            return Ok(normal.remove("type").unwrap_or(Value::Null));
        }
        Ok(Value::Object(normal))
    }
}

fn is_empty_array(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
#[path = "normal_tests.rs"]
mod tests;
