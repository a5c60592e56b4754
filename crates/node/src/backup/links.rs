//! The checkpoint's files as of one moment, under second names, so that its library may delete them.
//!
//! The library merges tables on a thread of its own. It never changes a table, and it replaces the file that names the valid
//! tables by another. So the files that are linked are those of one moment if the list of names is the same before and
//! after. Only the journal is written in place, by the thread that waits meanwhile; it is copied.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often the list of files may change under us. The library changes it once for each merge.
const ATTEMPTS: usize = 100;

/// After that it is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// What is in a folder and those below it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Folders, by path below the root.
    pub folders: Vec<String>,
    /// Files, by path below the root, each with what tells it from another of its name.
    pub files: Vec<(String, u64)>,
}

/// Gives the files of the folder `name` in `from` second names in `to`, as of one moment. Nobody but the library's own
/// threads changes them meanwhile.
///
/// # Errors
/// The file system's; or that the files kept changing.
pub(crate) fn link_tree(from: &Path, to: &Path, name: &str) -> io::Result<Tree> {
    for _ in 0..ATTEMPTS {
        match attempt(from, to, name) {
            Ok(Some(tree)) => return Ok(tree),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        remove_tree(&to.join(name))?;
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::other(format!("the files in {name} kept changing; try again")))
}

fn attempt(from: &Path, to: &Path, name: &str) -> io::Result<Option<Tree>> {
    let tree = list(from, name)?;
    for folder in &tree.folders {
        fs::create_dir_all(to.join(folder))?;
    }
    for (file, _) in &tree.files {
        let is_written_in_place = file.ends_with(".jnl");
        if is_written_in_place { copy(from, to, file)? } else { link(from, to, file)? }
    }
    Ok(Some(tree).filter(|tree| list(from, name).is_ok_and(|again| again == *tree)))
}

/// Gives a file a second name. Where the file system has none, the file is copied.
///
/// # Errors
/// The file system's.
pub(crate) fn link(from: &Path, to: &Path, file: &str) -> io::Result<()> {
    match fs::hard_link(from.join(file), to.join(file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => copy(from, to, file),
        linked => linked,
    }
}

fn copy(from: &Path, to: &Path, file: &str) -> io::Result<()> {
    fs::copy(from.join(file), to.join(file)).map(|_| ())
}

/// Everything below the folder `name`, in order. Hidden files are being written, and have no name yet.
fn list(root: &Path, name: &str) -> io::Result<Tree> {
    let mut tree = Tree::default();
    let mut open = vec![name.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().filter(|name| !name.starts_with('.')).map(str::to_owned) else {
                continue;
            };
            let path = format!("{folder}/{name}");
            let found = entry.metadata()?;
            if found.is_dir() {
                open.push(path);
            } else {
                // A file that replaces another of its name is another one: the old one's number is still in use.
                tree.files.push((path, found.ino()));
            }
        }
        tree.folders.push(folder);
    }
    tree.folders.sort();
    tree.files.sort();
    Ok(tree)
}

/// Removes a folder with everything in it, if it is there.
///
/// # Errors
/// The file system's.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_files_stay_as_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("data"), folder.path().join("held"));
        fs::create_dir_all(from.join("c/keyspaces/1/tables")).expect("made");
        fs::create_dir_all(from.join("c/empty")).expect("made");
        fs::create_dir_all(&to).expect("made");
        for (name, text) in [("c/0.jnl", "j"), ("c/keyspaces/1/current", "v1"), ("c/keyspaces/1/tables/0", "t")] {
            fs::write(from.join(name), text).expect("written");
        }
        fs::write(from.join("c/.tmp1"), "x").expect("written");
        let tree = link_tree(&from, &to, "c").expect("linked");
        assert_eq!(tree.files.len(), 3);
        assert_eq!(tree.folders.last().map(String::as_str), Some("c/keyspaces/1/tables"));
        // What the library does next.
        fs::write(from.join("c/0.jnl"), "jj").expect("written");
        fs::write(from.join("c/keyspaces/1/next"), "v2").expect("written");
        fs::rename(from.join("c/keyspaces/1/next"), from.join("c/keyspaces/1/current")).expect("renamed");
        fs::remove_file(from.join("c/keyspaces/1/tables/0")).expect("removed");
        for (name, text) in [("c/0.jnl", "j"), ("c/keyspaces/1/current", "v1"), ("c/keyspaces/1/tables/0", "t")] {
            assert_eq!(fs::read_to_string(to.join(name)).expect("read"), text, "{name}");
        }
        assert!(to.join("c/empty").is_dir());
    }

    #[test]
    fn a_replaced_file_is_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("c")).expect("made");
        let current = folder.path().join("c/current");
        fs::write(&current, "v1").expect("written");
        let before = list(folder.path(), "c").expect("listed");
        fs::hard_link(&current, folder.path().join("held")).expect("linked");
        fs::write(folder.path().join("c/.next"), "v2").expect("written");
        fs::rename(folder.path().join("c/.next"), &current).expect("renamed");
        assert_ne!(list(folder.path(), "c").expect("listed"), before);
    }
}
