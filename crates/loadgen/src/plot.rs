//! Plots as SVG: axes, lines, a legend, nothing else.

use std::fmt::Write as _;

/// One line of a plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// What the axes say, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// What one axis says.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Below it; the upright axis has none, as the panel's title says what it shows.
    pub label: &'static str,
    /// By its logarithm, from the power of ten below the least value. Else from 0.
    pub is_logarithmic: bool,
    /// The text beside a tick.
    pub tick: fn(f64) -> String,
}

/// Right replies a second.
pub const RATE: Axis = Axis { label: "right replies a second", is_logarithmic: false, tick: rate_label };

/// µs, by their logarithm.
pub const LATENCY: Axis = Axis { label: "latency", is_logarithmic: true, tick: latency_label };

/// Seconds since the beginning.
pub const TIME: Axis = Axis { label: "seconds", is_logarithmic: false, tick: rate_label };

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// From left to right. Never logarithmic.
    pub across: Axis,
    /// From below.
    pub up: Axis,
    /// In the legend's order, the same in all panels.
    pub lines: Vec<Line>,
    /// Where something happened: an upright line with its name beside it.
    pub marks: Vec<(f64, String)>,
}

impl Panel {
    /// A panel without marks, with the axes across and up.
    #[must_use]
    pub fn new(title: String, (across, up): (Axis, Axis), lines: Vec<Line>) -> Self {
        Self { title, across, up, lines, marks: Vec::new() }
    }
}

/// Colours that colour-blind readers can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] = ["#999999", "#56b4e9", "#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#000000"];

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 340.0;
/// Room around the axes: left, right, above, below.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const ABOVE: f64 = 34.0;
const BELOW: f64 = 48.0;
const LEGEND: f64 = 30.0;

/// The panels side by side, the legend below them.
#[must_use]
pub fn draw(title: &str, panels: &[Panel]) -> String {
    let (width, height) = (WIDTH * panels.len().max(1) as f64, HEIGHT + LEGEND);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escape(title)
    );
    for (index, panel) in panels.iter().enumerate() {
        draw_panel(&mut svg, panel, WIDTH * index as f64);
    }
    if let Some(panel) = panels.first() {
        draw_legend(&mut svg, panel, width);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where values lie in a panel.
struct Scale {
    left: f64,
    most: f64,
    up: Axis,
    /// The ends of the upright axis: powers of ten where it is logarithmic.
    low: f64,
    high: f64,
}

impl Scale {
    fn new(panel: &Panel, left: f64) -> Self {
        let points = || panel.lines.iter().flat_map(|line| &line.points).filter(|(_, y)| *y > 0.0);
        let most = round_up(points().map(|(x, _)| *x).fold(1.0, f64::max));
        let (low, high) = if panel.up.is_logarithmic {
            let low = points().map(|(_, value)| value.log10().floor()).fold(6.0, f64::min);
            (low, points().map(|(_, value)| value.log10().ceil()).fold(low + 1.0, f64::max))
        } else {
            (0.0, round_up(points().map(|(_, value)| *value).fold(1.0, f64::max)))
        };
        Self { left, most, up: panel.up, low, high }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + LEFT + value / self.most * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let at = if self.up.is_logarithmic { value.max(1e-3).log10() } else { value };
        let share = (at - self.low) / (self.high - self.low);
        HEIGHT - BELOW - share * (HEIGHT - ABOVE - BELOW)
    }

    /// The values beside which the upright axis has a label, and the labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let step = if self.up.is_logarithmic { 1.0 } else { step(self.high) };
        let count = ((self.high - self.low) / step).round() as usize;
        let tick = |at: usize| {
            let at = self.low + at as f64 * step;
            let value = if self.up.is_logarithmic { 10f64.powf(at) } else { at };
            (value, (self.up.tick)(value))
        };
        (0..=count).map(tick).collect()
    }
}

/// To the next 1, 2 or 5 times a tenth of its size.
fn round_up(value: f64) -> f64 {
    let step = step(value);
    (value / step).ceil() * step
}

/// The distance of ticks: about five of them.
fn step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

