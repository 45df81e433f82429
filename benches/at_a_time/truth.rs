//! A node's history: which pod had which IP and which name when, and what the API server told of it when.

use std::collections::BTreeSet;

/// Milliseconds since the start.
pub(crate) type Ms = i64;

/// What every bound must cover.
pub(crate) const SKEW: Ms = 2_000;
pub(crate) const DELAY: Ms = 10_000;
/// The API server's clock is behind.
const API_SKEW: Ms = -1_300;

/// A small generator; the same numbers in every run.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn between(&mut self, first: Ms, last: Ms) -> Ms {
        first + (self.next() % (last - first + 1).unsigned_abs()).cast_signed()
    }

    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.next() % 100 < share
    }
}

/// What a pod holds for a time, and another pod later.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) kind: KeyKind,
    pub(crate) number: u32,
}

#[derive(Clone, Copy)]
pub(crate) enum KeyKind {
    /// As long as the sandbox.
    Ip,
    /// As long as the object.
    Name,
}

/// A pod, as it was.
pub(crate) struct Pod {
    pub(crate) ip: u32,
    pub(crate) name: u32,
    /// It had the IP from here until there.
    pub(crate) from: Ms,
    pub(crate) until: Ms,
    /// It lost its sandbox and got the same IP again, while the API server did not answer.
    lost: Option<Span>,
    /// When its object existed, and so its name was taken.
    object: Span,
    /// When it was told that the object is gone. `None`: never.
    removed: Option<Ms>,
    /// As its object says: in whole seconds, the first by the API server's clock.
    pub(crate) created: Ms,
    pub(crate) started: Ms,
}

/// From here until there.
#[derive(Clone, Copy)]
struct Span {
    from: Ms,
    until: Ms,
}

/// What an object says of its pod at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) has_ip: bool,
    /// `startedAt` of its container, which may have ended.
    pub(crate) running: Option<Ms>,
    /// `finishedAt` of its container; the phase is final.
    pub(crate) finished: Option<Ms>,
}

/// The object of a pod changed.
pub(crate) struct News {
    pub(crate) told: Ms,
    pub(crate) pod: usize,
    /// `None`: it is gone.
    pub(crate) state: Option<State>,
}

pub(crate) struct History {
    pub(crate) pods: Vec<Pod>,
    pub(crate) news: Vec<News>,
    /// When the API server did not answer.
    outages: Vec<(Ms, Ms)>,
    /// The pods that had an IP in each second.
    with_ip: Vec<Vec<usize>>,
    /// Those that had a name.
    with_name: Vec<Vec<usize>>,
    /// When it was told of each removed pod, in order.
    removals: Vec<Ms>,
}

/// The names that no pod has.
#[derive(Default)]
struct FreeNames {
    /// Since when, and which.
    free: BTreeSet<(Ms, u32)>,
    /// How many names there are, taken ones included.
    all: u32,
}

impl FreeNames {
    /// The one that was free last, as a `StatefulSet` creates its pod anew. So some names change hands within a second, and
    /// others are nobody's for long.
    fn take(&mut self, now: Ms) -> u32 {
        let last = self.free.range(..=(now, u32::MAX)).next_back().copied();
        let Some((since, name)) = last else {
            self.all += 1;
            return self.all;
        };
        self.free.remove(&(since, name));
        name
    }
}

fn second(ms: Ms) -> Ms {
    ms.div_euclid(1_000) * 1_000
}

