//! Lookups at a time: generated truths of which the index learns late, in pieces and in bursts, and random histories
//! compared with a plain list of intervals. The same histories show which current keys are contested.
//!
//! More cases: `PROPTEST_CASES=100000 cargo test --release --test at`.

#[path = "support/seeded.rs"]
mod seeded;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pod_index::identity::Identity;
use pod_index::{
    CONFIG_MIRROR_ANNOTATION, FoundBy, Holder, Key, KeyKind, Life, NotFound, Operation, Options, PodKeys,
    PodMeta, Reader, Time, Writer,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use seeded::seeded;

/// Four ticks a second, so that what objects say in whole seconds is rounded.
const TICKS: i64 = 4;
/// The bounds that the truths keep to, in ticks.
const SKEW: i64 = 6;
const DELAY: i64 = 20;
const OWN: KeyKind = KeyKind(1);

fn time(tick: i64) -> Time {
    Time::from_nanos(tick * 1_000_000_000 / TICKS)
}

fn span(ticks: i64) -> Duration {
    Duration::from_millis(u64::try_from(ticks * 1000 / TICKS).expect("positive"))
}

/// As statuses have it.
fn second(tick: i64) -> Time {
    Time::from_seconds(tick.div_euclid(TICKS))
}

fn ip(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Pod {
    uid: String,
    name: String,
    ips: Vec<u8>,
    own: bool,
    life: Life,
}

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        (self.uid.starts_with("mirror") && key == CONFIG_MIRROR_ANNOTATION).then_some("")
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        if self.uid == "logged" {
            keys.container_id("app", &"ab".repeat(32));
        }
        self.ips.iter().for_each(|number| keys.ip(ip(*number)));
        if self.own {
            keys.key(OWN, "own");
        }
        keys.finished(self.life.may_lack_sandbox);
        keys.created(self.life.created.map_or(0, |time| time.as_nanos() / 1_000_000_000));
    }
    fn life(&self) -> Life {
        self.life
    }
}

fn index(age: i64, most: usize) -> (Writer<Pod>, Reader<Pod>, Instant) {
    let options = Options::new().keep_removed(span(age), most).keep_times(true);
    let (mut writer, reader) = pod_index::with_options(options);
    let start = Instant::now();
    writer.expire(start);
    (writer, reader, start)
}

// ---------------------------------------------------------------------------------------------------------- truths

/// One pod of a truth. All numbers are ticks.
#[derive(Clone, Debug)]
struct Plan {
    /// The key that it shares with the others.
    key: u8,
    /// From the end of the pod before it.
    gap: i64,
    started_before: i64,
    runs_after: i64,
    lasts: i64,
    /// From the end of its containers to that of its sandbox.
    lingers: i64,
    end: End,
    /// When the object goes, after the sandbox; of a forced deletion, before it.
    object: i64,
    says_times: bool,
    returns_ip: Option<i64>,
    delays: [i64; 6],
    lost: [bool; 6],
    api_skew: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Completes,
    Deleted,
    Forced,
}

#[derive(Clone, Debug)]
struct Question {
    /// About this pod, at this share of its time in percent. Some are before or after it.
    pod: usize,
    share: i64,
    skew: i64,
    later: i64,
}

/// Often the edges.
fn edge(least: i64, most: i64) -> impl Strategy<Value = i64> {
    prop_oneof![Just(least), Just(most), least..=most]
}

prop_compose! {
    fn plans()(
        key in 0..2u8,
        gap in edge(0, 8),
        started_before in 0..12i64,
        runs_after in 0..10i64,
        lasts in prop_oneof![1..60i64, 1..400i64],
        lingers in 0..8i64,
        end in prop_oneof![3 => Just(End::Completes), 3 => Just(End::Deleted), 1 => Just(End::Forced)],
        object in 0..40i64,
        says_times: bool,
        returns_ip in prop::option::weighted(0.2, 1..20i64),
        delays in [(); 6].map(|()| edge(0, DELAY)),
        lost: [bool; 6],
        api_skew in edge(-SKEW, SKEW),
    ) -> Plan {
        Plan {
            key, gap, started_before, runs_after, lasts, lingers, end, object, says_times, returns_ip, delays, lost,
            api_skew,
        }
    }
}

prop_compose! {
    fn questions()(
        pod in 0..8usize,
        share in -10..110i64,
        skew in edge(-SKEW, SKEW),
        later in prop_oneof![0..40i64, 0..400i64],
    ) -> Question {
        Question { pod, share, skew, later }
    }
}

