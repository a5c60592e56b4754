//! What bounds a stranger at this front, with the reason. Limits that several crates share stand in `base::limits`.

/// Bytes of a document in a request. The largest that S3 documents, 10,000 parts to complete, takes about 1 MiB without
/// checksums and 3 MiB with them.
pub const DOCUMENT_BYTES: usize = 4 << 20;

/// Elements of a document: 10,000 parts with five elements each, and what is around them.
pub const DOCUMENT_ELEMENTS: usize = 64_000;

/// How deep elements of a document may nest. The deepest that S3 documents has seven levels.
pub const DOCUMENT_DEPTH: usize = 16;

/// Bytes of a body that is read whole before anything is asked. Larger ones are asked about first, then streamed.
pub const SMALL_BODY_BYTES: u64 = 64 << 10;

/// Bytes of an object's user-defined metadata, names and values together, as S3 documents it.
pub const METADATA_BYTES: usize = 2 << 10;

/// Bytes of a request's line and headers, and of what is read of a body at once. S3 allows 8 KiB of headers; a key of
/// 1,024 bytes takes 3 KiB encoded. Smaller reads make large bodies slow.
pub const HEAD_BYTES: usize = 64 << 10;

/// Headers of a request: 2 KiB of metadata can be some 200 short ones.
pub const HEADERS: usize = 256;

/// Parameters of a query. The longest that S3 documents, a presigned request, has about 20.
pub const QUERY_PARAMETERS: usize = 100;

/// Bytes of one PUT, and of one part, as S3 documents it.
pub const PUT_BYTES: u64 = 5 << 30;

/// Parts of an upload, as S3 documents it.
pub const PART_NUMBER: u16 = 10_000;

/// Items of one page of a list, as S3 documents it.
pub const PAGE_ITEMS: u16 = 1_000;

/// Buckets of one page, as S3 documents it.
pub const PAGE_BUCKETS: u16 = 10_000;

/// Objects of one request that deletes many, as S3 documents it.
pub const DELETE_OBJECTS: usize = 1_000;

/// Tags of an object, as S3 documents it.
pub const OBJECT_TAGS: usize = 10;

/// Tags of a bucket, as S3 documents it.
pub const BUCKET_TAGS: usize = 50;

/// Grants of an access list, as S3 documents it.
pub const GRANTS: usize = 100;

/// Rules for web pages, as S3 documents it.
pub const CORS_RULES: usize = 100;

/// Rules for what vanishes, as S3 documents it.
pub const LIFECYCLE_RULES: usize = 1_000;

/// Rules for who is told, as many as rules for web pages.
pub const NOTIFICATION_RULES: usize = 100;

/// Bytes of a bucket policy, as S3 documents it.
pub const POLICY_BYTES: usize = 20 << 10;

/// ETags that one condition may name. S3 documents one; HTTP allows a list.
pub const CONDITION_ETAGS: usize = 32;
