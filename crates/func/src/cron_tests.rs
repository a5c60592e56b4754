//! The next time of a schedule, against known times and against a search that looks at every
//! minute on its own calendar.

use proptest::prelude::*;

use super::*;

/// A calendar that counts days one by one.
#[derive(Clone, Copy)]
struct Day {
    year: u64,
    month: u64,
    day: u64,
    weekday: u64,
}

impl Day {
    const FIRST: Day = Day { year: 1970, month: 1, day: 1, weekday: 4 };

    fn days_in_month(self) -> u64 {
        match self.month {
            4 | 6 | 9 | 11 => 30,
            2 if self.year.is_multiple_of(400) => 29,
            2 if self.year.is_multiple_of(4) && !self.year.is_multiple_of(100) => 29,
            2 => 28,
            _ => 31,
        }
    }

    fn next(mut self) -> Day {
        self.weekday = (self.weekday + 1) % 7;
        self.day += 1;
        if self.day > self.days_in_month() {
            (self.month, self.day) = (self.month + 1, 1);
        }
        if self.month > 12 {
            (self.year, self.month) = (self.year + 1, 1);
        }
        self
    }
}

/// Milliseconds of a date and time.
fn at(year: u64, month: u64, day: u64, hour: u64, minute: u64) -> u64 {
    let mut found = Day::FIRST;
    let mut days = 0;
    while (found.year, found.month, found.day) != (year, month, day) {
        (found, days) = (found.next(), days + 1);
    }
    ((days * 24 + hour) * 60 + minute) * MINUTE_MS
}

fn next(text: &str, after: u64) -> u64 {
    let cron = Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    cron.next_after(UnixMillis(after)).unwrap_or_else(|| panic!("{text} never comes")).0
}

#[test]
fn known_times() {
    let start = at(2026, 11, 21, 23, 26) + 20_000;
    for (text, expected) in [
        ("* * * * *", at(2026, 11, 21, 23, 27)),
        ("0 3 * * *", at(2026, 11, 22, 3, 0)),
        ("@hourly", at(2026, 11, 22, 0, 0)),
        ("@daily", at(2026, 11, 22, 0, 0)),
        ("@weekly", at(2026, 11, 22, 0, 0)),
        ("@monthly", at(2026, 12, 1, 0, 0)),
        ("@yearly", at(2027, 1, 1, 0, 0)),
        (" */15   9-17 * * mon-fri ", at(2026, 11, 23, 9, 0)),
        ("30 4 1,15 * FRI", at(2026, 11, 27, 4, 30)),
        ("30 4 */2 * 5", at(2026, 11, 27, 4, 30)),
        ("0 0 29 2 *", at(2028, 2, 29, 0, 0)),
        ("0 0 29 Feb */7", at(2032, 2, 29, 0, 0)),
        ("0 0 31 * 7", at(2026, 11, 22, 0, 0)),
        ("26,27 23 21 11 *", at(2026, 11, 21, 23, 27)),
        ("26 23 21 11 *", at(2027, 11, 21, 23, 26)),
        ("10-50/20 0 * * *", at(2026, 11, 22, 0, 10)),
        ("0 12 * * fri-sun", at(2026, 11, 22, 12, 0)),
        ("0 12 30 2 sat", at(2027, 2, 6, 12, 0)),
    ] {
        assert_eq!(next(text, start), expected, "{text}");
    }
    // A leap day that a century skips.
    assert_eq!(next("0 0 29 2 *", at(2096, 2, 29, 0, 0)), at(2104, 2, 29, 0, 0));
}

#[test]
fn a_due_minute_is_not_its_own_next() {
    let due = at(2026, 1, 1, 0, 0);
    assert_eq!(next("0 0 * * *", due), at(2026, 1, 2, 0, 0));
    assert_eq!(next("0 0 * * *", due - 1), due);
}

#[test]
fn times_near_the_end_of_their_type_do_not_overflow() {
    let cron = Cron::parse("0 0 29 2 *").expect("valid");
    assert_eq!(cron.next_after(UnixMillis(u64::MAX)), None);
    assert_eq!(Cron::parse("* * * * *").expect("valid").next_after(UnixMillis(u64::MAX)), None);
}

