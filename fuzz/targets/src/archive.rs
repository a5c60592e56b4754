//! Apps as tar. The headers' checksums are used as given, and made right, so that the code behind them is reached. An
//! archive is refused with a reason, or its files stay inside the app and inside the archive.

use std::collections::HashSet;

use millrace_base::{ErrorCode, limits};
use millrace_http::archive;

const BLOCK: usize = 512;

pub(crate) fn run(bytes: &[u8]) {
    check(bytes);
    check(&with_right_checksums(bytes));
}

fn check(bytes: &[u8]) {
    let files = match archive::read(bytes) {
        Ok(files) => files,
        Err(error) => {
            assert!(matches!(error.code, ErrorCode::BadRequest | ErrorCode::AppRefused) && !error.message.is_empty());
            return;
        }
    };
    assert!(!files.is_empty() && files.len() <= limits::APP_FILES);
    let total_bytes: usize = files.iter().map(|file| file.content.len()).sum();
    assert!(total_bytes <= bytes.len().min(limits::APP_BYTES));
    let mut paths = HashSet::new();
    for file in &files {
        assert!(paths.insert(file.path.as_str()), "each path once");
        assert!(file.path.len() <= limits::APP_PATH_BYTES);
        assert!(file.path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{:?}", file.path);
        assert!(!file.path.chars().any(|c| c == '\\' || c.is_control()), "{:?}", file.path);
    }
}

/// Makes the checksum of every header right. It finds the headers by following the sizes in them.
fn with_right_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut start = 0;
    while let Some(header) = bytes.get_mut(start..start + BLOCK) {
        if header.iter().any(|byte| *byte != 0) {
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        }
        let digits = header[124..136].iter().take_while(|byte| (b'0'..=b'7').contains(byte));
        let size = digits.fold(0, |size, digit| size * 8 + usize::from(digit - b'0'));
        start += BLOCK + size.next_multiple_of(BLOCK);
    }
    bytes
}
