//! The same sources build the same way everywhere: exact toolchain, exact dependencies.

use super::Finding;
use super::tree::Tree;

const TOOLCHAIN: &str = "rust-toolchain.toml";

/// What is not pinned.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The tree holds only files that git does not ignore, so an ignored lock file is absent too.
    if tree.get("Cargo.lock").is_none() {
        findings.push(Finding::new("Cargo.lock", 1, "commit it"));
    }
    let channel = text_at(tree, TOOLCHAIN, &["toolchain", "channel"]);
    let is_exact = channel.split('.').filter(|part| part.parse::<u32>().is_ok()).count() == 3;
    if !is_exact {
        findings.push(Finding::new(TOOLCHAIN, 1, format!("channel `{channel}` is not an exact version")));
    }
    let minimum = text_at(tree, "Cargo.toml", &["workspace", "package", "rust-version"]);
    if is_exact && (minimum.is_empty() || !format!("{channel}.").starts_with(&format!("{minimum}."))) {
        let message = format!("rust-version `{minimum}` is not the pinned toolchain's, {channel}");
        findings.push(Finding::new("Cargo.toml", 1, message));
    }
    findings
}

fn text_at(tree: &Tree, file: &str, path: &[&str]) -> String {
    let table = tree.get(file).and_then(|text| text.parse::<toml::Table>().ok());
    let mut value = table.map(toml::Value::Table);
    for part in path {
        value = value.and_then(|value| value.get(*part).cloned());
    }
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lock: &str, channel: &str, minimum: &str) -> usize {
        let toolchain = format!("[toolchain]\nchannel = \"{channel}\"");
        let manifest = format!("[workspace.package]\nrust-version = \"{minimum}\"");
        check(&Tree::of(&[(lock, ""), (TOOLCHAIN, &toolchain), ("Cargo.toml", &manifest)])).len()
    }

    #[test]
    fn only_exact_versions_pass() {
        assert_eq!(count("Cargo.lock", "1.95.0", "1.95"), 0);
        assert_eq!(count("Cargo.lock", "1.95.0", "1.95.0"), 0);
        assert_eq!(count("other", "1.95.0", "1.95"), 1);
        assert_eq!(count("Cargo.lock", "stable", "1.95"), 1);
        assert_eq!(count("Cargo.lock", "1.95", "1.95"), 1);
        assert_eq!(count("Cargo.lock", "1.95.0", "1.9"), 1);
        assert_eq!(check(&Tree::of(&[])).len(), 2);
    }
}
