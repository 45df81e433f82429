//! Draws the model with ratatui. Pure. Text of the agent is safe before it comes here.

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{self, Cell, Paragraph, Wrap};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::list::{AGE, COLUMNS, List, Row, STATUS};
use super::model::{Model, Moment, Page};
use crate::api::seen::Source;
use crate::pod_api::since;

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The gap between two columns.
const GAP: u16 = 2;
/// A column takes at most this fraction of a line while others need the space.
const SHARE: usize = 3;
/// The longest ages have this width.
const AGES: usize = 5;

/// The statuses of pods that start, run, have succeeded or end.
#[rustfmt::skip]
const FINE: [&str; 8] = [
    "Pending", "Running", "Succeeded", "Completed", "Terminating", "ContainerCreating", "PodInitializing",
    "SchedulingGated",
];

const KEYS: &str = "\
↑ ↓ j k          another pod, or scroll
PgUp PgDn        a page; also Space
Home End g G     to the start, to the end
Enter            all columns of the pod
y                the pod as YAML
/                filter: words of any column
s r              sort by the next column, in reverse
Esc              close; clear the filter; quit
q Ctrl-C         quit";

/// Draws a frame. Corrects positions behind the end.
pub(super) fn draw(model: &mut Model, now: Moment, frame: &mut Frame<'_>) {
    let parts = [Constraint::Length(4), Constraint::Fill(1), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(parts).areas(frame.area());
    let lines = Layout::vertical([Constraint::Length(1); 4]).split(head);
    let (title, state) = title(model, now);
    ends(frame, lines[0], title, state, true);
    frame.render_widget(sources(model, head.width), lines[1]);
    frame.render_widget(trouble(model), lines[2]);
    ends(frame, lines[3], figures(model), filter(model), true);
    let place = match text(model) {
        Some(text) => paragraph(model, text, frame, body),
        None => table(model, now, frame, body),
    };
    if model.problem.is_some() {
        // Outdated.
        frame.buffer_mut().set_style(body, FAINT);
        frame.buffer_mut().set_style(lines[1], FAINT);
    }
    let place = Line::styled(format!("{place}{}", model.server), FAINT);
    ends(frame, foot, keys(model), place, false);
}

/// Draws one line on the left and one on the right. If both do not fit, only one of them.
fn ends(frame: &mut Frame<'_>, area: Rect, left: Line<'_>, right: Line<'_>, keeps_right: bool) {
    let is_both = left.width() + right.width() + usize::from(GAP) <= area.width.into();
    if is_both {
        frame.render_widget(left, area);
        frame.render_widget(right.right_aligned(), area);
    } else {
        let is_right = keeps_right && right.width() > 0;
        frame.render_widget(if is_right { right } else { left }, area);
    }
}

fn title(model: &Model, now: Moment) -> (Line<'static>, Line<'static>) {
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
            let seconds = now.steady.duration_since(answered).as_secs();
            Line::styled(format!("● no answer for {seconds} s"), BAD)
        }
    };
    let node = format!("  {}", model.sources.node);
    (Line::from_iter([Span::styled("pod-index", STRONG), node.into()]), state)
}

fn sources(model: &Model, width: u16) -> Line<'static> {
    let group = |source: &Source| {
        let mut group = vec![Span::styled(format!("{}: ", source.source), FAINT)];
        group.push(if source.seen {
            count(source.pods, "pod").into()
        } else {
            Span::styled("not read yet", BAD)
        });
        let grave = source.problems.iter().filter(|problem| problem.is_grave()).count() as u64;
        if grave > 0 {
            group.push(Span::styled(format!(", {}", count(grave, "problem")), BAD));
        }
        let heard = source.seconds_since_heard.map(|seconds| format!(", heard {seconds} s ago"));
        group.push(Span::styled(heard.unwrap_or_default(), FAINT));
        group
    };
    joined(model.sources.sources.iter().map(group), width)
}

