//! The dependency graph, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Every package of the build, and what the workspace's own crates depend on.
#[derive(Default)]
pub struct Graph {
    /// The workspace's crates.
    pub crates: Vec<Crate>,
    /// Everything from elsewhere.
    pub packages: Vec<Package>,
}

/// A crate of the workspace.
#[derive(Default)]
pub struct Crate {
    /// Its package name.
    pub name: String,
    /// Its `Cargo.toml`, from the root.
    pub manifest: String,
    /// What its manifest names.
    pub dependencies: Vec<Dependency>,
    /// Names of all packages that end up in it, development aside.
    pub reached: BTreeSet<String>,
}

/// One dependency of a manifest.
pub struct Dependency {
    /// The package's name.
    pub name: String,
    /// Whether only tests, examples and benches see it.
    pub is_dev: bool,
}

/// A package from outside the workspace.
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence expression, if it states one.
    pub licence: Option<String>,
}

impl Graph {
    /// Asks cargo, for this machine's platform, without changing `Cargo.lock`.
    pub fn read(root: &Path) -> Result<Self, String> {
        let platform = host_platform()?;
        // Inside `cargo xtask` this is the very cargo that runs it.
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &platform])
            .current_dir(root)
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(errors.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Ok(Self::of(&metadata, root))
    }

    /// Reads the JSON that `cargo metadata` describes.
    fn of(metadata: &Value, root: &Path) -> Self {
        let edges = normal_edges(metadata);
        let packages = list(&metadata["packages"]);
        let names: BTreeMap<&str, &str> =
            packages.iter().map(|item| (text(&item["id"]), text(&item["name"]))).collect();
        let mut graph = Self::default();
        for package in packages {
            let name = text(&package["name"]).to_owned();
            if list(&metadata["workspace_members"]).contains(&package["id"]) {
                let manifest = Path::new(text(&package["manifest_path"]));
                let manifest = manifest.strip_prefix(root).unwrap_or(manifest).display().to_string();
                let dependency = |dependency: &Value| Dependency {
                    name: text(&dependency["name"]).to_owned(),
                    is_dev: dependency["kind"] == "dev",
                };
                let dependencies = list(&package["dependencies"]).iter().map(dependency).collect();
                let reached = reached_from(text(&package["id"]), &edges, &names);
                graph.crates.push(Crate { name, manifest, dependencies, reached });
            } else {
                let version = text(&package["version"]).to_owned();
                let licence = package["license"].as_str().map(str::to_owned);
                graph.packages.push(Package { name, version, licence });
            }
        }
        graph
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn host_platform() -> Result<String, String> {
    let rustc = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc -vV: {error}"))?;
    let text = String::from_utf8_lossy(&rustc.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Edges that end up in the built crate: not those of tests and build scripts.
fn normal_edges(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let is_built = |edge: &&Value| list(&edge["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    let nodes = list(&metadata["resolve"]["nodes"]).iter();
    nodes
        .map(|node| {
            let built = list(&node["deps"]).iter().filter(is_built);
            (text(&node["id"]), built.map(|edge| text(&edge["pkg"])).collect())
        })
        .collect()
}

fn reached_from(start: &str, edges: &BTreeMap<&str, Vec<&str>>, names: &BTreeMap<&str, &str>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(package) = waiting.pop() {
        let next = edges.get(package).into_iter().flatten();
        waiting.extend(next.filter(|package| seen.insert(**package)));
    }
    seen.iter().filter_map(|id| names.get(id)).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "workspace_members": ["a#1"],
        "packages": [
            {"id": "a#1", "name": "a", "version": "1.0.0", "license": null, "manifest_path": "/r/crates/a/Cargo.toml",
             "dependencies": [{"name": "b", "kind": null}, {"name": "d", "kind": "dev"}]},
            {"id": "b#1", "name": "b", "version": "1.0.0", "license": "MIT", "manifest_path": "/x", "dependencies": []},
            {"id": "c#1", "name": "c", "version": "1.0.0", "license": "MIT", "manifest_path": "/x", "dependencies": []},
            {"id": "d#1", "name": "d", "version": "1.0.0", "license": null, "manifest_path": "/x", "dependencies": []}
        ],
        "resolve": {"nodes": [
            {"id": "a#1", "deps": [{"pkg": "b#1", "dep_kinds": [{"kind": null}]}, {"pkg": "d#1", "dep_kinds": [{"kind": "dev"}]}]},
            {"id": "b#1", "deps": [{"pkg": "c#1", "dep_kinds": [{"kind": "build"}, {"kind": null}]}]},
            {"id": "c#1", "deps": [{"pkg": "d#1", "dep_kinds": [{"kind": "build"}]}, {"pkg": "b#1", "dep_kinds": [{"kind": null}]}]}
        ]}
    }"#;

    #[test]
    fn own_crates_know_what_they_name_and_what_reaches_them() {
        let metadata = serde_json::from_str(METADATA).expect("valid JSON");
        let graph = Graph::of(&metadata, Path::new("/r"));
        let [a] = &graph.crates[..] else { panic!("one crate is the workspace's") };
        assert_eq!((a.name.as_str(), a.manifest.as_str()), ("a", "crates/a/Cargo.toml"));
        let named: Vec<_> = a.dependencies.iter().map(|one| (one.name.as_str(), one.is_dev)).collect();
        assert_eq!(named, [("b", false), ("d", true)]);
        assert_eq!(a.reached.iter().map(String::as_str).collect::<Vec<_>>(), ["b", "c"]);
        let others: Vec<_> = graph.packages.iter().map(|one| (one.name.as_str(), one.licence.as_deref())).collect();
        assert_eq!(others, [("b", Some("MIT")), ("c", Some("MIT")), ("d", None)]);
    }
}
