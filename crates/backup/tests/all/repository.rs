//! Backups in a folder: whole or not there, incremental, verified.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use millrace_backup::{ArchiveWriter, BackupError, Folder, Repository, Sent, UNFINISHED_FILE};

/// Files by their paths.
type Files = BTreeMap<String, Vec<u8>>;

fn files(grown: usize) -> Files {
    let noise = |seed: u64, bytes: usize| -> Vec<u8> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..bytes).map(next).collect()
    };
    BTreeMap::from([
        ("node.json".to_owned(), b"{}".to_vec()),
        ("manifest".to_owned(), b"m".to_vec()),
        ("secret".to_owned(), noise(1, 32)),
        ("empty".to_owned(), Vec::new()),
        ("log/0000000001/0000000001.log".to_owned(), noise(2, (9 << 20) + grown)),
        ("checkpoint/tables/0".to_owned(), noise(3, 4 << 20)),
    ])
}

fn archive(files: &Files, taken_ms: u64) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(Vec::new());
    writer.folder("checkpoint/1/tables").expect("written");
    for (path, bytes) in files {
        writer.file(path, bytes.len() as u64, &bytes[..]).expect("written");
    }
    writer
        .finish(Sent { server: "1".to_owned(), identity: "0".repeat(32), taken_ms, missing: Vec::new() })
        .expect("finished")
}

fn place(folder: &Path) -> Repository {
    Repository::open_or_make(Box::new(Folder::new(&folder.join("place")))).expect("made")
}

fn read_all(folder: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below").to_str().expect("text").to_owned();
                files.insert(name, fs::read(&path).expect("read"));
            }
        }
    }
    files
}

fn chunk_files(folder: &Path) -> Vec<PathBuf> {
    let chunks = folder.join("place").join("chunks");
    read_all(&chunks).into_keys().map(|name| chunks.join(name)).collect()
}

/// Gives some bytes, then fails.
struct Broken<'a>(&'a [u8]);

impl Read for Broken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() { Err(io::ErrorKind::ConnectionReset.into()) } else { self.0.read(buffer) }
    }
}

#[test]
fn what_is_restored_is_what_was_backed_up_and_for_its_owner_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    let report = repository.backup(&archive(&files(0), 5)[..]).expect("kept");
    assert_eq!((report.files, report.id.as_str()), (6, "1970-01-01T00-00-00.005Z"));
    let target = folder.path().join("new").join("data");
    let snapshot = repository.snapshot(None).expect("there");
    let restored = repository.restore(&snapshot, &target).expect("restored");
    assert_eq!(restored.bytes, snapshot.bytes());
    assert_eq!(read_all(&target), files(0));
    assert!(target.join("checkpoint/1/tables").is_dir(), "empty folders come back");
    for path in [target.join("secret"), chunk_files(folder.path()).remove(0)] {
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o077, 0, "{}", path.display());
    }
    assert!(matches!(repository.restore(&snapshot, &target), Err(BackupError::Refused(_))), "it is not empty now");
    assert_eq!(read_all(&target), files(0), "and stays as it was");
}

#[test]
fn the_next_backup_keeps_only_what_is_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    let first = repository.backup(&archive(&files(0), 1)[..]).expect("kept");
    assert_eq!(first.new_bytes, first.bytes);
    let again = repository.backup(&archive(&files(0), 2)[..]).expect("kept");
    assert_eq!((again.new_chunks, again.new_bytes), (0, 0));
    // A file that has grown costs its last chunk.
    let grown = repository.backup(&archive(&files(100), 2)[..]).expect("kept");
    assert_eq!((grown.new_chunks, grown.new_bytes), (1, (1 << 20) + 100));
    assert_eq!(grown.id, format!("{}-2", again.id), "of the same millisecond");
    let snapshots = repository.snapshots().expect("read");
    assert_eq!(snapshots.len(), 3);
    for (snapshot, grown) in snapshots.iter().zip([0, 0, 100]) {
        let target = folder.path().join(&snapshot.id);
        repository.restore(snapshot, &target).expect("restored");
        assert!(read_all(&target) == files(grown), "{}", snapshot.id);
    }
}

