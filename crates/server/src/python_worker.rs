//! The worker of `millrace dev FILE.py`: the SDK's own `python -m millrace.dev`, which serves the file's services, starts
//! anew when a file changes, and prints each call.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// Interval between two looks whether it still runs.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A worker that belongs to this process.
pub(crate) struct PythonWorker {
    child: Child,
    python: PathBuf,
}

impl PythonWorker {
    /// Starts it for a node that serves at `address`.
    ///
    /// # Errors
    /// A sentence that says what to change.
    pub(crate) fn start(file: &Path, address: SocketAddr, has_tls: bool) -> Result<Self, Failure> {
        let python = interpreter(std::env::var_os("VIRTUAL_ENV"), std::env::current_exe().ok().as_deref());
        let url = format!("{}://{}", if has_tls { "https" } else { "http" }, reachable(address));
        let mut command = Command::new(&python);
        command.args(["-m", "millrace.dev", "--url", &url]).arg(file);
        // So it ends by itself when this process is killed.
        command.env("MILLRACE_DEV_PARENT", std::process::id().to_string());
        let child = command.spawn().map_err(|error| {
            format!("{}: {error}; activate the Python environment that has millrace-sdk", python.display())
        })?;
        Ok(Self { child, python })
    }

    /// Waits until it ends by itself, which it should not, and says so.
    pub(crate) async fn ended(&mut self) -> Failure {
        loop {
            match self.child.try_wait() {
                Ok(None) => tokio::time::sleep(LOOK_EVERY).await,
                Ok(Some(status)) if status.signal().is_some() => {
                    return format!("the worker was ended ({status})").into();
                }
                Ok(Some(status)) => {
                    let python = self.python.display();
                    return format!(
                        "the worker ended ({status}); if millrace-sdk is not installed for {python}, run \
                         `{python} -m pip install millrace-sdk`"
                    )
                    .into();
                }
                Err(error) => return error.into(),
            }
        }
    }
}

impl Drop for PythonWorker {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            // One that has just ended hears nothing any more.
            let _ = id.map(|id| kill_process(id, Signal::TERM));
            let _ = self.child.wait();
        }
    }
}

/// The Python of the active environment; else of the environment in which this program is installed; else the system's.
fn interpreter(active: Option<OsString>, program: Option<&Path>) -> PathBuf {
    let active = active.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let own = || {
        let environment = program?.parent()?.parent()?;
        environment.join("pyvenv.cfg").is_file().then(|| environment.to_path_buf())
    };
    active.or_else(own).map_or_else(|| PathBuf::from("python3"), |environment| environment.join("bin/python"))
}

/// Where a process of this machine reaches what listens there.
fn reachable(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        return SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port());
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_environment_comes_first_then_the_programs_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("bin/millrace");
        assert_eq!(interpreter(Some("/env".into()), Some(&program)), Path::new("/env/bin/python"));
        assert_eq!(interpreter(None, Some(&program)), Path::new("python3"));
        assert_eq!(interpreter(Some(OsString::new()), None), Path::new("python3"));
        std::fs::write(folder.path().join("pyvenv.cfg"), "").expect("a file");
        assert_eq!(interpreter(None, Some(&program)), folder.path().join("bin/python"));
    }

    #[test]
    fn a_node_that_listens_everywhere_is_reached_on_loopback() {
        let all = "0.0.0.0:8080".parse().expect("an address");
        assert_eq!(reachable(all).to_string(), "127.0.0.1:8080");
        let one = "[::1]:8080".parse().expect("an address");
        assert_eq!(reachable(one), one);
    }
}
