//! From a schema's text to the compiled schema.

use crate::schema::{Field, FullName, Kind, Logical, Node, NodeId, Schema};
use crate::{SchemaError, default, finite, logical, shape};
use millrace_base::limits;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// How deep schemas nest, references into each other included. Recursion over them must fit a core's stack.
const NESTING: usize = 400;

pub(crate) const PRIMITIVES: [(&str, Kind); 8] = [
    ("null", Kind::Null),
    ("boolean", Kind::Boolean),
    ("int", Kind::Int),
    ("long", Kind::Long),
    ("float", Kind::Float),
    ("double", Kind::Double),
    ("bytes", Kind::Bytes),
    ("string", Kind::String),
];

impl Schema {
    /// Compiles a schema. It may use the named types that the texts in `references` define. These may use each other's,
    /// in any order.
    ///
    /// # Errors
    /// If the text, or a reference it uses, is not a schema. The error has the place.
    pub fn parse(text: &str, references: &[&str]) -> Result<Schema, SchemaError> {
        let texts = Texts::read(text, references)?;
        let mut parser = Parser::new(&texts);
        let root = parser.schema(&texts.main, "")?;
        parser.finish(root)
    }

    /// Compiles one named type of a text. The text may be that type's own schema, a schema that holds it, or an array
    /// of definitions.
    ///
    /// # Errors
    /// As [`Schema::parse`], and if the text does not define the name.
    pub fn parse_named(text: &str, references: &[&str], full_name: &str) -> Result<Schema, SchemaError> {
        let texts = Texts::read(text, references)?;
        if !names_in(&texts.main).contains(full_name) {
            return Err(SchemaError::new("", format_args!("the text defines no type {full_name:?}")));
        }
        let mut parser = Parser::new(&texts);
        match &texts.main {
            Value::Array(definitions) => {
                for definition in definitions {
                    parser.schema(definition, "")?;
                }
            }
            definition => drop(parser.schema(definition, "")?),
        }
        match parser.names.get(full_name) {
            Some(&root) => parser.finish(root),
            None => Err(SchemaError::new("", format_args!("the text defines no type {full_name:?}"))),
        }
    }
}

struct Texts {
    main: Value,
    references: Vec<Value>,
}

