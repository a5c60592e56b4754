//! Times of signatures: `20130524T000000Z`, and the dates of HTTP.

use std::time::UNIX_EPOCH;

/// Unix seconds of `YYYYMMDDTHHMMSSZ`. `None` if it is not exactly that, or no such time exists.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 16 || bytes[8] != b'T' || bytes[15] != b'Z' {
        return None;
    }
    let number = |from: usize, to: usize| {
        bytes[from..to]
            .iter()
            .try_fold(0_u64, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(days_since_1970(year, month, day)? * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let in_month = |month: u64| DAYS[month as usize - 1] + u64::from(month == 2 && is_leap(year));
    if year < 1970 || !(1..=12).contains(&month) || day < 1 || day > in_month(month) {
        return None;
    }
    let leap_days = |year: u64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let before_year = (year - 1970) * 365 + leap_days(year) - leap_days(1970);
    Some(before_year + (1..month).map(in_month).sum::<u64>() + day - 1)
}

/// Unix seconds of an HTTP date, whose zone old clients write as a number, and the same time as signatures write it.
#[must_use]
pub fn parse_http(text: &str) -> Option<(u64, String)> {
    let zoneless = text.strip_suffix(" +0000").or_else(|| text.strip_suffix(" -0000"));
    let text = zoneless.map_or_else(|| text.to_owned(), |text| format!("{text} GMT"));
    let time = httpdate::parse_http_date(&text).ok()?;
    let unix_s = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some((unix_s, format(unix_s)))
}

/// Writes `YYYYMMDDTHHMMSSZ`.
#[must_use]
pub fn format(unix_s: u64) -> String {
    let mut days = unix_s / 86_400;
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let month =
        (1..=12).rev().find(|month| days_since_1970(year, *month, 1).is_some_and(|first| first <= unix_s / 86_400));
    let month = month.unwrap_or(1);
    let first = days_since_1970(year, month, 1).unwrap_or_default();
    let (day, second) = (unix_s / 86_400 - first + 1, unix_s % 86_400);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lead_back_and_others_are_refused() {
        for (text, unix_s) in
            [("19700101T000000Z", 0), ("20130524T000000Z", 1_369_353_600), ("20240229T235959Z", 1_709_251_199)]
        {
            assert_eq!(parse(text), Some(unix_s));
            assert_eq!(format(unix_s), text);
        }
        for text in [
            "",
            "20130524",
            "20130524T000000",
            "20130229T000000Z",
            "20131301T000000Z",
            "20130524T240000Z",
            "2013052+T000000Z",
            "19691231T235959Z",
            "20130524T000000Zé",
            "20130500T000000Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for zone in ["GMT", "+0000", "-0000"] {
            assert_eq!(
                parse_http(&format!("Fri, 24 May 2013 00:00:00 {zone}")).unwrap(),
                (1_369_353_600, "20130524T000000Z".to_owned())
            );
        }
    }
}
