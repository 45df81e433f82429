//! Draws the model with ratatui. Pure. Text of the agent is safe before it comes here.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{self, Cell, Paragraph, Wrap};
use unicode_width::UnicodeWidthStr;

use super::model::{AGE, COLUMNS, IP, Model, NAME, Row, STATUS};
use crate::api::seen::SeenSource;
use crate::pod_api::since;

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The gap between two columns.
const GAP: u16 = 2;
/// A column takes at most this fraction of a line.
const SHARE: usize = 3;
/// The longest ages have this width.
const AGES: usize = 5;

/// The statuses of pods that start, run, have succeeded or end.
#[rustfmt::skip]
const FINE: [&str; 8] = [
    "Pending", "Running", "Succeeded", "Completed", "Terminating", "ContainerCreating", "PodInitializing",
    "SchedulingGated",
];

/// Draws a frame. Corrects positions behind the end.
pub(super) fn draw(model: &mut Model, now: Timestamp, frame: &mut Frame<'_>) {
    model.arrange();
    let parts = [Constraint::Length(4), Constraint::Fill(1), Constraint::Length(1)];
    let [head, middle, foot] = Layout::vertical(parts).areas(frame.area());
    let lines = Layout::vertical([Constraint::Length(1); 4]).split(head);
    let (title, state) = title(model, now);
    ends(frame, lines[0], title, state);
    frame.render_widget(sources(model, now), lines[1]);
    frame.render_widget(trouble(model), lines[2]);
    ends(frame, lines[3], figures(model), filter(model));
    if model.is_open {
        frame.render_widget(Paragraph::new(facts(model)).wrap(Wrap { trim: false }), middle);
    } else {
        table(model, now, frame, middle);
    }
    if model.problem.is_some() {
        // Outdated.
        frame.buffer_mut().set_style(middle, FAINT);
        frame.buffer_mut().set_style(lines[1], FAINT);
    }
    let server = Line::styled(model.server.clone(), FAINT);
    ends(frame, foot, keys(model), server);
}

/// Draws one line on the left and one on the right, which counts more.
fn ends(frame: &mut Frame<'_>, area: Rect, left: Line<'_>, right: Line<'_>) {
    let width = u16::try_from(right.width()).unwrap_or(u16::MAX).saturating_add(GAP);
    let [start, end] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(area);
    frame.render_widget(left, start);
    frame.render_widget(right.right_aligned(), end);
}

fn title(model: &Model, now: Timestamp) -> (Line<'static>, Line<'static>) {
    let state = match (&model.problem, model.answered) {
        (None, None) => Line::styled("asking …", FAINT),
        (None, Some(_)) if model.sources.ready => Line::styled("● ready", GOOD),
        (None, Some(_)) => {
            let missing = model.sources.sources.iter().filter(|source| !source.seen);
            let missing: Vec<_> = missing.map(|source| source.source.as_str()).collect();
            Line::styled(format!("● not ready: waits for {}", missing.join(", ")), BAD)
        }
        (Some(_), None) => Line::styled("● no answer", BAD),
        (Some(_), Some(answered)) => {
            let seconds = now.duration_since(answered).as_secs();
            Line::styled(format!("● no answer for {seconds} s"), BAD)
        }
    };
    let node = format!("  {}", model.sources.node);
    (Line::from_iter([Span::styled("pod-index", STRONG), node.into()]), state)
}

fn sources(model: &Model, now: Timestamp) -> Line<'static> {
    let group = |source: &SeenSource| {
        let grave = source.problems.iter().filter(|problem| problem.is_grave()).count() as u64;
        let problems = if grave > 0 { format!(", {}", count(grave, "problem")) } else { String::new() };
        let heard = source.seconds_since_heard.map(|seconds| format!(", heard {seconds} s ago"));
        [
            Span::styled(format!("{}: ", source.source), FAINT),
            pods_or_wait(source),
            Span::styled(problems + &retry(source, now), BAD),
            Span::styled(heard.unwrap_or_default() + "   ", FAINT),
        ]
    };
    model.sources.sources.iter().flat_map(group).collect()
}

