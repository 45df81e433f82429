//! Generated truths of which the index learns late, in pieces and in bursts: no answer is confidently wrong.

use super::*;

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
    /// While its object existed, and so its name, which no other pod has.
    object: Range<i64>,
}

/// A question, when it is asked.
#[derive(Clone, Copy)]
struct Asked {
    at: i64,
    happened: i64,
    pod: usize,
    skew: i64,
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
            life,
            ..Pod::default()
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
        let gone = states.last().map_or(created, |(tick, _)| *tick);
        let until = loses.unwrap_or(until);
        held.push(Held { uid: uid.clone(), key: plan.key, from, until, object: created..gone });
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

/// The counts of certain, ambiguous and unknown answers about IPs, and of certain ones about names.
type Counts = [usize; 4];

/// So many removed pods are kept for so long.
#[derive(Clone, Copy, Debug)]
struct Kept {
    age: i64,
    most: usize,
}

fn ask(plans: &[Plan], questions: &[Question], outage: Option<(i64, i64)>, kept: Kept) -> Counts {
    let Kept { age, most } = kept;
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
            let pod = question.pod % held.len();
            let Held { from, until, .. } = held[pod];
            let happened = from + (until - from) * question.share / 100;
            Asked { at: happened + question.later, happened, pod, skew: question.skew }
        })
        .collect();
    asked.sort_by_key(|asked| asked.at);
    let (mut writer, reader, start) = index(age, most);
    let removals = news.iter().filter(|(.., state)| state.is_none());
    let removed: BTreeMap<_, _> = removals.map(|(_, told, uid, _)| (uid.clone(), *told)).collect();
    let (mut news, mut seen, mut counts) = (news.into_iter().peekable(), Vec::new(), [0; 4]);
    let mut seen_objects = BTreeSet::new();
    for now in 0..=asked.last().map_or(0, |asked| asked.at) {
        let batch: Vec<_> = std::iter::from_fn(|| news.next_if(|(_, told, ..)| *told <= now))
            .map(|(_, _, uid, state)| match state {
                Some(pod) => {
                    seen_objects.insert(uid.clone());
                    if !pod.ips.is_empty() && !seen.contains(&(uid.clone(), pod.ips[0])) {
                        seen.push((uid, pod.ips[0]));
                    }
                    Operation::Upsert(pod.into())
                }
                None => Operation::Remove(uid.as_str().into()),
            })
            .collect();
        let mut moment = moment(start, now);
        if now >= 60 && !is_away(now) {
            let since = outage.map_or(60, |(_, until)| if now >= until { until.max(60) } else { 60 });
            moment = moment.covering(time(since), time(now));
        }
        assert!(writer.apply_at(moment, batch).refused.is_empty());
        for Asked { happened, pod, skew, .. } in asked.iter().filter(|asked| asked.at == now) {
            let key = held[*pod].key;
            let owner = held.iter().find(|one| one.key == key && (one.from..one.until).contains(happened));
            let snapshot = reader.load();
            let at = snapshot.at(time(happened + skew)).skew(span(SKEW)).delay(span(DELAY));
            let is_kept = happened + age > now + DELAY + 2 * SKEW;
            // A pod that runs on after its removal is kept for a time that begins with the removal.
            let is_few = most < held.len();
            let may_be_forgotten = |told: i64| told <= now && (is_few || told + age <= now);
            let forgotten = |one: &Held| removed.get(&one.uid).is_some_and(|told| may_be_forgotten(*told));
            let was_seen = |one: &Held| seen.contains(&(one.uid.clone(), one.key));
            // In an outage, more holds may end than are kept of few pods.
            let knows = |one: &Held| is_kept && !is_few && was_seen(one) && !forgotten(one);
            // Forgotten or not, nobody had the key only if no pod had it before its removal was known.
            let ran_on = |one: &Held| removed.get(&one.uid).is_some_and(|told| told <= happened);
            let excludes_nobody = |one: &Held| was_seen(one) && !(ran_on(one) && forgotten(one));
            let answer = at.get(ip(key));
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
                        owner.is_none_or(|owner| !excludes_nobody(owner)) || *why != NotFound::NoPod,
                        "{}",
                        context()
                    );
                    counts[2] += 1;
                }
                other => panic!("{other:?}"),
            }
            let was_told = seen_objects.contains(&held[*pod].uid);
            counts[3] += usize::from(is_certain_by_name(&at, &held[*pod], *happened, was_told));
            check_bounds(&at, key, &held);
        }
    }
    counts
}

/// Whether the pod of this name was named for certain. Fails if it was wrong to do that, or to exclude it.
fn is_certain_by_name(at: &AtTime<'_, Pod>, held: &Held, happened: i64, was_told: bool) -> bool {
    let Held { uid, object, .. } = held;
    let answer = at.get(("default", &**uid));
    let context = || format!("{happened}: {object:?} {uid} {answer:?}");
    let had_name = object.contains(&happened);
    match &answer {
        Holder::Pod(found) => assert!(had_name && found.pod.uid == *uid, "{}", context()),
        Holder::Unknown(NotFound::NoPod) => assert!(!had_name || !was_told, "{}", context()),
        _ => {}
    }
    matches!(answer, Holder::Pod(_))
}

fn check_bounds(at: &AtTime<'_, Pod>, key: u8, held: &[Held]) {
    for candidate in at.candidates(ip(key)) {
        let Some(truth) = held.iter().find(|one| one.uid == candidate.pod.uid && one.key == key) else {
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

#[test]
fn no_answer_is_confidently_wrong_while_clocks_and_news_keep_their_bounds() {
    let counts = Cell::new([0; 4]);
    let config = seeded(192);
    let cases = config.cases as usize;
    let outages = prop::option::weighted(0.3, (0..1000i64, 1..200i64));
    let ages = prop_oneof![Just(10_000i64), 40..400i64];
    let mosts = prop::sample::select(vec![2, 1000]);
    let kept = (ages, mosts).prop_map(|(age, most)| Kept { age, most });
    let all = (vec(plans(), 1..9), vec(questions(), 20), outages, kept);
    let result = TestRunner::new(config).run(&all, |(plans, questions, outage, kept)| {
        let (new, old) = (ask(&plans, &questions, outage, kept), counts.get());
        counts.set(std::array::from_fn(|at| old[at] + new[at]));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let [certain, ambiguous, unknown, by_name] = counts.get();
    println!(
        "certain {certain}, ambiguous {ambiguous}, unknown {unknown}, by name {by_name} in {cases} cases"
    );
    assert!(cases < 32 || certain.min(by_name) >= 3 * cases, "an index that is never certain is never wrong");
}
