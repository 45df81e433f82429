//! What a bench with a harness of its own reads from its command line: sizes, and whether this is only a smoke test.

/// Whether the bench shall only show that it runs: `--test`, as criterion calls it.
#[must_use]
pub fn smoke() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// The numbers of pods named on the command line, or `default`; a small one for a smoke test.
#[must_use]
pub fn of(default: &[usize]) -> Vec<usize> {
    let named: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    match (named.is_empty(), smoke()) {
        (false, _) => named,
        (true, true) => vec![100],
        (true, false) => default.to_vec(),
    }
}

/// Runs `save`, unless this is a smoke test, whose figures mean nothing.
///
/// # Errors
/// Those of `save`.
pub fn keep(save: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
    if smoke() { Ok(()) } else { save() }
}
