//! A folder as the tar that `PUT /apps/{app}` takes.
//!
//! Promises: the same files give the same bytes (sorted, no times, no owners). Hidden files and `node_modules` stay out.
//! Size and count are bounded before anything is sent. A link or a special file is refused, not followed.

use std::fs;
use std::path::Path;

use crate::ClientError;

/// Files in one app: the server's default limit, refused here with a better message.
const FILES: usize = 1024;

/// Bytes of all files together: the server's default limit.
const TOTAL_BYTES: u64 = 16 << 20;

/// Folders inside folders.
const DEPTH: usize = 32;

/// The files of `directory` as a tar archive.
///
/// # Errors
/// [`ClientError::Pack`] names the file at fault.
pub fn pack_directory(directory: &Path) -> Result<Vec<u8>, ClientError> {
    let mut packer = Packer { archive: tar::Builder::new(Vec::new()), files: 0, bytes: 0 };
    packer.add_folder(directory, "", 0)?;
    if packer.files == 0 {
        return Err(ClientError::Pack(format!("{} holds no files to deploy", directory.display())));
    }
    packer.archive.into_inner().map_err(|error| ClientError::Pack(format!("cannot write the archive: {error}")))
}

struct Packer {
    archive: tar::Builder<Vec<u8>>,
    files: usize,
    bytes: u64,
}

impl Packer {
    fn add_folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<(), ClientError> {
        let failed = |error: std::io::Error| ClientError::Pack(format!("cannot read {}: {error}", folder.display()));
        if depth > DEPTH {
            return Err(ClientError::Pack(format!("{} is more than {DEPTH} folders deep", folder.display())));
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.into_string().map_err(|name| {
                ClientError::Pack(format!("{} in {} is not a UTF-8 name", name.to_string_lossy(), folder.display()))
            })?;
            if !name.starts_with('.') && name != "node_modules" {
                names.push(name);
            }
        }
        names.sort_unstable();
        for name in names {
            self.add_entry(&folder.join(&name), &format!("{prefix}{name}"), depth)?;
        }
        Ok(())
    }

    fn add_entry(&mut self, path: &Path, name: &str, depth: usize) -> Result<(), ClientError> {
        let failed = |error: std::io::Error| ClientError::Pack(format!("cannot read {}: {error}", path.display()));
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return self.add_folder(path, &format!("{name}/"), depth + 1);
        }
        if !metadata.is_file() {
            return Err(ClientError::Pack(format!("{} is a link or a special file, not a plain one", path.display())));
        }
        self.bytes = self.bytes.saturating_add(metadata.len());
        self.files += 1;
        if self.files > FILES {
            return Err(ClientError::Pack(format!("the app has more than {FILES} files")));
        }
        if self.bytes > TOTAL_BYTES {
            return Err(ClientError::Pack(format!("the app's files hold more than {TOTAL_BYTES} bytes")));
        }
        let content = fs::read(path).map_err(failed)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        self.archive.append_data(&mut header, name, content.as_slice()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn names(archive: &[u8]) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(archive);
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            names.push((entry.path().unwrap().to_str().unwrap().to_owned(), text));
        }
        names
    }

    #[test]
    fn packs_plain_files_in_order_and_leaves_hidden_ones_out() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("b.ts", "b"),
            ("a.ts", "a"),
            ("lib/x.ts", "x"),
            (".env", "secret"),
            (".git/config", "g"),
            ("node_modules/m/i.js", "m"),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let long = "d".repeat(120);
        fs::create_dir(folder.path().join(&long)).unwrap();
        fs::write(folder.path().join(&long).join("long.ts"), "l").unwrap();

        let first = pack_directory(folder.path()).unwrap();
        let expected = [("a.ts", "a"), ("b.ts", "b"), (&format!("{long}/long.ts"), "l"), ("lib/x.ts", "x")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(names(&first), expected);
        assert_eq!(first, pack_directory(folder.path()).unwrap(), "the same files give the same bytes");
    }

    #[test]
    fn refuses_links_empty_folders_and_too_much() {
        let folder = tempfile::tempdir().unwrap();
        assert!(pack_directory(folder.path()).unwrap_err().to_string().contains("no files"));
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.ts")).unwrap();
        assert!(pack_directory(folder.path()).unwrap_err().to_string().contains("link"));
        fs::remove_file(folder.path().join("link.ts")).unwrap();
        for index in 0..=FILES {
            fs::write(folder.path().join(format!("{index}.ts")), "").unwrap();
        }
        assert!(pack_directory(folder.path()).unwrap_err().to_string().contains("1024 files"));
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join("big")).unwrap().set_len(TOTAL_BYTES + 1).unwrap();
        assert!(pack_directory(folder.path()).unwrap_err().to_string().contains("bytes"));
        assert!(matches!(pack_directory(Path::new("/no/such/folder")), Err(ClientError::Pack(_))));
    }
}
