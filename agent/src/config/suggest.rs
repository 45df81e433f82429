//! What the user may have meant by a name that does not exist.

/// A name that exists.
pub(super) struct Candidate {
    /// What is compared with the wrong name.
    pub(super) name: String,
    /// What to write instead of it.
    pub(super) meant: String,
}

/// How alike two names are: 1 if they are the same. From here on, one is taken for the other with letters that are swapped,
/// missing or too many.
const ALIKE: f64 = 0.9;

/// "; did you mean NAME?" for the nearest candidate, or nothing if none is near.
///
/// Keys, flags and variables write the same words in different ways (`logLevel`, `log-level`, `LOG_LEVEL`), so only letters
/// and digits are compared.
pub(super) fn did_you_mean(wrong: &str, candidates: impl Iterator<Item = Candidate>) -> String {
    let wrong = letters(wrong);
    let nearest = candidates
        .map(|Candidate { name, meant }| (strsim::jaro_winkler(&letters(&name), &wrong), meant))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    nearest.map(|(_, meant)| format!("; did you mean {meant}?")).unwrap_or_default()
}

fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_if_one_is_near() {
        let names = ["port", "proc", "socket", "socketMode", "kubelet", "kubeletSocket", "maxWatches"];
        for (wrong, meant) in [
            ("prot", "port"),
            ("max-watches", "maxWatches"),
            ("MAX_WATCH", "maxWatches"),
            ("sockets", "socket"),
            ("kubeletSoket", "kubeletSocket"),
            ("kind", ""),
            ("service_host", ""),
            ("", ""),
        ] {
            let candidates = names.map(|name| Candidate { name: name.to_owned(), meant: name.to_owned() });
            let expected = if meant.is_empty() { String::new() } else { format!("; did you mean {meant}?") };
            assert_eq!(did_you_mean(wrong, candidates.into_iter()), expected, "{wrong}");
        }
    }
}
