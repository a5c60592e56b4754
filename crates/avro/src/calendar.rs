//! Dates and times as ISO 8601 text, for the whole range of their numbers.
//!
//! Years beyond 9999 or before 0 have a sign and at least six digits. The calendar is the proleptic Gregorian one.
//! There are no leap seconds.

use crate::schema::Logical;

const DAY_SECONDS: i64 = 86_400;

/// How many of a logical type's units are a second, in decimal digits. `None` for dates and for types that are not
/// times.
fn unit_digits(logical: Logical) -> Option<u32> {
    match logical {
        Logical::TimeMillis | Logical::TimestampMillis | Logical::LocalTimestampMillis => Some(3),
        Logical::TimeMicros | Logical::TimestampMicros | Logical::LocalTimestampMicros => Some(6),
        Logical::TimestampNanos | Logical::LocalTimestampNanos => Some(9),
        _ => None,
    }
}

fn is_time_of_day(logical: Logical) -> bool {
    matches!(logical, Logical::TimeMillis | Logical::TimeMicros)
}

fn is_local(logical: Logical) -> bool {
    matches!(logical, Logical::LocalTimestampMillis | Logical::LocalTimestampMicros | Logical::LocalTimestampNanos)
}

/// Whether the number has a text. Times of day outside a day have none.
pub(crate) fn has_text(logical: Logical, number: i64) -> bool {
    match unit_digits(logical) {
        Some(digits) => !is_time_of_day(logical) || (0..DAY_SECONDS * 10_i64.pow(digits)).contains(&number),
        None => logical == Logical::Date,
    }
}

/// Writes the text of a number that has one.
pub(crate) fn write(out: &mut Vec<u8>, logical: Logical, number: i64) {
    let Some(digits) = unit_digits(logical) else { return write_date(out, number) };
    let unit = 10_i64.pow(digits);
    let (seconds, fraction) = (number.div_euclid(unit), number.rem_euclid(unit));
    if !is_time_of_day(logical) {
        write_date(out, seconds.div_euclid(DAY_SECONDS));
        out.push(b'T');
    }
    let second = seconds.rem_euclid(DAY_SECONDS);
    write_digits(out, second / 3600, 2);
    out.push(b':');
    write_digits(out, second / 60 % 60, 2);
    out.push(b':');
    write_digits(out, second % 60, 2);
    out.push(b'.');
    write_digits(out, fraction, digits);
    if !is_time_of_day(logical) && !is_local(logical) {
        out.push(b'Z');
    }
}

fn write_digits(out: &mut Vec<u8>, number: i64, digits: u32) {
    for place in (0..digits).rev() {
        out.push(b'0' + u8::try_from(number / 10_i64.pow(place) % 10).unwrap_or(0));
    }
}

fn write_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = date_of(days);
    match year {
        0..=9999 => write_digits(out, year, 4),
        _ => {
            out.push(if year < 0 { b'-' } else { b'+' });
            let digits = year.abs().checked_ilog10().unwrap_or(0) + 1;
            write_digits(out, year.abs(), digits.max(6));
        }
    }
    out.push(b'-');
    write_digits(out, month, 2);
    out.push(b'-');
    write_digits(out, day, 2);
}

/// Days of 400 years, and from 0000-03-01 to 1970-01-01.
const ERA_DAYS: i64 = 146_097;
const EPOCH_DAYS: i64 = 719_468;

/// The date so many days after 1970-01-01. Years are counted from March, so that the leap day is a year's last. Days
/// beyond what timestamps and dates hold never come here.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    (era * 400 + year + i64::from(is_next_year), month, day)
}

fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = if month > 2 { month - 3 } else { month + 9 };
    era * ERA_DAYS + 365 * year + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1 - EPOCH_DAYS
}

/// The number of a text. `None` if it is not a text of this type, or its number is too large.
pub(crate) fn read(logical: Logical, text: &str) -> Option<i64> {
    let mut rest = text.as_bytes();
    let Some(digits) = unit_digits(logical) else {
        let days = (logical == Logical::Date).then(|| read_date(&mut rest))??;
        return (rest.is_empty() && i32::try_from(days).is_ok()).then_some(days);
    };
    let mut seconds = 0;
    if !is_time_of_day(logical) {
        seconds = i128::from(read_date(&mut rest)?) * i128::from(DAY_SECONDS);
        let (b'T' | b't' | b' ', after) = rest.split_first()? else { return None };
        rest = after;
    }
    seconds += i128::from(read_clock(&mut rest)?);
    let fraction = read_fraction(&mut rest, digits)?;
    if !is_time_of_day(logical) && !is_local(logical) {
        seconds -= i128::from(read_offset(&mut rest)?);
    }
    let number = seconds * 10_i128.pow(digits) + i128::from(fraction);
    if rest.is_empty() { i64::try_from(number).ok() } else { None }
}

fn take(rest: &mut &[u8], expected: u8) -> Option<()> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    (*first == expected).then_some(())
}

