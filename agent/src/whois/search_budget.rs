//! How many searches through all pods a batch of queries may cause.
//!
//! A word that is nothing else may be the start of a container ID, or a name without its namespace. Only a search through all pods
//! tells, and a body has thousands of words. So what the searches visit is limited twice: for some hundred queries together, and for
//! one part of the answers, after which the thread does other work.

/// Pods that the searches for [`RENEWED_AFTER`] queries visit.
pub(super) const VISITED: usize = 20_000;
/// Pods that the searches of one part visit. A search that has begun goes through all pods, up to three times. Every part is a delay
/// of a probe, and of several requests that take turns, each may add one.
const VISITED_IN_PART: usize = 2_000;
/// After so many queries, the budget is renewed.
pub(super) const RENEWED_AFTER: usize = 256;
/// After so many bytes of answers, the budget is renewed, too: long answers are those of pods, and a batch that asks for existing
/// ones finds each.
const ANSWERED: usize = 64 * 1024;

/// How many searches through all pods the next queries may still cause.
#[derive(Clone, Copy, Default)]
pub(super) struct SearchBudget {
    searches: usize,
    /// The same for the part that is being written.
    searches_in_part: usize,
    /// Queries until it is renewed.
    queries: usize,
    /// Bytes of the answers since it was renewed.
    answered: usize,
}

impl SearchBudget {
    /// A part of the answers begins. The index has so many pods.
    pub(super) fn begin_part(&mut self, pods: usize) {
        self.searches_in_part = searches_among(pods, VISITED_IN_PART);
    }

    /// Another query is looked up, in an index with so many pods.
    pub(super) fn begin_query(&mut self, pods: usize) {
        if self.queries == 0 || self.answered >= ANSWERED {
            self.searches = searches_among(pods, VISITED);
            self.queries = RENEWED_AFTER;
            self.answered = 0;
        }
        self.queries -= 1;
    }

    /// Takes one search through all pods. `false`: none is left.
    pub(super) fn take_search(&mut self) -> bool {
        let is_allowed = self.searches > 0;
        if is_allowed {
            self.searches -= 1;
            self.searches_in_part = self.searches_in_part.saturating_sub(1);
        }
        is_allowed
    }

    /// The query got an answer of so many bytes.
    pub(super) fn end_query(&mut self, bytes: usize) {
        self.answered += bytes;
    }

    /// Whether the part has made all its searches. It should end.
    pub(super) fn ends_part(&self) -> bool {
        self.searches_in_part == 0
    }

    /// One that allows so many searches.
    #[cfg(test)]
    pub(super) fn of(searches: usize) -> Self {
        Self { searches, ..Self::default() }
    }
}

/// How many searches visit this number of the pods: one at least.
pub(super) fn searches_among(pods: usize, visited: usize) -> usize {
    (visited / pods.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::api::client::Clients;
    use crate::whois::batch::Batch;
    use crate::whois::tests::{Versions, batch_of_lines, whois};

    const PODS: usize = 100;

    /// The answers to the lines of a body, in the parts in which they are sent.
    async fn parts(of_pods: &str, lines: String) -> Vec<String> {
        let (whois, mut index) = whois();
        index.fill(PODS, of_pods);
        let batch: Batch = batch_of_lines(lines);
        let mut body = whois.answer_in_parts(Clients::new().named("client"), batch, None).await.into_body();
        let mut parts = Vec::new();
        while let Some(frame) = body.frame().await {
            parts.push(String::from_utf8(frame.unwrap().into_data().unwrap().into()).unwrap());
        }
        parts
    }

    /// Words that nobody knows, for each of which the whole index is searched. Each part is a delay of a probe.
    #[tokio::test]
    async fn between_two_parts_few_pods_are_visited_and_the_searches_of_a_batch_stay_limited() {
        // Each is the start of a pod's name, which only a search finds.
        let parts = parts("", "web\n".repeat(2 * RENEWED_AFTER)).await;
        let suggestions = |part: &String| part.lines().filter(|line| line.contains("did you mean")).count();
        let searched: Vec<usize> = parts.iter().map(suggestions).collect();
        let in_part = VISITED_IN_PART / PODS;
        assert!(searched.iter().all(|searches| *searches <= in_part), "{searched:?}");
        assert_eq!(searched.iter().sum::<usize>(), 2 * VISITED / PODS, "{searched:?}");
    }

    /// A search finds each. Answers of a usual size fill several chunks before `RENEWED_AFTER` queries are answered.
    #[tokio::test]
    async fn a_batch_of_names_of_existing_pods_finds_each_of_them() {
        let names = (Versions::PODS..PODS).cycle().take(3 * RENEWED_AFTER);
        let lines: Vec<_> = names.map(|number| format!("more-{number}\n")).collect();
        let answers = parts(&"x".repeat(1_000), lines.concat()).await.concat();
        let answers: Vec<&str> = answers.lines().collect();
        assert_eq!(answers.len(), 3 * RENEWED_AFTER);
        let unfound = answers.iter().position(|answer| !answer.contains(r#""foundBy""#));
        assert_eq!(unfound.map(|number| answers[number]), None, "answer {unfound:?}");
    }

    #[test]
    fn an_index_of_any_size_may_be_searched_once() {
        for pods in [0, 1, VISITED, 100 * VISITED] {
            let mut budget = SearchBudget::default();
            budget.begin_part(pods);
            budget.begin_query(pods);
            assert!(!budget.ends_part(), "{pods}");
            assert!(budget.take_search(), "{pods}");
        }
    }

    #[test]
    fn a_large_index_is_searched_once_and_then_the_part_ends() {
        let mut budget = SearchBudget::default();
        budget.begin_part(100 * VISITED);
        budget.begin_query(100 * VISITED);
        assert_eq!([budget.take_search(), budget.take_search()], [true, false]);
        assert!(budget.ends_part());
    }
}
