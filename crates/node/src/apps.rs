//! Apps as folders, as files in memory, and as kept in the data directory.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use millrace_api::AppFile;
use millrace_base::{Error, ErrorCode, Name, fingerprint, limits};
use millrace_func::{App, AppSettings, WORKER_FILE, WorkerDocument};
use millrace_manifest::Manifest;

use crate::directory::{sync_folder_of, write_durably};

/// The file of an app's folder that holds its limits.
pub(crate) const CONFIGURATION: &str = "millrace.toml";

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::AppRefused, message)
}

/// Checks names, sizes and limits and makes an app of its files.
///
/// # Errors
/// `app-refused`, naming the file.
pub fn app_from_files(name: &str, files: Vec<AppFile>) -> Result<App, Error> {
    let name = Name::new(name).map_err(|error| refused(error.to_string()))?;
    if files.len() > limits::APP_FILES {
        return Err(refused(format!("the app has {} files; {} are allowed", files.len(), limits::APP_FILES)));
    }
    let size_bytes: usize = files.iter().map(|file| file.content.len()).sum();
    if size_bytes > limits::APP_BYTES {
        return Err(refused(format!("the app's files have {size_bytes} bytes; {} are allowed", limits::APP_BYTES)));
    }
    let mut app = App::new(name);
    for AppFile { path, content } in files {
        let is_plain = !path.is_empty()
            && path.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'));
        if !is_plain {
            return Err(refused(format!("{path:?} is not a path inside the app")));
        }
        if path == CONFIGURATION {
            let text = std::str::from_utf8(&content).map_err(|_| refused("millrace.toml: not UTF-8"))?;
            let settings = AppSettings::from_toml(text).map_err(|error| refused(error.to_string()))?;
            (app.limits, app.fetch, app.grants) = (settings.limits, settings.fetch, settings.grants);
            (app.workers, app.retry) = (settings.workers, settings.retry);
        }
        app.files.insert(path, content);
    }
    if let Some(file) = app.files.get(WORKER_FILE) {
        let document = WorkerDocument::from_json(file).map_err(refused)?;
        app.limits.wait_ms = document.discovery.longest_timeout_ms() + limits::WORKER_GRACE_MS;
    }
    Ok(app)
}

/// Reads an app's folder; the folder's name is the app's name.
///
/// # Errors
/// `app-refused`, naming the folder or the file.
pub fn app_from_folder(folder: &Path) -> Result<App, Error> {
    let absolute = folder.canonicalize().map_err(|error| refused(format!("{}: {error}", folder.display())))?;
    let name = absolute.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let files = read_folder(folder).map_err(|error| refused(format!("{}: {error}", folder.display())))?;
    app_from_files(&name, files)
}

/// Whether a file or folder of an app is left out: hidden ones and installed packages.
fn is_left_out(name: &str) -> bool {
    name.starts_with('.') || name == "node_modules"
}

/// Reads the files of a folder, hidden ones and `node_modules` left out, in the order of their paths.
///
/// # Errors
/// What the file system answers, or that the folder is too large to be an app.
pub fn read_folder(folder: &Path) -> io::Result<Vec<AppFile>> {
    let mut files = Vec::new();
    let mut size_bytes = 0;
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((path, prefix)) = folders.pop() {
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            if is_left_out(&name) {
                continue;
            }
            let inside = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let kind = fs::metadata(entry.path())?;
            if kind.is_dir() {
                folders.push((entry.path(), inside));
            } else if kind.is_file() {
                size_bytes += kind.len();
                if size_bytes > limits::APP_BYTES as u64 || files.len() >= limits::APP_FILES {
                    let what = format!("more than {} bytes or {} files", limits::APP_BYTES, limits::APP_FILES);
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
                }
                files.push(AppFile { path: inside, content: fs::read(entry.path())? });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Tells an app's versions apart, on every node and after every restart.
pub(crate) fn version_of(app: &App) -> u64 {
    let parts: Vec<&[u8]> =
        app.files.iter().flat_map(|(path, content)| [path.as_bytes(), content.as_slice()]).collect();
    fingerprint(&parts)
}

pub(crate) fn archive(app: &App) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in &app.files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content.as_slice())?;
    }
    archive.into_inner()
}

/// The deployed apps in `<data>/apps`, one tar each, so that they are there after a restart.
#[derive(Clone)]
pub(crate) struct AppStore {
    data: PathBuf,
    /// Lists each file, so that a lost app is not taken for one that was never deployed.
    manifest: Manifest,
}

const APPS: &str = "apps";

/// Versions that workflows began in, whatever is deployed now.
const VERSIONS: &str = "app-versions";

impl AppStore {
    pub(crate) fn open(data: &Path, manifest: Manifest) -> io::Result<Self> {
        fs::create_dir_all(data.join(APPS))?;
        fs::create_dir_all(data.join(VERSIONS))?;
        Ok(Self { data: data.to_owned(), manifest })
    }

