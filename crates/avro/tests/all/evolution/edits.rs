//! Random changes of a schema's JSON, as people make them from one version to the next.

use crate::common::parsed;
use millrace_avro::Schema;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// What is done at one of the places where it can be done.
#[derive(Clone, Copy, Debug)]
enum Kind {
    AddField,
    AddFieldWithDefault,
    DropField,
    RenameField,
    RenameFieldWithAlias,
    MoveField,
    Promote,
    Retype,
    Wrap,
    Unwrap,
    AddBranch,
    DropBranch,
    MoveBranch,
    AddSymbol,
    DropSymbol,
    MoveSymbol,
    SetEnumDefault,
    ClearEnumDefault,
    ResizeFixed,
    RenameType,
    RenameTypeWithAlias,
    MoveType,
    /// Two branches for one: the same type in another namespace, and under another name with an alias.
    Twin,
    SetLogical,
    ClearLogical,
    SwapContainer,
}

const KINDS: [Kind; 25] = [
    Kind::AddField,
    Kind::AddFieldWithDefault,
    Kind::DropField,
    Kind::RenameField,
    Kind::RenameFieldWithAlias,
    Kind::MoveField,
    Kind::Promote,
    Kind::Retype,
    Kind::Wrap,
    Kind::Unwrap,
    Kind::AddBranch,
    Kind::DropBranch,
    Kind::MoveBranch,
    Kind::AddSymbol,
    Kind::DropSymbol,
    Kind::MoveSymbol,
    Kind::SetEnumDefault,
    Kind::ClearEnumDefault,
    Kind::ResizeFixed,
    Kind::RenameType,
    Kind::RenameTypeWithAlias,
    Kind::MoveType,
    Kind::SetLogical,
    Kind::ClearLogical,
    Kind::SwapContainer,
];

/// A change, and the numbers that decide where it is made and to what.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    kind: Kind,
    place: usize,
    choice: usize,
    other: usize,
}

/// Changes that values survive come more often. The weight is for the change that puts two types in the place of one.
pub fn edits(twins: u32) -> impl Strategy<Value = Vec<Edit>> {
    use Kind::{AddFieldWithDefault, MoveField, Promote, RenameFieldWithAlias, SetEnumDefault, Wrap};
    let gentle = vec![AddFieldWithDefault, MoveField, Promote, RenameFieldWithAlias, SetEnumDefault, Wrap];
    let kind = prop_oneof![
        20 => prop::sample::select(KINDS.to_vec()),
        10 => prop::sample::select(gentle),
        twins => Just(Kind::Twin),
    ];
    let edit = (kind, 0_usize..1000, 0_usize..1000, 0_usize..1000);
    prop::collection::vec(edit.prop_map(|(kind, place, choice, other)| Edit { kind, place, choice, other }), 0..8)
}

/// The schema after those of the changes that leave a schema.
pub fn edited(schema: &Value, edits: &[Edit]) -> (Value, Schema) {
    let mut json = schema.clone();
    for edit in edits {
        let mut next = json.clone();
        if edit.apply(&mut next).is_some() && Schema::parse(&next.to_string(), &[]).is_ok() {
            json = next;
        }
    }
    let schema = parsed(&json);
    (json, schema)
}

/// The name of a type without parts, of a composite one's kind, or of a type defined elsewhere; `union`.
pub fn kind_of(json: &Value) -> &str {
    match json {
        Value::Array(_) => "union",
        _ => json.get("type").unwrap_or(json).as_str().expect("a type"),
    }
}

/// Where types stand, as JSON pointers.
fn places(json: &Value, pointer: &str, found: &mut Vec<String>) {
    found.push(pointer.to_owned());
    match kind_of(json) {
        "union" => {
            for (index, branch) in json.as_array().into_iter().flatten().enumerate() {
                places(branch, &format!("{pointer}/{index}"), found);
            }
        }
        "record" => {
            for (index, field) in json["fields"].as_array().into_iter().flatten().enumerate() {
                places(&field["type"], &format!("{pointer}/fields/{index}/type"), found);
            }
        }
        "array" => places(&json["items"], &format!("{pointer}/items"), found),
        "map" => places(&json["values"], &format!("{pointer}/values"), found),
        _ => (),
    }
}