fn take_digits(rest: &mut &[u8], least: usize, most: usize) -> Option<i64> {
    let count = rest.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = rest.split_at(count);
    *rest = after;
    (count >= least).then(|| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

fn read_date(rest: &mut &[u8]) -> Option<i64> {
    let year = match rest.first()? {
        sign @ (b'+' | b'-') => {
            *rest = &rest[1..];
            // Years of millisecond timestamps have nine digits.
            take_digits(rest, 4, 10)? * if *sign == b'-' { -1 } else { 1 }
        }
        _ => take_digits(rest, 4, 4)?,
    };
    take(rest, b'-')?;
    let month = take_digits(rest, 2, 2)?;
    take(rest, b'-')?;
    let day = take_digits(rest, 2, 2)?;
    let days = (1..=12).contains(&month).then(|| days_of(year, month, day))?;
    // A day that the month does not have comes back as another.
    (date_of(days) == (year, month, day)).then_some(days)
}

/// Seconds since midnight.
fn read_clock(rest: &mut &[u8]) -> Option<i64> {
    let hour = take_digits(rest, 2, 2)?;
    take(rest, b':')?;
    let minute = take_digits(rest, 2, 2)?;
    let second = match rest.first() {
        Some(b':') => {
            *rest = &rest[1..];
            take_digits(rest, 2, 2)?
        }
        _ => 0,
    };
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

/// The digits behind a point, in the unit of so many digits. `None` if more digits than that count.
fn read_fraction(rest: &mut &[u8], digits: u32) -> Option<i64> {
    if rest.first() != Some(&b'.') {
        return Some(0);
    }
    *rest = &rest[1..];
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (written, after) = rest.split_at(count);
    *rest = after;
    let (counting, beyond) = written.split_at(count.min(digits as usize));
    let number = counting.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let missing = digits - u32::try_from(counting.len()).ok()?;
    (count > 0 && beyond.iter().all(|digit| *digit == b'0')).then_some(number * 10_i64.pow(missing))
}

/// `Z`, or how far the clock is ahead, in seconds.
fn read_offset(rest: &mut &[u8]) -> Option<i64> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    let sign = match first {
        b'Z' | b'z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hour = take_digits(rest, 2, 2)?;
    if rest.first() == Some(&b':') {
        *rest = &rest[1..];
    }
    let minute = take_digits(rest, 2, 2)?;
    (hour < 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(logical: Logical, number: i64) -> String {
        let mut out = Vec::new();
        write(&mut out, logical, number);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn times_are_written_as_iso_8601() {
        assert_eq!(text(Logical::Date, 0), "1970-01-01");
        assert_eq!(text(Logical::Date, 19_782), "2024-02-29");
        assert_eq!(text(Logical::Date, -719_529), "-000001-12-31");
        assert_eq!(text(Logical::Date, -719_528), "0000-01-01");
        assert_eq!(text(Logical::Date, i32::MAX.into()), "+5881580-07-11");
        assert_eq!(text(Logical::TimeMillis, 86_399_999), "23:59:59.999");
        assert_eq!(text(Logical::TimestampMillis, -1), "1969-12-31T23:59:59.999Z");
        assert_eq!(text(Logical::TimestampMillis, i64::MAX), "+292278994-08-17T07:12:55.807Z");
        assert_eq!(text(Logical::LocalTimestampMicros, 1_700_000_000_000_001), "2023-11-14T22:13:20.000001");
        assert_eq!(text(Logical::TimestampNanos, i64::MIN), "1677-09-21T00:12:43.145224192Z");
    }

    #[test]
    fn every_number_comes_back_from_its_text() {
        use Logical::*;
        let logicals =
            [Date, TimeMillis, TimeMicros, TimestampMillis, TimestampMicros, TimestampNanos, LocalTimestampNanos];
        for logical in logicals {
            for shift in 0..64 {
                for number in [i64::MAX >> shift, i64::MIN >> shift, (i64::MAX >> shift) / 3] {
                    let is_date = logical == Date;
                    if has_text(logical, number) && (!is_date || i32::try_from(number).is_ok()) {
                        assert_eq!(read(logical, &text(logical, number)), Some(number), "{logical:?} {number}");
                    }
                }
            }
        }
    }

    #[test]
    fn texts_are_read_with_offsets_and_short_fractions_and_wrong_ones_refused() {
        let millis = |text| read(Logical::TimestampMillis, text);
        assert_eq!(millis("1970-01-01T01:00:00.5+01:00"), Some(500));
        assert_eq!(millis("1970-01-01 00:00Z"), Some(0));
        assert_eq!(millis("1970-01-01T00:00:00.001000Z"), Some(1));
        for wrong in [
            "",
            "1970",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-02-30T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00.0001Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00Zz",
            "+999999999-01-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1970-01-01T00:00:00+1:00",
        ] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
        assert_eq!(read(Logical::Date, "2023-02-29"), None);
        assert_eq!(read(Logical::Date, "+9999999999-01-01"), None);
        assert_eq!(read(Logical::TimeMillis, "23:59:60"), None);
    }
}
