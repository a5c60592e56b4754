//! A byte changes on the disk. What was not written is never served. Whichever file it was in, no other body suffers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::*;
use millrace_blobs::{BlobError, Bodies, BodyName};

struct Written {
    disk: MemoryDisk,
    all: BTreeMap<BodyName, Vec<u8>>,
    files: Vec<String>,
}

/// Bodies in two segments and in two files of their own.
fn write_all(is_closed: bool) -> Written {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    let mut all = BTreeMap::new();
    for (seed, length) in [300, 0, 700, 1_000, 2_500, 2_400, 66_000, 400, 3_500].into_iter().enumerate() {
        let bytes = content(seed as u64, length);
        all.insert(put(&bodies, 0, format!("owner {seed}").as_bytes(), &bytes).expect("a body"), bytes);
    }
    if is_closed {
        bodies.close().expect("closed");
    }
    let files = disk.contents().into_keys().collect();
    Written { disk, all, files }
}

/// Every byte of small files, some of large ones: all of both ends.
fn places(length: usize) -> impl Iterator<Item = usize> {
    (0..length).filter(move |at| *at < 300 || at + 100 >= length || at % 61 == 0)
}

/// Reads everything: right, or an error that names the body. Gives how many are not readable.
fn unreadable(bodies: &Bodies, all: &BTreeMap<BodyName, Vec<u8>>, what: &str) -> Vec<(BodyName, BlobError)> {
    let mut failed = Vec::new();
    for (name, bytes) in all {
        match read(bodies, *name) {
            Ok(read) => assert!(read == *bytes, "{what}: {name} is not what was written"),
            Err(error @ (BlobError::Rot(..) | BlobError::Gone(_))) => failed.push((*name, error)),
            Err(error) => panic!("{what}: {error}"),
        }
    }
    failed
}

#[test]
fn a_changed_byte_of_a_body_is_reported_by_name_and_never_served() {
    let written = write_all(true);
    let is_body = |path: &&String| path.ends_with(".seg") || path.starts_with("files/");
    let paths: Vec<&String> = written.files.iter().filter(is_body).collect();
    assert!(paths.len() >= 4, "{paths:?}");
    for path in paths {
        for at in places(written.disk.contents()[path].len()) {
            let what = format!("byte {at} of {path}");
            let disk = written.disk.after_kill();
            let running = open(&disk).0;
            disk.damage(path, |bytes| bytes[at] ^= 0x10);
            for bodies in [running, open(&disk.after_kill()).0] {
                let failed = unreadable(&bodies, &written.all, &what);
                assert!(failed.len() <= 1, "{what}: {failed:?}");
                let found = scrub(&bodies);
                assert_eq!(found.len(), 1, "{what}: {found:?}");
                assert!(matches!(&found[0].what, BlobError::Rot(name, _) if *name == found[0].name), "{what}");
                for (name, error) in failed {
                    assert!(name == found[0].name && matches!(error, BlobError::Rot(..)), "{what}: {error}");
                }
                assert!(bodies.counts().rot > 0, "{what}");
                let others = written.all.keys().filter(|name| **name != found[0].name);
                assert_eq!(others.filter(|name| bodies.read(**name).is_ok()).count(), written.all.len() - 1);
                // Damaged or not, it can be freed.
                bodies.free(found[0].name);
                assert_eq!(scrub(&bodies), [], "{what}");
                assert_eq!(bodies.counts().bodies as usize, written.all.len() - 1);
            }
        }
    }
}

#[test]
fn a_damaged_index_loses_nothing() {
    let written = write_all(true);
    let index = written.files.iter().find(|path| path.ends_with(".idx")).expect("an index");
    let length = written.disk.contents()[index].len();
    for at in 0..length {
        let disk = written.disk.after_kill();
        disk.damage(index, |bytes| bytes[at] ^= 1);
        assert_eq!(unreadable(&open(&disk).0, &written.all, index), []);
        let disk = written.disk.after_kill();
        disk.damage(index, |bytes| bytes.truncate(at));
        let (bodies, recovered) = open(&disk);
        assert_eq!((unreadable(&bodies, &written.all, index), recovered.walked_segments), (Vec::new(), 1));
        // The next start has an index again.
        tidy(&bodies);
        assert_eq!(open(&disk.after_kill()).1.walked_segments, 0);
    }
}

/// In a segment that was open at a crash, damage looks like what was being written. Only the damaged body is lost.
#[test]
fn a_changed_byte_of_an_open_segment_loses_no_other_body() {
    let written = write_all(false);
    for path in written.files.iter().filter(|path| path.ends_with(".seg")) {
        for at in places(written.disk.contents()[path].len()) {
            let disk = written.disk.after_kill();
            disk.damage(path, |bytes| bytes[at] ^= 0x04);
            let failed = unreadable(&open(&disk).0, &written.all, path);
            assert!(failed.len() <= 1, "byte {at} of {path}: {failed:?}");
        }
    }
}

