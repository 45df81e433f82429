//! Prints pods as a table.

use std::borrow::Cow;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;

use pod_index::{CONFIG_SOURCE_ANNOTATION, PodMeta, is_mirror_pod, is_static_pod};

/// A header and a line for each pod, sorted by namespace and name.
pub(crate) fn pods<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> String {
    let mut pods: Vec<&Pod> = pods.into_iter().collect();
    pods.sort_unstable_by_key(|pod| (pod.namespace(), pod.name(), pod.uid()));
    table(["NAMESPACE", "NAME", "UID", "SOURCE", "KIND", "PHASE"], pods.into_iter().map(row))
}

/// The columns of a pod: namespace, name, UID, source, kind and phase.
pub(crate) fn row(pod: &Pod) -> [&str; 6] {
    [
        pod.namespace(),
        pod.name(),
        pod.uid(),
        // Pods from the API server have the annotation only after a kubelet has seen them.
        pod.annotation(CONFIG_SOURCE_ANNOTATION).unwrap_or(pod_index::API_SERVER_SOURCE),
        kind(pod),
        phase(pod),
    ]
}

fn kind(pod: &Pod) -> &'static str {
    match (is_mirror_pod(pod), is_static_pod(pod)) {
        (true, _) => "mirror",
        (false, true) => "static",
        (false, false) => "pod",
    }
}

fn phase(pod: &Pod) -> &str {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating";
    }
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown")
}

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table<'a, const N: usize>(
    headings: [&'a str; N],
    rows: impl IntoIterator<Item = [&'a str; N]>,
) -> String {
    let rows: Vec<_> = std::iter::once(headings).chain(rows).collect();
    lines(&mut Vec::new(), &rows)
}

/// The same for some of the lines of a table. Widens `widths` where these lines need it.
pub(crate) fn lines<S: AsRef<str>, R: AsRef<[S]>>(widths: &mut Vec<usize>, rows: &[R]) -> String {
    let cells = |row| R::as_ref(row).iter().map(|cell| printable(cell.as_ref())).collect();
    let rows: Vec<Vec<(Cow<'_, str>, usize)>> = rows.iter().map(cells).collect();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, (_, cell)) in widths.iter_mut().zip(row) {
            *width = (*cell).max(*width);
        }
    }
    let mut text = String::with_capacity(rows.len() * widths.iter().map(|width| width + 2).sum::<usize>());
    for row in &rows {
        for ((cell, taken), width) in row.iter().zip(&*widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - taken + 2));
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// The lines, each cut to this many columns. One that was cut ends with an ellipsis.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let cut = |line: &str| {
        if line.char_indices().nth(columns).is_none() {
            return format!("{line}\n");
        }
        let kept: String = line.chars().take(columns.saturating_sub(1)).collect();
        format!("{}…\n", kept.trim_end())
    };
    text.lines().map(cut).collect()
}

/// A cell, safe to print, and its width. An empty one is shown as such.
fn printable(cell: &str) -> (Cow<'_, str>, usize) {
    let cell = if cell.is_empty() { "-".into() } else { sanitized(cell) };
    let width = if cell.is_ascii() { cell.len() } else { cell.chars().count() };
    (cell, width)
}

/// The text without characters that could control a terminal or mislead a reader: control characters, bidirectional
/// controls, invisible characters.
pub(crate) fn sanitized(text: &str) -> Cow<'_, str> {
    // Almost all text is like this. Without an early exit, the compiler checks many bytes at once.
    if text.bytes().fold(true, |is, byte| is & matches!(byte, b' '..=b'~')) {
        return text.into();
    }
    text.chars().map(|c| if c.is_control() || is_deceptive(c) { '\u{fffd}' } else { c }).collect()
}

/// The text with the characters that [`sanitized`] replaces as `\n` or `\u1234`, except these. JSON that was valid stays
/// valid.
pub(crate) fn escaped<'a>(text: &'a str, except: &[char]) -> Cow<'a, str> {
    let stays = |c: char| except.contains(&c) || !(c.is_control() || is_deceptive(c));
    if text.chars().all(stays) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if stays(c) => escaped.push(c),
            '\n' => escaped.push_str("\\n"),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
            }
        }
    }
    escaped.into()
}

/// Unicode's format characters and line separators that terminals may interpret.
fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_deceptive_characters_are_escaped_and_json_keeps_its_meaning() {
        let text = "a\nb\u{1b}[1m\u{85}\u{202e}é\u{e0041}";
        assert_eq!(escaped(text, &[]), r"a\nb\u001b[1m\u0085\u202eé\udb40\udc41");
        let json = "\"x\u{85}\u{202e}\u{e0041}\\n\"";
        let parsed = |json: &str| serde_json::from_str::<String>(json).unwrap();
        assert_eq!(parsed(&escaped(json, &[])), parsed(json));
        assert!(escaped(json, &[]).chars().all(|c| !c.is_control()));
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let text = table(["A", "LONG HEADING"], [["longer", "x"], ["ä", ""]]);
        assert_eq!(text, "A       LONG HEADING\nlonger  x\nä       -\n");
        let long = "é".repeat(97);
        let text = table(["A", "B"], [[&*long, "x"], ["y", "z"]]);
        assert!(text.lines().all(|line| line.chars().count() == 100), "{text}");
    }

    #[test]
    fn a_line_is_cut_to_the_terminal_with_an_ellipsis() {
        let text = table(["A", "B"], [["longer", "xyz"], ["é", "z"]]);
        assert_eq!(cut(&text, 11), text);
        assert_eq!(cut(&text, 10), "A       B\nlonger  x…\né       z\n");
        assert_eq!(cut(&text, 8), "A…\nlonger…\né…\n");
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        assert_eq!(table(["A"], [["\x1b[2Jx\ny\0"]]), "A\n\u{fffd}[2Jx\u{fffd}y\u{fffd}\n");
        assert_eq!(
            sanitized("a\u{202e}b\u{9b}31m\u{200b}\u{2028}ä日"),
            "a\u{fffd}b\u{fffd}31m\u{fffd}\u{fffd}ä日"
        );
    }

    #[test]
    fn pods_are_sorted_and_distinguished() {
        let pod = |namespace: &str, name: &str, annotations: &[(&str, &str)]| {
            let mut pod = Pod::default();
            pod.metadata.namespace = Some(namespace.to_owned());
            pod.metadata.name = Some(name.to_owned());
            pod.metadata.uid = Some(format!("uid-{name}"));
            pod.metadata.annotations =
                Some(annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
            pod
        };
        let all = [
            pod("b", "plain", &[]),
            pod("a", "z", &[("kubernetes.io/config.mirror", "h"), ("kubernetes.io/config.source", "api")]),
            pod("a", "y", &[("kubernetes.io/config.source", "file")]),
        ];
        let text = pods(&all);
        let expected = "\
NAMESPACE  NAME   UID        SOURCE  KIND    PHASE
a          y      uid-y      file    static  Unknown
a          z      uid-z      api     mirror  Unknown
b          plain  uid-plain  api     pod     Unknown
";
        assert_eq!(text, expected);
    }
}
