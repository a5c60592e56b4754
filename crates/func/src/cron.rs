//! When a schedule is due: the five fields of crontab(5), in UTC.
//!
//! Promises: pure; the same text and time give the same next time on every machine. There are no
//! time zones here and so no hour that a day has twice or not at all.

use millrace_base::UnixMillis;

/// Bytes of a cron text: the longest list of single minutes has 167.
const TEXT_BYTES: usize = 256;

const MINUTE_MS: u64 = 60_000;
const MINUTES_OF_DAY: u64 = 24 * 60;

/// The Gregorian calendar, weekdays included, repeats after 400 years of so many days.
const CYCLE_DAYS: u64 = 146_097;

/// The times at which a schedule is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    /// Bit n stands for the value n, in all five.
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both day fields name days, so either of them is enough; otherwise both must match.
    is_either_day: bool,
}

/// What one of the five fields may hold.
struct Field {
    what: &'static str,
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { what: "minute", low: 0, high: 59, names: &[] },
    Field { what: "hour", low: 0, high: 23, names: &[] },
    Field { what: "day of month", low: 1, high: 31, names: &[] },
    Field {
        what: "month",
        low: 1,
        high: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    // Sunday is 0 and 7.
    Field { what: "day of week", low: 0, high: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl Cron {
    /// Reads five fields (`minute hour day-of-month month day-of-week`) or one of `@hourly`,
    /// `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually`.
    ///
    /// A field is `*` or a list of values, ranges `a-b`, and steps `*/n` and `a-b/n`. Months and
    /// weekdays have English names of three letters too. A time is due as in crontab(5): on days that match the day of
    /// month *or* the day of week when neither field starts with `*`. When one of them does, it is due on days that
    /// match both.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text; also for days that never come.
    pub fn parse(text: &str) -> Result<Cron, String> {
        if text.len() > TEXT_BYTES {
            return Err(format!("it is longer than {TEXT_BYTES} bytes"));
        }
        let text = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            text if text.starts_with('@') => {
                return Err(format!("{text} is not one of @hourly, @daily, @weekly, @monthly and @yearly"));
            }
            text => text,
        };
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let &[minutes, hours, days, months, weekdays] = parts.as_slice() else {
            let count = parts.len();
            return Err(format!("it needs five fields (minute hour day-of-month month day-of-week), not {count}"));
        };
        let [minute, hour, day, month, weekday] = &FIELDS;
        let is_either_day = !days.starts_with('*') && !weekdays.starts_with('*');
        let cron = Cron {
            minutes: minute.read(minutes)?,
            hours: hour.read(hours)?,
            days: day.read(days)?,
            months: month.read(months)?,
            weekdays: weekday.read(weekdays)?,
            is_either_day,
        };
        // 7 is Sunday, as 0 is.
        let cron = Cron { weekdays: (cron.weekdays | cron.weekdays >> 7) & 0x7F, ..cron };
        if cron.ever_comes() { Ok(cron) } else { Err("none of its months has such a day".to_owned()) }
    }

    /// The first due time after `time`: a whole minute, later than `time`. `None` only where the
    /// type of times ends.
    #[must_use]
    pub fn next_after(&self, time: UnixMillis) -> Option<UnixMillis> {
        let first = time.0 / MINUTE_MS + 1;
        let mut from = first % MINUTES_OF_DAY;
        for day in (first / MINUTES_OF_DAY..).take(CYCLE_DAYS as usize + 1) {
            if self.is_due_on(day)
                && let Some(minute) = self.minute_of_day(from)
            {
                return day.checked_mul(MINUTES_OF_DAY)?.checked_add(minute)?.checked_mul(MINUTE_MS).map(UnixMillis);
            }
            from = 0;
        }
        None
    }

    /// Whether any year has a day of these. With either day field enough, some weekday comes.
    fn ever_comes(&self) -> bool {
        const MOST_DAYS: [u64; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let in_month = |(month, days): (u64, u64)| has(self.months, month) && (1..=days).any(|day| has(self.days, day));
        self.is_either_day || (1..).zip(MOST_DAYS).any(in_month)
    }

    fn is_due_on(&self, day: u64) -> bool {
        let (month, day_of_month) = month_and_day(day);
        if !has(self.months, month) {
            return false;
        }
        // 1 January 1970 was a Thursday.
        let weekday = (day + 4) % 7;
        let matches = (has(self.days, day_of_month), has(self.weekdays, weekday));
        if self.is_either_day { matches.0 || matches.1 } else { matches.0 && matches.1 }
    }

    /// The first due minute of a due day, from minute `from` on.
    fn minute_of_day(&self, from: u64) -> Option<u64> {
        (from / 60..24).filter(|hour| has(self.hours, *hour)).find_map(|hour| {
            let from = from.saturating_sub(hour * 60);
            let minute = u64::from((self.minutes & (u64::MAX << from)).trailing_zeros());
            (minute < 60).then_some(hour * 60 + minute)
        })
    }
}

fn has(set: u64, value: u64) -> bool {
    set >> value & 1 == 1
}

/// Month (1 to 12) and day of month (1 to 31) of a day counted from 1 January 1970.
fn month_and_day(day: u64) -> (u64, u64) {
    // A year is taken to begin on 1 March, so that its leap day comes last. 1 March 0000 was
    // 719,468 days before 1970.
    let day = (day % CYCLE_DAYS + 719_468) % CYCLE_DAYS;
    // Days of leap years in the cycle so far: every 4 years, but not every 100, but every 400.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months have 153 days, alternating 31 and 30.
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    (if month < 10 { month + 3 } else { month - 9 }, day_of_month)
}

impl Field {
    /// The set of a field's values.
    fn read(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.read_part(part)?))
    }

    fn read_part(&self, part: &str) -> Result<u64, String> {
        let wrong = |why: String| format!("the {} \"{part}\" {why}", self.what);
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (
                range,
                Some(number(step).filter(|step| *step > 0).ok_or_else(|| wrong("has a malformed step".into()))?),
            ),
            None => (part, None),
        };
        let (low, high) = if range == "*" {
            (self.low, self.high)
        } else if let Some((low, high)) = range.split_once('-') {
            let (low, mut high) = (self.value(low).map_err(wrong)?, self.value(high).map_err(wrong)?);
            // "fri-sun" ends with the week.
            if self.high == 7 && high == 0 && low > 0 && range.ends_with(|last: char| last.is_ascii_alphabetic()) {
                high = 7;
            }
            (low, high)
        } else if step.is_some() {
            return Err(wrong(format!("has a step and no range: write {range}-{}/…", self.high)));
        } else {
            let value = self.value(range).map_err(wrong)?;
            (value, value)
        };
        if low > high {
            return Err(wrong("ends before it starts".into()));
        }
        let step = step.unwrap_or(1) as usize;
        Ok((low..=high).step_by(step).fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u64, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = match named {
            Some(index) => Some(index as u64 + self.low),
            None => number(text),
        };
        value
            .filter(|value| (self.low..=self.high).contains(value))
            .ok_or_else(|| format!("is not within {} to {}", self.low, self.high))
    }
}

/// A number of one or two digits.
fn number(text: &str) -> Option<u64> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
