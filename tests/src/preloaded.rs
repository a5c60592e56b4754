//! A library in C that a server loads before all others, so that it sees another world. The test steers it through a
//! file.

use std::fs::File;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::{ServerOptions, has_programs};

pub(crate) struct Preloaded {
    folder: TempDir,
    variable: &'static str,
    /// The file that the test and the library share.
    pub(crate) shared: File,
}

impl Preloaded {
    /// Compiles the library. The variable tells it the path of the shared file, which holds this number of zeros.
    /// Without a C compiler it returns `None` and prints a line that says so.
    ///
    /// # Panics
    /// When the library's folder cannot be written, or the library does not compile.
    pub(crate) fn build(source: &str, variable: &'static str, shared_bytes: usize) -> Option<Self> {
        if !has_programs(&["cc"]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("library.c"), source).expect("written");
        std::fs::write(folder.path().join("shared"), vec![0; shared_bytes]).expect("written");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o", "library.so", "library.c", "-ldl"])
            .current_dir(folder.path())
            .stderr(Stdio::inherit())
            .status();
        assert!(built.is_ok_and(|status| status.success()), "the library of {variable} does not compile");
        let shared = File::options().read(true).write(true).open(folder.path().join("shared")).expect("the file");
        Some(Self { folder, variable, shared })
    }

    /// Makes a server load the library.
    pub(crate) fn give(&self, options: &mut ServerOptions) {
        let path = |name: &str| self.folder.path().join(name).to_string_lossy().into_owned();
        options.environment.push(("LD_PRELOAD".into(), path("library.so")));
        options.environment.push((self.variable.into(), path("shared")));
    }
}