    /// Writes a file, or removes it where there are no bytes; durable when this returns.
    fn replace(&self, file: &str, bytes: Option<&[u8]>) -> io::Result<()> {
        let path = self.data.join(file);
        self.manifest.replace_file(file, bytes, || match bytes {
            Some(bytes) => write_durably(&path, bytes),
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => sync_folder_of(&path),
            },
        })
    }

    /// Keeps an app; it is durable when this returns.
    pub(crate) fn keep(&self, app: &App) -> io::Result<()> {
        self.replace(&app_file(app.name.as_str()), Some(&archive(app)?))
    }

    /// Keeps one version of an app for the workflows that begin in it; durable when this returns.
    pub(crate) fn keep_version(&self, app: &App, version: u64) -> io::Result<()> {
        let file = version_file(app.name.as_str(), version);
        if self.data.join(&file).exists() { Ok(()) } else { self.replace(&file, Some(&archive(app)?)) }
    }

    /// The kept version of an app.
    pub(crate) fn version(&self, name: &str, version: u64) -> Result<App, Error> {
        let path = self.data.join(version_file(name, version));
        let failed = |error: io::Error| refused(format!("{}: {error}", path.display()));
        kept_app(name, unpack(&fs::read(&path).map_err(failed)?).map_err(failed)?)
    }

    /// Forgets the versions that `is_needed` does not name. What cannot be deleted stays.
    pub(crate) fn forget_versions(&self, is_needed: impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(self.data.join(VERSIONS))? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|name| !is_needed(name)) {
                self.replace(&format!("{VERSIONS}/{name}.tar"), None)?;
            }
        }
        Ok(())
    }

    /// Forgets an app.
    pub(crate) fn forget(&self, name: &str) -> io::Result<()> {
        self.replace(&app_file(name), None)
    }

    /// Every app kept, by name.
    pub(crate) fn load(&self) -> Result<Vec<App>, Error> {
        let folder = self.data.join(APPS);
        let failed = |error: io::Error| refused(format!("{}: {error}", folder.display()));
        let mut apps = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_tar = path.extension().is_some_and(|extension| extension == "tar");
            let Some(name) = path.file_stem().and_then(|name| name.to_str()).filter(|_| is_tar) else {
                continue;
            };
            let bytes = fs::read(&path).map_err(failed)?;
            apps.push(kept_app(name, unpack(&bytes).map_err(failed)?)?);
        }
        apps.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(apps)
    }
}

fn app_file(name: &str) -> String {
    format!("{APPS}/{name}.tar")
}

fn version_file(name: &str, version: u64) -> String {
    format!("{VERSIONS}/{name}-{version:016x}.tar")
}

/// Makes an app of its name and a tar of its files.
///
/// # Errors
/// `app-refused`.
pub(crate) fn app_of_tar(name: &str, tar: &[u8]) -> Result<App, Error> {
    app_from_files(name, unpack(tar).map_err(|error| refused(format!("the app's files: {error}")))?)
}

fn kept_app(name: &str, files: Vec<AppFile>) -> Result<App, Error> {
    Ok(App { is_kept: true, ..app_from_files(name, files)? })
}

/// Reads a tar that [`AppStore::keep`] wrote.
fn unpack(bytes: &[u8]) -> io::Result<Vec<AppFile>> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(bytes).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        files.push(AppFile { path, content });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn file(path: &str, content: &str) -> AppFile {
        AppFile { path: path.into(), content: content.into() }
    }

    #[test]
    fn a_kept_app_comes_back_and_a_forgotten_one_does_not() {
        let data = tempfile::tempdir().expect("a folder");
        let disk: Arc<dyn millrace_io::Disk> = Arc::new(millrace_io::RealDisk::new(data.path()));
        let store = AppStore::open(data.path(), Manifest::new(&disk, [0; 16])).expect("opened");
        let files = vec![file("a.ts", "1"), file("lib/b.ts", "2"), file("millrace.toml", "[limits]\ncpu_ms = 5")];
        let app = app_from_files("shop", files).expect("an app");
        assert_eq!(app.limits.cpu_ms, 5);
        store.keep(&app).expect("kept");
        assert_eq!(store.load(), Ok(vec![App { is_kept: true, ..app }]));
        store.forget("shop").expect("forgotten");
        store.forget("shop").expect("again");
        assert_eq!(store.load(), Ok(vec![]));
    }

    #[test]
    fn files_outside_the_app_and_wrong_limits_are_refused() {
        for path in ["", "/etc/passwd", "../x.ts", "a/../b.ts", "a//b.ts", "./a.ts", "a\0.ts"] {
            let error = app_from_files("a", vec![file(path, "")]).expect_err(path);
            assert_eq!(error.code, ErrorCode::AppRefused);
        }
        assert!(app_from_files("a", vec![file("millrace.toml", "[limits]\ncpu_ms = -1")]).is_err());
        assert!(app_from_files("a b", vec![]).is_err());
    }

    #[test]
    fn hidden_files_and_packages_are_left_out_of_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["node_modules", ".git", "lib"] {
            fs::create_dir(folder.path().join(path)).expect("made");
            fs::write(folder.path().join(path).join("x.ts"), "x").expect("written");
        }
        fs::write(folder.path().join("a.ts"), "a").expect("written");
        assert_eq!(read_folder(folder.path()).expect("read"), [file("a.ts", "a"), file("lib/x.ts", "x")]);
    }
}
