//! Nothing in the repository depends on the machine it was written on: no paths of one
//! developer's disk, no package mirrors.

use super::Finding;
use super::tree::Tree;

// Split, so that this file does not breach its own rule.
const PATHS: [&str; 4] = [concat!("/wor", "k/"), concat!("/roo", "t/"), concat!("/tmp", "/t/"), concat!("/Use", "rs/")];
const HOSTS: [&str; 6] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("files.", "pythonhosted.org"),
    concat!("proxy.", "golang.org"),
    concat!("arti", "factory"),
];

/// Lines that name a path or host that only some machines have.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        for (index, line) in text.lines().enumerate() {
            if let Some(found) = PATHS.iter().find(|part| starts_a_path(line, part)) {
                let message = format!("`{found}` is a path of one machine; write it relative to the repository");
                findings.push(Finding::new(path, index + 1, message));
            }
            if let Some(host) = HOSTS.iter().find(|host| line.contains(*host)) {
                let message = format!("`{host}` is a package registry; let the user's own settings name it");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

/// Whether `part` stands at the start of a path, and not inside one such as `./a/b`.
fn starts_a_path(line: &str, part: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')' | '*' | '>' | '%');
    line.match_indices(part).any(|(offset, _)| !line[..offset].ends_with(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_registries_are_found_and_relative_paths_are_not() {
        for part in PATHS {
            for line in [format!("{part}x"), format!("cd {part}"), format!("\"{part}main\"")] {
                assert_eq!(check(&Tree::of(&[("a.sh", &format!("ok\n{line}"))]))[0].line, 2, "{line}");
            }
            let inside = format!("cd .{part}x; cd $HOME{part}; http://host{part}y");
            assert_eq!(check(&Tree::of(&[("a.sh", &inside)])), [], "{inside}");
        }
        for host in HOSTS {
            assert_eq!(check(&Tree::of(&[("a.json", &format!("https://{host}/x"))])).len(), 1);
        }
    }
}
