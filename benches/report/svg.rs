//! Line charts with a logarithmic y-axis, as SVG without scripts, for light and dark backgrounds.

use std::fmt::Write;

use support::plot::STYLE;

/// A chart beside others.
pub(crate) struct Panel {
    pub(crate) title: String,
    /// Labels of the x-axis, evenly spaced.
    pub(crate) ticks: Vec<String>,
    pub(crate) lines: Vec<Line>,
}

pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<f64>,
}

const WIDTH: f64 = 430.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 70.0;
const LEGEND: f64 = 270.0;
/// Distinguishable with colour blindness; the index comes first and is the thickest.
const COLOURS: [&str; 12] = [
    "#d62728", "#ff9896", "#7f7f7f", "#1f77b4", "#17becf", "#2ca02c", "#98df8a", "#9467bd", "#8c564b",
    "#e377c2", "#bcbd22", "#000000",
];

/// The panels in two columns, with one legend.
pub(crate) fn chart(title: &str, unit: &str, machine: &str, panels: &[Panel]) -> String {
    let columns = panels.len().min(2);
    let rows = panels.len().div_ceil(2);
    let width = number(columns) * (WIDTH + LEFT) + LEGEND + 30.0;
    let height = TOP + number(rows) * (HEIGHT + 75.0);
    let (low, high) = decades(panels);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         {STYLE}\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"17\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"40\" class=\"faint\">{unit} · {machine}</text>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        let x = LEFT + number(at % 2) * (WIDTH + LEFT);
        let y = TOP + number(at / 2) * (HEIGHT + 75.0);
        draw(&mut svg, panel, (x, y), (low, high));
    }
    let names: Vec<_> = panels.iter().max_by_key(|panel| panel.lines.len()).into_iter().collect();
    for (at, line) in names.iter().flat_map(|panel| &panel.lines).enumerate() {
        let (x, y) = (width - LEGEND, TOP + 12.0 + number(at) * 20.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>\
             <text x=\"{}\" y=\"{y}\">{}</text>",
            y - 4.0,
            x + 24.0,
            y - 4.0,
            colour(at),
            thickness(line),
            x + 32.0,
            line.name
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, panel: &Panel, (x, y): (f64, f64), (low, high): (i32, i32)) {
    let ordinate = |value: f64| {
        let share = (value.max(f64::MIN_POSITIVE).log10() - f64::from(low)) / f64::from(high - low);
        y + HEIGHT * (1.0 - share)
    };
    let abscissa = |at: usize| x + WIDTH * (number(at) + 0.5) / number(panel.ticks.len());
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\" font-weight=\"bold\">{}</text>", y - 8.0, panel.title);
    for decade in low..=high {
        let height = ordinate(10f64.powi(decade));
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{height}\" x2=\"{}\" y2=\"{height}\" class=\"grid\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" class=\"faint\">{}</text>",
            x + WIDTH,
            x - 6.0,
            height + 4.0,
            power(decade)
        );
    }
    for (at, tick) in panel.ticks.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" class=\"faint\">{tick}</text>",
            abscissa(at),
            y + HEIGHT + 18.0
        );
    }
    for (at, line) in panel.lines.iter().enumerate() {
        let points: Vec<String> = line
            .values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_finite() && **value > 0.0)
            .map(|(at, &value)| format!("{:.1},{:.1}", abscissa(at), ordinate(value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" points=\"{}\"/>",
            colour(at),
            thickness(line),
            points.join(" ")
        );
    }
}

/// The powers of ten that enclose all values.
fn decades(panels: &[Panel]) -> (i32, i32) {
    let values = panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.values);
    let (low, high) = values
        .filter(|value| value.is_finite() && **value > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), &value| (low.min(value), high.max(value)));
    #[expect(clippy::cast_possible_truncation, reason = "a power of ten")]
    let bounds = (low.log10().floor() as i32, high.log10().ceil() as i32);
    if bounds.0 < bounds.1 { bounds } else { (0, 1) }
}

fn power(decade: i32) -> String {
    match decade {
        3..=5 => format!("{} k", 10f64.powi(decade - 3)),
        6..=8 => format!("{} M", 10f64.powi(decade - 6)),
        9.. => format!("{} G", 10f64.powi(decade - 9)),
        _ => format!("{}", 10f64.powi(decade)),
    }
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn thickness(line: &Line) -> &'static str {
    if line.name.starts_with("pod-index") { "3.5" } else { "1.6" }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}
