//! The problems of pods that cannot be decoded, in a limited list.

use super::{Problem, ProblemKind};
use crate::text::shorten;

/// Limit of problems that are listed one by one: a server that is a version ahead may have thousands.
const MOST_PROBLEMS: usize = 16;

/// The problem with this field of a pod.
pub(super) fn problem(namespace: &str, name: &str, field: &str, message: &str) -> Problem {
    let field = (field != ".").then(|| field.to_owned());
    Problem::new(ProblemKind::Syntax, shorten(&format!("{namespace}/{name}")), None, field, message)
}

/// The problems. If there are more than sixteen, the first ones and a summary.
pub(super) fn limited(problems: impl ExactSizeIterator<Item = Problem>) -> Vec<Problem> {
    let more = problems.len().saturating_sub(MOST_PROBLEMS);
    let mut problems: Vec<_> = problems.take(MOST_PROBLEMS).collect();
    if more > 0 {
        let message = format!("and {more} more pods cannot be decoded");
        problems.push(Problem::new(ProblemKind::Syntax, "pods", None, None, message));
    }
    problems
}