/// A pod that held an IP from a tick until another.
#[derive(Clone, Debug)]
struct Held {
    uid: String,
    key: u8,
    from: i64,
    until: i64,
}

/// The state of a pod's object since a tick; `None`: gone. Known at the second tick.
type News = (i64, i64, String, Option<Pod>);

/// What was true, and what is told of it when.
fn truth(plans: &[Plan]) -> (Vec<Held>, Vec<News>) {
    let (mut held, mut all, mut free) = (Vec::new(), Vec::new(), [100i64; 2]);
    for (number, plan) in plans.iter().enumerate() {
        let uid = format!("pod-{number}");
        let from = free[usize::from(plan.key)] + plan.gap;
        let stops = from + plan.lasts;
        let until = stops + plan.lingers;
        // It loses its IP early and gets one that nobody else has.
        let loses = plan.returns_ip.map(|early| (from + plan.lasts - early).max(from + 1));
        held.push(Held { uid: uid.clone(), key: plan.key, from, until: loses.unwrap_or(until) });
        free[usize::from(plan.key)] = loses.unwrap_or(until);
        let (created, started) = (from - plan.started_before - 4, from - plan.started_before);
        let runs = (from + plan.runs_after).min(stops);
        let life = |ip_by: Option<i64>, stopped: bool| Life {
            created: Some(second(created + plan.api_skew)),
            ip_not_before: plan.says_times.then_some(second(started)),
            ip_by: ip_by
                .filter(|_| plan.says_times)
                .map(|tick| second(tick).saturating_add(Duration::from_secs(1))),
            may_lack_sandbox: stopped,
            ip_until: (stopped && plan.says_times).then_some(second(stops)),
        };
        let pod = |ip: Option<u8>, life: Life| Pod {
            uid: uid.clone(),
            name: uid.clone(),
            ips: ip.into_iter().collect(),
            own: false,
            life,
        };
        let unique = 100 + u8::try_from(number).expect("few");
        let mut states = vec![
            (created, Some(pod(None, life(None, false)))),
            (from, Some(pod(Some(plan.key), life(None, false)))),
            (runs, Some(pod(Some(plan.key), life(Some(runs), false)))),
        ];
        if let Some(loses) = loses {
            states.retain(|(tick, _)| *tick <= loses);
            states.push((loses, Some(pod(Some(unique), life(None, false)))));
        }
        let last = if loses.is_some() { unique } else { plan.key };
        if plan.end == End::Forced {
            let goes = (until - plan.object).max(loses.map_or(from, |loses| loses + 1));
            states.retain(|(tick, _)| *tick <= goes);
            states.push((goes, None));
        } else {
            states.push((stops, Some(pod(Some(last), life(None, true)))));
            states.push((until + plan.object, None));
        }
        states.sort_by_key(|(tick, _)| *tick);
        // Told in order. A state may be lost if the next one is told in time.
        let mut told: Vec<_> = states
            .iter()
            .zip(plan.delays)
            .scan(0, |last, ((tick, _), delay)| {
                *last = (*last).max(tick + delay);
                Some(*last)
            })
            .collect();
        for at in (0..states.len()).rev() {
            let next = told.get(at + 1).copied();
            if plan.lost[at] && next.is_some_and(|next| next <= states[at].0 + DELAY) {
                told.remove(at);
                states.remove(at);
            }
        }
        for ((tick, state), told) in states.into_iter().zip(told) {
            all.push((told, tick, uid.clone(), state));
        }
    }
    all.sort_by_key(|(told, tick, uid, _)| (*told, *tick, uid.clone()));
    let news = all.into_iter().map(|(told, tick, uid, state)| (tick, told, uid, state)).collect();
    (held, news)
}

/// The counts of certain, ambiguous and unknown answers.
type Counts = [usize; 3];