/// As many of the groups as fit into a line.
fn joined(groups: impl Iterator<Item = Vec<Span<'static>>>, width: u16) -> Line<'static> {
    let mut line = Line::default();
    for group in groups {
        let gap = if line.spans.is_empty() { 0 } else { 3 };
        if line.width() + gap + group.iter().map(Span::width).sum::<usize>() > width.into() {
            line.push_span(Span::styled(" …", FAINT));
            break;
        }
        line.push_span(" ".repeat(gap));
        line.extend(group);
    }
    line
}

fn count(number: u64, name: &str) -> String {
    if number == 1 { format!("1 {name}") } else { format!("{number} {name}s") }
}

/// Why the agent does not answer, why the pods may be outdated, or a problem of a source. Usually empty.
fn trouble(model: &Model) -> Line<'static> {
    let of_a_source = |source: &Source| {
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
    let (all, matching) = (model.pods.len(), model.pods.matching());
    let number = if model.pods.filter.is_empty() { all.to_string() } else { format!("{matching}/{all}") };
    Line::from_iter([Span::styled("Pods ", FAINT), Span::styled(number, STRONG)])
}

fn filter(model: &Model) -> Line<'static> {
    if !model.is_typing && model.pods.filter.is_empty() {
        return Line::default();
    }
    let cursor = if model.is_typing { "▏" } else { "" };
    Line::styled(format!("/{}{cursor}", model.pods.filter), STRONG)
}

fn keys(model: &Model) -> Line<'static> {
    let keys = match &model.page {
        Some(_) => "Esc close|↑↓ scroll",
        None if model.is_typing => "Enter keep|Esc clear|Ctrl-U empty",
        None => "q quit|? keys|/ filter|s sort|Enter pod|y YAML",
    };
    let spans = |(key, what): (&'static str, &str)| {
        [Span::styled(key, STRONG), Span::styled(format!(" {what}  "), FAINT)]
    };
    keys.split('|').filter_map(|hint| hint.split_once(' ')).flat_map(spans).collect()
}

/// The text to show instead of a list.
fn text(model: &Model) -> Option<Text<'static>> {
    Some(match model.page.as_ref()? {
        Page::Keys => Text::raw(KEYS),
        Page::Pod => {
            let facts = model.pods.selected().into_iter().flat_map(|row| COLUMNS.iter().zip(row).enumerate());
            facts
                .filter(|(_, (_, cell))| !cell.is_empty())
                .map(|(at, (column, cell))| {
                    let name = if at == AGE { "CREATED" } else { column.name };
                    Line::from_iter([Span::styled(format!("{name:11}"), FAINT), cell.clone().into()])
                })
                .collect()
        }
        Page::Yaml(_, None) => Text::styled("asking …", FAINT),
        Page::Yaml(_, Some(Ok(yaml))) => Text::raw(yaml.clone()),
        Page::Yaml(_, Some(Err(problem))) => Text::styled(problem.clone(), BAD),
    })
}

/// Draws a text that can be scrolled. Returns the place.
fn paragraph(model: &mut Model, text: Text<'_>, frame: &mut Frame<'_>, area: Rect) -> String {
    let paragraph = Paragraph::new(text).wrap(Wrap { trim: false });
    let (all, room) = (paragraph.line_count(area.width), usize::from(area.height));
    model.room = room.max(1);
    model.scroll = model.scroll.min(all.saturating_sub(room));
    let place = place(model.scroll, room, all);
    frame.render_widget(paragraph.scroll((u16::try_from(model.scroll).unwrap_or(u16::MAX), 0)), area);
    place
}

