//! The systems that are asked. The peers' rules are written from their descriptions. Tetragon, Vector and Fluent Bit look
//! pods up by container ID or by name; here their rules for keeping and choosing pods are applied to IPs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pod_index::{
    CachedReader, Holder, Life, Moment, NotFound, Operation, Options, PodKeys, PodMeta, Time, Writer,
};

use crate::truth::{DELAY, History, Key, KeyKind, Ms, News, SKEW, State};

/// An answer: a pod by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Pod(usize),
    /// The likeliest pod.
    Ambiguous(usize),
    /// For certain, no pod.
    Nobody,
    Unknown,
}

pub(crate) trait System {
    fn name(&self) -> &'static str;
    /// What was told until now.
    fn tell(&mut self, now: Ms, news: &[News], history: &History);
    fn ask(&mut self, ip: u32, time: Ms) -> Answer;
}

/// All but ours.
pub(crate) fn peers() -> Vec<Box<dyn System>> {
    vec![
        Box::new(LastWritten {
            name: "k8sattributes",
            keeps: 120_000,
            by_start: true,
            ..LastWritten::default()
        }),
        Box::new(Pixie::default()),
        Box::new(Tetragon::default()),
        Box::new(LastWritten { name: "Vector", keeps: 60_000, ..LastWritten::default() }),
        Box::new(FluentBit::default()),
    ]
}

/// None of them says for certain that no pod had the IP.
fn confident(pod: Option<usize>) -> Answer {
    pod.map_or(Answer::Unknown, Answer::Pod)
}

// ------------------------------------------------------------------------------------------------------------- ours

struct SimPod {
    number: usize,
    uid: String,
    name: String,
    ip: Option<IpAddr>,
    life: Life,
}

impl PodMeta for SimPod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &'static str {
        NAMESPACE
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        self.ip.into_iter().for_each(|ip| keys.ip(ip));
        keys.finished(self.life.may_lack_sandbox);
        keys.created(self.life.created.map_or(0, |created| created.as_nanos() / 1_000_000_000));
    }
    fn life(&self) -> Life {
        self.life
    }
}

const NAMESPACE: &str = "ci";

pub(crate) struct Ours {
    /// The most removed pods that it keeps.
    pub(crate) kept: usize,
    writer: Writer<SimPod>,
    reader: CachedReader<SimPod>,
    start: Instant,
}

fn time(at: Ms) -> Time {
    Time::from_nanos(at * 1_000_000)
}

fn span(ms: Ms) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

fn address(ip: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + ip).into()
}

fn name(number: u32) -> String {
    format!("pod-{number}")
}

fn uid(pod: usize) -> String {
    format!("00000000-0000-4000-8000-{pod:012x}")
}

impl Ours {
    pub(crate) fn new(kept: usize) -> Self {
        let options = Options::new().keep_removed(Duration::from_secs(300), kept).keep_times(true);
        let (writer, reader) = pod_index::with_options(options);
        Self { kept, writer, reader: reader.cached(), start: Instant::now() }
    }

    pub(crate) fn tell(&mut self, now: Ms, news: &[News], history: &History) {
        let operations = news.iter().map(|News { pod, state, .. }| {
            let Some(State { has_ip, running, finished }) = *state else {
                return Operation::Remove(uid(*pod).as_str().into());
            };
            let facts = &history.pods[*pod];
            let life = Life {
                created: Some(time(facts.created)),
                ip_not_before: Some(time(facts.started)),
                ip_by: running.map(|at| time(at + 1_000)),
                may_lack_sandbox: finished.is_some(),
                ip_until: finished.map(time),
            };
            let ip = has_ip.then(|| address(facts.ip));
            let name = name(facts.name);
            Operation::Upsert(Arc::new(SimPod { number: *pod, uid: uid(*pod), name, ip, life }))
        });
        let mut moment = Moment::new(self.start + span(now), time(now));
        if let Some(since) = history.answers_since(now) {
            moment = moment.covering(time(since), time(now));
        }
        assert!(self.writer.apply_at(moment, operations).refused.is_empty(), "good pods");
    }

