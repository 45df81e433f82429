//! Finds the pod of a query in one snapshot: by the identity, by a UID, or by a search through all pods.

use pod_index::identity::Identity;
use pod_index::{Found, PodMeta, Snapshot, Time};
use pod_index_kubelet::records::Record;
use pod_index_kubelet::sources::static_pods::CLAIMED_ANNOTATION;

use super::answer::Retry;
use super::matched::Match;
use super::query_text;
use super::search::{FoundByStart, by_name_alone, by_short_id, suggestion};
use super::search_budget::SearchBudget;
use super::sought::{NO_CONTAINER_OR_SEVERAL, Sought, TakenFor};
use super::unknown::Unknown;
use crate::config::values::Tolerance;

const NOT_SEARCHED: &str = "not searched for: one request may search for few short container IDs and names without a namespace; \
                            ask for the whole ID or name, or in another request";

impl Sought<'_> {
    /// Looks the pod up, with at most one search through all pods.
    pub(super) fn find<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        tolerance: Tolerance,
        searches: &mut SearchBudget,
    ) -> Result<Match<'s>, Unknown> {
        if let Some(start) = self.short_id {
            return self.find_by_start(start, snapshot, searches);
        }
        let matched = match self.at {
            Some(at) => self.find_then(snapshot, tolerance, at)?,
            None => self.find_now(snapshot),
        };
        match matched {
            Some(matched) => Ok(matched),
            None => self.search(snapshot, searches),
        }
    }

    /// The pod of the container whose ID begins so.
    fn find_by_start<'s>(
        &'s self,
        start: &str,
        snapshot: &'s Snapshot<Record>,
        searches: &mut SearchBudget,
    ) -> Result<Match<'s>, Unknown> {
        if !searches.take_search() {
            return Err(self.not_searched());
        }
        let found = by_short_id(snapshot, start);
        found.map(|found| self.match_of_start(found)).ok_or_else(|| self.missing())
    }

    /// The pod whose UID the query is. A manifest may set any UID, even one that looks like another kind of identity.
    fn find_by_uid<'s>(&'s self, snapshot: &'s Snapshot<Record>) -> Option<Match<'s>> {
        let found = Identity::Uid(self.text?.into()).resolve(snapshot);
        found.filter(|found| !self.is_only_claimed(found)).map(|found| self.match_of(found))
    }

    /// Whether a mirror pod alone says that a pod has this word as its UID. Whoever may create a pod can forge one, and would answer for
    /// the name of any pod. A UID as the kubelet computes it is none that others ask for.
    ///
    /// A word of another form than a UID's, such as an IP, is never claimed: `is_uid` and `is_other_key` of
    /// `kubelet/src/sources/static_pods/claim.rs` refuse it, also of a form that is new.
    fn is_only_claimed(&self, found: &Found<'_, Record>) -> bool {
        // Few pods have the annotation, and to parse the text once more takes longer than the look-up.
        let is_claimed = found.pod.pod().annotation(CLAIMED_ANNOTATION).is_some();
        is_claimed && self.text.is_some_and(|text| Identity::parse(text).is_err())
    }

    /// The pod of the identity, or else the one whose UID the query is. A current pod goes before a removed one.
    fn find_now<'s>(&'s self, snapshot: &'s Snapshot<Record>) -> Option<Match<'s>> {
        let is_current = |matched: &Match<'_>| matched.found.removed_at.is_none();
        let of_identity = self.identity.resolve(snapshot).filter(|found| !self.is_only_claimed(found));
        let of_identity = of_identity.map(|found| self.match_of(found));
        if of_identity.as_ref().is_some_and(is_current) {
            return of_identity;
        }
        let of_uid = self.find_by_uid(snapshot);
        if of_uid.as_ref().is_some_and(is_current) {
            return of_uid;
        }
        of_identity.or(of_uid)
    }

    /// The pod that had the key at this time, or else the one whose UID the query is, which needs no time.
    fn find_then<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        tolerance: Tolerance,
        at: Time,
    ) -> Result<Option<Match<'s>>, Unknown> {
        match self.find_at(snapshot, tolerance, at) {
            Ok(matched) => {
                let matched = matched.filter(|matched| !self.is_only_claimed(&matched.found));
                Ok(matched.or_else(|| self.find_by_uid(snapshot)))
            }
            // The pod is one of the candidates.
            Err(unknown) if unknown.is_ambiguous => Err(unknown),
            Err(unknown) => self.find_by_uid(snapshot).map(Some).ok_or(unknown),
        }
    }

    /// Every word that is nothing else counts as a UID. If no pod has it, perhaps it is meant as the start of a container ID,
    /// as may be 32 digits without a dash, or as a name without its namespace.
    fn search<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        searches: &mut SearchBudget,
    ) -> Result<Match<'s>, Unknown> {
        let is_word = self.taken_for().name == "uid";
        let Some(word) = self.text.filter(|_| is_word) else { return Err(self.missing()) };
        let is_usual = Identity::parse(word).is_ok();
        let is_short_id = query_text::is_short_id(word);
        let is_another_kind = is_usual && !is_short_id;
        if is_another_kind {
            return Err(self.missing());
        }
        if !searches.take_search() {
            return Err(self.not_searched());
        }
        if let Some(found) = by_short_id(snapshot, word) {
            return Ok(self.match_of_start(found));
        }
        // Of the past, only a whole name is certain.
        if self.at.is_none()
            && let Some(found) = by_name_alone(snapshot, word)
        {
            return Ok(Match { kind: "name", ..self.match_of(found) });
        }
        let mut unknown = if is_usual { self.missing() } else { self.not_recognised() };
        let of_short_id = || format!("; {NO_CONTAINER_OR_SEVERAL}");
        let hint = suggestion(snapshot, word).or_else(|| is_short_id.then(of_short_id));
        unknown.error.extend(hint);
        Err(unknown)
    }

    /// A pod that was found for this query.
    pub(super) fn match_of<'s>(&'s self, mut found: Found<'s, Record>) -> Match<'s> {
        if let Identity::Cgroup(_) = self.identity {
            found.container = found.container.or_else(|| self.container_of(found.pod));
        }
        let contestable_key = self.contestable_key(found.by);
        Match { sought: self, kind: self.taken_for().name, found, contestable_key, had_key: None }
    }

    /// The container that the query names by its ID, by the word of this pod: another one may claim the ID, too, with the stronger claim.
    fn container_of<'s>(&self, pod: &'s Record) -> Option<&'s str> {
        let (container, _) = pod.container_run(self.container_id()?)?;
        Some(&container.name)
    }

    /// A pod that was found for the start of a container ID.
    fn match_of_start<'s>(&'s self, FoundByStart { found, id }: FoundByStart<'s>) -> Match<'s> {
        Match { contestable_key: Some(id.into()), ..self.match_of(found) }
    }

    /// No pod has what was asked for: it may have it later.
    fn missing(&self) -> Unknown {
        let TakenFor { name, missing } = self.taken_for();
        Unknown { retry: Retry::Later, is_missing: true, ..Unknown::new(Some(name), missing) }
    }

    /// As [`missing`](Self::missing), for a word of no known form.
    fn not_recognised(&self) -> Unknown {
        let TakenFor { missing, .. } = self.taken_for();
        Unknown { error: format!("not recognised; {missing}"), ..self.missing() }
    }

    /// The request has made all the searches that it may make. The pod may be there.
    fn not_searched(&self) -> Unknown {
        let TakenFor { name, .. } = self.taken_for();
        Unknown { retry: Retry::Now, is_missing: true, ..Unknown::new(Some(name), NOT_SEARCHED) }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use pod_index_kubelet::process::Roots;
    use serde_json::json;

    use super::*;
    use crate::pipeline::records::alone;
    use crate::whois::processes::Placements;

    #[test]
    fn each_search_through_all_pods_is_counted_and_only_so_many_are_made() {
        let (mut writer, reader) = pod_index::new();
        let id = "a".repeat(64);
        let pod = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
            "status": { "containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": format!("containerd://{id}"),
            }] },
        });
        writer.upsert_pod(alone(serde_json::from_value::<Pod>(pod).unwrap())).unwrap();
        let snapshot = reader.load();
        let tolerance = Tolerance { skew: Duration::ZERO, delay: Duration::ZERO };
        let (placements, roots) = (Placements::new(), Roots::default());
        let sought = Sought::parse(&id.as_bytes()[..13], None, &placements, &roots).ok().expect("a query");
        let schemed = format!("containerd://{}", &id[..13]);
        let with_scheme = Sought::parse(schemed.as_bytes(), None, &placements, &roots).ok().expect("a query");
        for sought in [sought, with_scheme] {
            for (allowed, is_found, left) in [(2, true, 1), (1, true, 0), (0, false, 0)] {
                let mut searches = SearchBudget::of(allowed);
                let found = sought.find(&snapshot, tolerance, &mut searches);
                let said = found.as_ref().err().map(|unknown| (&*unknown.error, unknown.retry));
                assert_eq!(said, (!is_found).then_some((NOT_SEARCHED, Retry::Now)), "the pod may be there");
                let left_over = iter::from_fn(|| searches.take_search().then_some(())).count();
                assert_eq!((found.is_ok(), left_over), (is_found, left), "{allowed}");
            }
        }
    }
}
