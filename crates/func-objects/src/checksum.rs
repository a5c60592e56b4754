//! The checksum of an object that is made of parts.

use md5::{Digest as _, Md5};
use millrace_api::objects::{Checksum, ChecksumAlgorithm, ChecksumKind};

/// The checksum of parts in order, each with its checksum and its bytes; `None` where a part has none, or where parts'
/// checksums of this algorithm do not give the whole's.
pub(crate) fn of_parts(
    algorithm: ChecksumAlgorithm,
    kind: ChecksumKind,
    parts: &[(Option<Checksum>, u64)],
) -> Option<Checksum> {
    let mut values = Vec::with_capacity(parts.len());
    for (checksum, length) in parts {
        let checksum = checksum.as_ref().filter(|checksum| checksum.algorithm == algorithm)?;
        values.push((&checksum.value[..], *length));
    }
    let value = match kind {
        ChecksumKind::Composite => composite(algorithm, &values)?,
        ChecksumKind::FullObject => full(algorithm, &values)?,
    };
    Some(Checksum { algorithm, kind, value })
}

/// The algorithm over the parts' checksums.
fn composite(algorithm: ChecksumAlgorithm, values: &[(&[u8], u64)]) -> Option<Vec<u8>> {
    let all = values.iter().flat_map(|(value, _)| value.iter().copied()).collect::<Vec<u8>>();
    Some(match algorithm {
        ChecksumAlgorithm::Md5 => Md5::digest(&all).to_vec(),
        other => millrace_checksum::checksum(other, &all),
    })
}

/// The checksum that the whole content has, from those of its parts.
fn full(algorithm: ChecksumAlgorithm, values: &[(&[u8], u64)]) -> Option<Vec<u8>> {
    millrace_checksum::combine(algorithm, values)
}
