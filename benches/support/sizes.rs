//! Command line of a bench without criterion: sizes, and whether this is a smoke test.

/// Whether the bench only has to show that it runs: `--test`, as passed by criterion.
#[must_use]
pub fn smoke() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// The numbers of pods on the command line, or `default`; a small one for a smoke test.
#[must_use]
pub fn of(default: &[usize]) -> Vec<usize> {
    let named: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    match (named.is_empty(), smoke()) {
        (false, _) => named,
        (true, true) => vec![100],
        (true, false) => default.to_vec(),
    }
}

/// Runs `save`, except in a smoke test, whose figures are meaningless.
///
/// # Errors
/// Those of `save`.
pub fn keep(save: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
    if smoke() { Ok(()) } else { save() }
}