pub fn has_union(json: &Value) -> bool {
    let mut found = Vec::new();
    places(json, "", &mut found);
    found.iter().any(|pointer| json.pointer(pointer).is_some_and(Value::is_array))
}

/// Types, and a default of each.
fn with_defaults(number: usize) -> Vec<(Value, Value)> {
    let inner = json!({"type":"record","name":format!("a.b.G{number}"),"fields":[
        {"name":"x","type":"int","default":7},{"name":"y","type":"string"}]});
    vec![
        (json!("int"), json!(-3)),
        (json!("long"), json!(1_099_511_627_776_i64)),
        (json!("float"), json!(0.1)),
        (json!("double"), json!(5)),
        (json!("string"), json!("é")),
        (json!("bytes"), json!("ab\u{0}")),
        (json!("boolean"), json!(true)),
        (json!("null"), json!(null)),
        (json!({"type":"array","items":"int"}), json!([1, 2])),
        (json!({"type":"map","values":"double"}), json!({"a":0.5})),
        (json!({"type":"enum","name":format!("H{number}"),"symbols":["A","B"]}), json!("B")),
        (json!({"type":"fixed","name":format!("K{number}"),"size":2}), json!("ab")),
        (json!(["null", "string"]), json!(null)),
        (json!(["string", "long"]), json!("s")),
        (inner, json!({"y":"z"})),
    ]
}

const PRIMITIVES: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

/// The types to which a type can be promoted, and those that look much like it.
fn promotions(kind: &str) -> &'static [&'static str] {
    match kind {
        "int" => &["long", "float", "double"],
        "long" => &["float", "double"],
        "float" => &["double"],
        "string" => &["bytes"],
        "bytes" => &["string"],
        _ => &[],
    }
}

fn logical_types(kind: &str, size: u64) -> Vec<Value> {
    let plain = |names: &[&str]| names.iter().map(|name| json!({"logicalType":name})).collect();
    let decimals = |digits: &[(u32, u32)]| {
        let decimal =
            |(precision, scale): &(u32, u32)| json!({"logicalType":"decimal","precision":precision,"scale":scale});
        digits.iter().map(decimal).collect()
    };
    match (kind, size) {
        ("int", _) => plain(&["date", "time-millis", "duration"]),
        ("long", _) => plain(&[
            "time-micros",
            "timestamp-millis",
            "timestamp-micros",
            "timestamp-nanos",
            "local-timestamp-millis",
            "local-timestamp-micros",
            "local-timestamp-nanos",
        ]),
        ("bytes", _) => decimals(&[(20, 3), (20, 2), (25, 3), (14, 3), (2, 0)]),
        ("string", _) => plain(&["uuid"]),
        ("fixed", 12) => plain(&["duration"]),
        ("fixed", 16) => plain(&["uuid"]),
        // Four bytes hold no more than nine digits.
        ("fixed", _) => decimals(&[(10, 2), (9, 2), (6, 2), (6, 1), (2, 0)]),
        _ => Vec::new(),
    }
}