impl History {
    /// A pod a second, 110 at a time, for so long.
    pub(crate) fn new(length: Ms) -> Self {
        let mut rng = Rng(27);
        let outages = (1..).map(|number| number * 600_000).take_while(|start| *start < length);
        let outages: Vec<_> = outages.map(|start| (start, start + rng.between(20_000, 90_000))).collect();
        let (mut pods, mut news, mut free) = (Vec::new(), Vec::new(), Vec::<(Ms, u32)>::new());
        let mut ips = 0;
        let mut names = FreeNames::default();
        let mut created = 0;
        while created < length {
            let pod = pods.len();
            let started = created + rng.between(0, 500);
            let from = started + rng.between(300, 2_500);
            let at = free.iter().position(|(free, _)| *free <= from);
            let ip = at.map_or_else(
                || {
                    ips += 1;
                    ips
                },
                |at| free.swap_remove(at).1,
            );
            let lasts =
                if rng.percent(70) { rng.between(5_000, 60_000) } else { rng.between(60_000, 540_000) };
            let ends = from + lasts;
            let until = ends + rng.between(0, 3_000);
            // Some network plugins give an IP away at once.
            let pause = if rng.percent(30) { 0 } else { rng.between(0, 30_000) };
            free.push((until + pause, ip));
            free.sort_unstable();
            let runs = from + rng.between(100, 3_000);
            let (none, shows) =
                (State { has_ip: false, running: None, finished: None }, rng.between(0, 1_000));
            let has_ip = State { has_ip: true, ..none };
            let mut states = vec![
                (created, Some(none)),
                (from, Some(has_ip)),
                (runs + shows, Some(State { running: Some(second(runs)), ..has_ip })),
            ];
            let (running, finished) = (Some(second(runs)), Some(second(ends)));
            let over = (ends, Some(State { running, finished, ..has_ip }));
            match rng.next() % 100 {
                // Completed, and its object stays for a while.
                0..60 => states.extend([over, (until + rng.between(0, 60_000), None)]),
                60..98 => states.extend([over, (until + rng.between(100, 1_000), None)]),
                // Deleted by force: the object goes first.
                _ => states.push(((until - rng.between(0, 30_000)).max(runs + 1_000), None)),
            }
            tell(&mut rng, pod, &states, &outages, &mut news);
            let name = names.take(created);
            let object = Span { from: created, until: states.last().map_or(created, |(gone, _)| *gone) };
            names.free.insert((object.until, name));
            pods.push(Pod {
                ip,
                name,
                from,
                until,
                lost: None,
                object,
                removed: None,
                created: second(created + API_SKEW),
                started: second(started),
            });
            created += rng.between(200, 1_800);
        }
        for (begin, end) in &outages {
            for unseen in [Unseen::Runs, Unseen::Starts, Unseen::Finishes] {
                restart_unseen(unseen, *begin, *end, &mut pods, &mut news);
            }
        }
        news.sort_by_key(|one: &News| one.told);
        let mut removals = Vec::new();
        for one in news.iter().filter(|one| one.state.is_none()) {
            pods[one.pod].removed = Some(one.told);
            removals.push(one.told);
        }
        let seconds = usize::try_from(length / 1_000).unwrap_or_default();
        let with_ip = by_second(pods.iter().map(|pod| Span { from: pod.from, until: pod.until }), seconds);
        let with_name = by_second(pods.iter().map(|pod| pod.object), seconds);
        Self { pods, news, outages, with_ip, with_name, removals }
    }

    pub(crate) fn is_away(&self, now: Ms) -> bool {
        self.outages.iter().any(|(from, until)| (*from..*until).contains(&now))
    }

    /// Since when the API server has answered without a break. `None`: it does not.
    pub(crate) fn answers_since(&self, now: Ms) -> Option<Ms> {
        let before = self.outages.iter().take_while(|(from, _)| *from <= now).last();
        before.map_or(Some(0), |(_, until)| (*until <= now).then_some(*until))
    }

    fn alive(&self, kind: KeyKind, at: Ms) -> &[usize] {
        let alive = match kind {
            KeyKind::Ip => &self.with_ip,
            KeyKind::Name => &self.with_name,
        };
        usize::try_from(at / 1_000).ok().and_then(|second| alive.get(second)).map_or(&[], Vec::as_slice)
    }

    /// Some pod that had its IP, or its name, then.
    pub(crate) fn sample(&self, kind: KeyKind, rng: &mut Rng, at: Ms) -> Option<usize> {
        let alive = self.alive(kind, at);
        (0..8).find_map(|_| {
            let pod = *alive.get(usize::try_from(rng.next()).ok()? % alive.len().max(1))?;
            self.pods[pod].has_at(kind, at).then_some(pod)
        })
    }

    /// The pod that had a key then.
    pub(crate) fn holder(&self, key: Key, at: Ms) -> Option<usize> {
        self.alive(key.kind, at).iter().copied().find(|pod| {
            let pod = &self.pods[*pod];
            pod.number(key.kind) == key.number && pod.has_at(key.kind, at)
        })
    }

    /// Whether a pod ran on when its object was gone and that was told, and so many others were removed since that an index
    /// which keeps so many has forgotten it. What happened to the pod after it was told of, such an index cannot know.
    pub(crate) fn is_forgotten_while_it_runs(&self, pod: usize, at: Ms, now: Ms, kept: usize) -> bool {
        let told_before = |end: Ms| self.removals.partition_point(|told| *told <= end);
        let removed = self.pods[pod].removed.filter(|removed| *removed <= at);
        removed.is_some_and(|removed| told_before(now) - told_before(removed) >= kept)
    }
}

/// The numbers of those that there were in each second.
fn by_second(spans: impl Iterator<Item = Span>, seconds: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new(); seconds];
    for (number, Span { from, until }) in spans.enumerate() {
        for at in (from / 1_000..=until / 1_000).filter_map(|second| usize::try_from(second).ok()) {
            all.get_mut(at).into_iter().for_each(|pods: &mut Vec<usize>| pods.push(number));
        }
    }
    all
}

impl Span {
    fn contains(self, at: Ms) -> bool {
        (self.from..self.until).contains(&at)
    }
}

