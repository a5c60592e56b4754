//! Where a simple path leads in a schema.

use millrace_avro::{Kind, Logical, NodeId, Schema};
use millrace_base::fingerprint;

/// One step of a simple path.
#[derive(Debug, PartialEq, Eq)]
enum PathStep {
    Field(String),
    Items,
}

/// Reads the text of a simple path: `.name`, `."name"` and `[*]`, one after the other.
fn steps_of(path: &str) -> Option<Vec<PathStep>> {
    let mut rest = path.trim();
    rest = rest.strip_prefix('^').unwrap_or(rest).trim_start();
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, after) = name_of(after.trim_start())?;
            steps.push(PathStep::Field(name));
            rest = after;
        } else {
            rest = rest.strip_prefix('[')?.trim_start().strip_prefix('*')?.trim_start().strip_prefix(']')?;
            steps.push(PathStep::Items);
        }
        rest = rest.trim_start();
    }
    Some(steps)
}

fn name_of(text: &str) -> Option<(String, &str)> {
    if text.starts_with('"') {
        let mut parsed = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let name = parsed.next()?.ok()?;
        return Some((name, &text[parsed.byte_offset()..]));
    }
    let end = text.find(|c: char| c == '.' || c == '[' || c.is_whitespace()).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

/// The types that a node may have, without `null`.
fn types_of(schema: &Schema, node: NodeId) -> Vec<NodeId> {
    match schema.kind(node) {
        Kind::Union(branches) => {
            branches.iter().copied().filter(|branch| !matches!(schema.kind(*branch), Kind::Null)).collect()
        }
        _ => vec![node],
    }
}

/// The types that a simple path leads to.
fn places(schema: &Schema, path: &str) -> Result<Vec<NodeId>, String> {
    let steps = steps_of(path).ok_or_else(|| format!("{path} is not a simple path"))?;
    let mut nodes = types_of(schema, schema.root());
    for step in steps {
        let mut next: Vec<NodeId> = Vec::new();
        for node in nodes {
            let inner = match (&step, schema.kind(node)) {
                (PathStep::Field(name), Kind::Record { fields, .. }) => {
                    fields.iter().find(|field| *field.name == **name).map(|field| field.node)
                }
                (PathStep::Items, Kind::Array(items)) => Some(*items),
                _ => None,
            };
            for inner in inner.into_iter().flat_map(|inner| types_of(schema, inner)) {
                if !next.contains(&inner) {
                    next.push(inner);
                }
            }
        }
        if next.is_empty() {
            return Err(match step {
                PathStep::Field(name) => format!("{path}: there is no field {name:?}"),
                PathStep::Items => format!("{path}: [*] stands where there is no array"),
            });
        }
        nodes = next;
    }
    Ok(nodes)
}

/// Checks that a path leads somewhere.
pub(crate) fn check_exists(schema: &Schema, path: &str) -> Result<(), String> {
    places(schema, path).map(drop)
}

/// What an index on a path holds: a text that changes if the order of values may.
pub(crate) fn indexed_kind(schema: &Schema, path: &str, ignore_case: bool) -> Result<String, String> {
    let found = places(schema, path)?;
    let [node] = found[..] else {
        return Err(format!("{path} may be of several types; an index needs one"));
    };
    let kind = match schema.kind(node) {
        Kind::Boolean => "boolean".to_owned(),
        Kind::Int => "int".to_owned(),
        Kind::Long => "long".to_owned(),
        Kind::Float => "float".to_owned(),
        Kind::Double => "double".to_owned(),
        Kind::Bytes => "bytes".to_owned(),
        Kind::String => "string".to_owned(),
        Kind::Fixed { size, .. } => format!("fixed({size})"),
        Kind::Enum { symbols, .. } => {
            // Enums are ordered by position.
            let symbols: Vec<&[u8]> = symbols.iter().map(|symbol| symbol.as_bytes()).collect();
            format!("enum({:016x})", fingerprint(&symbols))
        }
        Kind::Null | Kind::Array(_) | Kind::Map(_) | Kind::Union(_) | Kind::Record { .. } => {
            return Err(format!("{path} does not lead to a scalar; use [*] for the elements of an array"));
        }
    };
    if ignore_case && kind != "string" {
        return Err(format!("{path} is not a string: ignore_case means nothing for it"));
    }
    Ok(match schema.node(node).logical {
        Some(logical) => format!("{kind} {}", logical_text(logical)),
        None => kind,
    })
}

fn logical_text(logical: Logical) -> String {
    match logical {
        Logical::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
        other => other.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_paths_are_read_as_written() {
        let field = |name: &str| PathStep::Field(name.to_owned());
        let table = [
            (".a", Some(vec![field("a")])),
            (".a.b[*].c", Some(vec![field("a"), field("b"), PathStep::Items, field("c")])),
            (" ^ . a [ * ] ", Some(vec![field("a"), PathStep::Items])),
            (r#"."a b"[*]."c\"d".e"#, Some(vec![field("a b"), PathStep::Items, field("c\"d"), field("e")])),
            (".", None),
            (".a[0]", None),
            (".a[*", None),
            (r#"."a"#, None),
            ("a", None),
            (".ä\u{2003}.é", Some(vec![field("ä"), field("é")])),
        ];
        for (path, steps) in table {
            assert_eq!(steps_of(path), steps, "{path}");
        }
    }

    #[test]
    fn indexes_lead_to_one_scalar() {
        let schema = Schema::parse(
            r#"{"type":"record","name":"R","fields":[
                {"name":"s","type":"string"},
                {"name":"n","type":["null","long"]},
                {"name":"u","type":["null","long","string"]},
                {"name":"z","type":"null"},
                {"name":"m","type":{"type":"map","values":"int"}},
                {"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},
                {"name":"f","type":{"type":"fixed","name":"F","size":4}},
                {"name":"d","type":{"type":"int","logicalType":"date"}},
                {"name":"a","type":["null",{"type":"array","items":{"type":"record","name":"I","fields":[
                    {"name":"x","type":"double"},{"name":"next","type":["null","R"]}]}}]},
                {"name":"t","type":[{"type":"record","name":"P","fields":[{"name":"x","type":"int"}]},"I"]}]}"#,
            &[],
        )
        .expect("a schema");
        let good = [
            (".s", "string"),
            ("^.s", "string"),
            (".n", "long"),
            (".f", "fixed(4)"),
            (".d", "int date"),
            (".a[*].x", "double"),
            (".a[*].next.s", "string"),
        ];
        for (path, kind) in good {
            assert_eq!(indexed_kind(&schema, path, false).as_deref(), Ok(kind), "{path}");
            assert_eq!(check_exists(&schema, path), Ok(()), "{path}");
        }
        assert!(indexed_kind(&schema, ".e", false).is_ok_and(|kind| kind.starts_with("enum(")));
        assert_eq!(indexed_kind(&schema, ".s", true).as_deref(), Ok("string"));
        for path in [".u", ".z", ".m", ".a", ".a[*]", ".x", ".s[*]", ".a.x", ".m.k", ".t.x", ".t", ".a[*].next"] {
            assert!(indexed_kind(&schema, path, false).is_err(), "{path}");
        }
        assert!(indexed_kind(&schema, ".n", true).is_err());
        for path in [".u", ".m", ".a", ".a[*]", ".t", ".t.x"] {
            assert_eq!(check_exists(&schema, path), Ok(()), "{path}");
        }
        for path in [".x", ".s[*]", ".a.x", ".m.k"] {
            assert!(check_exists(&schema, path).is_err(), "{path}");
        }
    }
}