/// Draws the rows around the selected one. Returns the place.
fn table(model: &mut Model, now: Moment, frame: &mut Frame<'_>, area: Rect) -> String {
    let room = usize::from(area.height.saturating_sub(1));
    model.room = room.max(1);
    let list = &mut model.pods;
    // The selected row is on the screen, and the screen is full.
    let first = list.first.clamp((list.selected + 1).saturating_sub(room.max(1)), list.selected);
    list.first = first.min(list.matching().saturating_sub(room));
    let (first, selected) = (list.first, list.selected);
    let columns = fitting(list, area.width.into());
    let mark = |at| match (list.sorted_by == at, list.is_reversed) {
        (false, _) => "",
        (true, false) => "↑",
        (true, true) => "↓",
    };
    let heading = |(at, width): &(usize, usize)| {
        Cell::from(cut(&format!("{}{}", COLUMNS[*at].name, mark(*at)), *width))
    };
    let header = columns.iter().map(heading).collect::<widgets::Row<'_>>().style(FAINT);
    let now = Timestamp::try_from(now.wall).unwrap_or_default();
    let row = |(at, row): (usize, &Row)| {
        let cells = columns.iter().map(|(at, width)| {
            let style = match *at {
                STATUS if is_bad(&row[STATUS]) => BAD,
                1 => STRONG,
                _ => Style::new(),
            };
            Cell::from(cut(&shown(row, *at, now), *width)).style(style)
        });
        cells.collect::<widgets::Row<'_>>().style(if at == selected { CHOSEN } else { Style::new() })
    };
    let rows = (first..).zip(list.from(first)).take(room).map(row);
    let widths =
        columns.iter().map(|(_, width)| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
    frame.render_widget(widgets::Table::new(rows, widths).header(header).column_spacing(GAP), area);
    if list.matching() == 0 {
        let why = if list.len() > 0 { "nothing matches the filter" } else { "nothing here yet" };
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1).min(1), ..area };
        frame.render_widget(Line::styled(why, FAINT), below.intersection(area));
    }
    place(first, room, list.matching())
}

/// The text of a cell.
fn shown(row: &Row, column: usize, now: Timestamp) -> String {
    match row[column].parse() {
        Ok(created) if column == AGE => since(Some(&Time(created)), now),
        _ => row[column].clone(),
    }
}

/// Whether a status asks for attention.
fn is_bad(status: &str) -> bool {
    let is_starting = status.starts_with("Init:") && status.contains('/');
    !is_starting && !status.is_empty() && !FINE.contains(&status)
}

/// The columns that fit, and their widths.
fn fitting(list: &List, width: usize) -> Vec<(usize, usize)> {
    let wide = |at: usize| {
        let cells = list.widths.get(at).copied().unwrap_or_default();
        let cells = if at == AGE { cells.min(AGES) } else { cells };
        // With space for the mark of the sort order.
        cells.max(COLUMNS[at].name.len() + 1)
    };
    let gap = usize::from(GAP);
    let taken =
        |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + gap).sum::<usize>() - gap;
    let mut by_weight: Vec<_> = (0..COLUMNS.len()).collect();
    // The column that sorts is always shown.
    by_weight.sort_by_key(|at| Reverse((*at < 2, *at == list.sorted_by, COLUMNS[*at].weight)));
    let mut columns: Vec<(usize, usize)> = Vec::new();
    for at in by_weight {
        // A very long name must not displace other columns.
        columns.push((at, wide(at).min(width / SHARE)));
        if columns.len() > 2 && taken(&columns) > width {
            columns.pop();
        }
    }
    // The spare width goes to columns that are too narrow, the most important first.
    for i in 0..columns.len() {
        let spare = width.saturating_sub(taken(&columns));
        let (at, narrow) = columns[i];
        columns[i].1 += wide(at).saturating_sub(narrow).min(spare);
    }
    columns.sort_unstable();
    columns
}

/// The part of the text that fits. An ellipsis marks a cut.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let rest = left.checked_sub(c.width().unwrap_or(0));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    text.chars().take_while(fits).chain((width > 0).then_some('…')).collect()
}

fn place(first: usize, room: usize, all: usize) -> String {
    let last = first.saturating_add(room).min(all);
    if all == 0 { String::new() } else { format!("{}–{last} of {all}  ", first + 1) }
}

#[cfg(test)]
mod tests;
