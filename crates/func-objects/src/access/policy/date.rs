//! Times in conditions: ISO 8601 in the forms that policies use, or seconds since 1970.

/// Unix seconds of such a text. Parts of seconds are cut off.
pub fn parse(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(seconds);
    }
    let (date, time) = text.split_once(['T', 't']).unwrap_or((text, "00:00:00Z"));
    let (year, month_day) = date.split_once('-')?;
    let (month, day) = month_day.split_once('-')?;
    let (year, month, day) = (number(year, 4)?, number(month, 2)?, number(day, 2)?);
    if !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let (clock, offset_s) = offset(time)?;
    let whole = match clock.split_once('.') {
        Some((whole, part)) if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) => whole,
        Some(_) => return None,
        None => clock,
    };
    let mut parts = whole.splitn(3, ':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset_s)
}

/// Splits the zone off a time, as seconds east of UTC.
fn offset(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (clock, zone) = time.split_at(at);
    let (hours, minutes) = zone[1..].split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = hours * 3_600 + minutes * 60;
    Some((clock, if zone.starts_with('-') { -seconds } else { seconds }))
}

/// A number of so many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400;
    // 719,162 days passed from the first day of year 1 to 1970.
    let in_years = before * 365 + leap_days - 719_162;
    (1..month).map(|month| days_of(year, month)).sum::<i64>() + in_years + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_table() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1969-12-31T23:59:59Z", Some(-1)),
            ("2000-02-29T12:00:00Z", Some(951_825_600)),
            ("2026-11-24T10:30:15Z", Some(1_795_516_215)),
            ("2026-11-24T10:30:15.999Z", Some(1_795_516_215)),
            ("2026-11-24T10:30:15+01:00", Some(1_795_512_615)),
            ("2026-11-24T10:30:15-00:30", Some(1_795_518_015)),
            ("2026-11-24T10:30Z", Some(1_795_516_200)),
            ("2026-11-24", Some(1_795_478_400)),
            ("1795516215", Some(1_795_516_215)),
            ("", None),
            ("yesterday", None),
            ("2026-13-01", None),
            ("2026-02-29", None),
            ("1900-02-29", None),
            ("2026-11-24T24:00:00Z", None),
            ("2026-11-24T10:30:15", None),
            ("2026-11-24T10:30:15.Z", None),
            ("2026-11-24T10:30:15+1", None),
            ("26-11-24", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
