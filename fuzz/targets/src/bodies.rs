//! What a disk may hold of bodies of objects: headers, footers, indexes of segments, and segments to walk over. It is
//! refused, or it is what would be written.

pub(crate) fn run(bytes: &[u8]) {
    millrace_blobs::check_bytes(bytes);
}