    pub(crate) fn ask(&mut self, key: Key, at: Ms) -> Answer {
        let pods = self.reader.load();
        let at = pods.at(time(at)).skew(span(SKEW)).delay(span(DELAY));
        let holder = match key.kind {
            KeyKind::Ip => at.get(address(key.number)),
            KeyKind::Name => at.get((NAMESPACE, &*name(key.number))),
        };
        match holder {
            Holder::Pod(found) => Answer::Pod(found.pod.number),
            Holder::Ambiguous { candidates, .. } => Answer::Ambiguous(candidates[0].pod.number),
            Holder::Unknown(NotFound::NoPod) => Answer::Nobody,
            _ => Answer::Unknown,
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ peers

/// k8sattributes: one pod an IP, the one that started last; a deleted one goes after two minutes.
/// Vector: the one written last; a deleted one goes after one minute.
#[derive(Default)]
struct LastWritten {
    name: &'static str,
    keeps: Ms,
    by_start: bool,
    pods: HashMap<u32, (usize, Ms)>,
    deleted: VecDeque<(Ms, u32, usize)>,
}

impl System for LastWritten {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tell(&mut self, now: Ms, news: &[News], history: &History) {
        for News { pod, state, .. } in news {
            let facts = &history.pods[*pod];
            match state {
                Some(State { has_ip: true, .. }) => {
                    let known = self.pods.get(&facts.ip);
                    if !self.by_start || known.is_none_or(|(_, started)| *started <= facts.started) {
                        self.pods.insert(facts.ip, (*pod, facts.started));
                    }
                }
                Some(_) => {}
                None => self.deleted.push_back((now + self.keeps, facts.ip, *pod)),
            }
        }
        while let Some((due, ip, pod)) = self.deleted.front().copied()
            && due <= now
        {
            self.deleted.pop_front();
            if self.pods.get(&ip).is_some_and(|(known, _)| *known == pod) {
                self.pods.remove(&ip);
            }
        }
    }

    fn ask(&mut self, ip: u32, _: Ms) -> Answer {
        confident(self.pods.get(&ip).map(|(pod, _)| *pod))
    }
}

/// Pixie: the last pod that started before the time.
#[derive(Default)]
struct Pixie {
    pods: HashMap<u32, BTreeMap<Ms, usize>>,
}

impl System for Pixie {
    fn name(&self) -> &'static str {
        "Pixie"
    }

    fn tell(&mut self, _: Ms, news: &[News], history: &History) {
        for News { pod, state, .. } in news {
            if let Some(State { has_ip: true, .. }) = state {
                let facts = &history.pods[*pod];
                self.pods.entry(facts.ip).or_default().insert(facts.started, *pod);
            }
        }
    }

    fn ask(&mut self, ip: u32, time: Ms) -> Answer {
        let started = self.pods.get(&ip).and_then(|pods| pods.range(..=time).next_back());
        confident(started.map(|(_, pod)| *pod))
    }
}

/// Tetragon: the first of the current pods, or else of the last 1,024 that were deleted.
#[derive(Default)]
struct Tetragon {
    current: HashMap<u32, Vec<usize>>,
    deleted: VecDeque<(u32, usize)>,
}

impl System for Tetragon {
    fn name(&self) -> &'static str {
        "Tetragon"
    }

    fn tell(&mut self, _: Ms, news: &[News], history: &History) {
        for News { pod, state, .. } in news {
            let ip = history.pods[*pod].ip;
            let current = self.current.entry(ip).or_default();
            match state {
                Some(State { has_ip: true, .. }) if !current.contains(pod) => current.push(*pod),
                Some(_) => {}
                None => {
                    current.retain(|other| other != pod);
                    self.deleted.push_front((ip, *pod));
                    self.deleted.truncate(1_024);
                }
            }
        }
    }

    fn ask(&mut self, ip: u32, _: Ms) -> Answer {
        let current = self.current.get(&ip).and_then(|pods| pods.first().copied());
        confident(current.or_else(|| Some(self.deleted.iter().find(|(other, _)| *other == ip)?.1)))
    }
}

/// Fluent Bit: asks the API server when it sees a key for the first time, and keeps 256 answers; the oldest goes.
#[derive(Default)]
struct FluentBit {
    server: HashMap<u32, Vec<(usize, bool)>>,
    cache: HashMap<u32, usize>,
    order: VecDeque<u32>,
}

impl System for FluentBit {
    fn name(&self) -> &'static str {
        "Fluent Bit"
    }

    fn tell(&mut self, _: Ms, news: &[News], history: &History) {
        for News { pod, state, .. } in news {
            let pods = self.server.entry(history.pods[*pod].ip).or_default();
            pods.retain(|(other, _)| other != pod);
            if let Some(State { has_ip: true, finished, .. }) = state {
                pods.push((*pod, finished.is_some()));
            }
        }
    }

    fn ask(&mut self, ip: u32, _: Ms) -> Answer {
        if let Some(pod) = self.cache.get(&ip) {
            return Answer::Pod(*pod);
        }
        let pods = self.server.get(&ip).into_iter().flatten();
        let Some((pod, _)) = pods.min_by_key(|(_, is_over)| *is_over) else { return Answer::Unknown };
        self.cache.insert(ip, *pod);
        self.order.push_back(ip);
        if self.order.len() > 256
            && let Some(oldest) = self.order.pop_front()
        {
            self.cache.remove(&oldest);
        }
        Answer::Pod(*pod)
    }
}
