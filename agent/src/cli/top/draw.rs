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

use super::list::{List, Row};
use super::model::{AGE, Model, Moment, Page, View};
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

const KEYS: &str = "\
↑ ↓ j k          another pod, or scroll
PgUp PgDn        a page; also Space
Home End g G     to the start, to the end
Enter            all columns of the pod
y                the pod as YAML
/                filter: words, or whatever `pod-index whois` knows
s r              sort by the next column, in reverse
1 2 3 Tab ← →    pods, mirrors, sources
Esc              close; clear the filter; quit
q Ctrl-C         quit";

/// Draws a frame. Corrects positions behind the end.
pub(super) fn draw(model: &mut Model, now: Moment, frame: &mut Frame<'_>) {
    let parts = [Constraint::Length(5), Constraint::Fill(1), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(parts).areas(frame.area());
    let lines = Layout::vertical([Constraint::Length(1); 5]).split(head);
    let (title, state) = title(model, now);
    ends(frame, lines[0], title, state, true);
    frame.render_widget(figures(model, head.width), lines[1]);
    frame.render_widget(sources(model, head.width), lines[2]);
    frame.render_widget(trouble(model), lines[3]);
    let filter = filter(model);
    ends(frame, lines[4], tabs(model), filter, true);
    let place = match text(model) {
        Some(text) => paragraph(model, text, frame, body),
        None => table(model, now, frame, body),
    };
    if model.problem.is_some() {
        // Outdated.
        frame.buffer_mut().set_style(body, FAINT);
        frame.buffer_mut().set_style(lines[1].union(lines[2]), FAINT);
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
            let seconds = now.steady.duration_since(answered.steady).as_secs();
            Line::styled(format!("● no answer for {seconds} s"), BAD)
        }
    };
    let node = format!("  {}", model.sources.node);
    (Line::from_iter([Span::styled("pod-index", STRONG), node.into()]), state)
}

fn figures(model: &Model, width: u16) -> Line<'static> {
    let (mirrored, pairs) = model.mirrored;
    let figures = [
        (model.pods.len().to_string(), if model.pods.len() == 1 { "pod" } else { "pods" }),
        (model.static_pods.to_string(), "static"),
        (format!("{mirrored} of {pairs}"), "mirrored"),
    ];
    let group = |(number, name)| vec![Span::styled(number, STRONG), Span::styled(format!(" {name}"), FAINT)];
    joined(figures.into_iter().map(group), width)
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

/// Why the agent does not answer, why the pods may be outdated, or why mirrors are not managed. Usually empty.
fn trouble(model: &Model) -> Line<'static> {
    let text = match (&model.problem, model.answered) {
        (Some(problem), Some(answered)) => {
            let time = Timestamp::try_from(answered.wall).unwrap_or_default().strftime("%H:%M:%S UTC");
            format!("no answer since {time}, trying again: {problem}")
        }
        (Some(problem), None) => format!("trying again: {problem}"),
        (None, _) => match (&model.pods_problem, &model.mirror_problem) {
            (Some(problem), _) => format!("the pods are outdated: {problem}"),
            (None, Some(problem)) => format!("mirror pods: {problem}"),
            (None, None) => String::new(),
        },
    };
    Line::styled(text, BAD)
}

fn tabs(model: &Model) -> Line<'static> {
    let count = |list: &List| {
        let is_filtered = !model.filter.text.is_empty();
        if is_filtered { format!("{}/{}", list.matching(), list.len()) } else { list.len().to_string() }
    };
    let tabs = [
        (View::Pods, format!(" 1 Pods {} ", count(&model.pods))),
        (View::Mirrors, format!(" 2 Mirrors {} ", count(&model.pairs))),
        (View::Sources, format!(" 3 Sources {} ", model.sources.sources.len())),
    ];
    let tab = |(view, name)| {
        [Span::styled(name, if model.view == view { CHOSEN } else { Style::new() }), " ".into()]
    };
    tabs.into_iter().flat_map(tab).collect()
}

fn filter(model: &Model) -> Line<'static> {
    if !model.is_typing && model.filter.text.is_empty() {
        return Line::default();
    }
    let cursor = if model.is_typing { "▏" } else { "" };
    Line::styled(format!("/{}{cursor}", model.filter.text), STRONG)
}