/// How many pods a source has, or what it waits for until they are in the index.
fn pods_or_wait(source: &SeenSource) -> Span<'static> {
    if source.seen {
        return count(source.pods, "pod").into();
    }
    // An older agent does not say it.
    let waits = source.waits_for.as_ref().map(|what| format!("waits for {what}"));
    Span::styled(waits.unwrap_or_else(|| "not read yet".to_owned()), BAD)
}

/// When a source that has been read, but fails now, is tried again.
fn retry(source: &SeenSource, now: Timestamp) -> String {
    let fails = source.seen && source.seconds_failing.is_some();
    match &source.next_try {
        Some(Time(next_try)) if fails => {
            let seconds = next_try.duration_since(now).as_secs().max(0);
            format!(", next try in {seconds} s")
        }
        _ => String::new(),
    }
}

fn count(number: u64, name: &str) -> String {
    if number == 1 { format!("1 {name}") } else { format!("{number} {name}s") }
}

/// Why the agent does not answer, why the pods may be outdated, or a problem of a source. Usually empty.
fn trouble(model: &Model) -> Line<'static> {
    let of_a_source = |source: &SeenSource| {
        source.problems.iter().find(|problem| problem.is_grave()).map(|problem| problem.words(&source.origin))
    };
    let text = match (&model.problem, &model.pods_problem) {
        (Some(problem), _) => format!("trying again: {problem}"),
        (None, Some(problem)) => format!("the pods are outdated: {problem}"),
        (None, None) => model.sources.sources.iter().find_map(of_a_source).unwrap_or_default(),
    };
    Line::styled(text, BAD)
}

fn figures(model: &Model) -> Line<'static> {
    let all = model.pods.len();
    let matching = model.shown.len();
    let number = if model.filter.is_empty() { all.to_string() } else { format!("{matching}/{all}") };
    Line::from_iter([Span::styled("Pods ", FAINT), Span::styled(number, STRONG)])
}

fn filter(model: &Model) -> Line<'static> {
    if !model.is_typing && model.filter.is_empty() {
        return Line::default();
    }
    let cursor = if model.is_typing { "▏" } else { "" };
    Line::styled(format!("/{}{cursor}", model.filter), STRONG)
}

fn keys(model: &Model) -> Line<'static> {
    let keys = match (model.is_open, model.is_typing) {
        (true, _) => "Esc close|↑↓ another",
        (_, true) => "Enter keep|Esc clear|Ctrl-U empty",
        _ => "q quit|/ filter|s sort|r reverse|Enter pod",
    };
    let spans = |(key, what): (&'static str, &str)| {
        [Span::styled(key, STRONG), Span::styled(format!(" {what}  "), FAINT)]
    };
    keys.split('|').filter_map(|hint| hint.split_once(' ')).flat_map(spans).collect()
}

/// All columns of the selected pod.
fn facts(model: &Model) -> Text<'static> {
    let selected = model.shown.get(model.selected);
    let facts = selected.into_iter().flat_map(|row| COLUMNS.iter().zip(&**row).enumerate());
    let facts = facts.filter(|(_, (_, cell))| !cell.is_empty()).map(|(at, ((name, _), cell))| {
        let name = if at == AGE { "CREATED" } else { name };
        Line::from_iter([Span::styled(format!("{name:11}"), FAINT), cell.clone().into()])
    });
    facts.collect()
}

