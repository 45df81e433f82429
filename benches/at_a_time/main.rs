//! Which pod had this IP when the event happened? A simulated node with a known truth, asked late.
//!
//! 110 pods, a new one every second; an IP is given away 0 to 30 s after its pod. News of the API server are late, partly
//! lost, and overtake each other; now and then it is away for a minute. In each such gap, up to three pods lose their
//! sandboxes: one that runs, one of which no container has started yet, and one that finishes before the gap ends. Another
//! pod that nobody tells of has the IP, and the first one gets it again. Clocks differ by up to 2 s. Events are asked about
//! 0 to 60 s after they happened; one in twenty comes from an IP that a random pod may have. No clock, no sleep, one seed.
//!
//! A second index keeps so few removed pods that it has forgotten many when it is asked. Both indices are also asked for
//! names, which a new pod often takes within a second.
//!
//! `cargo run --release -p pod-index-benches --bin at_a_time` asks ten million times, and writes the table and the plot to
//! `docs/performance`. `-- 100000` asks fewer times and only prints; `.ci/run at_a_time` does that. Fails if an index is
//! confidently wrong: it names a wrong pod, or says that no pod had a key that a pod had. Also fails if the first index misses more
//! than one in a thousand of the pods that the observations prove, or if they seem to prove a wrong one.

mod forced;
mod plot;
mod systems;
mod truth;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use forced::Observed;
use systems::{Answer, Ours, System};
use truth::{DELAY, History, Key, KeyKind, Ms, Rng, SKEW};

/// Questions of a full run.
const QUESTIONS: u64 = 10_000_000;
/// Every so many milliseconds, news are taken in and questions are asked.
const STEP: Ms = 100;
/// The events are at most this late.
const LATEST: Ms = 60_000;
/// Delays in the plot: one point for each of so many milliseconds.
pub(crate) const POINT: Ms = 5_000;
const POINTS: usize = 12;
/// One question in so many is also answered by what is forced.
const COMPARED: u64 = 50;
/// Beside so many questions for an IP, there is one for a name.
const IPS_FOR_A_NAME: u64 = 10;
/// The most removed pods that the indices keep: more than a minute has, and those of about ten seconds.
const KEPT: [usize; 2] = [10_000, 10];

/// Counts of answers.
#[derive(Clone, Copy, Default)]
struct Counts {
    right: u64,
    /// Nobody for certain, and that is right.
    rightly_nobody: u64,
    ambiguous: u64,
    /// Of those, with the right pod as the likeliest.
    likeliest: u64,
    unknown: u64,
    /// Another pod, or there was none.
    wrong_pod: u64,
    /// Nobody for certain, and there was one.
    wrongly_nobody: u64,
    /// The same, but of a pod that the index could not know any more.
    nobody_but_forgotten: u64,
}

/// Answers by delay.
type ByDelay = [Counts; POINTS];

/// A peer and its answers.
struct Peer {
    system: Box<dyn System>,
    counts: ByDelay,
}

/// An index and its answers.
struct Asked {
    index: Ours,
    by_ip: ByDelay,
    by_name: ByDelay,
}

/// Who had a key at a time?
struct Question {
    key: Key,
    happened: Ms,
    /// From the event to the question.
    delay: Ms,
    /// By the event's clock.
    time: Ms,
    truth: Option<usize>,
}

struct Results {
    /// One for each of [`KEPT`].
    indices: [Asked; 2],
    peers: Vec<Peer>,
    forced: Forced,
}

/// How often one pod was forced, and how often ours named one, in the same questions.
#[derive(Default)]
struct Forced {
    questions: u64,
    forced: u64,
    ours: u64,
    /// Forced, and ours did not say so.
    missed: u64,
    /// Forced, and another pod had it: what is forced would be none.
    wrong: u64,
}

