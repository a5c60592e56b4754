//! What the tests of this crate share.

use millrace_base::Error;
use millrace_registry::{NewSchema, Reference, Refusal, RefusalKind, Registered, Registry, TypeChange};

/// A record `R` with these fields, each `name:type` or, with a default, `name:type=default`.
pub fn record(fields: &str) -> String {
    let fields: Vec<String> = fields
        .split_whitespace()
        .map(|field| {
            let (name, rest) = field.split_once(':').expect("name:type");
            let (kind, default) = rest.split_once('=').map_or((rest, None), |(kind, default)| (kind, Some(default)));
            let kind = if kind.starts_with(['[', '{', '"']) { kind.to_owned() } else { format!("{kind:?}") };
            let default = default.map_or(String::new(), |default| format!(r#","default":{default}"#));
            format!(r#"{{"name":"{name}","type":{kind}{default}}}"#)
        })
        .collect();
    format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","))
}

pub fn avro(fields: &str) -> NewSchema {
    NewSchema::avro(record(fields))
}

pub fn reference(name: &str, subject: &str, version: i32) -> Reference {
    Reference { name: name.into(), subject: subject.into(), version }
}

/// Registers a record and returns `(id, version)`.
pub fn register(registry: &mut Registry, subject: &str, fields: &str) -> (u32, u32) {
    let Registered { id, version, .. } = registry.register(subject, &avro(fields)).expect("registered");
    (id, version)
}

pub fn change(json: &str) -> TypeChange {
    TypeChange::from_json(json).expect("a change")
}

/// The change's refusal. The registry stays as it was.
pub fn refused<T: std::fmt::Debug>(
    registry: &mut Registry,
    change: impl FnOnce(&mut Registry) -> Result<T, Refusal>,
) -> RefusalKind {
    let before = registry.clone();
    let refusal = change(registry).expect_err("refused");
    assert_eq!(*registry, before, "a refused change left something behind");
    let error = Error::from(refusal.clone());
    assert!(!error.message.is_empty());
    refusal.kind
}
