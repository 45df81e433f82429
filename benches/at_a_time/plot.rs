//! The plot: one line a system, as SVG without scripts.

use std::fmt::Write;

use support::plot::STYLE;

use crate::POINT;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;
/// Distinguishable with colour blindness; the index comes first and is the thickest.
const COLOURS: [&str; 6] = ["#d62728", "#1f77b4", "#7f7f7f", "#2ca02c", "#9467bd", "#8c564b"];

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub(crate) fn plot(lines: &[(&'static str, Vec<f64>)]) -> String {
    let highest = lines.iter().flat_map(|(_, values)| values).fold(1.0f64, |most, value| most.max(*value));
    let highest = (highest / 10.0).ceil() * 10.0;
    let ordinate = |value: f64| TOP + HEIGHT * (1.0 - value / highest);
    let points = lines.first().map_or(1, |(_, values)| values.len());
    let abscissa = |at: f64| LEFT + WIDTH * at / points as f64;
    let (width, height) = (LEFT + WIDTH + 170.0, TOP + HEIGHT + 60.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         {STYLE}\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"17\" font-weight=\"bold\">Confidently wrong answers</text>\n\
         <text x=\"{LEFT}\" y=\"40\" class=\"faint\">% of all answers, by the age of the event in seconds</text>\n"
    );
    for tick in 0..=5 {
        let value = highest * f64::from(tick) / 5.0;
        let y = ordinate(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" class=\"grid\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" class=\"faint\">{value}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            y + 4.0
        );
    }
    for at in (0..=points).step_by(2) {
        let (x, y) = (abscissa(at as f64), TOP + HEIGHT + 18.0);
        let seconds = at as f64 * POINT as f64 / 1_000.0;
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" class=\"faint\">{seconds}</text>"
        );
    }
    for (number, (name, values)) in lines.iter().enumerate().rev() {
        let colour = COLOURS[number % COLOURS.len()];
        let thickness = if number == 0 { 4 } else { 2 };
        let points: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(at, value)| format!("{:.1},{:.1}", abscissa(at as f64 + 0.5), ordinate(*value)))
            .collect();
        let (x, y) = (LEFT + WIDTH + 16.0, TOP + 12.0 + number as f64 * 20.0);
        let _ = writeln!(
            svg,
            "<polyline points=\"{3}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{thickness}\"/>\
             <line x1=\"{x}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" stroke=\"{colour}\" stroke-width=\"{thickness}\"/>\
             <text x=\"{2}\" y=\"{y}\">{name}</text>",
            y - 4.0,
            x + 24.0,
            x + 32.0,
            points.join(" "),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