fn main() -> ExitCode {
    let given = env::args().nth(1).and_then(|count| count.parse().ok());
    let questions = given.unwrap_or(QUESTIONS);
    let results = run(questions);
    let report = report(&results, questions);
    print!("{report}");
    if given.is_none() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/performance");
        let written = fs::write(folder.join("at-a-time.md"), &report)
            .and_then(|()| fs::write(folder.join("at-a-time.svg"), plot::plot(&lines(&results))));
        if let Err(error) = written {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    let failures = failures(&results);
    for failure in &failures {
        eprintln!("{failure}");
    }
    ExitCode::from(u8::from(!failures.is_empty()))
}

/// What an index must not do, and did.
fn failures(Results { indices, forced, .. }: &Results) -> Vec<String> {
    let mut failures = Vec::new();
    for Asked { index, by_ip, by_name } in indices {
        for (kind, counts) in [("IP", by_ip), ("name", by_name)] {
            let Counts { wrong_pod, wrongly_nobody, .. } = Counts::sum(counts);
            let asked = format!("the index that keeps {} removed pods, asked by {kind}", index.kept);
            if wrong_pod > 0 {
                failures.push(format!("{asked}: {wrong_pod} answers name a wrong pod"));
            }
            if wrongly_nobody > 0 {
                failures
                    .push(format!("{asked}: {wrongly_nobody} answers say that no pod had it, and one did"));
            }
        }
    }
    if forced.missed * 1_000 > forced.forced {
        failures.push(format!("{} of {} proven pods are not named", forced.missed, forced.forced));
    }
    if forced.wrong > 0 {
        failures.push(format!("{} pods are taken for proven, and another one had the IP", forced.wrong));
    }
    failures
}

fn run(questions: u64) -> Results {
    // Long enough that every hundredth of a second has few questions.
    let length = (questions.cast_signed() / 700).clamp(600, 14_400) * 1_000;
    let history = History::new(length);
    let mut results = Results {
        indices: KEPT.map(|kept| Asked {
            index: Ours::new(kept),
            by_ip: ByDelay::default(),
            by_name: ByDelay::default(),
        }),
        peers: systems::peers()
            .into_iter()
            .map(|system| Peer { system, counts: ByDelay::default() })
            .collect(),
        forced: Forced::default(),
    };
    let mut observed = Observed::default();
    let mut rng = Rng(4242);
    let mut rng_of_names = Rng(2424);
    let (mut next, mut heard, begin) = (0, Ms::MIN / 2, 120_000);
    let steps = (length - begin) / STEP;
    let mut number = 0;
    for step in 0..length / STEP {
        let now = step * STEP;
        let due = history.news[next..].iter().take_while(|news| news.told <= now).count();
        let news = &history.news[next..next + due];
        next += due;
        for Asked { index, .. } in &mut results.indices {
            index.tell(now, news, &history);
        }
        for Peer { system, .. } in &mut results.peers {
            system.tell(now, news, &history);
        }
        observed.tell(now, heard, news, &history);
        if !history.is_away(now) {
            heard = now;
        }
        let until =
            u64::try_from((now - begin) / STEP + 1).unwrap_or_default() * questions / steps.unsigned_abs();
        while number < until {
            number += 1;
            if number % IPS_FOR_A_NAME == 0
                && let Some(question) = Question::new(KeyKind::Name, &mut rng_of_names, &history, now)
            {
                for one in &mut results.indices {
                    one.ask(&question, now, &history);
                }
            }
            let Some(question) = Question::new(KeyKind::Ip, &mut rng, &history, now) else { continue };
            for one in &mut results.peers {
                let answer = one.system.ask(question.key.number, question.time);
                one.counts[question.point()].count(answer, question.truth);
            }
            let [ours, _] = results.indices.each_mut().map(|one| one.ask(&question, now, &history));
            if number % COMPARED == 0 {
                let pod = observed.forced(question.key.number, question.time, heard - DELAY, &history);
                results.forced.count(pod, ours, question.truth);
            }
        }
    }
    results
}

impl Question {
    /// About some pod. One in twenty is about another number, which may be nobody's.
    fn new(kind: KeyKind, rng: &mut Rng, history: &History, now: Ms) -> Option<Self> {
        let delay = rng.between(0, LATEST - 1);
        let happened = now - delay;
        let pod = history.sample(kind, rng, happened)?;
        let own = history.pods[pod].number(kind);
        let other = rng.percent(5).then(|| rng.between(1, i64::from(own)));
        let number = other.map_or(own, |other| u32::try_from(other).unwrap_or_default());
        let key = Key { kind, number };
        let truth = if other.is_some() { history.holder(key, happened) } else { Some(pod) };
        let time = happened + rng.between(-SKEW, SKEW);
        Some(Self { key, happened, delay, time, truth })
    }

    /// Its point in the plot.
    fn point(&self) -> usize {
        usize::try_from(self.delay / POINT).unwrap_or_default()
    }
}

impl Asked {
    fn ask(&mut self, question: &Question, now: Ms, history: &History) -> Answer {
        let Question { key, happened, time, truth, .. } = *question;
        let answer = self.index.ask(key, time);
        let counts = match key.kind {
            KeyKind::Ip => &mut self.by_ip,
            KeyKind::Name => &mut self.by_name,
        };
        let counts = &mut counts[question.point()];
        let kept = self.index.kept;
        let is_forgotten = |pod: usize| history.is_forgotten_while_it_runs(pod, happened, now, kept);
        if answer == Answer::Nobody && truth.is_some_and(is_forgotten) {
            counts.nobody_but_forgotten += 1;
        } else {
            counts.count(answer, truth);
        }
        answer
    }
}

impl Counts {
    fn count(&mut self, answer: Answer, truth: Option<usize>) {
        match answer {
            Answer::Pod(pod) if Some(pod) == truth => self.right += 1,
            Answer::Pod(_) => self.wrong_pod += 1,
            Answer::Ambiguous(likeliest) => {
                self.ambiguous += 1;
                self.likeliest += u64::from(Some(likeliest) == truth);
            }
            Answer::Nobody if truth.is_none() => self.rightly_nobody += 1,
            Answer::Nobody => self.wrongly_nobody += 1,
            Answer::Unknown => self.unknown += 1,
        }
    }

    fn sum(all: &ByDelay) -> Self {
        all.iter().fold(Self::default(), |sum, one| Self {
            right: sum.right + one.right,
            rightly_nobody: sum.rightly_nobody + one.rightly_nobody,
            ambiguous: sum.ambiguous + one.ambiguous,
            likeliest: sum.likeliest + one.likeliest,
            unknown: sum.unknown + one.unknown,
            wrong_pod: sum.wrong_pod + one.wrong_pod,
            wrongly_nobody: sum.wrongly_nobody + one.wrongly_nobody,
            nobody_but_forgotten: sum.nobody_but_forgotten + one.nobody_but_forgotten,
        })
    }

    fn wrong(self) -> u64 {
        self.wrong_pod + self.wrongly_nobody + self.nobody_but_forgotten
    }

    fn all(self) -> u64 {
        self.right + self.rightly_nobody + self.ambiguous + self.unknown + self.wrong()
    }
}

impl Forced {
    /// The pod that is forced, if one is, and our answer.
    fn count(&mut self, pod: Option<usize>, ours: Answer, truth: Option<usize>) {
        let named = if let Answer::Pod(pod) = ours { Some(pod) } else { None };
        self.questions += 1;
        self.forced += u64::from(pod.is_some());
        self.ours += u64::from(named.is_some());
        self.missed += u64::from(pod.is_some() && pod != named);
        self.wrong += u64::from(pod.is_some() && pod != truth);
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// The share of wrong answers by delay, of each system.
fn lines(Results { indices: [first, _], peers, .. }: &Results) -> Vec<(&'static str, Vec<f64>)> {
    let shares =
        |by_delay: &ByDelay| by_delay.iter().map(|counts| percent(counts.wrong(), counts.all())).collect();
    let peers = peers.iter().map(|peer| (peer.system.name(), shares(&peer.counts)));
    [("pod-index", shares(&first.by_ip))].into_iter().chain(peers).collect()
}

/// The cells of a row of a table.
fn cells(counts: &ByDelay) -> [String; 5] {
    let sum = Counts::sum(counts);
    let share = |part: u64| format!("{:.1} %", percent(part, sum.all()));
    let wrong = match sum.wrong() {
        0 => "0".to_owned(),
        wrong => format!("{:.2} %", percent(wrong, sum.all())),
    };
    [share(sum.right), share(sum.rightly_nobody), share(sum.ambiguous), share(sum.unknown), wrong]
}

fn report(Results { indices, peers, forced }: &Results, questions: u64) -> String {
    let mut text = String::from(
        "# Which pod had this IP then?\n\n\
         An event carries an IP address and a time, and is looked up later. How often does the answer name the wrong pod, because another one has\n\
         the address by then? This simulation asks it of `pod-index`, and of the rules of other agents.\n\n\
         The simulated node has 110 pods and a new one each second. An IP is used again 0 to 30 s after its pod, clocks are up to 2 s apart, and\n\
         questions come 0 to 60 s late. Sources have outages. The rules of the other systems are written from their descriptions.\n\
         Tetragon, Vector and Fluent Bit look pods up by other keys; here their rules are applied to IPs.\n\n\
         | | right | rightly nobody | ambiguous | unknown | confidently wrong |\n|---|---:|---:|---:|---:|---:|\n",
    );
    let [first, _] = indices;
    let _ = writeln!(text, "| pod-index | {} |", cells(&first.by_ip).join(" | "));
    for Peer { system, counts } in peers {
        let [right, _, ambiguous, unknown, wrong] = cells(counts);
        let _ = writeln!(text, "| {} | {right} | – | {ambiguous} | {unknown} | {wrong} |", system.name());
    }
    let ours = Counts::sum(&first.by_ip);
    let _ = writeln!(
        text,
        "\n*Right* and *confidently wrong* are answers without a doubt. An answer that names a pod is confidently wrong, a *wrong attribution*, if\n\
         that pod did not have the IP at the time. *Rightly nobody* is the answer that no pod had the IP, and none had. That answer is confidently\n\
         wrong if a pod had it. The other systems have no such answer: they find a pod, or they find none and do not say why. *Ambiguous* names\n\
         candidates and none as certain; *unknown* names nobody, and does not exclude a pod.\n\n\
         Written by `cargo run --release -p pod-index-benches --bin at_a_time`.\n\n\
         {questions} questions, each answered by all. Of the ambiguous answers of pod-index, {:.1} % have the right pod first. In {}\n\
         questions, the answers were compared with what the observations prove. They prove one pod in {:.2} %. pod-index named a\n\
         pod in {:.2} %, and missed {} proven ones.\n\n\
         A pod is proven if every history that fits the observations has it as the only holder at each time within the skew. One\n\
         that had its IP before an outage, and whose container started in it, is not proven between the two: it may have lost its\n\
         sandbox meanwhile, and another pod may have had the IP. In each outage here, that happens to up to three pods, so a wrong\n\
         notion of what is proven would show.\n\n![Wrong answers over the delay of the question](at-a-time.svg)\n",
        percent(ours.likeliest, ours.ambiguous),
        forced.questions,
        percent(forced.forced, forced.questions),
        percent(forced.ours, forced.questions),
        forced.missed,
    );
    text.push_str(&forgetting(indices));
    text
}

/// The part of the report on forgotten pods and on names.
fn forgetting(indices: &[Asked; 2]) -> String {
    let mut text = String::from(
        "## Forgotten pods, and names\n\n\
         An index keeps a limited number of removed pods. When it has forgotten the pod of an event, does it say that it does not know? It must not\n\
         say that no pod had the key, because you would believe it.\n\n",
    );
    let [first, second] = indices;
    let by_name = Counts::sum(&first.by_name).all();
    let _ = writeln!(
        text,
        "The index above keeps up to {} removed pods for 300 s, so it forgets none within the 60 s. A second index learns the same and keeps the\n\
         last {} only, those of about ten seconds. Both got all questions, and for each {IPS_FOR_A_NAME} questions about an IP, one about a name: {by_name} of these.\n\
         A pod has its name for as long as its object exists. Often a new pod has the name within a second, as in a StatefulSet.\n\n\
         | removed pods kept | asked by | right | rightly nobody | ambiguous | unknown | confidently wrong |\n\
         |---:|---|---:|---:|---:|---:|---:|",
        first.index.kept, second.index.kept,
    );
    for Asked { index, by_ip, by_name } in indices {
        for (kind, counts) in [("IP", by_ip), ("name", by_name)] {
            let _ = writeln!(text, "| {} | {kind} | {} |", index.kept, cells(counts).join(" | "));
        }
    }
    let _ = writeln!(
        text,
        "\n{} answers of the second index are confidently wrong, all of one kind: that no pod had the IP, although a pod had it that had been deleted\n\
         by force. The pod's object was gone while its containers ran on. An index knows such a pod only for as long as it keeps it. So let it keep\n\
         as many [removed pods](../lookups.md#removed-pods) as are removed while your events are under way. If any other answer of an index is\n\
         confidently wrong, the program that writes this page fails.",
        Counts::sum(&second.by_ip).nobody_but_forgotten,
    );
    text
}