fn ask(plans: &[Plan], questions: &[Question], outage: Option<(i64, i64)>, age: i64) -> Counts {
    let (held, mut news) = truth(plans);
    let end = news.iter().map(|(_, told, ..)| *told).max().unwrap_or(0) + 80;
    let outage = outage.map(|(at, lasts)| (at * end / 1000, at * end / 1000 + lasts));
    let is_away = |tick: i64| outage.is_some_and(|(from, until)| (from..until).contains(&tick));
    for (_, told, ..) in &mut news {
        *told = if is_away(*told) { outage.map_or(*told, |(_, until)| until) } else { *told };
    }
    news.sort_by_key(|(_, told, ..)| *told);
    let mut asked: Vec<_> = questions
        .iter()
        .map(|question| {
            let Held { key, from, until, .. } = held[question.pod % held.len()];
            let happened = from + (until - from) * question.share / 100;
            (happened + question.later, happened, key, question.skew)
        })
        .collect();
    asked.sort_by_key(|(asked, ..)| *asked);
    let (mut writer, reader, start) = index(age, 1000);
    let removals = news.iter().filter(|(.., state)| state.is_none());
    let removed: BTreeMap<_, _> = removals.map(|(_, told, uid, _)| (uid.clone(), *told)).collect();
    let (mut news, mut seen, mut counts) = (news.into_iter().peekable(), Vec::new(), [0; 3]);
    for now in 0..=asked.last().map_or(0, |(asked, ..)| *asked) {
        writer.expire(start + span(now));
        writer.set_time(time(now));
        let batch: Vec<_> = std::iter::from_fn(|| news.next_if(|(_, told, ..)| *told <= now))
            .map(|(_, _, uid, state)| match state {
                Some(pod) => {
                    if !pod.ips.is_empty() && !seen.contains(&(uid.clone(), pod.ips[0])) {
                        seen.push((uid, pod.ips[0]));
                    }
                    Operation::Update(pod.into())
                }
                None => Operation::Remove(uid.as_str().into()),
            })
            .collect();
        assert!(writer.apply(batch).refused.is_empty());
        if now >= 60 && !is_away(now) {
            writer.heard(time(now));
        }
        for (_, happened, key, skew) in asked.iter().filter(|(at, ..)| *at == now) {
            let owner = held.iter().find(|one| one.key == *key && (one.from..one.until).contains(happened));
            let snapshot = reader.load();
            let at = snapshot.at(time(happened + skew)).skew(span(SKEW)).delay(span(DELAY));
            let is_kept = happened + age > now + DELAY + 2 * SKEW;
            // A pod that runs on after its removal is kept for a time that begins with the removal.
            let forgotten = |one: &Held| removed.get(&one.uid).is_some_and(|told| told + age <= now);
            let knows = |one: &Held| is_kept && seen.contains(&(one.uid.clone(), one.key)) && !forgotten(one);
            let answer = at.get(ip(*key));
            let context = || format!("{happened} + {skew}: {owner:?} {answer:?}");
            match &answer {
                Holder::Pod(found) => {
                    assert_eq!(Some(&found.pod.uid), owner.map(|one| &one.uid), "{}", context());
                    counts[0] += 1;
                }
                Holder::Ambiguous { candidates, .. } => {
                    if let Some(owner) = owner.filter(|owner| knows(owner)) {
                        assert!(candidates.iter().any(|one| one.pod.uid == owner.uid), "{}", context());
                    }
                    counts[1] += 1;
                }
                Holder::Unknown(why) => {
                    assert!(
                        owner.is_none_or(|owner| !knows(owner)) || *why != NotFound::NoPod,
                        "{}",
                        context()
                    );
                    counts[2] += 1;
                }
                other => panic!("{other:?}"),
            }
            // Bounds are bounds.
            for candidate in at.candidates(ip(*key)) {
                let Some(truth) = held.iter().find(|one| one.uid == candidate.pod.uid && one.key == *key)
                else {
                    panic!("{candidate:?} never had the IP");
                };
                let within = |bounds: pod_index::Bounds, tick: i64| {
                    bounds.earliest.is_none_or(|earliest| earliest <= time(tick))
                        && bounds.latest.is_none_or(|latest| time(tick) <= latest)
                };
                assert!(within(candidate.from, truth.from), "{candidate:?} {truth:?}");
                assert!(within(candidate.until, truth.until), "{candidate:?} {truth:?}");
            }
        }
    }
    counts
}

