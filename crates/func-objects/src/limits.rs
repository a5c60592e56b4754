//! Limits of objects that only this crate uses, with their reasons. Most are the ones that S3 documents: clients know
//! them.

/// Bytes of an object's key. S3 documents 1,024.
pub const OBJECT_KEY_BYTES: usize = 1_024;

/// Bytes of a bucket policy. S3 documents 20 KB.
pub const POLICY_BYTES: usize = 20 * 1024;

/// Bytes of one pattern in a policy. Matching takes at most the pattern's length times the text's, so this bounds the
/// time that a key of 1,024 bytes can take.
pub const POLICY_PATTERN_BYTES: usize = 2_048;

/// Tags of an object. S3 documents 10.
pub const OBJECT_TAGS: usize = 10;

/// Tags of a bucket. S3 documents 50.
pub const BUCKET_TAGS: usize = 50;

/// Characters of a tag's key. S3 documents 128.
pub const TAG_KEY_CHARACTERS: usize = 128;

/// Characters of a tag's value. S3 documents 256.
pub const TAG_VALUE_CHARACTERS: usize = 256;

/// Rules of a CORS configuration. S3 documents 100.
pub const CORS_RULES: usize = 100;

/// Characters of the id of a rule: CORS, lifecycle. S3 documents 255.
pub const RULE_ID_CHARACTERS: usize = 255;

/// Rules of a lifecycle configuration. S3 documents 1,000.
pub const LIFECYCLE_RULES: usize = 1_000;

/// Days or years that a rule may name. Far beyond use, and far below what overflows a time in milliseconds.
pub const RULE_DAYS: u32 = 36_500;

/// Noncurrent versions that a lifecycle rule may keep. S3 documents 100.
pub const NEWER_NONCURRENT_VERSIONS: u32 = 100;

/// Rules for notifications of a bucket. S3 documents 100. A write sends at most one message for each.
pub const NOTIFICATION_RULES: usize = 100;

/// Grants of an access list. S3 documents 100.
pub const GRANTS: usize = 100;
