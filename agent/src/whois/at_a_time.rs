//! Finds the pod that had a key at the time of an event, or says what is known of that time.

use std::sync::Arc;

use pod_index::{AtTime, Bounds, Candidate, Coverage, Found, Holder, NotFound, PodMeta, Snapshot, Time};
use pod_index_kubelet::records::Record;
use serde_json::{Value, json};

use super::answer::{Retry, full_name, range};
use super::matched::{KeyTimes, Match};
use super::query_text;
use super::sought::Sought;
use super::unknown::Unknown;
use crate::config::values::Tolerance;

impl Sought<'_> {
    /// The pod that had the key at the time. `None`: it needs none, or no pod has it.
    pub(super) fn find_at<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        tolerance: Tolerance,
        at: Time,
    ) -> Result<Option<Match<'s>>, Unknown> {
        // What is shown as known is what the answer rests on.
        let then = snapshot.at(at).skew(tolerance.skew).delay(tolerance.delay).fixed();
        match self.identity.resolve_at(&then) {
            Holder::Pod(found) => Ok(Some(self.match_at(found, &then))),
            Holder::Unknown(NotFound::NoPod) if self.identity.reusable_key().is_none() => Ok(None),
            Holder::Unknown(why) => Err(self.nobody_at(at, why, &then)),
            Holder::Ambiguous { candidates, more } => Err(self.ambiguous_at(at, &candidates, more, &then)),
            _ => Ok(None),
        }
    }

    /// The pod that had the key for certain.
    fn match_at<'s>(&'s self, found: Found<'s, Record>, then: &AtTime<'s, Record>) -> Match<'s> {
        let key = self.identity.reusable_key();
        let all = key.map(|key| then.candidates(key)).unwrap_or_default();
        let this = all.iter().find(|one| one.is_certain && Arc::ptr_eq(one.pod, found.pod));
        let had_key = this.map(|one| KeyTimes { from: one.from, until: one.until });
        Match { had_key, ..self.match_of(found) }
    }

    /// No pod is known to have had the key.
    fn nobody_at(&self, at: Time, why: NotFound, then: &AtTime<'_, Record>) -> Unknown {
        let known = then.known();
        let mut unknown = self.unknown_at(at, why_not(why, known), then);
        unknown.known_since = known.map(|known| known.since).filter(|_| why == NotFound::TooEarly);
        unknown
    }

    /// One of these pods may have had the key. `more`: so many others are left out.
    fn ambiguous_at(
        &self,
        at: Time,
        candidates: &[Candidate<'_, Record>],
        more: usize,
        then: &AtTime<'_, Record>,
    ) -> Unknown {
        let mut unknown = self.unknown_at(at, one_of(candidates, more), then);
        unknown.is_ambiguous = true;
        unknown.then.insert("candidates".to_owned(), candidates.iter().map(shown).collect());
        unknown
    }

    /// No pod had the key at this time for certain.
    fn unknown_at(&self, at: Time, error: String, then: &AtTime<'_, Record>) -> Unknown {
        let retry = if then.is_settled() { Retry::Never } else { Retry::Later };
        let mut unknown = Unknown { retry, ..Unknown::new(Some(self.taken_for().name), error) };
        unknown.then.insert("at".to_owned(), query_text::written(at).into());
        // It ends before it begins until what is known is older than the delay of the sources: nothing is known yet.
        if let Some(Coverage { since, until }) = then.known().filter(|known| known.since <= known.until) {
            let known = range(Bounds { earliest: Some(since), latest: Some(until) });
            unknown.then.insert("known".to_owned(), known);
        }
        unknown
    }
}

/// A candidate, as the answer shows it.
fn shown(candidate: &Candidate<'_, Record>) -> Value {
    let Candidate { pod, from, until, .. } = *candidate;
    json!({
        "namespace": pod.namespace(), "name": pod.name(), "podUID": pod.uid(),
        "from": range(from), "until": range(until),
    })
}

/// Why no pod is known to have had a key at a time. `known`: the time of which everything is known. Why nothing is known of an
/// earlier time, the caller appends.
fn why_not(why: NotFound, known: Option<Coverage>) -> String {
    match why {
        NotFound::TooEarly => {
            let since = known.map(|known| query_text::written(known.since)).unwrap_or_default();
            format!("the time is before what the agent knows, which is since {since}")
        }
        NotFound::NoTimes => {
            "the agent knows only the present, because it keeps no removed pods (--keep-removed)".to_owned()
        }
        NotFound::TooLate => "what happened at that time is not known yet".to_owned(),
        _ => "no pod is known to have had it at that time".to_owned(),
    }
}

/// Names the pods of which one had a key at a time. `more`: so many others are left out.
fn one_of(candidates: &[Candidate<'_, Record>], more: usize) -> String {
    let names: Vec<_> = candidates.iter().map(|one| full_name(one.pod)).collect();
    match &names[..] {
        [one] => format!("perhaps {one}, but not for certain"),
        names => {
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("one of {}{more}, the likeliest first", names.join(", "))
        }
    }
}