fn draw_panel(svg: &mut String, panel: &Panel, left: f64) {
    let scale = Scale::new(panel, left);
    let (x0, x1, y0, y1) = (scale.x(0.0), scale.x(scale.most), HEIGHT - BELOW, ABOVE);
    let middle = f64::midpoint(x0, x1);
    // Writing to a String cannot fail.
    let mut line = |text: String| writeln!(svg, "{text}").unwrap_or_default();
    line(format!(
        "<text x=\"{middle:.1}\" y=\"20\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
        escape(&panel.title)
    ));
    for (value, label) in scale.ticks() {
        let y = scale.y(value);
        line(format!("<line x1=\"{x0:.1}\" y1=\"{y:.1}\" x2=\"{x1:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>"));
        let x = x0 - 6.0;
        line(format!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", y + 4.0));
    }
    let step = step(scale.most);
    let mut value = 0.0;
    while value <= scale.most * 1.001 {
        let (x, label) = (scale.x(value), (panel.across.tick)(value));
        line(format!("<line x1=\"{x:.1}\" y1=\"{y0:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#333333\"/>", y0 + 4.0));
        line(format!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", y0 + 18.0));
        value += step;
    }
    line(format!("<path d=\"M{x0:.1} {y1:.1}V{y0:.1}H{x1:.1}\" fill=\"none\" stroke=\"#333333\"/>"));
    let (below, label) = (y0 + 36.0, panel.across.label);
    line(format!("<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{label}</text>"));
    for (at, name) in &panel.marks {
        let x = scale.x(*at);
        line(format!(
            "<line x1=\"{x:.1}\" y1=\"{y1:.1}\" x2=\"{x:.1}\" y2=\"{y0:.1}\" stroke=\"#d55e00\" stroke-dasharray=\"4 3\"/>"
        ));
        let (x, y) = (x + 4.0, y1 + 10.0);
        line(format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#d55e00\">{}</text>", escape(name)));
    }
    for (index, one) in panel.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let at = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", scale.x(*x), scale.y(*y));
        // A logarithmic axis has no 0.
        let is_shown = |(_, y): &&(f64, f64)| *y > 0.0 || !panel.up.is_logarithmic;
        let points: Vec<String> = one.points.iter().filter(is_shown).map(at).collect();
        line(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>",
            points.join(" ")
        ));
        for point in &points {
            if let Some((x, y)) = point.split_once(',') {
                line(format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"2.6\" fill=\"{colour}\"/>"));
            }
        }
    }
}

fn draw_legend(svg: &mut String, panel: &Panel, width: f64) {
    let share = width / panel.lines.len().max(1) as f64;
    for (index, line) in panel.lines.iter().enumerate() {
        let (x, y, colour) = (14.0 + share * index as f64, HEIGHT + 10.0, COLOURS[index % COLOURS.len()]);
        let name = escape(&line.name);
        // Writing to a String cannot fail.
        writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
            y - 4.0,
            x + 24.0,
            y + 2.0
        )
        .unwrap_or_default();
    }
}

fn latency_label(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.0} s", us / 1e6),
    }
}

fn rate_label(rate: f64) -> String {
    if rate >= 1000.0 { format!("{}k", rate / 1000.0) } else { format!("{rate:.0}") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_within_the_axes_and_no_points_are_no_harm() {
        let line = |points: &[(f64, f64)]| Line { name: "a < b".to_owned(), points: points.to_vec() };
        let lines = vec![line(&[(10.0, 90.0), (31_234.0, 2_500_000.0)]), line(&[])];
        let panel = Panel::new("p50".to_owned(), (RATE, LATENCY), lines);
        let scale = Scale::new(&panel, 0.0);
        for (rate, us) in [(10.0, 90.0), (31_234.0, 2_500_000.0)] {
            assert!((LEFT..=WIDTH - RIGHT).contains(&scale.x(rate)) && (ABOVE..=HEIGHT - BELOW).contains(&scale.y(us)));
        }
        let svg = draw("plots", &[panel, Panel::new(String::new(), (RATE, LATENCY), Vec::new())]);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_straight_axis_begins_at_nothing_and_shows_it() {
        let lines = vec![Line { name: "calls".to_owned(), points: vec![(1.0, 4000.0), (2.0, 0.0)] }];
        let mut panel = Panel::new("calls a second".to_owned(), (TIME, RATE), lines);
        panel.marks.push((2.0, "node 2 killed".to_owned()));
        let scale = Scale::new(&panel, 0.0);
        assert!((scale.y(0.0) - (HEIGHT - BELOW)).abs() < 1e-9);
        assert_eq!(scale.ticks().first().map(|(_, label)| label.clone()), Some("0".to_owned()));
        let svg = draw("demo", &[panel]);
        assert!(svg.contains("node 2 killed") && svg.matches("<circle").count() == 2);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!((step(31_234.0), round_up(31_234.0)), (10_000.0, 40_000.0));
        assert_eq!((step(4.0), round_up(900.0)), (1.0, 1000.0));
        assert_eq!((latency_label(100.0), rate_label(2500.0)), ("100 µs".to_owned(), "2.5k".to_owned()));
    }
}
