//! A strict reader of the tar archives in which apps are deployed.
//!
//! An archive may hold regular files and folders, nothing else: no links, no devices, no absolute
//! paths, no `..`. So nothing an archive says can reach outside the app, wherever it is unpacked.

use std::collections::HashSet;

use millrace_api::AppFile;
use millrace_base::{Error, ErrorCode, limits};
use tar::EntryType;

fn malformed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::BadRequest, message)
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::AppRefused, message)
}

/// Reads an archive's files, in its order.
///
/// # Errors
/// `bad-request` for what is not a tar archive or is cut short, `app-refused` for an archive that
/// holds what an app may not hold.
pub fn read(archive: &[u8]) -> Result<Vec<AppFile>, Error> {
    if archive.is_empty() {
        return Err(malformed("the body is empty: send the app's folder as a tar archive"));
    }
    if archive.starts_with(&[0x1f, 0x8b])
        || archive.starts_with(b"BZh")
        || archive.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
    {
        return Err(malformed("the archive is compressed: send it as plain tar"));
    }
    let mut reader = tar::Archive::new(archive);
    let entries = reader.entries().map_err(|error| malformed(format!("not a tar archive: {error}")))?;
    let mut files = Vec::new();
    let mut paths = HashSet::new();
    let mut folders = 0;
    let mut total_bytes = 0;
    for entry in entries {
        let entry = entry.map_err(|error| malformed(format!("not a tar archive: {error}")))?;
        let path = checked_path(&entry.path_bytes())?;
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {}
            EntryType::Directory => {
                folders += 1;
                if folders > limits::APP_FILES {
                    return Err(refused(format!("the app has more than {} folders", limits::APP_FILES)));
                }
                continue;
            }
            // `git archive` writes one that holds the commit's id only.
            EntryType::XGlobalHeader => continue,
            other => {
                return Err(refused(format!("{path:?} is a {}; only files and folders are allowed", name_of(other))));
            }
        }
        let content = content(archive, &entry, &path)?;
        total_bytes += content.len();
        if total_bytes > limits::APP_BYTES {
            return Err(refused(format!("the app's files are larger than {} bytes together", limits::APP_BYTES)));
        }
        if path.is_empty() || !paths.insert(path.clone()) {
            return Err(refused(format!("{path:?} occurs twice or names no file")));
        }
        if paths.len() > limits::APP_FILES {
            return Err(refused(format!("the app has more than {} files", limits::APP_FILES)));
        }
        files.push(AppFile { path, content: content.to_vec() });
    }
    check_end(archive, &files)?;
    Ok(files)
}

/// The entry's bytes, which must lie inside the archive: the header's word is not taken for it.
fn content<'a>(archive: &'a [u8], entry: &tar::Entry<'_, &[u8]>, path: &str) -> Result<&'a [u8], Error> {
    let range = || {
        let start = usize::try_from(entry.raw_file_position()).ok()?;
        let end = start.checked_add(usize::try_from(entry.size()).ok()?)?;
        archive.get(start..end)
    };
    range().ok_or_else(|| malformed(format!("the archive ends inside {path:?}")))
}

fn check_end(archive: &[u8], files: &[AppFile]) -> Result<(), Error> {
    if files.is_empty() {
        return Err(refused("the archive holds no file"));
    }
    // Two zero blocks end an archive; without them it was cut between two files.
    let blocks = archive.chunks(512);
    if blocks.rev().take(2).any(|block| block.iter().any(|byte| *byte != 0)) {
        return Err(malformed("the archive is cut short: its end mark is missing"));
    }
    Ok(())
}

/// The path as an app knows it: `/` between parts, no leading `./`, nothing that leads outside.
/// Empty for the archive's root folder.
fn checked_path(bytes: &[u8]) -> Result<String, Error> {
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(limits::APP_PATH_BYTES)]).into_owned();
    let text = std::str::from_utf8(bytes).map_err(|_| refused(format!("the path {:?} is not UTF-8", shown())))?;
    if text.len() > limits::APP_PATH_BYTES {
        return Err(refused(format!("the path {:?}… is longer than {} bytes", shown(), limits::APP_PATH_BYTES)));
    }
    if text.starts_with('/') {
        return Err(refused(format!("the path {text:?} is absolute")));
    }
    if text.contains(['\\', '\0']) || text.chars().any(char::is_control) {
        return Err(refused(format!("the path {text:?} holds a backslash or a control character")));
    }
    let mut path = String::with_capacity(text.len());
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(refused(format!("the path {text:?} leads outside the app"))),
            part => {
                if !path.is_empty() {
                    path.push('/');
                }
                path.push_str(part);
            }
        }
    }
    Ok(path)
}

