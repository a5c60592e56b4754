//! Bucket policies, and what they decide.

pub(crate) fn run(bytes: &[u8]) {
    millrace_func_objects::check_policy(bytes);
}
