//! How much one call may log: who runs in a loop must not fill the disk that keeps the log, nor push others' lines out of it.

use millrace_base::limits::{LOG_BYTES_PER_CALL, LOG_LINE_BYTES, LOG_LINES_PER_CALL};
use millrace_func::LogLevel;

use crate::isolate::Isolate;
use crate::js::{Raw, Thrown, UNDEFINED, Value};

/// What an activation has logged so far; of a workflow, in one turn.
#[derive(Clone, Copy, Default)]
pub(crate) struct Logged {
    lines: u32,
    bytes: usize,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Written,
    /// It is the first that is left out, which is to be said.
    FirstLeftOut,
    LeftOut,
}

impl Logged {
    fn take(&mut self, bytes: usize) -> Fate {
        if self.lines > LOG_LINES_PER_CALL {
            return Fate::LeftOut;
        }
        self.bytes += bytes;
        if self.lines == LOG_LINES_PER_CALL || self.bytes > LOG_BYTES_PER_CALL {
            self.lines = u32::MAX;
            return Fate::FirstLeftOut;
        }
        self.lines += 1;
        Fate::Written
    }
}

impl Isolate {
    /// Writes a line to the node's log, or to the program's own while no call runs.
    pub(crate) fn log_line(&self, level: LogLevel, line: Raw) -> Result<Value, Thrown> {
        let text = self.context.text(line)?;
        let bytes = text.bytes();
        let bytes = &bytes[..bytes.len().min(LOG_LINE_BYTES)];
        let mut logged = self.logged.get();
        let fate = logged.take(bytes.len());
        self.logged.set(logged);
        match fate {
            Fate::Written => self.write_line(level, &String::from_utf8_lossy(bytes)),
            Fate::FirstLeftOut => {
                let kib = LOG_BYTES_PER_CALL >> 10;
                let line = format!(
                    "what this call goes on to log is left out: a call logs at most {LOG_LINES_PER_CALL} lines and {kib} KiB"
                );
                self.write_line(LogLevel::Warn, &line);
            }
            Fate::LeftOut => {}
        }
        Ok(self.context.own(UNDEFINED))
    }

    fn write_line(&self, level: LogLevel, line: &str) {
        if self.host.with(|host| host.log(level, line)).is_none() {
            tracing::info!(target: "millrace::app", "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_and_bytes_and_then_it_is_said_once() {
        for (size, count) in [(0, LOG_LINES_PER_CALL), (LOG_LINE_BYTES, (LOG_BYTES_PER_CALL / LOG_LINE_BYTES) as u32)] {
            let mut logged = Logged::default();
            for line in 0..count {
                assert_eq!(logged.take(size), Fate::Written, "{line} of {size} bytes");
            }
            assert_eq!(logged.take(size), Fate::FirstLeftOut);
            for _ in 0..3 {
                assert_eq!(logged.take(0), Fate::LeftOut, "however short");
            }
        }
    }
}
