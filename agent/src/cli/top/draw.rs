//! Draws a frame: the model as lines that fit a terminal of this size. Pure.

use std::cmp::Reverse;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;

use super::model::{List, Model, Moment, Row, View};
use super::text::{Line, Tone, fitted, width as columns_of, wrapped};
use crate::api::seen::Source;

/// The gap between two columns.
const GAP: &str = "  ";
/// A column takes at most this fraction of a line while others need the space.
const SHARE: usize = 3;
/// A column is not shortened below this width.
const NARROW: usize = 12;

/// The frame. Corrects the scroll position if the model has scrolled too far.
pub(super) fn frame(model: &mut Model, now: Moment, width: usize, height: usize) -> Vec<Line> {
    let mut lines =
        vec![title(model, now, width), figures(model), sources_and_watchers(model), trouble(model)];
    lines.push(tabs(model, width));
    let body = match model.view {
        View::Sources => Body { heading: None, lines: sources(model, width) },
        View::Pods | View::Mirrors => {
            Body { heading: model.shown().map(|list| heading(list, width)), lines: Vec::new() }
        }
    };
    let used = lines.len() + usize::from(body.heading.is_some()) + 1;
    let room = height.saturating_sub(used);
    let all = model.shown().map_or(body.lines.len(), |list| list.matching());
    model.page = room.max(1);
    model.scroll = model.scroll.min(all.saturating_sub(room));
    let first = model.scroll;
    lines.extend(body.heading);
    let end = lines.len() + room;
    match model.shown() {
        Some(list) if list.matching() == 0 => {
            let why = if list.len() > 0 { "nothing matches the filter" } else { "nothing here yet" };
            lines.push(Line::default().and(why, Tone::Faint));
        }
        Some(list) => lines.extend(rows(list, first, room, width)),
        None => lines.extend(body.lines.into_iter().skip(first).take(room)),
    }
    lines.truncate(end);
    lines.resize(end, Line::default());
    lines.push(footer(model, first, room, all, width));
    lines.truncate(height);
    lines.into_iter().map(|line| line.within(width)).collect()
}

struct Body {
    heading: Option<Line>,
    lines: Vec<Line>,
}

fn title(model: &Model, now: Moment, width: usize) -> Line {
    let state = match (&model.problem, model.answered) {
        (None, None) => Line::default().and("asking …", Tone::Faint),
        (None, Some(_)) if model.sources.ready => Line::default().and("● ready", Tone::Good),
        (None, Some(_)) => {
            let missing = model.sources.sources.iter().filter(|source| !source.seen);
            let missing: Vec<_> = missing.map(|source| source.source.as_str()).collect();
            Line::default().and(format!("● not ready: waits for {}", missing.join(", ")), Tone::Bad)
        }
        (Some(_), None) => Line::default().and("● no answer", Tone::Bad),
        (Some(_), Some(answered)) => {
            let seconds = now.steady.duration_since(answered.steady).as_secs();
            Line::default().and(format!("● no answer for {seconds} s"), Tone::Bad)
        }
    };
    let node = &model.sources.node;
    let title = Line::default().and("pod-index", Tone::Strong).and(format!("  {node}"), Tone::Plain);
    if title.width() + state.width() + 2 > width {
        // The problem matters more than its place.
        return state.and(format!("  {node}"), Tone::Plain);
    }
    title.with_end(state, width)
}

fn figures(model: &Model) -> Line {
    let (mirrored, pairs) = model.mirrored;
    let mut line = Line::default();
    let figures = [
        (model.pods.len().to_string(), if model.pods.len() == 1 { "pod" } else { "pods" }),
        (model.static_pods.to_string(), "static"),
        (format!("{mirrored} of {pairs}"), "mirrored"),
        (model.generation.to_string(), "generation"),
    ];
    let rates = match model.rates() {
        Some((publications, changes)) => [rate(publications), rate(changes)],
        None => ["–".to_owned(), "–".to_owned()],
    };
    let rates = rates.into_iter().zip(["publications/s", "pods changed/s"]);
    for (number, name) in figures.into_iter().chain(rates) {
        line = line.and(number, tone(model, Tone::Strong)).and(format!(" {name}   "), Tone::Faint);
    }
    line
}

