//! Pods that cannot be decoded: the field, a message that quotes nothing, and a limited list of problems.

use serde::de::DeserializeOwned;
use serde_json::Deserializer;
use serde_path_to_error::Path;

use super::{Problem, ProblemKind};
use crate::text::{shorten, without_found};

/// Limit of problems that are listed one by one: a server that is a version ahead may have thousands.
const MOST_PROBLEMS: usize = 16;

/// Decodes an object. On failure, the path of the field and a message, which quotes no value.
pub(super) fn decode<K: DeserializeOwned>(json: &str) -> Result<K, (Path, String)> {
    let decoded = serde_path_to_error::deserialize(&mut Deserializer::from_str(json));
    decoded.map_err(|error| {
        let path = error.path().clone();
        let text = without_found(&error.into_inner().to_string());
        // Drop the pod, which the field replaces, and the position, which is relative to the object.
        let text = text.rsplit_once("cannot be decoded: ").map_or(&*text, |(_, text)| text);
        let text = text.rsplit_once(" at line ").map_or(text, |(text, _)| text);
        (path, format!("cannot be decoded: {text}"))
    })
}

/// Whether the object can be decoded as a `K`. If not, the field and a message. An unknown field is `.`.
pub(super) fn check<K: DeserializeOwned>(json: &str) -> Result<(), (String, String)> {
    decode::<K>(json).map(drop).map_err(|(path, message)| (shorten(&path.to_string()), message))
}

/// The problem with this field of a pod.
pub(super) fn problem(namespace: &str, name: &str, field: &str, message: &str) -> Problem {
    let field = (field != ".").then(|| field.to_owned());
    Problem::new(ProblemKind::Syntax, shorten(&format!("{namespace}/{name}")), None, field, message)
}

/// The problems. If there are more than sixteen, the first ones and a summary.
pub(super) fn limited<'a>(problems: impl ExactSizeIterator<Item = &'a Problem>) -> Vec<Problem> {
    let more = problems.len().saturating_sub(MOST_PROBLEMS);
    let mut problems: Vec<_> = problems.take(MOST_PROBLEMS).cloned().collect();
    if more > 0 {
        let message = format!("and {more} more pods cannot be decoded");
        problems.push(Problem::new(ProblemKind::Syntax, "pods", None, None, message));
    }
    problems
}
