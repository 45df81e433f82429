//! Cases chosen by hand.

use super::*;

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

/// Six for each removed pod: with its name, a pod has two keys here.
#[test]
fn the_number_of_ended_holds_is_limited_and_what_was_before_the_dropped_ones_is_unknown() {
    let (writer, reader, start) = index(40_000, 1);
    let mut told = Told { writer, reader, start };
    told.tell(0, []);
    for (tick, floor) in [(400, 0), (800, 0), (1200, 0), (1600, 600)] {
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
