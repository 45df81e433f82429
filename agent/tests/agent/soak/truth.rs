//! The pods that the sources had at each time, to compare each answer with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The allowed age of an answer. During an outage, it may be this much older than the outage.
const FRESH: Duration = Duration::from_secs(10);
/// How long a replaced version is remembered. Longer than any outage.
const REMEMBERED: Duration = Duration::from_secs(300);

/// The version of each pod, by its name.
pub type Pods = BTreeMap<String, u64>;

#[derive(Default)]
pub struct Truth(Mutex<State>);

#[derive(Default)]
struct State {
    pods: BTreeMap<String, VecDeque<Held>>,
    outages: Vec<Outage>,
}

/// A version that a source had.
struct Held {
    version: Option<u64>,
    /// `None`: from the start.
    from: Option<Instant>,
    until: Option<Instant>,
}

/// The agent cannot reach its API server.
struct Outage {
    from: Instant,
    until: Option<Instant>,
}

impl Truth {
    /// Changes the pod at its source. `None` removes it.
    pub fn change(&self, name: &str, version: Option<u64>, change: impl FnOnce()) {
        let mut state = self.0.lock().unwrap();
        let from = Instant::now();
        change();
        let until = Instant::now();
        let history = state.pods.entry(name.to_owned()).or_default();
        match history.back_mut() {
            Some(last) => last.until = Some(until),
            None => history.push_back(Held { version: None, from: None, until: Some(until) }),
        }
        while history.front().and_then(|held| held.until).is_some_and(|at| at + REMEMBERED < until) {
            history.pop_front();
        }
        history.push_back(Held { version, from: Some(from), until: None });
    }

    /// Does the work during which the agent cannot reach its API server. It ends when the agent is known to
    /// have reached it again.
    pub fn outage(&self, work: impl FnOnce()) {
        let number = {
            let outages = &mut self.0.lock().unwrap().outages;
            outages.push(Outage { from: Instant::now(), until: None });
            outages.len() - 1
        };
        work();
        self.0.lock().unwrap().outages[number].until = Some(Instant::now());
    }

    /// What the sources have now.
    pub fn now(&self) -> Pods {
        let state = self.0.lock().unwrap();
        let last = state.pods.iter().filter_map(|(name, history)| Some((name, history.back()?.version?)));
        last.map(|(name, version)| (name.clone(), version)).collect()
    }

    /// Fails the test unless each pod is shown in a version that its source had since [`FRESH`] before the
    /// question. So a pod that has not changed since then must be shown as it is.
    pub fn check_all(&self, asked: Instant, shown: &Pods) {
        let wrong = self.0.lock().unwrap().wrong(asked, Instant::now(), None, shown);
        assert!(
            wrong.is_empty(),
            "{} pods are wrong: {}",
            wrong.len(),
            wrong[..wrong.len().min(5)].join("; ")
        );
    }

    /// The same for one pod.
    pub fn check(&self, asked: Instant, name: &str, shown: Option<u64>) {
        let shown = shown.map(|version| (name.to_owned(), version)).into_iter().collect();
        let wrong = self.0.lock().unwrap().wrong(asked, Instant::now(), Some(name), &shown);
        assert!(wrong.is_empty(), "{}", wrong.join("; "));
    }
}

impl State {
    /// The moment of the question, or the start of the outage from which the agent may not have recovered.
    fn since(&self, asked: Instant) -> Instant {
        let reach = |since: Instant, outage: &Outage| match outage.until {
            Some(until) if until + FRESH <= since => since,
            _ => since.min(outage.from),
        };
        self.outages.iter().rev().fold(asked, reach)
    }

    /// What is wrong with the answer, in words.
    fn wrong(&self, asked: Instant, answered: Instant, only: Option<&str>, shown: &Pods) -> Vec<String> {
        let since = self.since(asked);
        let mut wrong = Vec::new();
        let names: BTreeSet<_> = match only {
            Some(name) => [name].into(),
            None => self.pods.keys().chain(shown.keys()).map(String::as_str).collect(),
        };
        for name in names {
            let version = shown.get(name).copied();
            let history = self.pods.get(name).into_iter().flatten().rev();
            let possible = |held: &&Held| {
                held.from.is_none_or(|from| from <= answered)
                    && held.until.is_none_or(|until| until + FRESH >= since)
            };
            let is_right = history.clone().filter(possible).any(|held| held.version == version);
            if !is_right && (version.is_some() || self.pods.contains_key(name)) {
                let had: Vec<_> = history
                    .take(3)
                    .map(|held| (held.version, held.until.map(|until| until.elapsed())))
                    .collect();
                let age = asked.duration_since(since) + FRESH;
                wrong.push(format!(
                    "{name} is shown as {version:?}, {age:?} allowed; its source had (until this long ago), latest first: {had:?}"
                ));
            }
        }
        wrong
    }
}

#[test]
fn an_old_version_is_wrong_once_it_is_too_old_unless_there_was_an_outage() {
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let at = |seconds| start + second * seconds;
    let held =
        |version, from, until: Option<u32>| Held { version, from: Some(at(from)), until: until.map(at) };
    let mut state = State::default();
    state.pods.insert("a".to_owned(), [held(Some(1), 0, Some(100)), held(Some(2), 100, None)].into());
    state.pods.insert("b".to_owned(), [held(Some(7), 0, Some(105)), held(None, 105, None)].into());
    let wrong = |asked, a: u64, b: Option<u64>| {
        let b = b.map(|version| ("b".to_owned(), version));
        state.wrong(at(asked), at(asked), None, &[("a".to_owned(), a)].into_iter().chain(b).collect()).len()
    };
    assert_eq!(wrong(109, 1, Some(7)), 0, "both are old, but not too old");
    assert_eq!(wrong(111, 1, Some(7)), 1, "the first is too old");
    assert_eq!(wrong(116, 2, Some(7)), 1, "the second should be gone");
    assert_eq!(wrong(116, 2, None), 0);
    assert_eq!(wrong(99, 2, Some(7)), 1, "not yet there");
    assert_eq!(wrong(116, 3, None), 1, "never there");
    let never = |shown: &Pods| state.wrong(at(116), at(116), Some("never changed"), shown).len();
    assert_eq!(never(&Pods::new()), 0);
    assert_eq!(never(&[("never changed".to_owned(), 1)].into()), 1);
    state.outages.push(Outage { from: at(100), until: Some(at(140)) });
    state.outages.push(Outage { from: at(145), until: Some(at(160)) });
    let wrong = |asked| state.wrong(at(asked), at(asked), Some("a"), &[("a".to_owned(), 1)].into()).len();
    assert_eq!([wrong(120), wrong(149), wrong(169), wrong(171)], [0, 0, 0, 1]);
}
