//! The samples as a plot.

use std::fmt::Write;

use super::samples::Sample;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 70.0;

type Curve = (&'static str, &'static str, fn(&Sample) -> f64);

/// The curves of one panel, and its title.
const PANELS: [(&str, &[Curve]); 3] = [
    (
        "Memory, MiB",
        &[
            ("resident", "#1f77b4", |sample| mib(sample.resident_kib)),
            ("of it, not files", "#17becf", |sample| mib(sample.anonymous_kib)),
        ],
    ),
    (
        "Open descriptors, threads",
        &[
            ("descriptors", "#d62728", |sample| count(sample.descriptors)),
            ("threads", "#8c564b", |sample| count(sample.threads)),
        ],
    ),
    (
        "So far, thousands",
        &[
            ("requests answered", "#2ca02c", |sample| count(sample.requests) / 1e3),
            ("changes of pods", "#9467bd", |sample| count(sample.changes) / 1e3),
        ],
    ),
];

#[allow(clippy::cast_precision_loss, reason = "for the eye")]
fn count(count: u64) -> f64 {
    count as f64
}

fn mib(kib: u64) -> f64 {
    count(kib) / 1024.0
}

/// The plot, starting at zero.
pub fn svg(samples: &[Sample]) -> String {
    let seconds = samples.last().map_or(1.0, |sample| count(sample.second));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 700\" width=\"1000\" height=\"700\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">The agent at work for {seconds:.0} seconds</text>\n"
    );
    for (number, (title, curves)) in PANELS.iter().enumerate() {
        let bottom = 60.0 + HEIGHT + count(number as u64) * (HEIGHT + 50.0);
        panel(&mut svg, bottom, seconds, title, curves, samples).unwrap();
    }
    svg + "</svg>\n"
}

fn panel(
    svg: &mut String,
    bottom: f64,
    seconds: f64,
    title: &str,
    curves: &[Curve],
    samples: &[Sample],
) -> std::fmt::Result {
    let top = curves.iter().flat_map(|(_, _, of)| samples.iter().map(of)).fold(1.0, f64::max);
    let step = step(top / 4.0);
    let top = (top / step).ceil() * step;
    writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>", bottom - HEIGHT - 8.0)?;
    for line in 0_u32..=8 {
        let value = f64::from(line) * step;
        let y = bottom - value / top * HEIGHT;
        if value <= top {
            writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{value}</text>",
                LEFT + WIDTH,
                LEFT - 6.0,
                y + 4.0
            )?;
        }
    }
    for tenth in 0_u32..=10 {
        let x = LEFT + f64::from(tenth) / 10.0 * WIDTH;
        let at = f64::from(tenth) / 10.0 * seconds;
        writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{at:.0} s</text>",
            bottom + 16.0
        )?;
    }
    for (number, (name, colour, of)) in curves.iter().enumerate() {
        let points: Vec<_> = samples
            .iter()
            .map(|sample| {
                let x = LEFT + count(sample.second) / seconds * WIDTH;
                format!("{x:.1},{:.1}", bottom - of(sample) / top * HEIGHT)
            })
            .collect();
        writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" points=\"{}\"/>",
            points.join(" ")
        )?;
        let x = LEFT + WIDTH - 130.0 * (count(number as u64) + 1.0);
        writeln!(svg, "<text x=\"{x}\" y=\"{}\" fill=\"{colour}\">{name}</text>", bottom - HEIGHT - 8.0)?;
    }
    Ok(())
}

/// A round number of about this size: 1, 2 or 5 followed by zeros.
fn step(about: f64) -> f64 {
    let decade = 10_f64.powf(about.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade).find(|step| *step >= about).unwrap_or(about)
}
