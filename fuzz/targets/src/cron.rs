//! The times of a schedule: eight bytes of time, then the crontab text. A schedule is due on a full minute that is
//! later, and again after each time but the last. Every time before that minute leads to it.

use millrace_base::UnixMillis;
use millrace_func::Cron;

const MINUTE_MS: u64 = 60_000;

/// The calendar repeats after 400 years. One more day covers the rest of the first day.
const CYCLE_MS: u64 = (146_097 + 1) * 24 * 60 * MINUTE_MS;

pub(crate) fn run(bytes: &[u8]) {
    let Some((time, text)) = bytes.split_first_chunk() else { return };
    let (time, Ok(text)) = (UnixMillis(u64::from_le_bytes(*time)), str::from_utf8(text)) else { return };
    let cron = match Cron::parse(text) {
        Ok(cron) => cron,
        Err(reason) => {
            assert!(!reason.is_empty());
            return;
        }
    };
    if !text.contains('@') {
        // The same fields with other spacing and other letter case.
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        assert_eq!(Cron::parse(&fields.join("\t").to_ascii_uppercase()), Ok(cron));
    }
    let mut after = time;
    for _ in 0..4 {
        let Some(due) = cron.next_after(after) else {
            assert!(after.0 > u64::MAX - CYCLE_MS, "{text} is never due after {after:?}");
            return;
        };
        assert!(due > after && due.0 % MINUTE_MS == 0, "{text} is due at {due:?} after {after:?}");
        let between = UnixMillis(after.0 + (due.0 - after.0) / 2);
        assert_eq!(cron.next_after(between), Some(due));
        assert_eq!(cron.next_after(UnixMillis(due.0 - 1)), Some(due));
        after = due;
    }
}