/// Draws the rows around the selected one.
fn table(model: &mut Model, now: Timestamp, frame: &mut Frame<'_>, area: Rect) {
    let room = usize::from(area.height.saturating_sub(1));
    model.room = room.max(1);
    let widths = fitting(model, area.width);
    model.columns = widths.len();
    if model.sorted_by >= model.columns.max(1) {
        (model.sorted_by, model.is_reversed) = (0, false);
        model.arrange();
    }
    // The selected row is on the screen, and the screen is full.
    let first = model.first.clamp((model.selected + 1).saturating_sub(model.room), model.selected);
    model.first = first.min(model.shown.len().saturating_sub(room));
    let mark = if model.is_reversed { "↓" } else { "↑" };
    let heading = |(at, (name, _)): (usize, &(&'static str, usize))| {
        format!("{name}{}", if at == model.sorted_by { mark } else { "" })
    };
    let header = COLUMNS.iter().enumerate().map(heading).collect::<widgets::Row<'_>>().style(FAINT);
    let row = |(at, row): (usize, &Arc<Row>)| {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            STATUS if is_bad(cell) => Cell::from(shortened(cell, widths.get(column))).style(BAD),
            NAME => Cell::from(shortened(cell, widths.get(column))).style(STRONG),
            AGE => Cell::from(age(cell, now)),
            _ => Cell::from(shortened(cell, widths.get(column))),
        });
        cells.collect::<widgets::Row<'_>>().style(if at == model.selected { CHOSEN } else { Style::new() })
    };
    let rows: Vec<_> = model.shown.iter().enumerate().skip(model.first).take(room).map(row).collect();
    let constraint = |width: &usize| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX));
    let constraints = widths.iter().map(constraint);
    frame.render_widget(widgets::Table::new(rows, constraints).header(header).column_spacing(GAP), area);
    if model.shown.is_empty() {
        let why = if model.pods.is_empty() { "nothing here yet" } else { "nothing matches the filter" };
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1).min(1), ..area };
        frame.render_widget(Line::styled(why, FAINT), below.intersection(area));
    }
}

/// The text, or as much of it as fits before an ellipsis. `width`: of its column. `None`: the column is not on the screen.
fn shortened(text: &str, width: Option<&usize>) -> String {
    let Some(width) = width.copied().filter(|width| text.width() > *width) else { return text.to_owned() };
    let mut kept = String::new();
    for char in text.chars() {
        let longer = format!("{kept}{char}");
        if longer.width() >= width {
            break;
        }
        kept = longer;
    }
    kept + "…"
}

fn age(created: &str, now: Timestamp) -> String {
    created.parse().map_or_else(|_| created.to_owned(), |created| since(Some(&Time(created)), now))
}

/// Whether a status asks for attention.
fn is_bad(status: &str) -> bool {
    let is_starting = status.starts_with("Init:") && status.contains('/');
    !is_starting && !status.is_empty() && !FINE.contains(&status)
}

/// The widths of the columns whose headings fit; of IPs, a part would be another IP, so that column is whole or not there.
/// A very long name must not displace other columns, but may have what they leave.
fn fitting(model: &Model, screen: u16) -> Vec<usize> {
    let mut start = 0;
    let screen = usize::from(screen);
    let cells = |at: usize| model.pods.values().map(|row| row[at].width()).max().unwrap_or_default();
    let width = |(at, (name, _)): (usize, &(&str, usize))| {
        // With space for the mark of the sort order.
        let heading = name.len() + 1;
        let (width, needed) = match at {
            IP => (cells(at).max(heading), cells(at).max(heading)),
            AGE => (AGES.max(heading).min(screen / SHARE), heading),
            _ => (cells(at).max(heading).min(screen / SHARE), heading),
        };
        let room = screen.checked_sub(start).filter(|room| *room >= needed)?;
        start += width + usize::from(GAP);
        Some(width.min(room))
    };
    let mut widths: Vec<_> = COLUMNS.iter().enumerate().map_while(width).collect();
    let used: usize = widths.iter().map(|width| width + usize::from(GAP)).sum();
    let left = (screen + usize::from(GAP)).saturating_sub(used);
    if let Some(width) = widths.get_mut(NAME) {
        *width += left.min(cells(NAME).saturating_sub(*width));
    }
    widths
}

#[cfg(test)]
mod tests;
