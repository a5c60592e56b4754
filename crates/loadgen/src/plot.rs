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

/// One pair of axes: throughput (a second) from 0, and latency (µs) by its logarithm.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// In the legend's order, the same in all panels.
    pub lines: Vec<Line>,
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
    low: f64,
    high: f64,
}

impl Scale {
    fn new(panel: &Panel, left: f64) -> Self {
        let points = || panel.lines.iter().flat_map(|line| &line.points).filter(|(_, y)| *y > 0.0);
        let most = round_up(points().map(|(x, _)| *x).fold(1.0, f64::max));
        let low = points().map(|(_, us)| us.log10().floor()).fold(6.0, f64::min);
        let high = points().map(|(_, us)| us.log10().ceil()).fold(low + 1.0, f64::max);
        Self { left, most, low, high }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + LEFT + value / self.most * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.max(1e-3).log10() - self.low) / (self.high - self.low);
        HEIGHT - BELOW - share * (HEIGHT - ABOVE - BELOW)
    }

    /// The values beside which the upright axis has a label, and the labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let count = (self.high - self.low).round() as usize;
        let tick = |at: usize| {
            let us = 10f64.powf(self.low + at as f64);
            (us, latency_label(us))
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
    let mut rate = 0.0;
    while rate <= scale.most * 1.001 {
        let x = scale.x(rate);
        line(format!("<line x1=\"{x:.1}\" y1=\"{y0:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#333333\"/>", y0 + 4.0));
        line(format!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", y0 + 18.0, rate_label(rate)));
        rate += step;
    }
    line(format!("<path d=\"M{x0:.1} {y1:.1}V{y0:.1}H{x1:.1}\" fill=\"none\" stroke=\"#333333\"/>"));
    let below = y0 + 36.0;
    line(format!("<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">right replies a second</text>"));
    for (index, one) in panel.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let at = |(rate, us): &(f64, f64)| format!("{:.1},{:.1}", scale.x(*rate), scale.y(*us));
        let points: Vec<String> = one.points.iter().filter(|(_, us)| *us > 0.0).map(at).collect();
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
        let panel = Panel { title: "p50".to_owned(), lines };
        let scale = Scale::new(&panel, 0.0);
        for (rate, us) in [(10.0, 90.0), (31_234.0, 2_500_000.0)] {
            assert!((LEFT..=WIDTH - RIGHT).contains(&scale.x(rate)) && (ABOVE..=HEIGHT - BELOW).contains(&scale.y(us)));
        }
        let svg = draw("plots", &[panel, Panel { title: String::new(), lines: Vec::new() }]);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!((step(31_234.0), round_up(31_234.0)), (10_000.0, 40_000.0));
        assert_eq!((step(4.0), round_up(900.0)), (1.0, 1000.0));
        assert_eq!((latency_label(100.0), rate_label(2500.0)), ("100 µs".to_owned(), "2.5k".to_owned()));
    }
}
