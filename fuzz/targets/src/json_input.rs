//! JSON of a call's input: the reader in Rust and QuickJS's own make the same of it, and only JSON is read.

pub(crate) fn run(bytes: &[u8]) {
    millrace_func_js::check_json(bytes);
}
