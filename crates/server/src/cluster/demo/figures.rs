//! What the clients of the demo's load have seen, second by second: the table's lines and the plot.

use std::time::Duration;

use millrace_loadgen::plot::{Axis, LATENCY, Line, Panel, RATE, TIME, draw};

/// One second of the load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Second {
    /// Of each call that was answered, from its first attempt to its answer. Sorted when the second is over.
    latencies: Vec<Duration>,
    /// Attempts that failed and were repeated.
    repeated: u64,
}

impl Second {
    /// How many calls were answered.
    pub(super) fn answered(&self) -> usize {
        self.latencies.len()
    }

    /// The latency that a share of the calls did not exceed; zero where none was answered.
    fn within(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }
}

/// The load so far.
#[derive(Debug, Default)]
pub(super) struct Figures {
    now: Second,
    past: Vec<Second>,
    /// What was done to the cluster, and when, in seconds.
    events: Vec<(f64, String)>,
}

impl Figures {
    pub(super) fn answered(&mut self, latency: Duration) {
        self.now.latencies.push(latency);
    }

    pub(super) fn repeated(&mut self) {
        self.now.repeated += 1;
    }

    pub(super) fn happened(&mut self, at: Duration, what: String) {
        self.events.push((at.as_secs_f64(), what));
    }

    /// A second is over: the line that shows it.
    pub(super) fn turn(&mut self, owned: &str) -> String {
        let mut second = std::mem::take(&mut self.now);
        second.latencies.sort_unstable();
        self.past.push(second);
        let second = &self.past[self.past.len() - 1];
        let ms = |share: f64| format!("{:.1}", second.within(share).as_secs_f64() * 1e3);
        line([
            format!("{} s", self.past.len()),
            second.answered().to_string(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            second.repeated.to_string(),
            owned.to_owned(),
        ])
    }

    /// Calls answered, attempts repeated, and the longest that a client waited.
    pub(super) fn sums(&self) -> (usize, u64, Duration) {
        let seconds = || self.past.iter().chain([&self.now]);
        let longest = seconds().flat_map(|second| second.latencies.iter().copied()).max().unwrap_or_default();
        (seconds().map(Second::answered).sum(), seconds().map(|second| second.repeated).sum(), longest)
    }

    /// Calls a second, and latencies, over time.
    pub(super) fn plot(&self) -> String {
        let line = |name: &str, of: &dyn Fn(&Second) -> f64| {
            let points = self.past.iter().enumerate().map(|(at, second)| ((at + 1) as f64, of(second)));
            Line { name: name.to_owned(), points: points.collect() }
        };
        let latency = |share: f64| move |second: &Second| second.within(share).as_secs_f64() * 1e6;
        let mut rate = panel("calls a second", RATE, vec![line("calls", &|second| second.answered() as f64)]);
        let lines = vec![line("median", &latency(0.5)), line("p99", &latency(0.99)), line("longest", &latency(1.0))];
        let mut latencies = panel("latency: grey the median, blue p99, dark the longest", LATENCY, lines);
        rate.marks.clone_from(&self.events);
        latencies.marks.clone_from(&self.events);
        draw("A node of three is killed and brought back under load", &[rate, latencies])
    }
}

fn panel(title: &str, up: Axis, lines: Vec<Line>) -> Panel {
    Panel::new(title.to_owned(), (TIME, up), lines)
}

/// The table's head.
pub(super) fn head() -> String {
    line(["time", "calls/s", "p50 ms", "p99 ms", "longest ms", "repeated", "shards owned"].map(str::to_owned))
}

fn line([time, calls, median, p99, longest, repeated, owned]: [String; 7]) -> String {
    format!("{time:>6} {calls:>8} {median:>8} {p99:>8} {longest:>11} {repeated:>9}  {owned}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_without_an_answer_is_shown_as_such() {
        let mut figures = Figures::default();
        for ms in [3, 1, 2] {
            figures.answered(Duration::from_millis(ms));
        }
        figures.repeated();
        assert_eq!(figures.turn("n1 64").split_whitespace().collect::<Vec<_>>().join(" "), "1 s 3 2.0 3.0 3.0 1 n1 64");
        assert_eq!(figures.turn("?").split_whitespace().collect::<Vec<_>>().join(" "), "2 s 0 0.0 0.0 0.0 0 ?");
        figures.answered(Duration::from_millis(9));
        assert_eq!(figures.sums(), (4, 1, Duration::from_millis(9)));
        figures.happened(Duration::from_millis(1500), "node 2 killed".to_owned());
        assert!(figures.plot().matches("node 2 killed").count() == 2);
    }
}
