//! The function of each fuzz target. It panics where a decoder breaks its promise.
//!
//! The targets are in the main workspace and apart from libFuzzer. So the pinned toolchain builds them. Each
//! committed seed goes through its target in every run of the tests (`tests/seeds.rs`).

mod archive;
mod avpath;
mod avro_binary;
mod avro_json;
mod avro_schema;
mod backup;
mod base64;
mod bodies;
mod bookkeeping;
mod core_frame;
mod cron;
mod entity_key;
mod entry;
mod fetch_policy;
mod frame;
mod json_input;
mod key_file;
mod limits;
mod message;
mod node_file;
mod outcome;
mod path;
mod peer_frame;
mod plain_request;
mod record_cursor;
mod record_request;
mod recover;
mod registry_file;
mod replica_message;
mod replica_record;
mod replies;
mod role;
mod s3_authorization;
mod s3_chunks;
mod s3_document;
mod s3_form;
mod s3_policy;
mod s3_request;
mod segment;
mod server_frame;
mod settings;
mod snapshot_chunk;
mod stored_record;
mod template;
mod value;
mod worker_frame;

/// A target takes any bytes, and panics where something is wrong.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Target); 46] = [
    ("archive", archive::run),
    ("avpath", avpath::run),
    ("avro_binary", avro_binary::run),
    ("avro_json", avro_json::run),
    ("avro_schema", avro_schema::run),
    ("backup", backup::run),
    ("base64", base64::run),
    ("bodies", bodies::run),
    ("bookkeeping", bookkeeping::run),
    ("core_frame", core_frame::run),
    ("cron", cron::run),
    ("entity_key", entity_key::run),
    ("entry", entry::run),
    ("fetch_policy", fetch_policy::run),
    ("frame", frame::run),
    ("json_input", json_input::run),
    ("key_file", key_file::run),
    ("limits", limits::run),
    ("message", message::run),
    ("node_file", node_file::run),
    ("outcome", outcome::run),
    ("path", path::run),
    ("peer_frame", peer_frame::run),
    ("plain_request", plain_request::run),
    ("record_cursor", record_cursor::run),
    ("record_request", record_request::run),
    ("recover", recover::run),
    ("registry_file", registry_file::run),
    ("replica_message", replica_message::run),
    ("replica_record", replica_record::run),
    ("replies", replies::run),
    ("role", role::run),
    ("s3_authorization", s3_authorization::run),
    ("s3_chunks", s3_chunks::run),
    ("s3_document", s3_document::run),
    ("s3_form", s3_form::run),
    ("s3_policy", s3_policy::run),
    ("s3_request", s3_request::run),
    ("segment", segment::run),
    ("server_frame", server_frame::run),
    ("settings", settings::run),
    ("snapshot_chunk", snapshot_chunk::run),
    ("stored_record", stored_record::run),
    ("template", template::run),
    ("value", value::run),
    ("worker_frame", worker_frame::run),
];

/// Runs the target of this name.
///
/// # Panics
/// When there is no such target, or when the target finds something.
pub fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, target) = found.expect("a row of TARGETS for each binary");
    target(bytes);
}
