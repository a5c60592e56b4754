//! Committed results: medians and ranges in one CSV file for each page.
//!
//! A file opens with a block of comments about its runs, one fact a line: `# RUN | FACT | VALUE`. The rows follow.
//! Pages and plots are made from the file alone; raw data stays in `target/`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::machine::{Machine, median};

/// How a part was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Circumstances {
    /// What to run to repeat it.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Rounds of each comparison.
    pub rounds: usize,
    /// Seconds measured per side and round, or per rate; 0 where the programs choose their own times.
    pub seconds: f64,
    /// Versions of the rivals.
    pub rivals: Vec<String>,
    /// Load average of the minute before: what else ran.
    #[serde(default)]
    pub load_before: f64,
}

/// One run of a program on one machine at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Names it in the rows.
    pub name: String,
    /// Name and value, in the order they are written.
    pub facts: Vec<(String, String)>,
}

/// One figure of a side, or one judged comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The run it comes from.
    pub suite: String,
    /// The comparison's id.
    pub cell: String,
    /// The side; `A / B` where two sides are compared.
    pub side: String,
    /// What was measured; the title of a judged comparison.
    pub metric: String,
    /// The unit of the three figures.
    pub unit: String,
    /// The median of the rounds; empty if nothing was measured.
    pub median: Option<f64>,
    /// The lowest round.
    pub low: Option<f64>,
    /// The highest round.
    pub high: Option<f64>,
    /// Rounds that count.
    pub rounds: usize,
    /// What was aimed at; empty for a figure that is not judged.
    pub aim: String,
    /// `met`, `lost`, or why nothing was measured.
    pub verdict: String,
}

/// A page's results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Runs that some row comes from.
    pub suites: Vec<Suite>,
    /// In the page's order.
    pub rows: Vec<Row>,
}

impl Suite {
    /// The facts of a run of `part`. The cost of `fdatasync` is added with the rows.
    #[must_use]
    pub fn new(part: &str, circumstances: &Circumstances, durability: &str) -> Self {
        let Circumstances { command, machine, rounds, seconds, rivals, load_before } = circumstances;
        let Machine { cpu, cores, memory_bytes, kernel, commit, is_modified } = machine;
        let modified = if *is_modified { ", with changes" } else { "" };
        let short: String = commit.chars().take(7).collect();
        let mut facts = vec![
            ("cpu", cpu.clone()),
            ("machine", format!("{cores} cores, {} GiB, Linux {kernel}, load {load_before:.2}", memory_bytes >> 30)),
            ("commit", format!("{commit}{modified}")),
            ("command", command.clone()),
            ("durability", durability.to_owned()),
        ];
        if *seconds > 0.0 {
            let rounds = if *rounds > 0 { format!("{rounds} rounds, ") } else { String::new() };
            facts.push(("length", format!("{rounds}{seconds} s for each side and round")));
        } else if *rounds > 1 {
            facts.push(("length", format!("{rounds} rounds")));
        }
        if !rivals.is_empty() {
            facts.push(("rivals", rivals.join("; ")));
        }
        let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { name: format!("{part}-{short}-{}", vendor(cpu)), facts }
    }

    /// The value of a fact; empty if there is none.
    #[must_use]
    pub fn fact(&self, name: &str) -> &str {
        self.facts.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn is_same_run(&self, other: &Self) -> bool {
        ["cpu", "commit", "command"].iter().all(|fact| self.fact(fact) == other.fact(fact))
    }
}

/// A short name of the CPU's maker.
fn vendor(cpu: &str) -> &'static str {
    match cpu.to_ascii_lowercase() {
        name if name.contains("amd") => "amd",
        name if name.contains("intel") => "intel",
        _ => "other",
    }
}

/// Six digits: more would be noise.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

impl Row {
    /// A figure with one value for each round.
    #[must_use]
    pub fn figure(cell: &str, side: &str, (metric, unit): (&str, &str), values: &[f64]) -> Self {
        let mut row = Self {
            cell: cell.to_owned(),
            side: side.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            ..Self::default()
        };
        row.rounds = values.len();
        if !values.is_empty() {
            row.median = Some(rounded(median(values)));
            row.low = values.iter().copied().min_by(f64::total_cmp).map(rounded);
            row.high = values.iter().copied().max_by(f64::total_cmp).map(rounded);
        }
        row
    }

