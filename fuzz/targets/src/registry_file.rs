//! The registry's files: `registry.json`, and behind a NUL each, a trigger's path in a line and its source below it.
//! They are refused with a reason. Otherwise they are the same, byte for byte, however often they are written again.

use millrace_api::AppFile;
use millrace_registry::Registry;

pub(crate) fn run(bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    let content = parts.next().unwrap_or_default().to_vec();
    let mut files = vec![AppFile { path: "registry.json".to_owned(), content }];
    for part in parts {
        let end = part.iter().position(|byte| *byte == b'\n').unwrap_or(part.len());
        let path = String::from_utf8_lossy(&part[..end]).into_owned();
        files.push(AppFile { path, content: part.get(end + 1..).unwrap_or_default().to_vec() });
    }
    match Registry::from_files(&files) {
        Ok(registry) => {
            let written = registry.to_files();
            let again = Registry::from_files(&written).expect("what it wrote");
            assert!(again == registry, "the same registry");
            assert_eq!(again.to_files(), written);
            let shared = Registry::from_files_with(&written, Some(&registry)).expect("the same with the one before");
            assert!(shared == registry, "the same registry, whatever was compiled before");
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}