/// A closed segment that is missing or cut has lost bodies that were durable. The start says so. Without its index the
/// rest can be read.
#[test]
fn a_segment_that_is_missing_or_cut_is_refused_by_name() {
    let written = write_all(true);
    let segments: Vec<&String> = written.files.iter().filter(|path| path.ends_with(".seg")).collect();
    assert!(segments.len() >= 2, "{segments:?}");
    for path in segments {
        let length = written.disk.contents()[path].len();
        for left in (0..length).step_by(1 + length / 50).map(Some).chain([None]) {
            let what = format!("{path}, {left:?} bytes left");
            let disk = written.disk.after_kill();
            match left {
                Some(left) => disk.damage(path, |bytes| bytes.truncate(left)),
                None => millrace_io::Disk::remove(&disk, path).expect("removed"),
            }
            let before = disk.contents();
            let refused = Bodies::open(Arc::new(disk.clone()), small()).err();
            let text = refused.unwrap_or_else(|| panic!("{what}: bodies are lost silently")).to_string();
            assert!(text.contains(path) && text.contains(".idx lists"), "{what}: {text}");
            assert_eq!(disk.contents(), before, "{what}: what is refused is left alone");
            // The way out that the message names.
            millrace_io::Disk::remove(&disk, &path.replace(".seg", ".idx")).expect("removed");
            let bodies = open(&disk).0;
            for (name, error) in unreadable(&bodies, &written.all, &what) {
                assert!(matches!(error, BlobError::Gone(_)), "{what}: {name}: {error}");
            }
        }
    }
}

/// Another file that was cut is told of as well, and keeps no store from opening.
#[test]
fn files_that_are_cut_are_reported() {
    let written = write_all(true);
    for path in written.files.iter().filter(|path| !path.ends_with(".seg")) {
        let length = written.disk.contents()[path].len();
        for left in (0..length).step_by(1 + length / 50) {
            let what = format!("{path}, {left} bytes left");
            let disk = written.disk.after_kill();
            disk.damage(path, |bytes| bytes.truncate(left));
            if path == "start" {
                continue;
            }
            let bodies = open(&disk).0;
            let failed = unreadable(&bodies, &written.all, &what);
            let found: Vec<BodyName> = scrub(&bodies).into_iter().map(|rot| rot.name).collect();
            for (name, error) in failed {
                assert!(matches!(error, BlobError::Rot(..)) && found.contains(&name), "{what}: {error}");
            }
        }
    }
}

/// Without the number of starts, names might be given twice. A start that cannot know refuses to give any.
#[test]
fn a_damaged_number_of_starts_gives_no_name() {
    let written = write_all(true);
    for at in 0..8 {
        let disk = written.disk.after_kill();
        disk.damage("start", |bytes| bytes[at] ^= 1);
        let Ok((bodies, _)) = Bodies::open(Arc::new(disk), small()) else { continue };
        assert!(put(&bodies, 0, b"owner", b"content").is_err());
    }
}

/// Bodies that are damaged stay where they are when others are copied together, and are not copied over and over.
#[test]
fn damaged_bodies_are_not_copied() {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    let names: Vec<BodyName> =
        (0..8).map(|seed| put(&bodies, 0, b"o", &content(seed, 1_800)).expect("a body")).collect();
    tidy(&bodies);
    disk.damage("segments/00000001.seg", |bytes| bytes[1_000] ^= 1);
    for name in &names[1..4] {
        bodies.free(*name);
    }
    let operations = disk.operations();
    tidy(&bodies);
    assert!(matches!(read(&bodies, names[0]), Err(BlobError::Rot(name, _)) if name == names[0]));
    assert!(disk.operations() - operations < 50);
    bodies.free(names[0]);
    assert!(!disk.contents().contains_key("segments/00000001.seg"), "the space is free");
}

#[test]
fn what_was_freed_of_a_closed_segment_is_not_found_again() {
    for is_orderly in [true, false] {
        let disk = MemoryDisk::default();
        let (bodies, _) = open(&disk);
        let names: Vec<_> = (0..6).map(|seed| put(&bodies, 0, b"o", &content(seed, 1_500)).expect("a body")).collect();
        bodies.close().expect("closes");
        let (bodies, recovered) = open(&disk);
        assert_eq!((recovered.bodies, recovered.walked_segments), (6, 0));
        bodies.free(names[0]);
        bodies.free(names[5]);
        if is_orderly {
            bodies.close().expect("closes")
        } else {
            bodies.note_freed().expect("notes")
        }
        let (bodies, recovered) = open(&disk.after_kill());
        assert_eq!((recovered.bodies, recovered.walked_segments), (4, 0), "{is_orderly}");
        for (seed, name) in names.iter().enumerate() {
            let is_there = ![0, 5].contains(&seed);
            assert_eq!(read(&bodies, *name).is_ok(), is_there, "{seed}");
        }
    }
}