#[test]
fn no_answer_is_confidently_wrong_while_clocks_and_news_keep_their_bounds() {
    let counts = Cell::new([0; 3]);
    let config = seeded(192);
    let cases = config.cases as usize;
    let outages = prop::option::weighted(0.3, (0..1000i64, 1..200i64));
    let ages = prop_oneof![Just(10_000i64), 40..400i64];
    let all = (vec(plans(), 1..9), vec(questions(), 20), outages, ages);
    let result = TestRunner::new(config).run(&all, |(plans, questions, outage, age)| {
        let (new, old) = (ask(&plans, &questions, outage, age), counts.get());
        counts.set(std::array::from_fn(|at| old[at] + new[at]));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let [certain, ambiguous, unknown] = counts.get();
    println!("certain {certain}, ambiguous {ambiguous}, unknown {unknown} in {cases} cases");
    assert!(cases < 32 || certain >= 3 * cases, "an index that is never certain is never wrong");
}

// ------------------------------------------------------------------------------------------------------- the model

/// One write, or more in one publication.
#[derive(Clone, Debug)]
enum Step {
    Update(Pod),
    Remove(usize),
    Set(Vec<Pod>),
    Batch(Vec<Step>),
    Heard,
}

prop_compose! {
    fn specs()(
        uid in 0..4usize,
        name in 0..2usize,
        ips in 0..4usize,
        own: bool,
        created in 0..60i64,
        [not_before, by, until] in [(); 3].map(|()| prop::option::of(0..60i64)),
        may_lack_sandbox in prop::bool::weighted(0.3),
    ) -> Pod {
        Pod {
            uid: format!("u{uid}"),
            name: format!("n{name}"),
            ips: [&[][..], &[1], &[2], &[1, 2]][ips].to_vec(),
            own,
            life: Life {
                created: Some(time(created)),
                ip_not_before: not_before.map(time),
                ip_by: by.map(time),
                may_lack_sandbox,
                ip_until: until.map(time),
            },
        }
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let single = || {
        prop_oneof![
            4 => specs().prop_map(Step::Update),
            2 => (0..4usize).prop_map(Step::Remove),
            1 => vec(specs(), 0..4).prop_map(Step::Set),
        ]
    };
    prop_oneof![
        6 => single(),
        2 => vec(single(), 0..4).prop_map(Step::Batch),
        4 => Just(Step::Heard),
    ]
}

/// A key in the model: an IP, the name, or the custom key.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    Ip(u8),
    Name(String),
    Own,
}

fn words(pod: &Pod) -> Vec<Word> {
    let own = pod.own.then_some(Word::Own);
    pod.ips.iter().map(|ip| Word::Ip(*ip)).chain(own).chain([Word::Name(pod.name.clone())]).collect()
}

#[derive(Clone, Debug)]
struct Interval {
    uid: String,
    word: Word,
    heard: Option<i64>,
    by: i64,
    ran: Option<i64>,
    /// When, heard before, what the object said, removed.
    end: Option<(i64, Option<i64>, Life, bool)>,
}

/// A list of intervals.
#[derive(Default)]
struct Model {
    pods: BTreeMap<String, Pod>,
    list: Vec<Interval>,
    now: i64,
    heard: Option<i64>,
    floor: Option<i64>,
    age: i64,
}

const FOREVER: i64 = i64::MAX / 4;

impl Model {
    fn store(&mut self, pod: &Pod) {
        let old = self.pods.insert(pod.uid.clone(), pod.clone());
        let old_words = old.as_ref().map(words).unwrap_or_default();
        for word in old_words.iter().filter(|word| !words(pod).contains(word)) {
            self.end(&pod.uid, word, old.as_ref().expect("it had words").life, false);
        }
        for word in words(pod) {
            let runs_again = |before: &Life| {
                matches!(word, Word::Ip(_)) && before.may_lack_sandbox && !pod.life.may_lack_sandbox
            };
            if let Some(old) = old.as_ref().filter(|old| old_words.contains(&word) && runs_again(&old.life)) {
                self.end(&pod.uid, &word, old.life, false);
            }
            let returns = |one: &Interval| {
                one.end.as_ref().is_none_or(|(.., life, removed)| *removed && !runs_again(life))
            };
            let mine = self.list.iter_mut().rev().find(|one| one.uid == pod.uid && one.word == word);
            match mine.filter(|one| returns(one)) {
                Some(mine) => {
                    mine.end = None;
                    if let Some(old) = old.as_ref().filter(|_| old_words.contains(&word)) {
                        mine.by = said_by(mine, &old.life);
                        if pod.life.may_lack_sandbox && !old.life.may_lack_sandbox {
                            mine.ran = self.heard;
                        }
                    }
                }
                None => self.list.push(Interval {
                    uid: pod.uid.clone(),
                    word,
                    heard: self.heard,
                    by: self.now,
                    ran: None,
                    end: None,
                }),
            }
        }
    }

    fn remove(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            for word in words(&pod) {
                self.end(uid, &word, pod.life, true);
            }
        }
    }

    fn end(&mut self, uid: &str, word: &Word, life: Life, removed: bool) {
        let (now, heard) = (self.now, self.heard);
        let is = |one: &&mut Interval| one.uid == uid && one.word == *word && one.end.is_none();
        let one = self.list.iter_mut().find(is).expect("it had the key");
        one.by = said_by(one, &life);
        one.end = Some((now, heard, life, removed));
    }

    /// As the whole set is stored: pods that stay were never gone.
    fn set(&mut self, pods: &BTreeMap<String, Pod>) {
        let gone: Vec<_> = self.pods.keys().filter(|uid| !pods.contains_key(*uid)).cloned().collect();
        for uid in &gone {
            self.remove(uid);
        }
        for pod in pods.values() {
            self.store(pod);
        }
    }

    fn expire(&mut self) {
        let (now, age) = (self.now, self.age);
        let over = |one: &Interval| one.end.as_ref().is_some_and(|(at, ..)| at + age <= now);
        self.floor = self
            .list
            .iter()
            .filter(|one| over(one))
            .map(|one| one.end.as_ref().map(|end| end.0))
            .max()
            .flatten()
            .max(self.floor);
        self.list.retain(|one| !over(one));
    }

    /// The bounds, by the table in the documents.
    fn bounds(&self, one: &Interval) -> [i64; 4] {
        let ticks = |time: Option<Time>| time.map(|time| time.as_nanos() * TICKS / 1_000_000_000);
        let life = one.end.as_ref().map_or_else(|| self.pods[&one.uid].life, |end| end.2);
        let known = |heard: Option<i64>| heard.map_or(-FOREVER, |heard| heard - DELAY);
        let created = ticks(life.created).expect("given");
        let there = known(one.end.as_ref().map_or(self.heard, |end| end.1));
        let gone = one.end.as_ref().map_or(FOREVER, |end| end.0);
        if let Word::Ip(_) = one.word {
            let from = known(one.heard).max(ticks(life.ip_not_before).unwrap_or(-FOREVER));
            let by = one.by.min(ticks(life.ip_by).unwrap_or(FOREVER));
            let stopped = known(one.ran).max(ticks(life.ip_until).unwrap_or(-FOREVER));
            let is_open = one.end.as_ref().is_some_and(|(.., removed)| *removed && !life.may_lack_sandbox);
            return [
                from,
                by,
                if life.may_lack_sandbox { stopped } else { there },
                if is_open { FOREVER } else { gone },
            ];
        }
        let by = if one.word == Word::Own { FOREVER } else { created + TICKS + SKEW };
        [known(one.heard).max(created - SKEW), one.by.min(by), there, gone]
    }

    /// The certain pod, or the possible ones, sorted, or why none is known.
    fn answer(&self, word: &Word, at: i64) -> Result<Vec<String>, Vec<String>> {
        let (first, last) = (at - SKEW, at + SKEW);
        let all: Vec<_> =
            self.list.iter().filter(|one| one.word == *word).map(|one| (one, self.bounds(one))).collect();
        let runs = |one: &Interval| one.end.is_none() && !self.pods[&one.uid].life.may_lack_sandbox;
        let certain: Vec<_> =
            all.iter().filter(|(_, [_, by, until, _])| *by <= first && last < *until).collect();
        let current: Vec<_> = certain.iter().filter(|(one, _)| runs(one)).collect();
        let certain = if current.is_empty() { certain.iter().collect() } else { current };
        let touches = |from: i64, gone: i64| from <= last && first < gone && from < gone;
        let possible = all.iter().filter(|(_, [from, .., gone])| touches(*from, *gone)).count();
        let is_complete = self.heard.is_some() && self.floor.is_some_and(|floor| floor <= first);
        if let [(one, _)] = certain[..]
            && (*word != Word::Own || (possible == 1 && is_complete))
        {
            return Ok(vec![one.uid.clone()]);
        }
        let before = |[_, by, until, _]: &[i64; 4], [_, other_by, other_until, _]: &[i64; 4]| {
            by < other_until && other_by >= until
        };
        let mut candidates: Vec<_> = all
            .iter()
            .filter(|(_, mine)| {
                let others = all.iter().filter(|_| *word != Word::Own);
                let (mut from, mut gone) = (mine[0], mine[3]);
                for (_, other) in others {
                    from = if before(other, mine) { from.max(other[2]) } else { from };
                    gone = if before(mine, other) { gone.min(other[1]) } else { gone };
                }
                touches(from, gone)
            })
            .map(|(one, _)| one.uid.clone())
            .collect();
        if candidates.is_empty() {
            let why = match self.heard {
                None => "late",
                Some(heard) if last >= heard - DELAY => "late",
                Some(_) if is_complete => "none",
                Some(_) => "early",
            };
            return Err(vec![why.to_owned()]);
        }
        candidates.sort();
        Err(candidates)
    }
}

fn said_by(one: &Interval, life: &Life) -> i64 {
    let said = life.ip_by.filter(|_| matches!(one.word, Word::Ip(_)));
    said.map_or(one.by, |said| one.by.min(said.as_nanos() * TICKS / 1_000_000_000))
}

fn apply(model: &mut Model, step: &Step) -> Vec<Operation<Pod>> {
    match step {
        Step::Update(pod) => {
            model.store(pod);
            vec![Operation::Update(pod.clone().into())]
        }
        Step::Remove(uid) => {
            model.remove(&format!("u{uid}"));
            vec![Operation::Remove(format!("u{uid}").as_str().into())]
        }
        Step::Set(pods) => {
            // Each UID once: what is overwritten within a set is another matter.
            let pods: BTreeMap<_, _> = pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
            model.set(&pods);
            vec![Operation::Set(pods.into_values().map(Arc::new).collect())]
        }
        Step::Batch(steps) => steps.iter().flat_map(|step| apply(model, step)).collect(),
        Step::Heard => Vec::new(),
    }
}

#[test]
fn every_answer_is_what_a_list_of_intervals_says() {
    let compared = Cell::new([0; 3]);
    let config = seeded(192);
    let cases = config.cases as usize;
    let histories = (vec((steps(), 0..6i64), 1..40), vec((0..80i64, 0..6usize), 12), 20..200i64);
    let result = TestRunner::new(config).run(&histories, |(history, questions, age)| {
        let (mut writer, reader, start) = index(age, 1000);
        let mut model = Model { age, ..Model::default() };
        for (step, passes) in &history {
            model.now += passes;
            model.expire();
            writer.expire(start + span(model.now));
            writer.set_time(time(model.now));
            assert!(writer.apply(apply(&mut model, step)).refused.is_empty());
            if let Step::Heard = step {
                writer.heard(time(model.now));
                if model.heard.is_none() {
                    model.floor = model.floor.max(Some(model.now));
                }
                model.heard = Some(model.now);
            }
            let snapshot = reader.load();
            for (at, which) in &questions {
                let own = (OWN, &b"own"[..]);
                let (word, key): (_, Key<'_>) = match which {
                    0 | 1 => (Word::Ip(1), ip(1).into()),
                    2 => (Word::Ip(2), ip(2).into()),
                    3 => (Word::Name("n0".into()), ("default", "n0").into()),
                    4 => (Word::Name("n1".into()), ("default", "n1").into()),
                    _ => (Word::Own, own.into()),
                };
                let claims = model.pods.values().filter(|pod| words(pod).contains(&word)).count();
                let is_contested = claims > 1 && !matches!(word, Word::Name(_));
                assert_eq!(snapshot.is_contested(key), is_contested, "{word:?}");
                let expected = model.answer(&word, *at);
                let at = snapshot.at(time(*at)).skew(span(SKEW)).delay(span(DELAY));
                let (answer, kind) = match at.get(key) {
                    Holder::Pod(found) => (Ok(vec![found.pod.uid.clone()]), 0),
                    Holder::Ambiguous { candidates: all, .. } => {
                        let order: Vec<_> =
                            all.iter().map(|one| (one.is_certain, one.pod.uid.clone())).collect();
                        assert!(order.is_sorted_by_key(|(is_certain, _)| !is_certain), "{order:?}");
                        let mut uids: Vec<_> = order.into_iter().map(|(_, uid)| uid).collect();
                        uids.sort();
                        (Err(uids), 1)
                    }
                    Holder::Unknown(NotFound::TooEarly) => (Err(vec!["early".to_owned()]), 2),
                    Holder::Unknown(NotFound::TooLate) => (Err(vec!["late".to_owned()]), 2),
                    Holder::Unknown(_) => (Err(vec!["none".to_owned()]), 2),
                    other => panic!("{other:?}"),
                };
                assert_eq!(answer, expected, "{word:?} {at:?} {:#?}", model.list);
                let mut counts = compared.get();
                counts[kind] += 1;
                compared.set(counts);
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{:?} compared in {cases} cases", compared.get());
    assert!(cases < 32 || compared.get().iter().all(|count| *count > 2 * cases), "{:?}", compared.get());
}

// -------------------------------------------------------------------------------------------------------- by hand

/// A pod with the IP of all of these tests.
fn pod(uid: &str, life: Life) -> Pod {
    Pod { uid: uid.into(), name: uid.into(), ips: vec![7], own: false, life }
}

/// Writes at these ticks; before and after each, everything was heard.
struct Told {
    writer: Writer<Pod>,
    reader: Reader<Pod>,
    start: Instant,
}

impl Told {
    fn new() -> Self {
        let (mut writer, reader, start) = index(40_000, 100);
        writer.heard(time(0));
        Self { writer, reader, start }
    }

    fn tell(&mut self, tick: i64, operations: impl IntoIterator<Item = Operation<Pod>>) {
        self.writer.heard(time(tick));
        self.writer.expire(self.start + span(tick));
        self.writer.set_time(time(tick));
        assert!(self.writer.apply(operations).refused.is_empty());
        self.writer.heard(time(tick));
    }

    /// The certain pod, or the possible ones, each with a question mark, or why none is known.
    fn who<'k>(&self, tick: i64, key: impl Into<Key<'k>>) -> String {
        let snapshot = self.reader.load();
        match snapshot.at(time(tick)).skew(span(SKEW)).delay(span(DELAY)).get(key) {
            Holder::Pod(found) => found.pod.uid.clone(),
            Holder::Ambiguous { candidates: all, .. } => {
                all.iter().map(|one| one.pod.uid.clone() + "?").collect()
            }
            Holder::Unknown(why) => format!("{why:?}"),
            other => panic!("{other:?}"),
        }
    }
}

fn add(pod: Pod) -> Operation<Pod> {
    Operation::Add(pod.into())
}

#[test]
fn reuse_in_one_publication_is_told_apart() {
    let mut told = Told::new();
    told.tell(398, []);
    // Not heard between 398 and 800.
    told.writer.set_time(time(400));
    told.writer.add_pod(pod("one", Life::default())).expect("a good pod");
    told.tell(800, [Operation::Remove("one".into()), add(pod("two", Life::default()))]);
    told.tell(1200, []);
    let who = |tick| told.who(tick, ip(7));
    let edge = 800 - DELAY - SKEW;
    assert_eq!([400 + SKEW, edge - 1].map(who), ["one", "one"]);
    assert_eq!(who(405), "one?", "it may have come a moment later");
    assert!([edge, 805].map(who).iter().all(|both| both.contains("one?") && both.contains("two?")));
    assert_eq!([800 + SKEW, 1200 - DELAY - SKEW - 1].map(who), ["two", "two"]);
    assert_eq!(who(1200 - DELAY - SKEW), "two?", "it may be gone, and nobody has told");
    assert_eq!([100, -100].map(who), ["NoPod", "TooEarly"]);
}

/// A manifest that is edited and edited back has its first UID again.
#[test]
fn a_static_pod_that_returns_was_gone_meanwhile() {
    let mut told = Told::new();
    for (tick, gone, uid) in [(400, "", "first"), (800, "first", "second"), (1200, "second", "first")] {
        let new = Pod { name: "web".into(), ..pod(uid, Life::default()) };
        told.tell(tick, [Operation::Remove(gone.into()), add(new)]);
    }
    told.tell(1600, []);
    assert_eq!(
        [600, 1000, 1400].map(|tick| told.who(tick, ("default", "web"))),
        ["first", "second", "first"]
    );
}

/// A pod may have come and gone while no source answered.
#[test]
fn after_an_outage_no_key_is_said_to_have_been_nobodys_before() {
    let mut told = Told::new();
    told.tell(100, [add(pod("stays", Life::default()))]);
    told.tell(400, []);
    assert_eq!(told.who(600, ip(8)), "TooLate");
    told.writer.heard(time(800));
    assert_eq!(told.who(600, ip(8)), "NoPod");
    told.writer.missed(time(790));
    told.writer.missed(time(500));
    assert_eq!(told.who(600, ip(8)), "TooEarly");
    assert_eq!(told.who(600, ip(7)), "stays", "what is certain stays so");
    assert_eq!(told.reader.load().at(time(600)).delay(span(DELAY)).known(), Some((time(790), time(780))));
    // The next publication still knows it.
    told.writer.remove_pod_by_uid("stays");
    assert_eq!(told.who(600, ip(8)), "TooEarly");
}

#[test]
fn an_ambiguous_answer_lists_some_pods_and_the_number_of_the_others() {
    let mut told = Told::new();
    let pods = (0..20).map(|number| Pod { own: true, ..pod(&format!("u{number}"), Life::default()) });
    told.tell(100, pods.map(add));
    told.tell(800, []);
    let snapshot = told.reader.load();
    let at = snapshot.at(time(400));
    let Holder::Ambiguous { candidates, more } = at.get((OWN, &b"own"[..])) else { panic!("twenty have it") };
    assert_eq!((candidates.len(), more, at.candidates((OWN, &b"own"[..])).len()), (16, 4, 20));
}

/// A mirror pod is found by its name, unless a pod had that name.
#[test]
fn a_name_is_a_mirror_pods_only_while_no_pod_had_it() {
    let mut told = Told::new();
    let named = |uid| add(Pod { name: "web".into(), ..pod(uid, Life::default()) });
    told.tell(400, [named("mirror")]);
    told.tell(800, [named("own")]);
    told.tell(1200, []);
    assert_eq!([600, 1000].map(|tick| told.who(tick, ("default", "web"))), ["mirror", "own"]);
}

#[test]
fn a_link_to_a_log_is_of_the_pod_with_its_container_and_else_of_the_one_with_its_name_then() {
    let mut told = Told::new();
    told.tell(400, [add(Pod { name: "web".into(), ..pod("logged", Life::default()) })]);
    let next = Pod { name: "web".into(), ..pod("next", Life::default()) };
    told.tell(800, [Operation::Remove("logged".into()), add(next)]);
    told.tell(1200, []);
    let snapshot = told.reader.load();
    let of = |tick, id: &str| {
        let text = format!("/var/log/containers/web_default_app-{}.log", id.repeat(32));
        let identity = Identity::parse(&text).expect("a link to a log");
        match identity.resolve_at(&snapshot.at(time(tick)).skew(span(SKEW)).delay(span(DELAY))) {
            Holder::Pod(found) => (found.pod.uid.clone(), found.by),
            unsure => panic!("{unsure:?}"),
        }
    };
    assert_eq!(of(1000, "ab"), ("logged".into(), FoundBy::ContainerId));
    assert_eq!(of(1000, "cd"), ("next".into(), FoundBy::NameOnly));
    assert_eq!(of(600, "cd"), ("logged".into(), FoundBy::NameOnly));
}

/// Four for each removed pod: with its name, a pod has two keys here.
#[test]
fn the_number_of_ended_holds_is_limited_and_what_was_before_the_dropped_ones_is_unknown() {
    let (writer, reader, start) = index(40_000, 1);
    let mut told = Told { writer, reader, start };
    told.tell(0, []);
    for (tick, floor) in [(400, 0), (800, 0), (1200, 600)] {
        told.tell(tick, [add(pod("one", Life::default()))]);
        told.tell(tick + 200, [Operation::Remove("one".into())]);
        assert_eq!(told.reader.load().at(time(0)).known().map(|(floor, _)| floor), Some(time(floor)));
    }
}

#[test]
fn an_index_that_keeps_no_times_knows_only_what_needs_none() {
    let (writer, reader) = pod_index::new();
    let mut told = Told { writer, reader, start: Instant::now() };
    told.tell(0, [add(pod("one", Life::default()))]);
    told.tell(1000, []);
    assert_eq!((told.who(500, "one"), told.who(500, ip(7))), ("one".into(), "TooLate".into()));
    assert_eq!(told.reader.load().at(time(500)).known(), None);
}

#[test]
fn what_ended_before_the_first_heard_time_is_unknown_although_a_gap_ended_earlier() {
    let (mut writer, reader, start) = index(40_000, 100);
    writer.missed(time(50));
    let mut told = Told { writer, reader, start };
    told.tell(400, []);
    told.tell(800, []);
    assert_eq!([200, 600].map(|tick| told.who(tick, ip(7))), ["TooEarly", "NoPod"]);
}

/// A pod whose containers all ended may have got a new sandbox, and another pod the IP meanwhile.
#[test]
fn a_pod_that_runs_again_may_have_been_without_its_ip() {
    let mut told = Told::new();
    let pod = |uid: &str, may_lack_sandbox, by| {
        add(pod(uid, Life { may_lack_sandbox, ip_by: Some(time(by)), ..Life::default() }))
    };
    told.tell(400, [pod("first", false, 400)]);
    told.tell(800, [pod("first", true, 400)]);
    told.tell(1000, [pod("second", false, 1000)]);
    told.tell(1400, [pod("second", true, 1000)]);
    told.tell(1500, [Operation::Remove("second".into())]);
    told.tell(2000, [pod("first", false, 2000)]);
    told.tell(2400, [pod("first", false, 2000)]);
    let who = |tick| told.who(tick, ip(7));
    assert_eq!([600, 1200, 2200].map(who), ["first", "second", "first"]);
    assert_eq!(who(900), "first?", "it may still have it");
    assert_eq!(who(1450), "second?", "it may still have it, the first has lost it before");
    assert_eq!(who(1700), "NoPod");
}
