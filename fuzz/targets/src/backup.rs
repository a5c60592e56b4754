//! Snapshots of a place of backups, and archives that a node sends.

pub(crate) fn run(bytes: &[u8]) {
    millrace_backup::check_bytes(bytes);
}
