//! What the observations force: the best that any system can say of a question without ever being wrong.
//!
//! Written apart from the index: from the list of all news until the question, and the pods' order by propagation of
//! bounds to a fixed point. A pod is certain if no truth that fits the observations has another holder, or none, at any
//! time within the skew.

use crate::truth::{DELAY, History, Ms, SKEW};

const FOREVER: Ms = Ms::MAX / 4;

/// Bounds of the interval of one pod.
#[derive(Clone, Copy, PartialEq)]
struct Bounds {
    from: (Ms, Ms),
    until: (Ms, Ms),
}

/// The news until a question, by IP.
#[derive(Default)]
pub(crate) struct Observed {
    /// By IP: the pods that were ever seen with it.
    pods: std::collections::HashMap<u32, Vec<Seen>>,
}

struct Seen {
    pod: usize,
    learned: Ms,
    /// Until when everything was known before that.
    heard: Ms,
    runs: Ms,
    finished: Option<(Ms, Ms)>,
    gone: Option<(Ms, Ms)>,
}

impl Observed {
    /// News at `now`; before, everything was known until `heard`.
    pub(crate) fn tell(&mut self, now: Ms, heard: Ms, news: &[crate::truth::News], history: &History) {
        for one in news {
            let all = self.pods.entry(history.pods[one.pod].ip).or_default();
            let at = all.iter().rposition(|seen| seen.pod == one.pod);
            // It was seen before a gap, and its container is one that started in the gap: its sandbox may be a new one, too,
            // and another pod may have had the IP meanwhile. So it may if no container had started before the gap.
            let runs = one.state.and_then(|state| state.running).map(|at| at + 1_000);
            let is_new = now - heard > DELAY && runs.is_some_and(|runs| runs > heard);
            let at = at.filter(|at| {
                let is_again = is_new && all[*at].learned <= heard && runs != Some(all[*at].runs);
                if is_again {
                    all[*at].gone = Some((now, heard));
                }
                !is_again
            });
            match (one.state, at) {
                (None, None) => {}
                (None, Some(at)) => all[at].gone = Some((now, heard)),
                (Some(state), at) if state.has_ip => {
                    let at = at.unwrap_or_else(|| {
                        let (pod, learned, runs) = (one.pod, now, FOREVER);
                        all.push(Seen { pod, learned, heard, runs, finished: None, gone: None });
                        all.len() - 1
                    });
                    let seen = &mut all[at];
                    seen.runs = runs.map_or(seen.runs, |runs| seen.runs.min(runs));
                    // If it was first seen finished, nothing is known of how long it ran.
                    let ran = if seen.learned == now { -FOREVER } else { heard - DELAY };
                    seen.finished = seen.finished.or(state.finished.map(|at| (at, ran)));
                }
                (Some(_), _) => {}
            }
        }
    }

    /// The pod that the observations force, if they force one. `known`: until when everything is known.
    pub(crate) fn forced(&self, ip: u32, at: Ms, known: Ms, history: &History) -> Option<usize> {
        let pods = self.pods.get(&ip)?;
        let mut bounds: Vec<_> = pods.iter().map(|seen| seen.bounds(known, history)).collect();
        loop {
            let before = bounds.clone();
            for one in 0..bounds.len() {
                for other in 0..bounds.len() {
                    if one != other && is_before(bounds[one], bounds[other]) {
                        let (first, second) = (bounds[one], bounds[other]);
                        bounds[one].until.1 = first.until.1.min(second.from.1);
                        bounds[one].from.1 = first.from.1.min(second.from.1);
                        bounds[other].from.0 = second.from.0.max(first.until.0);
                        bounds[other].until.0 = second.until.0.max(first.until.0);
                    }
                }
            }
            if bounds == before {
                break;
            }
        }
        let (first, last) = (at - SKEW, at + SKEW);
        let certain = bounds.iter().position(|one| one.from.1 <= first && last < one.until.0);
        certain.map(|at| pods[at].pod)
    }
}

/// The opposite order is impossible.
fn is_before(one: Bounds, other: Bounds) -> bool {
    let may_precede = |one: Bounds, other: Bounds| one.until.0 <= other.from.1 && one.from.0 < other.until.1;
    may_precede(one, other) && !may_precede(other, one)
}

impl Seen {
    fn bounds(&self, known: Ms, history: &History) -> Bounds {
        let from = history.pods[self.pod].started.max(self.heard - DELAY);
        let until = match (self.finished, self.gone) {
            (Some((finished, ran)), gone) => (finished.max(ran), gone.map_or(FOREVER, |(at, _)| at)),
            // By force, or its end was not told: it may run on.
            (None, Some((_, heard))) => (heard - DELAY, FOREVER),
            (None, None) => (known, FOREVER),
        };
        Bounds { from: (from, self.learned.min(self.runs)), until }
    }
}
