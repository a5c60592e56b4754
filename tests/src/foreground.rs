//! A command that a person runs in a terminal: what it prints, and Ctrl-C.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::{machine, wait_until};

/// A command that runs, in a process group of its own. Dropping it kills the whole group.
pub struct Foreground {
    child: Child,
    output: TempDir,
}

impl Foreground {
    /// Starts it, with both of its outputs kept.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        machine::share();
        let output = tempfile::tempdir().expect("a folder");
        let file = |name: &str| File::create(output.path().join(name)).expect("created");
        let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).process_group(0).spawn();
        Self { child: child.expect("started"), output }
    }

    /// What it has printed so far.
    #[must_use]
    pub fn out(&self) -> String {
        std::fs::read_to_string(self.output.path().join("out")).unwrap_or_default()
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn err(&self) -> String {
        std::fs::read_to_string(self.output.path().join("err")).unwrap_or_default()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ctrl-C: SIGINT to every process of the group, as a terminal sends it.
    pub fn interrupt(&self) {
        if let Some(group) = pid(self.child.id()) {
            let _ = kill_process_group(group, Signal::INT);
        }
    }

    /// How it ended.
    ///
    /// # Panics
    /// When it does not end within half a minute.
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
