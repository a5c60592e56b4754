//! Unpredictable bits that are the same when an invocation is run again.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use millrace_func::sha256;
use millrace_io::Random;
use millrace_manifest::Manifest;
use millrace_shard::Entropy;

use crate::directory::{DataDirectory, sync_folder_of};

const SECRET_BYTES: usize = 32;

const SECRET_FILE: &str = "secret";

/// SHA-256 over a secret, the invocation and the index: whoever does not know the secret cannot
/// tell the result from random bits, and nothing is computed that is not asked for.
#[derive(Clone)]
pub(crate) struct KeyedEntropy {
    /// Of this process: nonces begin anew with each.
    process: [u8; SECRET_BYTES],
    /// Of the data directory: a route repeated after a restart draws what it drew before.
    directory: [u8; SECRET_BYTES],
}

impl KeyedEntropy {
    /// Reads the data directory's secret, or makes it.
    ///
    /// # Errors
    /// What the file system answers; a full disk is none, as only keyed routes need the file.
    pub(crate) fn open(directory: &DataDirectory, random: &dyn Random) -> io::Result<Self> {
        Self::open_in(directory.path(), directory.manifest(), random)
    }

    fn open_in(data: &Path, manifest: &Manifest, random: &dyn Random) -> io::Result<Self> {
        let mut process = [0; SECRET_BYTES];
        random.fill(&mut process);
        let directory = match secret(data, manifest, random) {
            Err(error) if !millrace_io::is_out_of_space(&error) => return Err(error),
            Err(_) => {
                let mut drawn = [0; SECRET_BYTES];
                random.fill(&mut drawn);
                drawn
            }
            Ok(secret) => secret,
        };
        Ok(Self { process, directory })
    }
}

/// Reads the data directory's secret, or makes it.
///
/// # Errors
/// What the file system answers.
pub(crate) fn secret(data: &Path, manifest: &Manifest, random: &dyn Random) -> io::Result<[u8; SECRET_BYTES]> {
    let path = data.join(SECRET_FILE);
    let known = std::fs::read(&path).ok().and_then(|bytes| <[u8; SECRET_BYTES]>::try_from(bytes).ok());
    if let Some(secret) = known {
        return Ok(secret);
    }
    let mut secret = [0; SECRET_BYTES];
    random.fill(&mut secret);
    manifest.replace_file(SECRET_FILE, Some(&secret), || write_secret(data, &secret))?;
    Ok(secret)
}

/// Writes the secret of a data directory.
pub(crate) fn write_secret(data: &Path, secret: &[u8; SECRET_BYTES]) -> io::Result<()> {
    let path = data.join(SECRET_FILE);
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(secret).and_then(|()| file.sync_all()).and_then(|()| sync_folder_of(&path))
}

/// What only who has the secret can tell about a name.
pub(crate) fn derived(secret: &[u8; SECRET_BYTES], name: &[u8]) -> [u8; 32] {
    sha256(&[secret, name].concat())
}

fn draw(secret: &[u8; SECRET_BYTES], invocation: u64, index: u32) -> u64 {
    let mut message = [0; SECRET_BYTES + 12];
    message[..SECRET_BYTES].copy_from_slice(secret);
    message[SECRET_BYTES..SECRET_BYTES + 8].copy_from_slice(&invocation.to_le_bytes());
    message[SECRET_BYTES + 8..].copy_from_slice(&index.to_le_bytes());
    let digest = sha256(&message);
    let mut bits = [0; 8];
    bits.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(bits)
}

impl Entropy for KeyedEntropy {
    fn draw(&self, nonce: u64, index: u32) -> u64 {
        draw(&self.process, nonce, index)
    }

    fn draw_keyed(&self, key: u64, index: u32) -> u64 {
        draw(&self.directory, key, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_io::RealRandom;

    #[test]
    fn keyed_bits_survive_a_restart_and_others_do_not() {
        let data = tempfile::tempdir().expect("a folder");
        let disk: std::sync::Arc<dyn millrace_io::Disk> = std::sync::Arc::new(millrace_io::RealDisk::new(data.path()));
        let manifest = Manifest::new(&disk, [0; 16]);
        let open = || KeyedEntropy::open_in(data.path(), &manifest, &RealRandom).expect("opened");
        let (first, second) = (open(), open());
        assert_eq!(first.draw_keyed(7, 1), second.draw_keyed(7, 1));
        assert_ne!(first.draw_keyed(7, 1), first.draw_keyed(7, 2));
        assert_ne!(first.draw(7, 1), second.draw(7, 1));
    }
}