#[test]
fn a_backup_that_breaks_off_leaves_no_snapshot_and_the_next_one_uses_its_chunks() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    let bytes = archive(&files(0), 1);
    for end in [0, 700, 5 << 20, bytes.len() - 3000] {
        repository.backup(&bytes[..end]).expect_err("cut");
        repository.backup(Broken(&bytes[..end])).expect_err("broken");
    }
    assert!(repository.snapshots().expect("read").is_empty());
    assert!(matches!(repository.snapshot(None), Err(BackupError::Refused(_))));
    let kept = chunk_files(folder.path());
    assert!(!kept.is_empty());
    // The power failed: a chunk without its bytes, which no snapshot names.
    fs::write(&kept[0], b"").expect("cut");
    let bytes_of_chunk = fs::read(&kept[1]).expect("read");
    fs::write(&kept[1], vec![0; bytes_of_chunk.len()]).expect("zeroed");
    let report = repository.backup(&bytes[..]).expect("kept");
    assert!(report.new_bytes < report.bytes, "what was there is used: {report:?}");
    let all = repository.snapshots().expect("read");
    assert_eq!(repository.verify(&all).expect("looked").damage, Vec::<String>::new());
}

#[test]
fn a_damaged_chunk_is_refused_by_its_name_and_nothing_is_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    repository.backup(&archive(&files(0), 1)[..]).expect("kept");
    let snapshot = repository.snapshot(None).expect("there");
    let target = folder.path().join("data");
    for chunk in chunk_files(folder.path()) {
        let name = chunk.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
        let good = fs::read(&chunk).expect("read");
        let mut flipped = good.clone();
        flipped[0] ^= 1;
        let longer = [&good[..], b"x"].concat();
        for bad in [None, Some(flipped), Some(longer), Some(good[1..].to_vec())] {
            match bad {
                Some(bad) => fs::write(&chunk, bad).expect("changed"),
                None => fs::remove_file(&chunk).expect("removed"),
            }
            let report = repository.verify(std::slice::from_ref(&snapshot)).expect("looked");
            assert_eq!(report.damage.len(), 1, "{name}");
            assert!(report.damage[0].contains(&name), "{:?}", report.damage);
            let error = repository.restore(&snapshot, &target).expect_err("damaged").to_string();
            assert!(error.contains(&name), "{error}");
            assert!(read_all(&target).is_empty(), "nothing is left, no marker either");
        }
        fs::write(&chunk, good).expect("mended");
    }
    repository.restore(&snapshot, &target).expect("restored");
}

#[test]
fn the_next_backup_mends_a_chunk_that_was_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    repository.backup(&archive(&files(0), 1)[..]).expect("kept");
    fs::remove_file(&chunk_files(folder.path())[0]).expect("removed");
    repository.backup(&archive(&files(0), 2)[..]).expect("kept");
    let all = repository.snapshots().expect("read");
    assert_eq!(repository.verify(&all).expect("looked").damage, Vec::<String>::new());
}

#[test]
fn the_next_backup_mends_a_chunk_that_was_found_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    for taken_ms in [1, 2] {
        repository.backup(&archive(&files(0), taken_ms)[..]).expect("kept");
    }
    let chunk = &chunk_files(folder.path())[0];
    let mut flipped = fs::read(chunk).expect("read");
    flipped[0] ^= 1;
    fs::write(chunk, flipped).expect("changed");
    let all = repository.snapshots().expect("read");
    let damage = repository.verify(&all).expect("looked").damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(all.iter().all(|snapshot| damage[0].contains(&snapshot.id)), "{damage:?}");
    let report = repository.backup(&archive(&files(0), 3)[..]).expect("kept");
    assert_eq!(report.new_chunks, 1, "{report:?}");
    let all = repository.snapshots().expect("read");
    assert_eq!(repository.verify(&all).expect("looked").damage, Vec::<String>::new());
}