impl Pod {
    pub(crate) fn number(&self, kind: KeyKind) -> u32 {
        match kind {
            KeyKind::Ip => self.ip,
            KeyKind::Name => self.name,
        }
    }

    fn has_at(&self, kind: KeyKind, at: Ms) -> bool {
        match kind {
            KeyKind::Ip => {
                let is_lost = self.lost.is_some_and(|lost| lost.contains(at));
                (self.from..self.until).contains(&at) && !is_lost
            }
            KeyKind::Name => self.object.contains(at),
        }
    }
}

/// What is seen of a pod that loses its sandbox while nobody tells of it.
#[derive(Clone, Copy)]
enum Unseen {
    /// It ran before, and runs after.
    Runs,
    /// Before, it had its IP, but no container had started yet.
    Starts,
    /// It ran before, and afterwards it has finished, or is gone.
    Finishes,
}

/// In an outage, a pod loses its sandbox, another pod comes and goes with its IP, of which nobody tells, and the first one
/// gets the IP again. Only the time at which its container started shows it.
fn restart_unseen(unseen: Unseen, begin: Ms, end: Ms, pods: &mut Vec<Pod>, news: &mut Vec<News>) {
    let told = |pod: usize, from: Ms, until: Ms| {
        news.iter().filter(move |one| one.pod == pod && (from..until).contains(&one.told))
    };
    let is_silent = |pod, until| told(pod, begin - 2 * DELAY, until).next().is_none();
    let finished = |pod| told(pod, end, end + 1).find_map(|one| one.state?.finished);
    let is_one = |pod: usize| {
        let Pod { from, until, ref lost, .. } = pods[pod];
        let outlasts = until > end + 20_000;
        lost.is_none()
            && match unseen {
                Unseen::Runs => from < begin - 20_000 && outlasts && is_silent(pod, end + 1),
                Unseen::Starts => {
                    let mut states = told(pod, 0, begin).filter_map(|one| one.state);
                    let has_ip = told(pod, 0, begin).any(|one| one.state.is_some_and(|state| state.has_ip));
                    has_ip && outlasts && states.all(|state| state.running.is_none())
                }
                Unseen::Finishes => {
                    let is_late = finished(pod).is_some_and(|finished| finished > begin + 20_000);
                    from < begin - 20_000 && is_silent(pod, end) && is_late
                }
            }
    };
    let Some(number) = (0..pods.len()).find(|pod| is_one(*pod)) else { return };
    let from = begin + 1_000;
    let until = if let Unseen::Finishes = unseen { begin + 8_000 } else { end - 4_000 };
    let running = Some(second(until + 1_000));
    let ip = pods[number].ip;
    pods[number].lost = Some(Span { from, until });
    for one in news.iter_mut().filter(|one| one.pod == number && one.told >= end) {
        one.state = one.state.map(|state| State { running: state.running.and(running), ..state });
    }
    if let Unseen::Runs | Unseen::Starts = unseen {
        news.push(News {
            told: end,
            pod: number,
            state: Some(State { has_ip: true, running, finished: None }),
        });
    }
    // Its name is its own, so that nothing that was told shows it.
    let name = pods.iter().map(|pod| pod.name).max().map_or(1, |last| last + 1);
    pods.push(Pod {
        ip,
        name,
        from: from + 1_000,
        until: until - 1_000,
        lost: None,
        object: Span { from, until },
        removed: None,
        created: second(from + API_SKEW),
        started: second(from),
    });
}

/// The news of a pod: in its own order, late, some states never, but once at least that it has its IP. Those of different pods
/// overtake each other.
fn tell(
    rng: &mut Rng,
    pod: usize,
    states: &[(Ms, Option<State>)],
    outages: &[(Ms, Ms)],
    news: &mut Vec<News>,
) {
    let mut last = 0;
    let told: Vec<_> = states
        .iter()
        .map(|(at, _)| {
            let late = match rng.next() % 100 {
                0..90 => rng.between(20, 300),
                90..99 => rng.between(300, 2_000),
                _ => rng.between(2_000, DELAY - 1_200),
            };
            last = last.max(at + late);
            last
        })
        .collect();
    let mut was_seen_with_ip = false;
    for (at, (changed, state)) in states.iter().enumerate() {
        // The next state says the same in time.
        let is_lost = rng.percent(if at == 1 { 60 } else { 10 });
        let next_says_it = was_seen_with_ip || states.get(at + 1).is_some_and(|(_, next)| next.is_some());
        if is_lost && next_says_it && told.get(at + 1).is_some_and(|next| *next <= changed + DELAY - 1_200) {
            continue;
        }
        was_seen_with_ip |= state.is_some_and(|state| state.has_ip);
        let outage = outages.iter().find(|(from, until)| (*from..*until).contains(&told[at]));
        let told = outage.map_or(told[at], |(_, until)| *until);
        news.push(News { told, pod, state: *state });
    }
}
