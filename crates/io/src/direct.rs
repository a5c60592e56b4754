//! Writes that go past the kernel's page cache (`O_DIRECT`).
//!
//! For a write through the cache the kernel allocates a page, copies into it, marks it, and finds it again at the sync
//! that follows. For a write past the cache the device takes the bytes from this process. A read afterwards gets the
//! same bytes, because the kernel drops cached pages that such a write covers.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// Offsets, lengths and memory addresses are multiples of this. Usual devices and file systems ask for no more.
const ALIGNMENT: usize = 4096;

/// Bytes copied to aligned memory at a time. A larger write waits for the device after each piece.
const PIECE_BYTES: usize = 1 << 20;

/// The way past the cache to one file. It is opened at its first use.
#[derive(Default)]
pub(crate) enum Direct {
    #[default]
    Untried,
    Open {
        file: File,
        /// Holds a piece at an aligned address.
        memory: Vec<u8>,
    },
    /// The file system does not support it.
    Refused,
}

impl Direct {
    /// Writes all of `bytes`. Returns false if they have to go through the cache, whatever part of them was written.
    ///
    /// # Errors
    /// The file system's error.
    pub(crate) fn write_at(&mut self, cached: &File, bytes: &[u8], offset: u64) -> io::Result<bool> {
        if !bytes.len().is_multiple_of(ALIGNMENT) || !offset.is_multiple_of(ALIGNMENT as u64) {
            return Ok(false);
        }
        if matches!(self, Direct::Untried) {
            *self = Self::open(cached);
        }
        let Direct::Open { file, memory } = self else {
            return Ok(false);
        };
        match write(file, memory, bytes, offset) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                *self = Direct::Refused;
                Ok(false)
            }
            result => result.map(|()| true),
        }
    }

    /// Opens the file by its descriptor, because its name may have changed.
    fn open(cached: &File) -> Self {
        let path = format!("/proc/self/fd/{}", cached.as_raw_fd());
        match open(path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()) {
            Ok(descriptor) => Direct::Open { file: descriptor.into(), memory: Vec::new() },
            // Only speed is lost, so the reason does not matter.
            Err(_) => Direct::Refused,
        }
    }
}

fn write(file: &File, memory: &mut Vec<u8>, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut at = offset;
    for piece in bytes.chunks(PIECE_BYTES) {
        if memory.len() < piece.len() + ALIGNMENT {
            *memory = vec![0; piece.len() + ALIGNMENT];
        }
        let begin = memory.as_ptr().align_offset(ALIGNMENT);
        let aligned = &mut memory[begin..begin + piece.len()];
        aligned.copy_from_slice(piece);
        file.write_all_at(aligned, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}