fn name_of(entry_type: EntryType) -> &'static str {
    match entry_type {
        EntryType::Link => "hard link",
        EntryType::Symlink => "symbolic link",
        EntryType::Char | EntryType::Block => "device",
        EntryType::Fifo => "pipe",
        EntryType::GNUSparse => "sparse file",
        _ => "special file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(builder: &mut tar::Builder<Vec<u8>>, path: &str, kind: EntryType, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        // Written past the builder's own checks, as an attacker would.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).expect("in memory");
    }

    fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, content) in entries {
            entry(&mut builder, path, *kind, content);
        }
        builder.into_inner().expect("in memory")
    }

    #[test]
    fn files_come_out_with_clean_paths() {
        let long = format!("{}/x.ts", "d".repeat(150));
        let mut builder = tar::Builder::new(Vec::new());
        entry(&mut builder, "./", EntryType::Directory, b"");
        entry(&mut builder, "./account.ts", EntryType::Regular, b"export default 1");
        entry(&mut builder, "lib//money.ts", EntryType::Regular, b"");
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        builder.append_data(&mut header, &long, &b"x"[..]).expect("a long name goes into an extra entry");
        let files = read(&builder.into_inner().expect("in memory")).expect("valid");
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["account.ts", "lib/money.ts", &long]);
        assert_eq!(files[0].content, b"export default 1");
    }

    #[test]
    fn what_an_app_may_not_hold_is_refused() {
        use EntryType::*;
        for (path, kind) in [
            ("/etc/passwd", Regular),
            ("../x.ts", Regular),
            ("a/../../x.ts", Regular),
            ("a\\b.ts", Regular),
            ("a\n.ts", Regular),
            (".", Regular),
            ("link", Symlink),
            ("link", Link),
            ("device", Char),
            ("device", Block),
            ("pipe", Fifo),
        ] {
            let error = read(&archive(&[("ok.ts", Regular, b""), (path, kind, b"")])).expect_err(path);
            assert_eq!(error.code, ErrorCode::AppRefused, "{path} {kind:?}: {error}");
        }
        let twice = archive(&[("a.ts", Regular, b"1"), ("./a.ts", Regular, b"2")]);
        assert_eq!(read(&twice).expect_err("twice").code, ErrorCode::AppRefused);
        assert_eq!(read(&archive(&[("d", Directory, b"")])).expect_err("no file").code, ErrorCode::AppRefused);
        let names: Vec<String> = (0..=limits::APP_FILES).map(|index| format!("f{index}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), Regular, &b""[..])).collect();
        assert_eq!(read(&archive(&many)).expect_err("too many").code, ErrorCode::AppRefused);
    }

    #[test]
    fn what_is_no_archive_is_malformed() {
        let whole = archive(&[("a.ts", EntryType::Regular, &[b'x'; 700])]);
        for cut in [0, 1, 100, 512, 600, 1300, 1536] {
            assert_eq!(read(&whole[..cut]).expect_err("cut").code, ErrorCode::BadRequest, "{cut}");
        }
        for other in [&b"{}"[..], b"\x1f\x8b\x08", &[b'x'; 2048]] {
            assert_eq!(read(other).expect_err("no archive").code, ErrorCode::BadRequest);
        }
        let mut lying = whole;
        lying[124..136].copy_from_slice(b"77777777777\0");
        assert!(read(&lying).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            content in proptest::collection::vec(any::<u8>(), 0..1500),
            flips in proptest::collection::vec((0usize..2048, any::<u8>()), 0..6),
        ) {
            let _ = read(&content);
            let mut damaged = archive(&[("a.ts", EntryType::Regular, &content)]);
            for (at, value) in flips {
                let at = at % damaged.len();
                damaged[at] = value;
            }
            // The checksum is made right again, so that the damage is looked at.
            let mut header = tar::Header::new_old();
            header.as_mut_bytes().copy_from_slice(&damaged[..512]);
            header.set_cksum();
            damaged[..512].copy_from_slice(header.as_bytes());
            let _ = read(&damaged);
        }
    }
}
