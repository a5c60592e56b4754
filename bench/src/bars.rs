//! Bars as SVG: one group of bars below another, each group with a scale of its own.

use std::fmt::Write as _;

/// One bar; its parts lie one behind the other.
#[derive(Clone, Debug)]
pub struct Bar {
    /// On its left.
    pub name: String,
    /// From the axis outwards, as many as the legend has names.
    pub parts: Vec<f64>,
}

/// Bars of one scale.
#[derive(Clone, Debug)]
pub struct Group {
    /// Above the bars.
    pub title: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 760.0;
/// Room for names on the left, and for figures on the right.
const LEFT: f64 = 270.0;
const RIGHT: f64 = 80.0;
const BAR: f64 = 18.0;
const STEP: f64 = 24.0;
const TITLE: f64 = 34.0;
/// Dark and light, by the part.
const COLOURS: [&str; 2] = ["#0072b2", "#9fc9e3"];

/// The groups, with a legend for the parts of the bars if there are several.
#[must_use]
pub fn draw(title: &str, legend: &[&str], groups: &[Group]) -> String {
    let top = if legend.len() > 1 { 30.0 } else { 0.0 };
    let height = top + groups.iter().map(|group| TITLE + STEP * group.bars.len() as f64).sum::<f64>() + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escape(title)
    );
    if legend.len() > 1 {
        for (index, name) in legend.iter().enumerate() {
            let x = LEFT + 160.0 * index as f64;
            rect(&mut svg, (x, 10.0, 14.0, 12.0), COLOURS[index % COLOURS.len()]);
            text(&mut svg, (x + 20.0, 20.0), "start", name);
        }
    }
    let mut y = top;
    for group in groups {
        draw_group(&mut svg, group, y);
        y += TITLE + STEP * group.bars.len() as f64;
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_group(svg: &mut String, group: &Group, top: f64) {
    let most = group.bars.iter().map(|bar| bar.parts.iter().sum::<f64>()).fold(f64::MIN_POSITIVE, f64::max);
    text(svg, (LEFT, top + 22.0), "start", &group.title);
    for (index, bar) in group.bars.iter().enumerate() {
        let y = top + TITLE + STEP * index as f64;
        text(svg, (LEFT - 8.0, y + 13.0), "end", &bar.name);
        let mut x = LEFT;
        for (part, value) in bar.parts.iter().enumerate() {
            let width = value / most * (WIDTH - LEFT - RIGHT);
            rect(svg, (x, y, width, BAR), COLOURS[part % COLOURS.len()]);
            x += width;
        }
        text(svg, (x + 6.0, y + 13.0), "start", &figure(bar.parts.iter().sum()));
    }
}

fn figure(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        value if value >= 1000.0 => format!("{:.1}k", value / 1000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

fn rect(svg: &mut String, (x, y, width, height): (f64, f64, f64, f64), colour: &str) {
    // Writing to a String cannot fail.
    writeln!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>")
        .unwrap_or_default();
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    // Writing to a String cannot fail.
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(text))
        .unwrap_or_default();
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_its_scale_and_no_bars_are_no_harm() {
        let bar = |name: &str, parts: &[f64]| Bar { name: name.to_owned(), parts: parts.to_vec() };
        let bars = vec![bar("a < b", &[3.0, 1.0]), bar("c", &[2.0, 0.0])];
        let groups = [Group { title: "one".to_owned(), bars }, Group { title: "none".to_owned(), bars: Vec::new() }];
        let svg = draw("bars", &["user", "kernel"], &groups);
        let width = WIDTH - LEFT - RIGHT;
        for expected in [width * 0.75, width * 0.25, width * 0.5] {
            assert!(svg.contains(&format!("width=\"{expected:.1}\"")), "{expected}: {svg}");
        }
        assert!(svg.contains("a &lt; b") && svg.contains(">4.0<") && svg.ends_with("</svg>\n"));
        assert_eq!(
            (figure(123_456.0), figure(2345.0), figure(0.0)),
            ("123k".to_owned(), "2.3k".to_owned(), "0.0".to_owned())
        );
    }
}
