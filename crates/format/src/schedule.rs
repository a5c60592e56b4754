//! When a schedule is due next. Stored as a field of the shard's bookkeeping entity `schedule`, under app, service and
//! the schedule's name. A zero byte follows each but the last.
//!
//! ```text
//! schedule (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      8      due, Unix milliseconds, little-endian
//!  9      …      the crontab(5) text it was computed from, UTF-8
//! ```

use millrace_base::UnixMillis;

use crate::DecodeError;
use crate::fields::FieldReader;

const VERSION: u8 = 1;

/// A schedule's next time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// When it is due.
    pub due: UnixMillis,
    /// The text that it was computed from.
    pub cron: String,
}

impl ScheduleRecord {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.due.0.to_le_bytes());
        out.extend_from_slice(self.cron.as_bytes());
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a schedule of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        reader.version(VERSION)?;
        let due = UnixMillis(reader.u64()?);
        let cron = std::str::from_utf8(reader.rest()).map_err(|_| DecodeError::Length)?.to_owned();
        Ok(Self { due, cron })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn schedules_round_trip(due in any::<u64>(), cron in ".{0,9}") {
            let record = ScheduleRecord { due: UnixMillis(due), cron };
            prop_assert_eq!(ScheduleRecord::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = ScheduleRecord::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let record = ScheduleRecord { due: UnixMillis(3), cron: "@daily".into() };
        assert_eq!(record.encode(), b"\x01\x03\0\0\0\0\0\0\0@daily");
    }
}
