//! JSON of a call's input. The reader in Rust and QuickJS's own reader give the same value, and read only JSON.

pub(crate) fn run(bytes: &[u8]) {
    millrace_func_js::check_json(bytes);
}