    /// Whether it is a comparison with an aim.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        !self.aim.is_empty()
    }
}

impl Summary {
    /// What a folder has under this name; nothing if there is no file.
    ///
    /// # Errors
    /// A file that cannot be read as results.
    pub fn published(folder: &Path, name: &str) -> Outcome<Self> {
        let path = folder.join(format!("{name}.csv"));
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map_err(|error| format!("{}: {error}", path.display())),
            Err(_) => Ok(Self::default()),
        }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// A row or a fact of another form.
    pub fn parse(text: &str) -> Outcome<Self> {
        let mut suites: Vec<Suite> = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
            let mut parts = line.splitn(3, " | ");
            let (Some(name), Some(fact), Some(value)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(format!("no fact: {line}"));
            };
            let fact = (fact.to_owned(), value.to_owned());
            match suites.iter_mut().find(|suite| suite.name == name) {
                Some(suite) => suite.facts.push(fact),
                None => suites.push(Suite { name: name.to_owned(), facts: vec![fact] }),
            }
        }
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let rows = reader.deserialize().collect::<Result<Vec<Row>, _>>().map_err(|error| error.to_string())?;
        match rows.iter().find(|row| suites.iter().all(|suite| suite.name != row.suite)) {
            Some(row) => Err(format!("no facts about {}", row.suite)),
            None => Ok(Self { suites, rows }),
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// None that is known: the text is written to memory.
    pub fn csv(&self) -> Outcome<String> {
        let fact = |suite: &Suite, (name, value): &(String, String)| {
            format!("# {} | {name} | {}\n", suite.name, value.replace('\n', " "))
        };
        let facts = self.suites.iter().flat_map(|suite| suite.facts.iter().map(move |one| fact(suite, one)));
        let mut text: String = facts.collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        self.rows.iter().try_for_each(|row| writer.serialize(row)).map_err(|error| error.to_string())?;
        let rows = writer.into_inner().map_err(|error| error.to_string())?;
        text.push_str(&String::from_utf8_lossy(&rows));
        Ok(text)
    }

    /// The suite of a row.
    #[must_use]
    pub fn suite(&self, row: &Row) -> Option<&Suite> {
        self.suites.iter().find(|suite| suite.name == row.suite)
    }

    /// Puts a run's rows in place of those that the same cells had on the same CPU. Cells that are not measured,
    /// and figures of other CPUs, stay. `order` lists the cells as they are published; others are dropped.
    pub fn replace(&mut self, mut suite: Suite, rows: Vec<Row>, order: &[String]) {
        let cells: Vec<String> = rows.iter().map(|row| row.cell.clone()).collect();
        let is_replaced = |row: &Row, suites: &[Suite]| {
            let earlier = suites.iter().find(|known| known.name == row.suite);
            cells.contains(&row.cell) && earlier.is_some_and(|known| known.fact("cpu") == suite.fact("cpu"))
        };
        self.rows.retain(|row| order.contains(&row.cell) && !is_replaced(row, &self.suites));
        match self.suites.iter().find(|known| known.is_same_run(&suite)) {
            Some(known) => suite.name.clone_from(&known.name),
            None => suite.name = self.free_name(&suite.name),
        }
        self.suites.retain(|known| known.name != suite.name);
        self.rows.extend(rows.into_iter().map(|row| Row { suite: suite.name.clone(), ..row }));
        self.suites.push(suite);
        self.rows.sort_by_key(|row| order.iter().position(|cell| *cell == row.cell));
        let rows = &self.rows;
        self.suites.retain(|known| rows.iter().any(|row| row.suite == known.name));
        self.suites.sort_by_key(|known| rows.iter().position(|row| row.suite == known.name));
        for suite in &mut self.suites {
            let costs = rows.iter().filter(|row| row.suite == suite.name && row.metric == FSYNC.0);
            let costs: Vec<f64> = costs.filter_map(|row| row.median).collect();
            if !costs.is_empty() {
                suite.facts.retain(|(name, _)| name != "fsync_us");
                suite.facts.push(("fsync_us".to_owned(), format!("{:.0}", median(&costs))));
            }
        }
        // The suite tells it from here on: a row for each side would be a tenth of all rows.
        self.rows.retain(|row| row.metric != FSYNC.0);
    }

    fn free_name(&self, name: &str) -> String {
        let names = std::iter::once(name.to_owned()).chain((2..).map(|count| format!("{name}-{count}")));
        let is_free = |candidate: &String| self.suites.iter().all(|suite| suite.name != *candidate);
        names.into_iter().find(is_free).unwrap_or_default()
    }
}

/// What 4 KiB and `fdatasync` cost on the data folder's disk, and its unit.
pub const FSYNC: (&str, &str) = ("fsync", "µs");

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(command: &str, cpu: &str) -> Suite {
        let machine = Machine {
            cpu: cpu.to_owned(),
            cores: 2,
            memory_bytes: 3 << 30,
            kernel: "6".to_owned(),
            commit: "0123456789".to_owned(),
            is_modified: false,
        };
        let command = command.to_owned();
        let rivals = vec!["a, b".to_owned()];
        let circumstances = Circumstances { command, machine, rounds: 3, seconds: 2.0, rivals, load_before: 0.5 };
        Suite::new("part", &circumstances, "fsync")
    }

