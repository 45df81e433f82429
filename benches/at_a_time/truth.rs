//! A node's history: which pod had which IP when, and what the API server told of it when.

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

/// A pod, as it was.
pub(crate) struct Pod {
    pub(crate) ip: u32,
    /// It had the IP from here until there.
    pub(crate) from: Ms,
    pub(crate) until: Ms,
    /// It lost its sandbox and got the same IP again, while the API server did not answer.
    lost: Option<Lost>,
    /// As its object says: in whole seconds, the first by the API server's clock.
    pub(crate) created: Ms,
    pub(crate) started: Ms,
}

/// When a pod did not have its IP.
#[derive(Clone, Copy)]
struct Lost {
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
    /// The pods of each second.
    alive: Vec<Vec<usize>>,
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
            let (created_at, started_at) = (second(created + API_SKEW), second(started));
            pods.push(Pod { ip, from, until, lost: None, created: created_at, started: started_at });
            created += rng.between(200, 1_800);
        }
        for (begin, end) in &outages {
            for unseen in [Unseen::Runs, Unseen::Starts, Unseen::Finishes] {
                restart_unseen(unseen, *begin, *end, &mut pods, &mut news);
            }
        }
        news.sort_by_key(|one: &News| one.told);
        let seconds = usize::try_from(length / 1_000).unwrap_or_default();
        let mut alive = vec![Vec::new(); seconds];
        for (number, pod) in pods.iter().enumerate() {
            let range = pod.from / 1_000..=pod.until / 1_000;
            for at in range.filter_map(|second| usize::try_from(second).ok()) {
                alive.get_mut(at).into_iter().for_each(|all: &mut Vec<usize>| all.push(number));
            }
        }
        Self { pods, news, outages, alive }
    }

    pub(crate) fn is_away(&self, now: Ms) -> bool {
        self.outages.iter().any(|(from, until)| (*from..*until).contains(&now))
    }

    /// Since when the API server has answered without a break. `None`: it does not.
    pub(crate) fn answers_since(&self, now: Ms) -> Option<Ms> {
        let before = self.outages.iter().take_while(|(from, _)| *from <= now).last();
        before.map_or(Some(0), |(_, until)| (*until <= now).then_some(*until))
    }

    /// Some pod that had its IP then.
    pub(crate) fn sample(&self, rng: &mut Rng, at: Ms) -> Option<usize> {
        let alive = self.alive.get(usize::try_from(at / 1_000).ok()?)?;
        (0..8).find_map(|_| {
            let pod = *alive.get(usize::try_from(rng.next()).ok()? % alive.len().max(1))?;
            self.pods[pod].has_ip_at(at).then_some(pod)
        })
    }

    /// The pod that had an IP then.
    pub(crate) fn holder(&self, ip: u32, at: Ms) -> Option<usize> {
        let alive = self.alive.get(usize::try_from(at / 1_000).ok()?)?;
        alive.iter().copied().find(|pod| {
            let pod = &self.pods[*pod];
            pod.ip == ip && pod.has_ip_at(at)
        })
    }
}

impl Pod {
    fn has_ip_at(&self, at: Ms) -> bool {
        let is_lost = self.lost.is_some_and(|lost| (lost.from..lost.until).contains(&at));
        (self.from..self.until).contains(&at) && !is_lost
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
    pods[number].lost = Some(Lost { from, until });
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
    let (created, started) = (second(from + API_SKEW), second(from));
    pods.push(Pod { ip, from: from + 1_000, until: until - 1_000, lost: None, created, started });
}

/// The news of a pod: in its own order, late, some states never. Those of different pods overtake each other.
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
    for (at, (changed, state)) in states.iter().enumerate() {
        // The next state says the same in time.
        let is_lost = rng.percent(if at == 1 { 60 } else { 10 });
        if is_lost && told.get(at + 1).is_some_and(|next| *next <= changed + DELAY - 1_200) {
            continue;
        }
        let outage = outages.iter().find(|(from, until)| (*from..*until).contains(&told[at]));
        let told = outage.map_or(told[at], |(_, until)| *until);
        news.push(News { told, pod, state: *state });
    }
}
