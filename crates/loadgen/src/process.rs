//! CPU time, switches and memory of a process, as the kernel reports them under `/proc`.

use std::fs;

/// Clock ticks a second in `/proc`; part of the kernel's interface on every Linux in use.
const TICKS_PER_SECOND: u64 = 100;

/// The use of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// CPU time in user code, in microseconds, in steps of 10,000.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds, in steps of 10,000.
    pub system_us: u64,
    /// Times a thread gave up its CPU to wait.
    pub voluntary_switches: u64,
    /// Times the kernel took a CPU from a thread.
    pub involuntary_switches: u64,
    /// Memory held now.
    pub resident_bytes: u64,
}

impl ProcessUse {
    /// The use of `pid` so far.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn of(pid: u32) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot read the use of process {pid}: {error}");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(failed)?;
        let (user, system) = parse_stat(&stat).ok_or_else(|| format!("/proc/{pid}/stat has an unknown form"))?;
        let mut used = Self {
            user_us: user * (1_000_000 / TICKS_PER_SECOND),
            system_us: system * (1_000_000 / TICKS_PER_SECOND),
            ..Self::default()
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(failed)?;
        used.resident_bytes = field(&status, "VmRSS:").unwrap_or(0) * 1024;
        // The kernel counts switches for each thread. A thread that ends meanwhile is left out.
        for task in fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)?.flatten() {
            if let Ok(status) = fs::read_to_string(task.path().join("status")) {
                used.voluntary_switches += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
                used.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
            }
        }
        Ok(used)
    }

    /// The use of several processes together.
    ///
    /// # Errors
    /// If one of them does not exist.
    pub fn of_all(pids: &[u32]) -> Result<Self, String> {
        let mut sum = Self::default();
        for pid in pids {
            let one = Self::of(*pid)?;
            sum.user_us += one.user_us;
            sum.system_us += one.system_us;
            sum.voluntary_switches += one.voluntary_switches;
            sum.involuntary_switches += one.involuntary_switches;
            sum.resident_bytes += one.resident_bytes;
        }
        Ok(sum)
    }
}

/// User and system ticks. The name before them, in parentheses, may itself hold any character.
fn parse_stat(stat: &str) -> Option<(u64, u64)> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_ascii_whitespace();
    // After the name: state is field 3, utime 14, stime 15.
    let user = fields.nth(11)?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    Some((user, system))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_process_whose_name_tries_to_mislead() {
        let stat = "12 (a) R 1 (b) S 1 12 12 0 -1 4194304 100 0 0 0 345 67 0 0 20 0 1 0 5";
        assert_eq!(parse_stat(stat), Some((345, 67)));
        assert_eq!(parse_stat("12 (a) R 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn own_use_grows_and_an_unknown_process_is_an_error() {
        let pid = std::process::id();
        let before = ProcessUse::of(pid).unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 100 {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        let after = ProcessUse::of(pid).unwrap();
        assert!(after.user_us + after.system_us > before.user_us + before.system_us, "{sum}");
        assert!(after.resident_bytes > 0);
        assert!(ProcessUse::of(u32::MAX).is_err());
        assert_eq!(field("VmRSS:\t  12 kB\nvoluntary_ctxt_switches:\t3\n", "voluntary_ctxt_switches:"), Some(3));
    }
}