    fn row(cell: &str, values: &[f64]) -> Row {
        Row::figure(cell, "a, \"b\"", ("rate", "requests/s"), values)
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut summary = Summary::default();
        let order = ["one".to_owned(), "two".to_owned()];
        let missing = Row { aim: "≥ 1 ×".to_owned(), verdict: "4 CPUs, \nare needed".to_owned(), ..row("two", &[]) };
        summary.replace(suite("run it", "AMD EPYC"), vec![row("one", &[3.0, 1.0, 200_000.04]), missing], &order);
        let text = summary.csv().unwrap();
        assert_eq!(Summary::parse(&text).unwrap(), summary);
        assert!(text.starts_with("# part-0123456-amd | cpu | AMD EPYC\n"), "{text}");
        assert_eq!((summary.rows[0].median, summary.rows[0].high), (Some(3.0), Some(200_000.0)));
        assert_eq!((summary.rows[1].median, summary.rows[1].rounds), (None, 0));
        assert!(Summary::parse("# nothing\n").is_err() && Summary::parse(&text.replace("part", "x")).is_ok());
        let unknown = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert!(Summary::parse(&unknown).unwrap_err().contains("no facts about part"));
    }

    #[test]
    fn what_is_measured_again_replaces_its_cell_on_the_same_cpu_only() {
        let order = ["one".to_owned(), "two".to_owned()];
        let mut summary = Summary::default();
        summary.replace(suite("all", "AMD EPYC"), vec![row("two", &[2.0]), row("one", &[1.0])], &order);
        summary.replace(suite("all", "Intel Xeon"), vec![row("one", &[7.0])], &order);
        summary.replace(suite("one", "AMD EPYC"), vec![row("one", &[3.0])], &order);
        let told: Vec<(&str, &str, Option<f64>)> =
            summary.rows.iter().map(|row| (row.suite.as_str(), row.cell.as_str(), row.median)).collect();
        let expected = [
            ("part-0123456-intel", "one", Some(7.0)),
            ("part-0123456-amd-2", "one", Some(3.0)),
            ("part-0123456-amd", "two", Some(2.0)),
        ];
        assert_eq!(told, expected);
        // The same run goes on with another cell; the run that nothing is left of goes.
        summary.replace(suite("one", "AMD EPYC"), vec![row("two", &[4.0])], &order);
        let names: Vec<&str> = summary.suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["part-0123456-intel", "part-0123456-amd-2"]);
        // A cell that is no longer published is dropped.
        summary.replace(suite("one", "AMD EPYC"), vec![row("two", &[5.0])], &order[1..]);
        assert_eq!(summary.rows.len(), 1);
    }

    #[test]
    fn a_suite_tells_the_cost_of_a_sync() {
        let mut summary = Summary::default();
        let costs = [90.0, 110.0, 100.0].map(|cost| Row::figure("one", "a", FSYNC, &[cost]));
        summary.replace(suite("all", "AMD EPYC"), costs.to_vec(), &["one".to_owned()]);
        assert_eq!(summary.suites[0].fact("fsync_us"), "100");
        assert!(summary.rows.is_empty());
    }
}