impl Edit {
    /// One of some things.
    fn pick<'i, I>(&self, items: &'i [I], decision: usize) -> Option<&'i I> {
        items.get(decision % items.len().max(1))
    }

    /// One of the types for which something holds.
    fn at<'s>(&self, schema: &'s mut Value, fits: impl Fn(&Value) -> bool) -> Option<&'s mut Value> {
        let mut found = Vec::new();
        places(schema, "", &mut found);
        found.retain(|pointer| schema.pointer(pointer).is_some_and(&fits));
        let pointer = self.pick(&found, self.place)?;
        schema.pointer_mut(pointer)
    }

    fn of_kind<'s>(&self, schema: &'s mut Value, kind: &str) -> Option<&'s mut Value> {
        self.at(schema, |json| kind_of(json) == kind)
    }

    /// A list of a type: its fields, symbols, branches.
    fn list<'s>(&self, schema: &'s mut Value, kind: &str, member: &str) -> Option<&'s mut Vec<Value>> {
        let json = self.of_kind(schema, kind)?;
        if kind == "union" { json.as_array_mut() } else { json.get_mut(member)?.as_array_mut() }
    }

    /// Makes the change; `None` if there is no place for it.
    fn apply(&self, schema: &mut Value) -> Option<()> {
        match self.kind {
            Kind::AddField | Kind::AddFieldWithDefault | Kind::RenameField | Kind::RenameFieldWithAlias => {
                self.field(schema)
            }
            Kind::DropField => self.drop_item(self.list(schema, "record", "fields")?),
            Kind::DropBranch => self.drop_item(self.list(schema, "union", "")?),
            Kind::DropSymbol => self.drop_item(self.list(schema, "enum", "symbols")?),
            Kind::MoveField => self.move_item(self.list(schema, "record", "fields")?),
            Kind::MoveBranch => self.move_item(self.list(schema, "union", "")?),
            Kind::MoveSymbol => self.move_item(self.list(schema, "enum", "symbols")?),
            Kind::AddBranch => {
                let branches = self.list(schema, "union", "")?;
                let at = self.other % (branches.len() + 1);
                branches.insert(at, json!(self.pick(&PRIMITIVES, self.choice)?));
                Some(())
            }
            Kind::AddSymbol => {
                let symbols = self.list(schema, "enum", "symbols")?;
                let at = self.other % (symbols.len() + 1);
                symbols.insert(at, json!(format!("S{}", self.choice % 8)));
                Some(())
            }
            Kind::Promote | Kind::Retype | Kind::Wrap | Kind::Unwrap | Kind::SwapContainer => self.shape(schema),
            Kind::SetEnumDefault => {
                let of = self.of_kind(schema, "enum")?;
                let default = self.pick(of["symbols"].as_array()?, self.choice)?.clone();
                of["default"] = default;
                Some(())
            }
            Kind::ClearEnumDefault => self
                .at(schema, |json| kind_of(json) == "enum" && json.get("default").is_some())?
                .as_object_mut()?
                .remove("default")
                .map(drop),
            Kind::ResizeFixed => {
                let size = [0, 1, 2, 3, 5, 12, 16][self.choice % 7];
                self.of_kind(schema, "fixed")?["size"] = json!(size);
                Some(())
            }
            Kind::RenameType | Kind::RenameTypeWithAlias | Kind::MoveType => self.rename_type(schema),
            Kind::Twin => {
                let branches = self.list(schema, "union", "")?;
                let at = self.choice.checked_rem(branches.len())?;
                let known = branches[at].clone();
                let name = known.get("name")?.as_str()?.to_owned();
                let (mut moved, mut alias) = (known.clone(), known);
                moved["name"] = json!(format!("c.{}", name.rsplit('.').next()?));
                alias["name"] = json!(format!("{name}Twin"));
                alias["aliases"] = json!([name]);
                branches.splice(at..=at, if self.other.is_multiple_of(2) { [moved, alias] } else { [alias, moved] });
                Some(())
            }
            Kind::SetLogical | Kind::ClearLogical => self.logical(schema),
        }
    }

    fn drop_item(&self, items: &mut Vec<Value>) -> Option<()> {
        let at = self.choice.checked_rem(items.len())?;
        items.remove(at);
        Some(())
    }

    fn move_item(&self, items: &mut Vec<Value>) -> Option<()> {
        let (from, to) = (self.choice.checked_rem(items.len())?, self.other % items.len());
        let item = items.remove(from);
        items.insert(to, item);
        Some(())
    }

    fn field(&self, schema: &mut Value) -> Option<()> {
        let fields = self.list(schema, "record", "fields")?;
        if matches!(self.kind, Kind::AddField | Kind::AddFieldWithDefault) {
            let known = with_defaults(self.other);
            let (of, default) = self.pick(&known, self.choice)?;
            let mut field = json!({"name":format!("g{}", self.other % 4),"type":of});
            if matches!(self.kind, Kind::AddFieldWithDefault) {
                field["default"] = default.clone();
            }
            fields.insert(self.other % (fields.len() + 1), field);
            return Some(());
        }
        let at = self.choice.checked_rem(fields.len())?;
        // Also to names that fields of the writer have.
        let name = ["f0", "f1", "n0", "n1", "n2", "n3"][self.other % 6];
        let old = std::mem::replace(&mut fields[at]["name"], json!(name));
        if matches!(self.kind, Kind::RenameFieldWithAlias) {
            let mut aliases = fields[at].get("aliases").and_then(Value::as_array).cloned().unwrap_or_default();
            aliases.push(old);
            fields[at]["aliases"] = Value::Array(aliases);
        }
        Some(())
    }

    /// Puts another type in the place of one.
    fn shape(&self, schema: &mut Value) -> Option<()> {
        match self.kind {
            Kind::Promote => {
                let of = self.at(schema, |json| !promotions(kind_of(json)).is_empty())?;
                let kind = self.pick(promotions(kind_of(of)), self.choice)?;
                // It keeps its logical type, if the new type may have that.
                if of.is_object() { of["type"] = json!(kind) } else { *of = json!(kind) }
            }
            Kind::Retype => {
                let of = self.at(schema, |json| PRIMITIVES.contains(&kind_of(json)))?;
                *of = json!(self.pick(&PRIMITIVES, self.choice)?);
            }
            Kind::Wrap => {
                let of = self.at(schema, |json| !json.is_array())?;
                let inner = of.take();
                let other = self.pick(&PRIMITIVES, self.other)?;
                *of = match self.choice % 4 {
                    0 => json!(["null", inner]),
                    1 => json!([inner, "null"]),
                    2 => json!([other, inner]),
                    _ => json!(["null", other, inner]),
                };
            }
            Kind::Unwrap => {
                let of = self.of_kind(schema, "union")?;
                *of = self.pick(of.as_array()?, self.choice)?.clone();
            }
            _ => {
                let of = self.at(schema, |json| ["array", "map"].contains(&kind_of(json)))?;
                *of = match kind_of(of) {
                    "array" => json!({"type":"map","values":of["items"]}),
                    _ => json!({"type":"array","items":of["values"]}),
                };
            }
        }
        Some(())
    }

    /// A type and its references get another name, or another namespace, so that only the short name stays.
    fn rename_type(&self, schema: &mut Value) -> Option<()> {
        let of = self.at(schema, |json| json.get("name").is_some())?;
        let old = of["name"].as_str()?.to_owned();
        let short = old.rsplit('.').next()?;
        let new = match self.kind {
            Kind::MoveType => format!("c.{short}"),
            _ => format!("{}N{}", old.strip_suffix(short)?, self.choice % 50),
        };
        of["name"] = json!(new);
        if matches!(self.kind, Kind::RenameTypeWithAlias) {
            of["aliases"] = json!([old]);
        }
        let mut found = Vec::new();
        places(schema, "", &mut found);
        for pointer in found {
            if let Some(reference) = schema.pointer_mut(&pointer).filter(|json| **json == *old) {
                *reference = json!(new);
            }
        }
        Some(())
    }

    fn logical(&self, schema: &mut Value) -> Option<()> {
        if matches!(self.kind, Kind::ClearLogical) {
            let of = self.at(schema, |json| json.get("logicalType").is_some())?;
            return of.as_object_mut()?.remove("logicalType").map(drop);
        }
        let of = self.at(schema, |json| !logical_types(kind_of(json), 0).is_empty())?;
        let known = logical_types(kind_of(of), of.get("size").and_then(Value::as_u64).unwrap_or(0));
        let logical = self.pick(&known, self.choice)?.as_object()?.clone();
        let mut object: Map<String, Value> =
            of.as_object().cloned().unwrap_or_else(|| Map::from_iter([("type".to_owned(), of.clone())]));
        object.extend(logical);
        *of = Value::Object(object);
        Some(())
    }
}
