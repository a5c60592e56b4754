//! The rows of the meta shard: the guidance, and the files of each deployed app.
//!
//! | entity | field | value |
//! |---|---|---|
//! | `guidance` | `document` | the guidance: JSON |
//! | `app`, key `NAME-CONTENT` | `0000`, `0001`, … | the app's tar, in parts |
//! | `table`, key `NAME-VERSION` | `0000`, `0001`, … | the table's bytes, in parts |

use millrace_base::{EntityKey, Value, ValueKind};
use millrace_format::Write;
use millrace_guidance::Guidance;
use millrace_store::Store;

/// Bytes of a part of a tar: far below what a value may have, and several fit in an entry.
const PART_BYTES: usize = 512 << 10;

/// Parts of one entry.
const PARTS_OF_ENTRY: usize = 4;

fn guidance_entity() -> EntityKey {
    EntityKey::internal("guidance", b"")
}

fn app_entity(name: &str, content: &str) -> EntityKey {
    EntityKey::internal("app", format!("{name}-{content}").as_bytes())
}

fn table_entity(name: &str, version: u64) -> EntityKey {
    EntityKey::internal("table", format!("{name}-{version}").as_bytes())
}

fn part_field(index: usize) -> Box<[u8]> {
    format!("{index:04}").into_bytes().into()
}

/// The guidance in the meta shard. `None` before the first.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn guidance(store: &mut Store) -> Result<Option<Guidance>, String> {
    let value = store.get(&guidance_entity(), b"document").map_err(|error| error.to_string())?;
    value.map(|value| Guidance::decode(value.content()).map_err(|error| error.to_string())).transpose()
}

/// The write that makes a guidance the present one.
pub(super) fn write_of(guidance: &Guidance) -> Write {
    let value = Some(Value::new(ValueKind::Bytes, &guidance.encode()));
    Write { entity: guidance_entity(), field: Box::from(&b"document"[..]), value }
}

/// The entries that keep an app's tar.
pub(super) fn writes_of_app(name: &str, content: &str, tar: &[u8]) -> Vec<Vec<Write>> {
    writes_of(&app_entity(name, content), tar)
}

/// The entries that keep a version of a table.
pub(super) fn writes_of_table(name: &str, version: u64, bytes: &[u8]) -> Vec<Vec<Write>> {
    writes_of(&table_entity(name, version), bytes)
}

fn writes_of(entity: &EntityKey, bytes: &[u8]) -> Vec<Vec<Write>> {
    let part = |(index, bytes): (usize, &[u8])| Write {
        entity: entity.clone(),
        field: part_field(index),
        value: Some(Value::new(ValueKind::Bytes, bytes)),
    };
    let parts: Vec<Write> = bytes.chunks(PART_BYTES).enumerate().map(part).collect();
    parts.chunks(PARTS_OF_ENTRY).map(<[Write]>::to_vec).collect()
}

/// The tar of a deployed app.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn tar_of_app(store: &mut Store, name: &str, content: &str) -> Result<Vec<u8>, String> {
    let tar = read(store, &app_entity(name, content))?;
    if tar.is_empty() { Err(format!("the files of {name} are missing")) } else { Ok(tar) }
}

/// A version of a table.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn table(store: &mut Store, name: &str, version: u64) -> Result<Vec<u8>, String> {
    let bytes = read(store, &table_entity(name, version))?;
    if bytes.is_empty() { Err("its rows are missing".to_owned()) } else { Ok(bytes) }
}

fn read(store: &mut Store, entity: &EntityKey) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for index in 0.. {
        match store.get(entity, &part_field(index)).map_err(|error| error.to_string())? {
            Some(part) => bytes.extend_from_slice(part.content()),
            None => break,
        }
    }
    Ok(bytes)
}

/// The deletions of the parts of an app's tar that is not deployed any more.
pub(super) fn deletions_of_app(store: &mut Store, name: &str, content: &str) -> Vec<Write> {
    deletions_of(store, &app_entity(name, content))
}

/// The deletions of the parts of a version of a table.
pub(super) fn deletions_of_table(store: &mut Store, name: &str, version: u64) -> Vec<Write> {
    deletions_of(store, &table_entity(name, version))
}

fn deletions_of(store: &mut Store, entity: &EntityKey) -> Vec<Write> {
    let mut writes = Vec::new();
    for index in 0.. {
        match store.get(entity, &part_field(index)) {
            Ok(Some(_)) => writes.push(Write { entity: entity.clone(), field: part_field(index), value: None }),
            _ => break,
        }
    }
    writes
}
