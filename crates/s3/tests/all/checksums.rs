//! Checksums: published check values, any split, combination of parts, texts.

use millrace_api::objects::ChecksumAlgorithm;
use millrace_checksum::{Hasher, checksum as digest, combine, length_bytes};
use millrace_s3::algorithm::{ALL, by_header, by_name};
use millrace_s3::checksum as header;
use millrace_s3::error::Code;
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The check values of the CRC catalogue and of the hashes' own specifications.
#[test]
fn known_values() {
    for (algorithm, text, value) in [
        (ChecksumAlgorithm::Crc32, "123456789", "cbf43926"),
        (ChecksumAlgorithm::Crc32c, "123456789", "e3069283"),
        (ChecksumAlgorithm::Crc64Nvme, "123456789", "ae8b14860a799888"),
        (ChecksumAlgorithm::Sha1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (ChecksumAlgorithm::Sha256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (ChecksumAlgorithm::Md5, "abc", "900150983cd24fb0d6963f7d28e17f72"),
        (ChecksumAlgorithm::Xxhash64, "", "ef46db3751d8e999"),
        (ChecksumAlgorithm::Xxhash3, "", "2d06800538d394c2"),
        (ChecksumAlgorithm::Xxhash128, "", "99aa06d3014798d86001c324468d497f"),
    ] {
        assert_eq!(hex(&digest(algorithm, text.as_bytes())), value, "{algorithm:?}");
    }
    assert!(hex(&digest(ChecksumAlgorithm::Sha512, b"abc")).starts_with("ddaf35a193617abacc417349ae204131"));
}

#[test]
fn names_and_headers_lead_back() {
    for names in &ALL {
        assert_eq!(by_name(&names.name.to_lowercase()), Some(names.algorithm));
        assert_eq!(by_header(names.header), Some(names.algorithm));
        assert_eq!(digest(names.algorithm, b"x").len(), length_bytes(names.algorithm));
    }
}

#[test]
fn values_that_cannot_be_are_refused() {
    let crc32 = ChecksumAlgorithm::Crc32;
    assert_eq!(header::value(crc32, "y/Q5Jg==").unwrap(), (vec![0xcb, 0xf4, 0x39, 0x26], None));
    assert_eq!(header::value(crc32, "y/Q5Jg==-3").unwrap(), (vec![0xcb, 0xf4, 0x39, 0x26], Some(3)));
    for text in ["y/Q5Jg", "bad"] {
        assert_eq!(header::value(crc32, text).unwrap_err().code, Code::BadDigest, "{text}");
    }
    for text in ["", "y/Q5Jg==-", "y/Q5Jg==-0", "y/Q5Jg==-10001", "y/Q5Jg==-+3", "y/Q5JgA=", "?"] {
        assert_eq!(header::value(crc32, text).unwrap_err().code, Code::InvalidRequest, "{text}");
    }
    assert_eq!(header::content_md5("kAFQmDzST7DWlj99KOF/cg==").unwrap()[..2], [0x90, 0x01]);
    for text in ["", "AAAA", "kAFQmDzST7DWlj99KOF/cgA=", "zz"] {
        assert_eq!(header::content_md5(text).unwrap_err().code, Code::InvalidDigest, "{text}");
    }
    assert!(header::algorithm("crc32c").is_ok() && header::algorithm("crc16").is_err());
    assert!(header::trailer("X-Amz-Checksum-Sha256").is_ok() && header::trailer("x-amz-meta-a").is_err());
    assert!(header::kind("COMPOSITE").is_ok() && header::kind("composite").is_err());
}

proptest! {
    #[test]
    fn parts_combine_to_the_whole(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6)) {
        let whole = parts.concat();
        let all = ALL.map(|names| names.algorithm);
        let mut hasher = Hasher::new(&all);
        parts.iter().for_each(|part| hasher.update(part));
        let digests = hasher.finish();
        for algorithm in all {
            let expected = digest(algorithm, &whole);
            prop_assert_eq!(&digests.of(algorithm).unwrap().value, &expected);
            let values: Vec<_> = parts.iter().map(|part| digest(algorithm, part)).collect();
            let sized: Vec<_> = values.iter().zip(&parts).map(|(value, part)| (&value[..], part.len() as u64)).collect();
            if let Some(combined) = combine(algorithm, &sized) {
                prop_assert_eq!(&combined, &expected);
            }
            prop_assert_eq!(header::value(algorithm, &header::text(&expected, Some(7))).unwrap(), (expected, Some(7)));
        }
    }
}
