//! The schema registry and the settings of record types: one pure state, and its changes.
//!
//! It is the source of the built-in app `records`. The engine (`func-records`) loads types, schemas, indexes and
//! triggers from it. The front (`records`) reads it, changes it and replaces it whole.
//!
//! ```text
//! let mut registry = Registry::from_files(&files)?;        // no files: an empty registry
//! let registered = registry.register("orders-value", &NewSchema::avro(text))?;
//! let files = registry.to_files();                         // same registry, same bytes
//! ```
//!
//! A change either happens whole, or it returns a [`Refusal`] and leaves the registry as it was. Compare with a clone
//! from before (`==`) to see whether it changed anything.
//!
//! | read | |
//! |---|---|
//! | [`Registry::subjects`], [`Registry::versions`], [`Registry::version`], [`Registry::all_versions`] | what is registered. |
//! | [`Registry::schema`], [`Registry::versions_with`], [`Registry::referenced_by`] | by a schema's id. |
//! | [`Registry::lookup`], [`Registry::test_compatibility`] | a schema that may be registered or not. |
//! | [`Registry::compatibility`], [`Registry::effective_compatibility`], [`Registry::mode`], [`Registry::effective_mode`] | rules. |
//! | [`Registry::types`], [`Registry::record_type`] | types: a [`RecordType`] has settings, the current schema, every version, numbered indexes. |
//!
//! | change | |
//! |---|---|
//! | [`Registry::register`], [`Registry::delete_version`], [`Registry::delete_subject`] | as the Confluent Schema Registry does. |
//! | [`Registry::set_compatibility`], [`Registry::set_mode`] | global, or of one subject. |
//! | [`Registry::put_type`] | schema, compatibility and settings of a type, any of them, in one change. |
//! | [`Registry::put_trigger`], [`Registry::delete_trigger`] | one trigger. |
//! | [`Registry::put_classic_schema`] | the classic `putschema`. |
//! | [`Registry::delete_type`] | a type with its schemas. |
//!
//! A [`Refusal`] becomes a [`millrace_base::Error`] by `?` or `into()`. Its [`RefusalKind::number`] is the error code
//! of the Confluent Schema Registry.
//!
//! # Rules
//!
//! - A schema has one id wherever it is registered. Ids, and index numbers within a type's name, are never given twice,
//!   even after deletions. The mode `IMPORT` takes ids as they come, from the lower half of all numbers, so that there
//!   is always a next one. Two texts are the same schema if they differ only in what Avro's own parser does not keep:
//!   whitespace, the order of attributes, how a name's namespace is written. Documentation, defaults and other
//!   properties count.
//! - The text is kept as it was sent, with two exceptions: it was to be normalised, or one type was picked out of a
//!   file of several.
//! - References are pinned to a version, never to "latest". A schema that others refer to cannot be deleted.
//! - A subject is a *type* once it has settings. Its schemas are records. Its indexes and triggers must fit each new
//!   version. As long as it is a type, all its versions stay, also the deleted ones, because stored records may still
//!   have them.
//! - Deleting a type removes its settings and deletes its versions softly. So stored records can be read if the type
//!   comes back.
//! - The classic `putschema` checks compatibility only if a level was set for the subject or for all. Otherwise it
//!   replaces any schema, as the old server did. It makes types with `"create": "touch"`. For an existing type, it
//!   changes only the schema.
//!
//! Promises: the same files and changes give the same registry, byte for byte. Nothing here panics on what a stranger
//! wrote. Must not do I/O or know HTTP.

mod change;
mod compatibility;
mod files;
mod level;
mod normal;
mod place;
mod read;
mod refusal;
mod settings;
mod state;
mod stored;
mod types;

pub use level::{Level, Mode};
pub use read::{Against, NewSchema, Registered, SchemaVersion, Shown, VersionNumber};
pub use refusal::{Refusal, RefusalKind};
pub use settings::{
    ChangesSettings, Create, IndexSettings, Reference, TriggerSettings, TypeChange, TypeSettings, When,
    check_type_name, is_type_name,
};
pub use state::Registry;
pub use stored::StoredSchema;
pub use types::{NumberedIndex, PutType, RecordType};
