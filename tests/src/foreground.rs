//! A command that a person runs in a terminal, with its output and with Ctrl-C.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::wait_until;

/// A running command in a process group of its own. Dropping it kills the whole group.
pub struct Foreground {
    child: Child,
    output: TempDir,
}

impl Foreground {
    /// Starts the command and keeps both of its outputs.
    ///
    /// # Panics
    /// When the command cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let output = tempfile::tempdir().expect("a folder");
        let file = |name: &str| File::create(output.path().join(name)).expect("created");
        let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).process_group(0).spawn();
        Self { child: child.expect("started"), output }
    }

    /// The output so far.
    #[must_use]
    pub fn out(&self) -> String {
        std::fs::read_to_string(self.output.path().join("out")).unwrap_or_default()
    }

    /// The standard error so far.
    #[must_use]
    pub fn err(&self) -> String {
        std::fs::read_to_string(self.output.path().join("err")).unwrap_or_default()
    }

    /// Whether the command still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ctrl-C: SIGINT to every process of the group, as a terminal sends it.
    pub fn interrupt(&self) {
        if let Some(group) = pid(self.child.id()) {
            let _ = kill_process_group(group, Signal::INT);
        }
    }

    /// Waits for the end, and returns how the command ended.
    ///
    /// # Panics
    /// When the command does not end within half a minute.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the command has ended", || {
            status = self.child.try_wait().expect("waited for");
            status.is_some()
        });
        status.expect("waited for")
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if let Some(group) = pid(self.child.id()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// SIGINT to one process.
pub fn interrupt(process: u32) {
    if let Some(process) = pid(process) {
        let _ = kill_process(process, Signal::INT);
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}
