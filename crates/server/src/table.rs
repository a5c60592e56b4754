//! Text for people: columns and times, without control characters that a terminal would obey.

use std::fmt::Write as _;

/// Characters of a cell that are shown.
const CELL_CHARACTERS: usize = 60;

/// Rows under headings, each column as wide as its widest cell.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row. Cells are cut to their length, except in the first column, which names the row.
    pub(crate) fn row(&mut self, cells: &[&str]) {
        let cells = cells.iter().enumerate();
        self.rows.push(cells.map(|(column, cell)| if column == 0 { printable(cell) } else { cut(cell) }).collect());
    }

    /// One line a row.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                // Writing to a string cannot fail.
                let _ = write!(line, "{cell:width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn cut(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(CELL_CHARACTERS) {
        None => text,
        Some(_) => text.chars().take(CELL_CHARACTERS - 1).chain(['…']).collect(),
    }
}

/// Foreign text with its control characters spelt out, because a terminal must not obey them.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The end of the year 9999, the last that RFC 3339 can write.
const LAST_MS: u64 = 253_402_300_799_999;

/// Unix milliseconds as RFC 3339 writes them, in UTC.
pub(crate) fn time(unix_ms: u64) -> String {
    if unix_ms > LAST_MS {
        return format!("{unix_ms} ms");
    }
    let (mut days, rest) = (unix_ms / DAY_MS, unix_ms % DAY_MS);
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let february = days_of_year(year) - 337;
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hours, minutes, seconds) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    let (day, milliseconds) = (days + 1, rest % 1000);
    format!("{year}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}Z")
}

fn days_of_year(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if is_leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_long_cells_cut() {
        let mut table = Table::new(&["ID", "NAME", "RESULT"]);
        table.row(&["1", "ä", &"x".repeat(61)]);
        table.row(&["long-id", "name", ""]);
        let cut = format!("{}…", "x".repeat(59));
        assert_eq!(table.render(), format!("ID       NAME  RESULT\n1        ä     {cut}\nlong-id  name\n"));
        let mut table = Table::new(&["ID"]);
        table.row(&[&"i".repeat(100)]);
        assert!(table.render().contains(&"i".repeat(100)), "an id is of no use when it is cut");
    }

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        assert_eq!(printable("a\u{1b}[2Jb\n\u{9b}ü"), "a\\u{1b}[2Jb\\n\\u{9b}ü");
        let mut table = Table::new(&["A", "B"]);
        table.row(&["\r", "x\ny"]);
        assert_eq!(table.render(), "A   B\n\\r  x\\ny\n");
    }

    #[test]
    fn times_are_rfc_3339() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_700_000_000_001, "2023-11-14T22:13:20.001Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (LAST_MS, "9999-12-31T23:59:59.999Z"),
            (LAST_MS + 1, "253402300800000 ms"),
        ] {
            assert_eq!(time(unix_ms), text);
        }
    }
}
