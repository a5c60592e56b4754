//! Placeholder of the command.
fn main() {}