impl Texts {
    fn read(text: &str, references: &[&str]) -> Result<Texts, SchemaError> {
        let mut seen = BTreeSet::new();
        let references = references.iter().enumerate().filter(|(_, text)| seen.insert(**text));
        Ok(Texts {
            main: read_json("", text)?,
            references: references
                .map(|(index, text)| read_json(&format!("reference {index}"), text))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// A text that is not JSON may still be a type's bare name, because registries accept it.
fn read_json(path: &str, text: &str) -> Result<Value, SchemaError> {
    if text.len() > limits::SCHEMA_BYTES {
        return Err(SchemaError::new(path, format_args!("has more than {} bytes", limits::SCHEMA_BYTES)));
    }
    match serde_json::from_str(text) {
        Ok(json) => Ok(json),
        Err(_) if is_full_name(text.trim()) => Ok(Value::String(text.trim().to_owned())),
        Err(error) => Err(SchemaError::new(path, format_args!("is not JSON: {error}"))),
    }
}

/// The full names of all types that a text defines. The JSON parser bounds its depth.
fn names_in(json: &Value) -> BTreeSet<String> {
    fn visit(json: &Value, namespace: &str, names: &mut BTreeSet<String>) {
        match json {
            Value::Array(branches) => branches.iter().for_each(|branch| visit(branch, namespace, names)),
            Value::Object(object) => {
                let mut inner = namespace;
                let full_name;
                if let Some("record" | "error" | "enum" | "fixed") = object.get("type").and_then(Value::as_str)
                    && let Some(name) = object.get("name").and_then(Value::as_str)
                {
                    full_name = qualify(name, object.get("namespace").and_then(Value::as_str).unwrap_or(namespace));
                    inner = namespace_of(&full_name);
                    names.insert(full_name.clone());
                }
                for key in ["type", "items", "values"] {
                    object.get(key).into_iter().for_each(|json| visit(json, inner, names));
                }
                for field in object.get("fields").and_then(Value::as_array).into_iter().flatten() {
                    field.get("type").into_iter().for_each(|json| visit(json, inner, names));
                }
            }
            _ => (),
        }
    }
    let mut names = BTreeSet::new();
    visit(json, "", &mut names);
    names
}

pub(crate) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_full_name(text: &str) -> bool {
    text.split('.').all(is_name)
}

fn qualify(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn namespace_of(full_name: &str) -> &str {
    full_name.rsplit_once('.').map_or("", |(namespace, _)| namespace)
}

fn text_of<'v>(object: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
    object.get(key).and_then(Value::as_str)
}

/// A default as the text has it. It is encoded once all types are known.
pub(crate) struct RawDefault<'v> {
    pub(crate) json: &'v Value,
    pub(crate) path: String,
}

/// By record and field.
pub(crate) type RawDefaults<'v> = BTreeMap<(NodeId, usize), RawDefault<'v>>;

struct Parser<'v> {
    nodes: Vec<Node>,
    primitives: [Option<NodeId>; PRIMITIVES.len()],
    names: BTreeMap<String, NodeId>,
    defaults: RawDefaults<'v>,
    references: Vec<(&'v Value, bool)>,
    defined_by: BTreeMap<String, usize>,
    path: String,
    nesting: usize,
}

impl<'v> Parser<'v> {
    fn new(texts: &'v Texts) -> Parser<'v> {
        let mut defined_by = BTreeMap::new();
        for (index, reference) in texts.references.iter().enumerate() {
            for name in names_in(reference) {
                defined_by.entry(name).or_insert(index);
            }
        }
        Parser {
            nodes: Vec::new(),
            primitives: [None; PRIMITIVES.len()],
            names: BTreeMap::new(),
            defaults: BTreeMap::new(),
            references: texts.references.iter().map(|json| (json, false)).collect(),
            defined_by,
            path: String::new(),
            nesting: 0,
        }
    }

    fn fail<T>(&self, message: impl std::fmt::Display) -> Result<T, SchemaError> {
        Err(SchemaError::new(&self.path, message))
    }

    /// Runs `parse` with `step` added to the path.
    fn within<T>(
        &mut self,
        step: std::fmt::Arguments<'_>,
        parse: impl FnOnce(&mut Self) -> Result<T, SchemaError>,
    ) -> Result<T, SchemaError> {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        std::fmt::Write::write_fmt(&mut self.path, step).expect("a string takes whatever is written");
        let parsed = parse(self);
        self.path.truncate(length);
        parsed
    }

    fn push(&mut self, kind: Kind, logical: Option<Logical>) -> Result<NodeId, SchemaError> {
        if self.nodes.len() >= limits::SCHEMA_NODES {
            return self.fail(format_args!("the schema has more than {} types", limits::SCHEMA_NODES));
        }
        let id = NodeId(u32::try_from(self.nodes.len()).expect("bounded by a small limit"));
        self.nodes.push(Node { kind, logical, aliases: Box::default() });
        Ok(id)
    }

    fn schema(&mut self, json: &'v Value, namespace: &str) -> Result<NodeId, SchemaError> {
        if self.nesting >= NESTING {
            return self.fail("the schema nests too deep");
        }
        self.nesting += 1;
        let parsed = match json {
            Value::String(name) => self.reference(name, namespace),
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(object) => self.object(object, namespace),
            _ => self.fail("a schema is a name, an object, or an array of schemas"),
        };
        self.nesting -= 1;
        parsed
    }

    fn primitive(&mut self, name: &str) -> Option<Result<NodeId, SchemaError>> {
        let index = PRIMITIVES.iter().position(|(known, _)| *known == name)?;
        if let Some(id) = self.primitives[index] {
            return Some(Ok(id));
        }
        let pushed = self.push(PRIMITIVES[index].1.clone(), None);
        self.primitives[index] = pushed.as_ref().ok().copied();
        Some(pushed)
    }

    fn reference(&mut self, name: &str, namespace: &str) -> Result<NodeId, SchemaError> {
        if let Some(id) = self.primitive(name) {
            return id;
        }
        // In its own namespace, then in none, as in other implementations.
        for full_name in [qualify(name, namespace), name.to_owned()] {
            if let Some(&id) = self.names.get(&full_name) {
                return Ok(id);
            }
            if let Some(&index) = self.defined_by.get(&full_name)
                && let (json, false) = self.references[index]
            {
                self.references[index].1 = true;
                let path = std::mem::take(&mut self.path);
                self.within(format_args!("reference {index}"), |parser| parser.definitions(json))?;
                self.path = path;
                if let Some(&id) = self.names.get(&full_name) {
                    return Ok(id);
                }
            }
        }
        self.fail(format_args!("there is no type {name:?} before this place"))
    }

    /// Reads a referenced text. Only its definitions count.
    fn definitions(&mut self, json: &'v Value) -> Result<(), SchemaError> {
        match json {
            Value::Array(definitions) => definitions.iter().try_for_each(|json| self.schema(json, "").map(drop)),
            json => self.schema(json, "").map(drop),
        }
    }

    fn object(&mut self, object: &'v Map<String, Value>, namespace: &str) -> Result<NodeId, SchemaError> {
        let name = match object.get("type") {
            None => return self.fail("the member \"type\" is missing"),
            Some(Value::String(name)) => name.as_str(),
            Some(inner) => return self.schema(inner, namespace),
        };
        match name {
            "record" | "error" => self.record(object, namespace),
            "enum" => self.enumeration(object, namespace),
            "fixed" => self.fixed(object, namespace),
            "array" => self.container(object, "items", namespace, Kind::Array),
            "map" => self.container(object, "values", namespace, Kind::Map),
            _ => match PRIMITIVES.iter().find(|(known, _)| *known == name) {
                Some((_, kind)) => match self.logical(kind, object)? {
                    None => self.reference(name, namespace),
                    logical => self.push(kind.clone(), logical),
                },
                None => self.reference(name, namespace),
            },
        }
    }

    fn logical(&self, kind: &Kind, object: &Map<String, Value>) -> Result<Option<Logical>, SchemaError> {
        logical::of(kind, object).or_else(|message| self.fail(message))
    }

    fn container(
        &mut self,
        object: &'v Map<String, Value>,
        key: &str,
        namespace: &str,
        kind: fn(NodeId) -> Kind,
    ) -> Result<NodeId, SchemaError> {
        let Some(json) = object.get(key) else { return self.fail(format_args!("the member {key:?} is missing")) };
        // Before its item, so that the ids of a type's parts are above its own.
        let id = self.push(Kind::Null, None)?;
        let item = self.within(format_args!("{key}"), |parser| parser.schema(json, namespace))?;
        self.nodes[id.0 as usize].kind = kind(item);
        Ok(id)
    }

    fn union(&mut self, branches: &'v [Value], namespace: &str) -> Result<NodeId, SchemaError> {
        let id = self.push(Kind::Null, None)?;
        let mut nodes = Vec::with_capacity(branches.len());
        let mut seen = BTreeSet::new();
        for (index, json) in branches.iter().enumerate() {
            let node = self.within(format_args!("branch {index}"), |parser| {
                let node = parser.schema(json, namespace)?;
                if matches!(parser.nodes[node.0 as usize].kind, Kind::Union(_)) || node == id {
                    return parser.fail("a union holds no unions");
                }
                Ok(node)
            })?;
            let name = branch_name(&self.nodes[node.0 as usize].kind).to_owned();
            if !seen.insert(name.clone()) {
                return self.fail(format_args!("the union has two branches {name:?}"));
            }
            nodes.push(node);
        }
        if nodes.is_empty() {
            return self.fail("a union without branches has no values");
        }
        self.nodes[id.0 as usize].kind = Kind::Union(nodes.into());
        Ok(id)
    }

    /// Registers the node of a named type under its name and its aliases.
    fn define(&mut self, object: &Map<String, Value>, namespace: &str, kind: Kind) -> Result<NodeId, SchemaError> {
        let name = FullName(self.full_name(object, namespace)?.into());
        let own_namespace = namespace_of(&name.0).to_owned();
        let id = self.push(kind.with_name(name.clone()), None)?;
        let mut aliases = Vec::new();
        for alias in self.names_of(object, "aliases")? {
            if !is_full_name(&alias) {
                return self.fail(format_args!("{alias:?} is not a name"));
            }
            aliases.push(FullName(qualify(&alias, &own_namespace).into()));
        }
        self.nodes[id.0 as usize].aliases = aliases.into();
        if self.names.insert(name.0.to_string(), id).is_some() {
            return self.fail(format_args!("the type {:?} is defined twice", &*name.0));
        }
        Ok(id)
    }

    fn full_name(&self, object: &Map<String, Value>, namespace: &str) -> Result<String, SchemaError> {
        let Some(name) = text_of(object, "name") else { return self.fail("the member \"name\" is missing") };
        let namespace = match object.get("namespace") {
            None | Some(Value::Null) => namespace,
            Some(Value::String(own)) => own,
            Some(_) => return self.fail("the member \"namespace\" is not a string"),
        };
        let full_name = qualify(name, namespace);
        if !is_full_name(&full_name) {
            return self.fail(format_args!(
                "{full_name:?} is not a name: parts between dots begin with a letter or _, then come letters, digits and _"
            ));
        }
        let short = full_name.rsplit('.').next().unwrap_or(&full_name);
        if PRIMITIVES.iter().any(|(known, _)| *known == short) {
            return self.fail(format_args!("{short:?} is a primitive type and cannot be defined"));
        }
        Ok(full_name)
    }

    /// A member that is an array of strings, if it is there.
    fn names_of(&self, object: &'_ Map<String, Value>, key: &str) -> Result<Vec<String>, SchemaError> {
        let array = match object.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(array)) => array,
            Some(_) => return self.fail(format_args!("the member {key:?} is not an array")),
        };
        let names = array.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>();
        names.map_or_else(|| self.fail(format_args!("the member {key:?} holds something else than strings")), Ok)
    }

    fn record(&mut self, object: &'v Map<String, Value>, namespace: &str) -> Result<NodeId, SchemaError> {
        let id = self.define(object, namespace, Kind::Record { name: FullName("".into()), fields: Box::default() })?;
        let name = self.full_name(object, namespace)?;
        let Some(Value::Array(fields)) = object.get("fields") else {
            return self.within(format_args!("{name}"), |parser| parser.fail("the array \"fields\" is missing"));
        };
        let namespace = namespace_of(&name).to_owned();
        let mut seen = BTreeSet::new();
        let mut compiled = Vec::with_capacity(fields.len());
        self.within(format_args!("{name}"), |parser| {
            for (index, json) in fields.iter().enumerate() {
                let field = parser.field(json, &namespace, (id, index))?;
                if !seen.insert(field.name.clone()) {
                    return parser.fail(format_args!("the field {:?} is there twice", &*field.name));
                }
                compiled.push(field);
            }
            Ok(())
        })?;
        self.nodes[id.0 as usize].kind = Kind::Record { name: FullName(name.into()), fields: compiled.into() };
        Ok(id)
    }

    fn field(&mut self, json: &'v Value, namespace: &str, place: (NodeId, usize)) -> Result<Field, SchemaError> {
        let Some(object) = json.as_object() else {
            return self.fail(format_args!("field {} is not an object", place.1));
        };
        let Some(name) = text_of(object, "name") else {
            return self.fail(format_args!("field {} has no name", place.1));
        };
        if !is_name(name) {
            return self.fail(format_args!(
                "the field's name {name:?} is not a name: it begins with a letter or _, then come letters, digits and _"
            ));
        }
        self.within(format_args!("{name}"), |parser| {
            let Some(json) = object.get("type") else { return parser.fail("the member \"type\" is missing") };
            let aliases = parser.names_of(object, "aliases")?;
            if let Some(alias) = aliases.iter().find(|alias| !is_name(alias)) {
                return parser.fail(format_args!("the alias {alias:?} is not a name"));
            }
            let node = parser.schema(json, namespace)?;
            if let Some(json) = object.get("default") {
                parser.defaults.insert(place, RawDefault { json, path: parser.path.clone() });
            }
            let aliases = aliases.into_iter().map(Into::into).collect();
            Ok(Field { name: name.into(), aliases, node, default: None })
        })
    }

    fn enumeration(&mut self, object: &'v Map<String, Value>, namespace: &str) -> Result<NodeId, SchemaError> {
        let kind = Kind::Enum { name: FullName("".into()), symbols: Box::default(), default: None };
        let id = self.define(object, namespace, kind)?;
        let name = self.full_name(object, namespace)?;
        self.within(format_args!("{name}"), |parser| {
            let symbols = parser.names_of(object, "symbols")?;
            let mut seen = BTreeSet::new();
            for symbol in &symbols {
                if !is_name(symbol) {
                    return parser.fail(format_args!("the symbol {symbol:?} is not a name"));
                }
                if !seen.insert(symbol) {
                    return parser.fail(format_args!("the symbol {symbol:?} is there twice"));
                }
            }
            if symbols.is_empty() {
                return parser.fail("an enum without symbols has no values");
            }
            let default = match object.get("default") {
                None | Some(Value::Null) => None,
                Some(json) => match symbols.iter().position(|symbol| Some(symbol.as_str()) == json.as_str()) {
                    Some(index) => u32::try_from(index).ok(),
                    None => return parser.fail(format_args!("the default {json} is not a symbol")),
                },
            };
            let symbols = symbols.into_iter().map(Into::into).collect();
            parser.nodes[id.0 as usize].kind = Kind::Enum { name: FullName(name.as_str().into()), symbols, default };
            Ok(id)
        })
    }

    fn fixed(&mut self, object: &'v Map<String, Value>, namespace: &str) -> Result<NodeId, SchemaError> {
        let size = object.get("size").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        let size = match size {
            None => return self.fail("the member \"size\" of a fixed is not a number of bytes"),
            Some(size) if size > limits::RECORD_BYTES => {
                return self.fail(format_args!("a fixed has at most {} bytes", limits::RECORD_BYTES));
            }
            Some(size) => size,
        };
        let id = self.define(object, namespace, Kind::Fixed { name: FullName("".into()), size })?;
        let logical = self.logical(&self.nodes[id.0 as usize].kind, object)?;
        self.nodes[id.0 as usize].logical = logical;
        Ok(id)
    }

    fn finish(self, root: NodeId) -> Result<Schema, SchemaError> {
        finite::check(&self.nodes)?;
        let skips = shape::skips(&self.nodes);
        let shapes = shape::shapes(&self.nodes);
        let mut schema = Schema { nodes: self.nodes.into(), root, skips, shapes };
        default::compile(&mut schema, &self.defaults)?;
        Ok(schema)
    }
}

/// The name of a union's branch: its own, or its type's.
pub(crate) fn branch_name(kind: &Kind) -> &str {
    match kind {
        Kind::Null => "null",
        Kind::Boolean => "boolean",
        Kind::Int => "int",
        Kind::Long => "long",
        Kind::Float => "float",
        Kind::Double => "double",
        Kind::Bytes => "bytes",
        Kind::String => "string",
        Kind::Array(_) => "array",
        Kind::Map(_) => "map",
        Kind::Union(_) => "union",
        Kind::Record { name, .. } | Kind::Enum { name, .. } | Kind::Fixed { name, .. } => &name.0,
    }
}

impl Kind {
    fn with_name(mut self, new: FullName) -> Kind {
        if let Kind::Record { name, .. } | Kind::Enum { name, .. } | Kind::Fixed { name, .. } = &mut self {
            *name = new;
        }
        self
    }
}