#[test]
fn a_restore_that_was_killed_begins_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    repository.backup(&archive(&files(0), 1)[..]).expect("kept");
    let target = folder.path().join("data");
    fs::create_dir_all(target.join("log")).expect("made");
    fs::write(target.join("log").join("half"), b"x").expect("written");
    let snapshot = repository.snapshot(None).expect("there");
    assert!(matches!(repository.restore(&snapshot, &target), Err(BackupError::Refused(_))), "without its marker");
    fs::write(target.join(UNFINISHED_FILE), b"").expect("written");
    repository.restore(&snapshot, &target).expect("restored");
    assert_eq!(read_all(&target), files(0));
}

#[test]
fn other_folders_are_no_places_of_backups() {
    let folder = tempfile::tempdir().expect("a folder");
    let open_or_make = |path: &Path| Repository::open_or_make(Box::new(Folder::new(path))).map(|_| ());
    let full = folder.path().join("full");
    fs::create_dir(&full).expect("made");
    fs::write(full.join("letter"), b"x").expect("written");
    assert!(open_or_make(&full).expect_err("not empty").to_string().contains("is not empty"));
    assert!(Repository::open(Box::new(Folder::new(&full))).is_err());

    let data = folder.path().join("data");
    fs::create_dir(&data).expect("made");
    fs::write(data.join("node.json"), b"{}").expect("written");
    fs::write(data.join("manifest"), b"m").expect("written");
    std::os::unix::fs::symlink(&data, folder.path().join("link")).expect("linked");
    for inside in ["data", "data/backups", "data/a/b", "link/a"] {
        let error = open_or_make(&folder.path().join(inside)).expect_err(inside).to_string();
        assert!(error.contains("inside the data directory"), "{error}");
    }
    assert!(!data.join("a").exists(), "nothing was made");

    fs::write(full.join("millrace-backup.json"), br#"{"format":2}"#).expect("written");
    assert!(open_or_make(&full).expect_err("of a later version").to_string().contains("format 2"));
}

#[test]
fn a_snapshot_under_another_name_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    let report = repository.backup(&archive(&files(0), 1)[..]).expect("kept");
    let snapshots = folder.path().join("place").join("snapshots");
    fs::rename(snapshots.join(&report.id), snapshots.join("other")).expect("renamed");
    assert!(matches!(repository.snapshot(None), Err(BackupError::Damaged(_))));
}

#[test]
fn the_newest_backups_of_each_directory_are_kept_and_restore() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = place(folder.path());
    let keep = |count| repository.prune(std::num::NonZeroUsize::new(count).expect("not 0"));
    for taken_ms in 1..=4 {
        repository.backup(&archive(&files(taken_ms as usize), taken_ms)[..]).expect("kept");
    }
    let mut writer = ArchiveWriter::new(Vec::new());
    writer.file("node.json", 1, &b"x"[..]).expect("written");
    let other = writer
        .finish(Sent { server: "1".to_owned(), identity: "1".repeat(32), taken_ms: 0, missing: Vec::new() })
        .expect("finished");
    repository.backup(&other[..]).expect("kept");
    // What a backup leaves that breaks off.
    let bytes = archive(&files(9), 9);
    repository.backup(&bytes[..bytes.len() - 3000]).expect_err("cut");
    let report = keep(2).expect("pruned");
    assert_eq!(report.removed, ["1970-01-01T00-00-00.001Z", "1970-01-01T00-00-00.002Z"]);
    assert_eq!((report.kept, report.chunks), (3, 3), "the last chunks of two files, and of the one that broke off");
    let all = repository.snapshots().expect("read");
    assert_eq!(repository.verify(&all).expect("looked").damage, Vec::<String>::new());
    for (snapshot, grown) in all[1..].iter().zip([3, 4]) {
        let target = folder.path().join(&snapshot.id);
        repository.restore(snapshot, &target).expect("restored");
        assert!(read_all(&target) == files(grown));
    }
    assert_eq!(keep(2).expect("again").chunks, 0);
    // A document that cannot be read may need any chunk.
    let snapshots = folder.path().join("place").join("snapshots");
    fs::write(snapshots.join(&all[2].id), b"x").expect("damaged");
    assert!(matches!(keep(1), Err(BackupError::Damaged(_))));
    assert_eq!(fs::read_dir(&snapshots).expect("a folder").count(), 3, "nothing was removed");
}