#[test]
fn wrong_texts_say_why() {
    for (text, why) in [
        ("", "five fields"),
        ("* * * *", "not 4"),
        ("* * * * * *", "not 6"),
        ("60 * * * *", "within 0 to 59"),
        ("* 24 * * *", "within 0 to 23"),
        ("* * 0 * *", "within 1 to 31"),
        ("* * * 13 *", "within 1 to 12"),
        ("* * * * 8", "within 0 to 7"),
        ("* * * foo *", "month"),
        ("mon * * * *", "minute"),
        ("5/15 * * * *", "5-59/"),
        ("*/0 * * * *", "step"),
        ("*/x * * * *", "step"),
        ("* 5-3 * * *", "ends before it starts"),
        ("* * * * 5-0", "ends before it starts"),
        ("1,,2 * * * *", "within"),
        ("1-2-3 * * * *", "within"),
        ("+1 * * * *", "within"),
        ("-1 * * * *", "within"),
        ("0 0 30 2 *", "none of its months"),
        ("0 0 31 4,6,9,11 *", "none of its months"),
        ("@reboot", "@reboot"),
    ] {
        let error = Cron::parse(text).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(Cron::parse(&"1,".repeat(200)).is_err());
}

#[test]
fn the_calendar_of_four_hundred_years() {
    let mut day = Day::FIRST;
    for number in 0..2 * CYCLE_DAYS {
        assert_eq!(month_and_day(number), (day.month, day.day), "day {number}");
        day = day.next();
    }
}

/// A field as text and as the values it means.
fn field(low: u64, high: u64) -> impl Strategy<Value = (String, Vec<u64>)> {
    let value = low..=high;
    let range = (value.clone(), value.clone()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let part = prop_oneof![
        value.prop_map(|value| (value.to_string(), vec![value])),
        range.clone().prop_map(|(low, high)| (format!("{low}-{high}"), (low..=high).collect())),
        (range, 1u64..9).prop_map(|((low, high), step)| {
            (format!("{low}-{high}/{step}"), (low..=high).filter(|value| (value - low).is_multiple_of(step)).collect())
        }),
        (1u64..9).prop_map(move |step| {
            (format!("*/{step}"), (low..=high).filter(|value| (value - low).is_multiple_of(step)).collect())
        }),
    ];
    let list = prop::collection::vec(part, 1..3).prop_map(|parts: Vec<(String, Vec<u64>)>| {
        let texts: Vec<&str> = parts.iter().map(|part| part.0.as_str()).collect();
        (texts.join(","), parts.iter().flat_map(|part| part.1.clone()).collect())
    });
    prop_oneof![2 => Just(("*".to_owned(), (low..=high).collect())), 3 => list]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_next_time_is_the_first_minute_that_matches(
        minutes in field(0, 59), hours in field(0, 23), days in field(1, 31), months in field(1, 12),
        weekdays in field(0, 7), start in 0u64..4_000_000_000_000,
    ) {
        let text = format!("{} {} {} {} {}", minutes.0, hours.0, days.0, months.0, weekdays.0);
        let is_either = !days.0.starts_with('*') && !weekdays.0.starts_with('*');
        let matches = |day: Day, minute: u64| {
            let in_days = days.1.contains(&day.day);
            let in_week = weekdays.1.iter().any(|weekday| weekday % 7 == day.weekday);
            minutes.1.contains(&(minute % 60)) && hours.1.contains(&(minute / 60)) && months.1.contains(&day.month)
                && if is_either { in_days || in_week } else { in_days && in_week }
        };
        let first = start / MINUTE_MS + 1;
        let mut day = Day::FIRST;
        for _ in 0..first / MINUTES_OF_DAY {
            day = day.next();
        }
        // Ten years are enough for what is not a leap day on a given weekday.
        let mut found = None;
        'search: for number in first / MINUTES_OF_DAY..first / MINUTES_OF_DAY + 3660 {
            let from = if number == first / MINUTES_OF_DAY { first % MINUTES_OF_DAY } else { 0 };
            for minute in from..MINUTES_OF_DAY {
                if matches(day, minute) {
                    found = Some((number * MINUTES_OF_DAY + minute) * MINUTE_MS);
                    break 'search;
                }
            }
            day = day.next();
        }
        match Cron::parse(&text) {
            Ok(cron) => {
                let next = cron.next_after(UnixMillis(start)).map(|time| time.0);
                match found {
                    Some(found) => prop_assert_eq!(next, Some(found), "{}", text),
                    None => prop_assert!(next.is_some_and(|next| next > start), "{}", text),
                }
            }
            Err(error) => prop_assert!(found.is_none() && error.contains("none of its months"), "{}: {}", text, error),
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-0-9*/, a-z@]{0,24}") {
        if let Ok(cron) = Cron::parse(&text) {
            prop_assert!(cron.next_after(UnixMillis(1_700_000_000_000)).is_some());
        }
    }
}