fn rate(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn sources_and_watchers(model: &Model) -> Line {
    let mut line = Line::default();
    for source in &model.sources.sources {
        line = line.and(format!("{}: ", source.source), Tone::Faint);
        line = if source.seen {
            line.and(pods(source.pods), tone(model, Tone::Plain))
        } else {
            line.and("not read yet", Tone::Bad)
        };
        line = match source.problems.iter().filter(|problem| problem.is_grave()).count() {
            0 => line,
            1 => line.and(", 1 problem", Tone::Bad),
            many => line.and(format!(", {many} problems"), Tone::Bad),
        };
        let heard = source.seconds_since_heard.map(|seconds| format!(", heard {seconds} s ago"));
        line = line.and(heard.unwrap_or_default(), Tone::Faint);
        line = line.and("   ", Tone::Plain);
    }
    let watchers = if model.watchers > 1.0 { "watchers" } else { "watcher" };
    line.and(model.watchers.to_string(), tone(model, Tone::Strong)).and(format!(" {watchers}"), Tone::Faint)
}

/// Why the agent does not answer, or why mirrors are not managed. Usually empty.
fn trouble(model: &Model) -> Line {
    match (&model.problem, model.answered, &model.mirror_problem) {
        (Some(problem), Some(answered), _) => {
            let since = clock(answered.wall).unwrap_or_default();
            Line::default().and(format!("no answer since {since}, trying again: {problem}"), Tone::Bad)
        }
        (Some(problem), None, _) => Line::default().and(format!("trying again: {problem}"), Tone::Bad),
        (None, _, Some(problem)) => Line::default().and(format!("mirror pods: {problem}"), Tone::Bad),
        (None, _, None) => Line::default(),
    }
}

fn tabs(model: &Model, width: usize) -> Line {
    let count = |list: &List| {
        if model.filter.text.is_empty() {
            list.len().to_string()
        } else {
            format!("{}/{}", list.matching(), list.len())
        }
    };
    let mut line = Line::default();
    for (view, name) in [
        (View::Pods, format!(" 1 Pods {} ", count(&model.pods))),
        (View::Mirrors, format!(" 2 Mirrors {} ", count(&model.pairs))),
        (View::Sources, format!(" 3 Sources {} ", model.sources.sources.len())),
    ] {
        let tone = if model.view == view { Tone::Chosen } else { Tone::Plain };
        line = line.and(name, tone).and(" ", Tone::Plain);
    }
    let cursor = if model.is_typing { "▏" } else { "" };
    if model.is_typing || !model.filter.text.is_empty() {
        let filter = Line::default().and(format!("/{}{cursor}", model.filter.text), Tone::Strong);
        // The input line has priority over everything else.
        if line.width() + filter.width() + 2 > width {
            return filter;
        }
        return line.with_end(filter, width);
    }
    line
}

fn heading(list: &List, width: usize) -> Line {
    let mut line = Line::default();
    for (i, room) in layout(list, width) {
        let Some(column) = list.columns.get(i) else { continue };
        let mark = match (list.sorted_by == i, list.reversed) {
            (false, _) => "",
            (true, false) => "↑",
            (true, true) => "↓",
        };
        line = line.and(fitted(&format!("{}{mark}", column.name), room), Tone::Faint).and(GAP, Tone::Plain);
    }
    line
}

fn rows(list: &List, first: usize, room: usize, width: usize) -> Vec<Line> {
    let layout = layout(list, width);
    let row = |row: &Row| {
        layout.iter().fold(Line::default(), |line, (i, room)| {
            let cell = row.cells.get(*i).map(String::as_str).unwrap_or_default();
            let tone = match (row.verdict, i) {
                ((column, Some(true)), i) if column == *i => Tone::Good,
                ((column, Some(false)), i) if column == *i => Tone::Bad,
                (_, 1) => Tone::Strong,
                _ => Tone::Plain,
            };
            line.and(fitted(cell, *room), tone).and(GAP, Tone::Plain)
        })
    };
    list.from(first).take(room).map(row).collect()
}

/// The columns that fit, and their widths.
fn layout(list: &List, width: usize) -> Vec<(usize, usize)> {
    let taken = |layout: &[(usize, usize)]| {
        let gaps = GAP.len() * layout.len().saturating_sub(1);
        layout.iter().map(|(_, room)| room).sum::<usize>() + gaps
    };
    // A very long name must not displace other columns.
    let most = (width / SHARE).max(NARROW);
    let mut columns: Vec<_> = list.columns.iter().zip(list.widths().iter().copied()).enumerate().collect();
    columns.sort_by_key(|(_, (column, _))| Reverse(column.weight.unwrap_or(u8::MAX)));
    let mut layout = Vec::new();
    for (i, (column, wide)) in &columns {
        layout.push((*i, *wide.min(&most)));
        if column.weight.is_some() && taken(&layout) > width {
            layout.pop();
        }
    }
    // The spare width goes to columns that are too narrow.
    for at in 0..layout.len() {
        let spare = width.saturating_sub(taken(&layout));
        if let Some((i, room)) = layout.get_mut(at) {
            *room += list.widths().get(*i).map_or(0, |wide| wide.saturating_sub(*room)).min(spare);
        }
    }
    while taken(&layout) > width
        && let Some((_, room)) = layout.iter_mut().max_by_key(|(_, room)| *room)
        && *room > 1
    {
        *room -= 1;
    }
    layout.sort_unstable();
    layout
}

fn sources(model: &Model, width: usize) -> Vec<Line> {
    model.sources.sources.iter().flat_map(|one| source(one, width)).collect()
}

fn source(source: &Source, width: usize) -> Vec<Line> {
    let state = if source.seen { ("read", Tone::Good) } else { ("not read yet", Tone::Bad) };
    let name = Line::default()
        .and(&source.source, Tone::Strong)
        .and(format!("  {}  ", source.origin), Tone::Plain)
        .and(state.0, state.1);
    let pods = pods(source.pods);
    let Source { checks, failed_checks, updates, .. } = source;
    let last = source.last_check.as_deref().unwrap_or("never");
    let facts = format!(
        "  {pods}, {checks} reads, {failed_checks} of them failed, {updates} changes, last read {last}"
    );
    let mut lines = vec![name, Line::default().and(facts, Tone::Faint)];
    for problem in &source.problems {
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        let field = problem.field.as_deref().unwrap_or(&problem.kind);
        let text = format!("{}{line}: {field}: {}", problem.origin, problem.message);
        let (mark, tone) = if problem.is_grave() { ("! ", Tone::Bad) } else { ("- ", Tone::Faint) };
        for (i, part) in wrapped(&text, width.saturating_sub(4)).into_iter().enumerate() {
            let mark = if i == 0 { mark } else { "  " };
            lines.push(Line::default().and(format!("  {mark}"), tone).and(part, Tone::Plain));
        }
    }
    lines.push(Line::default());
    lines
}

fn footer(model: &Model, first: usize, room: usize, all: usize, width: usize) -> Line {
    let keys: &[(&str, &str)] = if model.is_typing {
        &[("Enter", "keep"), ("Esc", "clear"), ("Ctrl-U", "empty")]
    } else if model.view == View::Sources {
        &[("q", "quit"), ("Tab", "view"), ("↑↓", "scroll")]
    } else {
        &[("q", "quit"), ("/", "filter"), ("s", "sort"), ("r", "reverse"), ("Tab", "view"), ("↑↓", "scroll")]
    };
    let keys = keys.iter().fold(Line::default(), |line, (key, what)| {
        line.and(key, Tone::Strong).and(format!(" {what}  "), Tone::Faint)
    });
    let last = first.saturating_add(room).min(all);
    let place = if all == 0 { String::new() } else { format!("{}–{last} of {all}  ", first + 1) };
    let end = Line::default().and(format!("{place}{}", model.server), Tone::Faint);
    if columns_of(&place) + keys.width() + 2 > width { keys } else { keys.with_end(end, width) }
}

fn pods(count: u64) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}

/// Dims outdated content.
fn tone(model: &Model, tone: Tone) -> Tone {
    if model.problem.is_some() { Tone::Faint } else { tone }
}

/// The time of day, in UTC.
fn clock(time: SystemTime) -> Option<String> {
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    let time = Timestamp::from_second(i64::try_from(since_epoch.as_secs()).ok()?).ok()?;
    let text = time.to_string();
    text.split_once('T').map(|(_, clock)| format!("{} UTC", clock.trim_end_matches('Z')))
}

#[cfg(test)]
mod tests;