fn keys(model: &Model) -> Line<'static> {
    let keys = match (&model.page, model.view) {
        (Some(_), _) => "Esc close|↑↓ scroll",
        _ if model.is_typing => "Enter keep|Esc clear|Ctrl-U empty",
        (None, View::Sources) => "q quit|? keys|Tab view|↑↓ scroll",
        (None, View::Mirrors) => "q quit|? keys|/ filter|s sort|Tab view",
        (None, View::Pods) => "q quit|? keys|/ filter|s sort|Enter pod|y YAML|Tab view",
    };
    let spans = |(key, what): (&'static str, &str)| {
        [Span::styled(key, STRONG), Span::styled(format!(" {what}  "), FAINT)]
    };
    keys.split('|').filter_map(|hint| hint.split_once(' ')).flat_map(spans).collect()
}

/// The text to show instead of a list.
fn text(model: &Model) -> Option<Text<'static>> {
    Some(match (&model.page, model.view) {
        (Some(Page::Keys), _) => Text::raw(KEYS),
        (Some(Page::Pod), _) => {
            let row = model.pods.selected();
            let facts = row.iter().flat_map(|row| model.pods.columns.iter().zip(&row.cells));
            facts
                .filter(|(_, cell)| !cell.is_empty())
                .map(|(column, cell)| {
                    let name = if column.name == AGE { "CREATED" } else { column.name };
                    Line::from_iter([Span::styled(format!("{name:11}"), FAINT), cell.clone().into()])
                })
                .collect()
        }
        (Some(Page::Yaml(_, None)), _) => Text::styled("asking …", FAINT),
        (Some(Page::Yaml(_, Some(Ok(yaml)))), _) => Text::raw(yaml.clone()),
        (Some(Page::Yaml(_, Some(Err(problem)))), _) => Text::styled(problem.clone(), BAD),
        (None, View::Sources) => model.sources.sources.iter().flat_map(source).collect(),
        (None, _) => return None,
    })
}

fn source(source: &Source) -> Vec<Line<'static>> {
    let Source { origin, seen, checks, failed_checks, updates, .. } = source;
    let state = if *seen { Span::styled("  read", GOOD) } else { Span::styled("  not read yet", BAD) };
    let name = [Span::styled(source.source.clone(), STRONG), format!("  {origin}").into(), state];
    let (pods, last) = (count(source.pods, "pod"), source.last_check.as_deref().unwrap_or("never"));
    let facts = format!(
        "  {pods}, {checks} reads, {failed_checks} of them failed, {updates} changes, last read {last}"
    );
    let mut lines = vec![Line::from_iter(name), Line::styled(facts, FAINT)];
    for problem in &source.problems {
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        let field = problem.field.as_deref().unwrap_or(&problem.kind);
        let mark = if problem.is_grave() { Span::styled("  ! ", BAD) } else { Span::styled("  - ", FAINT) };
        let text = format!("{}{line}: {field}: {}", problem.origin, problem.message);
        lines.push(Line::from_iter([mark, text.into()]));
    }
    lines.push(Line::default());
    lines
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
    let Some(list) = model.shown() else { return String::new() };
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
        Cell::from(cut(&format!("{}{}", list.columns[*at].name, mark(*at)), *width))
    };
    let header = columns.iter().map(heading).collect::<widgets::Row<'_>>().style(FAINT);
    let now = Timestamp::try_from(now.wall).unwrap_or_default();
    let row = |(at, row): (usize, &Row)| {
        let cells = columns.iter().map(|(at, width)| {
            let style = match row.verdicts.iter().find(|(column, _)| column == at) {
                Some((_, true)) => GOOD,
                Some((_, false)) => BAD,
                None if *at == 1 => STRONG,
                None => Style::new(),
            };
            Cell::from(cut(&shown(list, row, *at, now), *width)).style(style)
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
fn shown(list: &List, row: &Row, column: usize, now: Timestamp) -> String {
    let cell = row.cells.get(column).cloned().unwrap_or_default();
    match cell.parse() {
        Ok(created) if list.columns[column].name == AGE => since(Some(&Time(created)), now),
        _ => cell,
    }
}

/// The columns that fit, and their widths.
fn fitting(list: &List, width: usize) -> Vec<(usize, usize)> {
    let wide = |at: usize| {
        let column = &list.columns[at];
        let cells = list.widths.get(at).copied().unwrap_or_default();
        let cells = if column.name == AGE { cells.min(AGES) } else { cells };
        // With space for the mark of the sort order.
        cells.max(column.name.len() + 1)
    };
    let gap = usize::from(GAP);
    let taken =
        |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + gap).sum::<usize>() - gap;
    let mut by_weight: Vec<_> = (0..list.columns.len()).collect();
    // The column that sorts is always shown.
    by_weight.sort_by_key(|at| Reverse((*at < 2, *at == list.sorted_by, list.columns[*at].weight)));
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
