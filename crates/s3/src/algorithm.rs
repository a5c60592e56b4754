//! What clients call checksums: in headers, in documents, and as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_api::objects::{Checksum, ChecksumAlgorithm, ChecksumKind};

/// One algorithm's names.
#[derive(Debug)]
pub struct Names {
    /// Which.
    pub algorithm: ChecksumAlgorithm,
    /// In `x-amz-checksum-algorithm` and documents.
    pub name: &'static str,
    /// The header with its value.
    pub header: &'static str,
    /// The element with its value.
    pub element: &'static str,
}

macro_rules! names {
    ($($algorithm:ident $name:literal $header:literal $element:literal,)*) => {
        [$(Names {
            algorithm: ChecksumAlgorithm::$algorithm,
            name: $name,
            header: $header,
            element: $element,
        },)*]
    };
}

/// All of them, in the order in which S3 writes them.
pub const ALL: [Names; 10] = names![
    Crc32 "CRC32" "x-amz-checksum-crc32" "ChecksumCRC32",
    Crc32c "CRC32C" "x-amz-checksum-crc32c" "ChecksumCRC32C",
    Crc64Nvme "CRC64NVME" "x-amz-checksum-crc64nvme" "ChecksumCRC64NVME",
    Sha1 "SHA1" "x-amz-checksum-sha1" "ChecksumSHA1",
    Sha256 "SHA256" "x-amz-checksum-sha256" "ChecksumSHA256",
    Sha512 "SHA512" "x-amz-checksum-sha512" "ChecksumSHA512",
    Md5 "MD5" "x-amz-checksum-md5" "ChecksumMD5",
    Xxhash64 "XXHASH64" "x-amz-checksum-xxhash64" "ChecksumXXHASH64",
    Xxhash3 "XXHASH3" "x-amz-checksum-xxhash3" "ChecksumXXHASH3",
    Xxhash128 "XXHASH128" "x-amz-checksum-xxhash128" "ChecksumXXHASH128",
];

/// The names of one.
#[must_use]
pub fn names(algorithm: ChecksumAlgorithm) -> &'static Names {
    // Every algorithm is in the table: a test says so.
    ALL.iter().find(|names| names.algorithm == algorithm).unwrap_or(&ALL[0])
}

/// The algorithm of this name, in any case.
#[must_use]
pub fn by_name(name: &str) -> Option<ChecksumAlgorithm> {
    ALL.iter().find(|names| names.name.eq_ignore_ascii_case(name)).map(|names| names.algorithm)
}

/// The algorithm whose header this is, in lower case.
#[must_use]
pub fn by_header(header: &str) -> Option<ChecksumAlgorithm> {
    ALL.iter().find(|names| names.header == header).map(|names| names.algorithm)
}

/// A kind's name.
#[must_use]
pub fn kind_name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::FullObject => "FULL_OBJECT",
        ChecksumKind::Composite => "COMPOSITE",
    }
}

/// The kind of this name.
#[must_use]
pub fn kind_by_name(name: &str) -> Option<ChecksumKind> {
    match name {
        "FULL_OBJECT" => Some(ChecksumKind::FullObject),
        "COMPOSITE" => Some(ChecksumKind::Composite),
        _ => None,
    }
}

/// A value as text. How many parts a composite one was made of stands behind it.
#[must_use]
pub fn to_text(checksum: &Checksum, part_count: Option<u16>) -> String {
    let text = STANDARD.encode(&checksum.value);
    match (checksum.kind, part_count) {
        (ChecksumKind::Composite, Some(count)) => format!("{text}-{count}"),
        _ => text,
    }
}
