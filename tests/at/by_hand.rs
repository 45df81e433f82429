//! Cases chosen by hand.

use super::*;

/// A pod with the IP of all of these tests.
fn pod(uid: &str, life: Life) -> Pod {
    Pod { uid: uid.into(), name: uid.into(), ips: vec![7], life, ..Pod::default() }
}

/// Writes at these ticks; before and after each, everything was known.
struct Told {
    writer: Writer<Pod>,
    reader: Reader<Pod>,
    start: Instant,
    /// Since when nothing was missed.
    since: i64,
    /// By so many ticks the wall clock was set.
    step: i64,
}

impl Told {
    fn new() -> Self {
        Self::of(index(40_000, 100))
    }

    fn of((writer, reader, start): (Writer<Pod>, Reader<Pod>, Instant)) -> Self {
        let mut told = Self { writer, reader, start, since: 0, step: 0 };
        told.hear(0);
        told
    }

    /// A tick of the clock that nobody sets.
    fn moment(&self, tick: i64) -> Moment {
        let time = |tick| time(tick + self.step);
        Moment::new(self.start + span(tick), time(tick)).covering(time(self.since), time(tick))
    }

    /// Everything is known until this tick.
    fn hear(&mut self, tick: i64) {
        self.writer.advance(self.moment(tick));
    }

    fn tell(&mut self, tick: i64, operations: impl IntoIterator<Item = Operation<Pod>>) {
        self.hear(tick);
        assert!(self.writer.apply_at(self.moment(tick), operations).refused.is_empty());
    }

    /// What a list after a gap tells: before, nothing was known since the last call.
    fn list(&mut self, tick: i64, operations: impl IntoIterator<Item = Operation<Pod>>) {
        self.since = tick;
        assert!(self.writer.apply_at(self.moment(tick), operations).refused.is_empty());
    }

    /// Between which times everything is known.
    fn known(&self) -> Option<Coverage> {
        self.reader.load().at(time(0)).delay(span(DELAY)).known()
    }

    /// Whether asking again would be of no use.
    fn is_settled(&self, tick: i64) -> bool {
        self.reader.load().at(time(tick)).skew(span(SKEW)).delay(span(DELAY)).is_settled()
    }

    /// The certain pod of what a text identifies, and by what it was found.
    fn found(&self, tick: i64, text: &str) -> Option<(String, FoundBy)> {
        let snapshot = self.reader.load();
        let identity = Identity::parse_lenient(text).expect("an identity");
        match identity.resolve_at(&snapshot.at(time(tick)).skew(span(SKEW)).delay(span(DELAY))) {
            Holder::Pod(found) => Some((found.pod.uid.clone(), found.by)),
            Holder::Unknown(NotFound::NoPod) => None,
            unsure => panic!("{unsure:?}"),
        }
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
    Operation::Upsert(pod.into())
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

/// That nobody had it would be wrong of a text that is no key: it may lead to a pod by several keys.
#[test]
fn a_text_that_is_no_key_is_not_said_to_have_been_nobodys() {
    let uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    let id = "3e5f0b1c".repeat(8);
    let mut told = Told::new();
    told.tell(400, [add(Pod { name: "web".into(), ..pod(uid, Life::default()) })]);
    told.hear(2000);
    let snapshot = told.reader.load();
    let cgroup = format!("/kubepods/burstable/pod{uid}/{id}");
    let link = format!("/var/log/containers/web_default_c-{id}.log");
    for text in [&*cgroup, &*link, "4711", "web", "/etc/passwd", ""] {
        assert_eq!(told.who(1000, text), "NoKey", "{text:?}");
        assert!(snapshot.at(time(1000)).candidates(text).is_empty(), "{text:?}");
        let holder = snapshot.get_many_at([text.into()], Tolerance::default()).next();
        assert!(matches!(holder, Some(Holder::Unknown(NotFound::NoKey))), "{text:?}: {holder:?}");
    }
    assert_eq!([&cgroup, &link].map(|text| told.found(1000, text).unwrap().0), [uid, uid]);

    let other = "b400a6d5-b1b1-c5f4-c3b2-a1908f7e6d5c";
    for text in ["10.0.0.99", "default/db", "db_default", other, &other.to_uppercase(), &id] {
        assert_eq!(told.who(1000, text), "NoPod", "{text:?}");
        let holder = snapshot.get_many_at([text.into()], Tolerance::default()).next();
        assert!(matches!(holder, Some(Holder::Unknown(NotFound::NoPod))), "{text:?}: {holder:?}");
    }
    for text in [uid.to_owned(), format!(" {uid}\n"), "default/web".to_owned()] {
        assert_eq!(told.who(1000, &*text), uid, "{text:?}");
        assert!(snapshot.get(&*text).is_some(), "{text:?}");
    }
}

/// A pod may have come and gone while no source answered.
#[test]
fn after_an_outage_no_key_is_said_to_have_been_nobodys_before() {
    let mut told = Told::new();
    let ran = Life { ip_by: Some(time(90)), ..Life::default() };
    told.tell(100, [add(pod("stays", ran))]);
    told.tell(400, []);
    assert_eq!(told.who(600, ip(8)), "TooLate");
    told.hear(500);
    told.list(800, []);
    told.hear(900);
    assert_eq!([300, 600, 850].map(|tick| told.who(tick, ip(8))), ["TooEarly", "TooEarly", "NoPod"]);
    assert_eq!(told.who(600, ip(7)), "stays", "a container has run since before");
    assert_eq!(told.known(), Some(Coverage { since: time(800), until: time(880) }));
    // The next publication still knows it.
    told.writer.remove_pod_by_uid("stays");
    assert_eq!(told.who(600, ip(8)), "TooEarly");
}

/// The guide's rule for asking again (docs/lookups.md): the kind of the answer does not decide it.
#[test]
fn a_time_that_is_too_new_is_ambiguous_if_a_pod_has_the_ip_and_certain_once_it_is_known() {
    let mut told = Told::new();
    let ran = Life { ip_by: Some(time(90)), ..Life::default() };
    told.tell(100, [add(pod("web", ran))]);
    let asked = 400;
    let asks_again = |told: &Told| {
        let known = told.known();
        let asks_again = known.is_none_or(|known| time(asked).saturating_add(span(SKEW)) >= known.until);
        assert_eq!(told.is_settled(asked), !asks_again, "the rule, and the method for it");
        asks_again
    };
    for tick in [asked, asked + SKEW + DELAY] {
        told.hear(tick);
        assert_eq!([7, 8].map(|of| told.who(asked, ip(of))), ["web?", "TooLate"], "{tick}");
        assert!(asks_again(&told), "{tick}");
    }
    told.hear(asked + SKEW + DELAY + 1);
    assert_eq!([7, 8].map(|of| told.who(asked, ip(of))), ["web", "NoPod"]);
    assert!(!asks_again(&told));
}

/// In the gap, it may have lost its sandbox, another pod may have had the IP, and then it may have got it again.
#[test]
fn a_pod_that_started_again_in_a_gap_had_its_ip_throughout_for_no_certain() {
    let ran = |by| Life { ip_by: Some(time(by)), ..Life::default() };
    let silent = Life::default();
    for (before, after) in [(ran(90), ran(700)), (silent, ran(700)), (ran(90), silent), (silent, silent)] {
        let mut told = Told::new();
        told.tell(100, [add(pod("web", before))]);
        told.hear(500);
        told.list(800, [add(pod("web", after))]);
        told.tell(1200, []);
        assert_eq!([300, 850, 1100].map(|tick| told.who(tick, ip(7))), ["web", "web", "web"], "{after:?}");
        assert_ne!(told.who(600, ip(7)), "web", "{before:?} {after:?}");
        // The older begin is inherited neither when it restarts again nor when it is removed.
        told.tell(1300, [add(pod("web", ran(1290)))]);
        told.tell(1400, [Operation::Remove("web".into())]);
        told.tell(1500, []);
        assert_ne!(told.who(600, ip(7)), "web", "{before:?} {after:?}");
        assert_eq!([300, 1350].map(|tick| told.who(tick, ip(7))), ["web", "web"], "{before:?} {after:?}");
    }
}

/// Its object tells of the end of the second sandbox, and is all that is known of the first one.
#[test]
fn a_pod_that_ended_in_a_gap_had_its_ip_until_then_for_no_certain() {
    let ran = Life { ip_by: Some(time(90)), ..Life::default() };
    let over = Life { may_lack_sandbox: true, ip_until: Some(time(780)), ..Life::default() };
    for is_removed in [false, true] {
        let mut told = Told::new();
        told.tell(100, [add(pod("web", ran))]);
        told.hear(500);
        let removal = is_removed.then_some(Operation::Remove("web".into()));
        told.list(800, [add(pod("web", over))].into_iter().chain(removal));
        told.tell(1200, []);
        assert_eq!(told.who(300, ip(7)), "web");
        assert_ne!(told.who(600, ip(7)), "web", "{is_removed}");
        assert_ne!(told.who(770, ip(7)), "web", "{is_removed}");
    }
    // One that ended before the gap had its IP until then.
    let mut told = Told::new();
    told.tell(100, [add(pod("web", ran))]);
    let over = Life { ip_until: Some(time(380)), ..over };
    told.tell(400, [add(pod("web", over))]);
    told.hear(500);
    told.list(800, []);
    told.tell(1200, []);
    assert_eq!(told.who(370, ip(7)), "web");
    assert_ne!(told.who(450, ip(7)), "web");
}

/// Nothing was known of it before the gap. Its object says itself from when until when it had the IP.
#[test]
fn a_pod_that_came_and_went_in_a_gap_had_its_ip_as_long_as_its_object_says() {
    let ran = Life { ip_by: Some(time(600)), ip_not_before: Some(time(560)), ..Life::default() };
    let over = Life { may_lack_sandbox: true, ip_until: Some(time(760)), ..ran };
    for earlier in [None, Some(Life::default()), Some(ran)] {
        let mut told = Told::new();
        told.hear(500);
        let shown = earlier.into_iter().chain([over]).map(|life| add(pod("web", life)));
        told.list(800, shown.chain([Operation::Remove("web".into())]));
        told.tell(1200, []);
        assert_eq!(told.who(680, ip(7)), "web", "{earlier:?}");
        assert_eq!([590, 770].map(|tick| told.who(tick, ip(7))), ["web?", "web?"]);
        assert_eq!(told.who(1100, ip(7)), "NoPod");
    }
}

/// Known before the gap, and in it, it may have lost the IP to another pod and got it again.
#[test]
fn a_pod_that_started_again_and_ended_in_a_gap_had_its_ip_before_and_as_long_as_its_object_says() {
    let ran = |by| Life { ip_by: Some(time(by)), ..Life::default() };
    let over = Life { may_lack_sandbox: true, ip_until: Some(time(760)), ..ran(650) };
    for is_removed in [false, true] {
        let mut told = Told::new();
        told.tell(100, [add(pod("web", ran(90)))]);
        told.hear(500);
        let removal = is_removed.then_some(Operation::Remove("web".into()));
        told.list(800, [add(pod("web", over))].into_iter().chain(removal));
        told.tell(1200, []);
        assert_eq!([300, 700].map(|tick| told.who(tick, ip(7))), ["web", "web"], "{is_removed}");
        assert_eq!(
            [560, 640, 770].map(|tick| told.who(tick, ip(7))),
            ["web?", "web?", "web?"],
            "{is_removed}"
        );
        if is_removed {
            assert_eq!(told.who(1100, ip(7)), "NoPod");
            // It returns, and has it since then.
            told.tell(1300, [add(pod("web", ran(1290)))]);
            told.tell(1500, []);
            assert_eq!([300, 700, 1400].map(|tick| told.who(tick, ip(7))), ["web", "web", "web"]);
            assert_ne!(told.who(600, ip(7)), "web");
        }
    }
    // An older object that was told with the last one speaks of another sandbox than that one, perhaps.
    let mut told = Told::new();
    told.hear(500);
    told.list(
        800,
        [ran(560), over]
            .map(|life| add(pod("web", life)))
            .into_iter()
            .chain([Operation::Remove("web".into())]),
    );
    told.tell(1200, []);
    assert_eq!([600, 700].map(|tick| told.who(tick, ip(7))), ["web?", "web"]);
}

/// What a checkpoint says is of before the agent's start.
#[test]
fn a_pod_that_was_known_before_anything_was_covered_has_its_ip_since_its_own_object_says() {
    let (writer, reader, start) = index(40_000, 100);
    let mut told = Told { writer, reader, start, since: 0, step: 0 };
    let restored = Life { ip_by: Some(time(90)), ..Life::default() };
    let listed = Life { ip_by: Some(time(700)), ..Life::default() };
    let _ = told.writer.apply_at(moment(start, 600), [add(pod("web", restored))]);
    told.list(800, [add(pod("web", listed))]);
    told.tell(1200, []);
    assert_eq!([300, 650, 900].map(|tick| told.who(tick, ip(7)) == "web"), [false, false, true]);
}

#[test]
fn an_ambiguous_answer_lists_some_pods_and_the_number_of_the_others() {
    let mut told = Told::new();
    let pods = (0..20).map(|number| Pod { custom: true, ..pod(&format!("u{number}"), Life::default()) });
    told.tell(100, pods.map(add));
    told.tell(800, []);
    let snapshot = told.reader.load();
    let at = snapshot.at(time(400));
    let Holder::Ambiguous { candidates, more } = at.get((CUSTOM, &b"custom"[..])) else {
        panic!("twenty have it")
    };
    assert_eq!((candidates.len(), more, at.candidates((CUSTOM, &b"custom"[..])).len()), (16, 4, 20));
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
    let of = |tick, id: &str| {
        let text = format!("/var/log/containers/web_default_app-{}.log", id.repeat(32));
        told.found(tick, &text).expect("a pod")
    };
    assert_eq!(of(1000, "ab"), ("logged".into(), FoundBy::ContainerId));
    assert_eq!(of(1000, "cd"), ("next".into(), FoundBy::NameOnly));
    assert_eq!(of(600, "cd"), ("logged".into(), FoundBy::NameOnly));
}

/// An event has a text, and not a key.
#[test]
fn what_a_text_identifies_is_looked_up_at_its_time() {
    let mut told = Told::new();
    told.tell(400, [add(Pod { name: "web".into(), ..pod("first", Life::default()) })]);
    let second = Pod { name: "web".into(), ..pod("second", Life::default()) };
    told.tell(800, [Operation::Remove("first".into()), add(second)]);
    told.tell(1200, []);
    for text in ["10.0.0.7", "default/web", "web_default"] {
        let at = |tick| told.found(tick, text).map(|(uid, _)| uid);
        assert_eq!([200, 600, 1000].map(at), [None, Some("first".into()), Some("second".into())], "{text}");
    }
    // It is one pod's for ever, so it needs no time.
    assert_eq!(told.found(200, "first").map(|(uid, _)| uid), Some("first".into()));
}

/// How many are kept depends on the kinds of keys that a usual pod has: a test beside `KEYS_OF_A_POD` in `pods::times` counts them.
#[test]
fn the_number_of_ended_holds_is_limited_and_what_was_before_the_dropped_ones_is_unknown() {
    let mut told = Told::of(index(40_000, 1));
    let mut removals = Vec::new();
    for tick in (400..).step_by(400).take(40) {
        told.tell(tick, [add(pod("one", Life::default()))]);
        told.tell(tick + 200, [Operation::Remove("one".into())]);
        removals.push(tick + 200);
        let since = told.known().expect("an index that keeps times").since;
        if since == time(0) {
            continue;
        }
        // With its name, the pod loses two keys at each removal. So the first two holds that are dropped ended at the first removal.
        assert_eq!(since, time(removals[0]), "{removals:?}");
        assert!(removals.len() > 2, "the holds of the last two removals are not kept: {removals:?}");
        return;
    }
    panic!("the ended holds of 40 removals are kept for one removed pod");
}

/// A source says late that it had missed something. What was forgotten does not matter for that.
#[test]
fn a_gap_that_is_told_of_late_interrupts_the_holds_though_the_index_has_forgotten_later_ones() {
    for forgets in [false, true] {
        let mut told = Told::of(index(40_000, 1));
        told.tell(100, [add(pod("stays", Life::default()))]);
        if forgets {
            // With two keys each, these have more holds than are kept.
            let uids = ["a", "b", "c", "d"];
            told.tell(900, uids.map(|uid| add(Pod { ips: vec![8], ..pod(uid, Life::default()) })));
            told.tell(1000, uids.map(|uid| Operation::Remove(uid.into())));
            assert_eq!(told.known().map(|known| known.since), Some(time(1000)));
        }
        told.hear(1200);
        assert_eq!(told.who(500, ip(7)), "stays");
        told.since = 900;
        told.hear(1201);
        assert_eq!(told.who(500, ip(7)), "stays?", "another pod may have had it before 900; {forgets}");
        assert_eq!(told.who(1100, ip(7)), "stays");
    }
}

/// An API server renames no pod. Other sources may: then the pod has not had its name since it was created.
#[test]
fn a_pod_that_an_update_renames_has_its_new_name_from_then_on() {
    let mut told = Told::new();
    let created = |tick| Life { created: Some(second(tick)), ..Life::default() };
    let named = |uid, name: &str, tick| Pod { name: name.into(), ..pod(uid, created(tick)) };
    told.tell(100, [add(named("renamed", "before", 96))]);
    told.tell(200, [add(named("first", "web", 196))]);
    told.tell(600, [Operation::Remove("first".into())]);
    told.tell(1000, [add(named("renamed", "web", 96))]);
    told.tell(1400, []);
    let web = |tick| told.who(tick, ("default", "web"));
    assert_eq!([150, 400, 800, 1200].map(web), ["NoPod", "first", "NoPod", "renamed"]);
    assert_eq!([400, 1200].map(|tick| told.who(tick, ("default", "before"))), ["renamed", "NoPod"]);
    // An update may also have renamed it twice while nothing was known.
    told.list(1800, []);
    told.hear(2000);
    assert_eq!([1600, 1900].map(|tick| told.who(tick, ("default", "web"))), ["renamed?", "renamed"]);
}

/// In one batch, or later.
#[test]
fn a_pod_that_returns_with_another_name_has_it_from_then_on() {
    for returns_at in [100, 200] {
        let mut told = Told::new();
        let created = Life { created: Some(second(40)), ..Life::default() };
        let named = |name: &str| add(Pod { name: name.into(), ..pod("one", created) });
        told.tell(60, [named("before")]);
        if returns_at == 100 {
            told.tell(100, [Operation::Remove("one".into()), named("after")]);
        } else {
            told.tell(100, [Operation::Remove("one".into())]);
            told.tell(returns_at, [named("after")]);
        }
        told.tell(400, []);
        let after = |tick| told.who(tick, ("default", "after"));
        assert_eq!([70, 300].map(after), ["NoPod", "one"], "{returns_at}");
    }
}

/// The new name is not known since the creation after the step either, and so may be lost and got again in a gap.
#[test]
fn a_step_of_the_wall_clock_makes_no_new_name_an_old_one() {
    let mut told = Told::new();
    let created = Life { created: Some(second(40)), ..Life::default() };
    let named = |name: &str| add(Pod { name: name.into(), ..pod("one", created) });
    told.tell(60, [named("before")]);
    told.tell(100, [named("after")]);
    told.step = 4000;
    told.since = 200;
    told.tell(200, []);
    told.tell(400, []);
    let after = |told: &Told, tick: i64| told.who(tick + 4000, ("default", "after"));
    assert_eq!(after(&told, 300), "one");
    told.list(800, []);
    told.hear(1000);
    assert_eq!([600, 900].map(|tick| after(&told, tick)), ["one?", "one"]);
}

/// Only one removed pod is kept. Of the others, the holds are still known.
#[test]
fn a_forgotten_pod_that_had_a_key_gives_too_early_and_not_nobody() {
    let mut told = Told::of(index(40_000, 1));
    let created = |tick| Life { created: Some(second(tick)), ..Life::default() };
    let named = |uid, tick| add(Pod { name: "web".into(), ..pod(uid, created(tick)) });
    told.tell(400, [named("first", 390)]);
    told.tell(800, [Operation::Remove("first".into())]);
    told.tell(900, [add(Pod { ips: vec![], ..pod("other", created(890)) })]);
    told.tell(1000, [Operation::Remove("other".into())]);
    told.tell(1400, []);
    let name = ("default", "web");
    assert_eq!([told.who(600, ip(7)), told.who(600, name)], ["TooEarly", "TooEarly"], "for certain");
    // Near the bounds of the hold, it is only possible.
    assert_eq!([told.who(400, ip(7)), told.who(400, name)], ["TooEarly", "TooEarly"]);
    assert_eq!(told.who(800, name), "TooEarly");
    assert_eq!([told.who(200, ip(7)), told.who(900, name)], ["NoPod", "NoPod"]);
}

/// A forgotten pod is not listed, but counted.
#[test]
fn an_ambiguous_answer_counts_the_forgotten_pods() {
    let mut told = Told::of(index(40_000, 1));
    let named = |uid| add(Pod { name: "web".into(), ..pod(uid, Life::default()) });
    told.tell(400, [named("first")]);
    told.tell(800, [Operation::Remove("first".into()), named("second")]);
    told.tell(900, [add(Pod { ips: vec![], ..pod("other", Life::default()) })]);
    told.tell(1000, [Operation::Remove("other".into())]);
    told.tell(1400, []);
    let snapshot = told.reader.load();
    let at = snapshot.at(time(790)).skew(span(SKEW)).delay(span(DELAY));
    let Holder::Ambiguous { candidates, more } = at.get(("default", "web")) else {
        panic!("two may have had it")
    };
    assert_eq!((candidates.len(), more), (1, 1));
}

/// The two that are forgotten at once ended too.
#[test]
fn a_set_that_removes_more_pods_than_are_kept_ends_their_holds() {
    let mut told = Told::of(index(40_000, 1));
    let pods = [("a", 1), ("b", 2), ("c", 3)];
    let added = pods.map(|(uid, number)| add(Pod { ips: vec![number], ..pod(uid, Life::default()) }));
    told.tell(400, added);
    told.tell(800, [Operation::Set(vec![])]);
    told.tell(1200, []);
    for (_, number) in pods {
        let snapshot = told.reader.load();
        let at = snapshot.at(time(1000)).skew(span(SKEW)).delay(span(DELAY));
        assert!(!matches!(at.get(ip(number)), Holder::Pod(_)), "a removed pod is not certain to have its IP");
        assert_eq!(told.who(1000, ("default", ["a", "b", "c"][usize::from(number) - 1])), "NoPod");
    }
}

/// A current pod, as far as is known, has not ended. So it is likelier than one that is known to have ended.
#[test]
fn of_two_possible_pods_the_one_that_still_has_the_key_is_the_likelier() {
    let mut told = Told::new();
    told.tell(100, ["stays", "leaves"].map(|uid| add(pod(uid, Life::default()))));
    told.hear(400);
    // Between 380 and 1000, one of them has lost the IP. Of the other, nothing is known since 380.
    let without = Pod { ips: vec![], ..pod("leaves", Life::default()) };
    let _ = told.writer.apply_at(moment(told.start, 1000), [Operation::Upsert(without.into())]);
    assert_eq!(told.who(900, ip(7)), "stays?leaves?");
}

#[test]
fn an_index_that_keeps_no_times_knows_only_what_needs_none() {
    let (writer, reader) = pod_index::new();
    let mut told = Told::of((writer, reader, Instant::now()));
    told.tell(0, [add(pod("one", Life::default()))]);
    told.tell(1000, []);
    assert_eq!((told.who(500, "one"), told.who(500, ip(7))), ("one".into(), "NoTimes".into()));
    assert_eq!(told.who(500, ("default", "one")), "NoTimes");
    assert_eq!((told.known(), told.is_settled(500)), (None, true));
}

#[test]
fn what_ended_before_the_coverage_is_unknown() {
    let (writer, reader, start) = index(40_000, 100);
    let mut told = Told { writer, reader, start, since: 400, step: 0 };
    told.tell(400, []);
    told.tell(800, []);
    assert_eq!([200, 600].map(|tick| told.who(tick, ip(7))), ["TooEarly", "NoPod"]);
}

/// An hour forward, and back. The pods' own times are of the clock that was set.
#[test]
fn after_a_step_of_the_wall_clock_the_past_begins_anew() {
    const HOUR: i64 = 3600 * TICKS;
    let ran = |by| Life { ip_by: Some(time(by)), ip_not_before: Some(time(by - 20)), ..Life::default() };
    for step in [HOUR, -HOUR] {
        let mut told = Told::new();
        told.tell(100, [add(pod("stays", ran(90)))]);
        told.tell(400, [add(Pod { ips: vec![8], ..pod("goes", ran(390)) })]);
        told.tell(800, [Operation::Remove("goes".into())]);
        told.hear(900);
        assert_eq!([told.who(600, ip(7)), told.who(600, ip(8))], ["stays", "goes"]);

        told.step = step;
        // The list was made before.
        told.tell(1000, [add(Pod { ips: vec![9], ..pod("new", ran(970)) })]);
        told.tell(1400, []);
        assert_eq!(told.known().map(|known| known.since), Some(time(1000 + step)));
        for tick in [600, 980] {
            assert_eq!(told.who(tick + step, ip(7)), "TooEarly", "the step came after it");
        }
        // Before the step, or after everything that is known.
        assert_ne!(told.who(600, ip(7)), "stays");
        assert_eq!(told.who(1200 + step, ip(7)), "stays");
        assert_eq!(told.who(1200 + step, ip(9)), "new");
        assert_eq!(told.who(1200 + step, ip(8)), "NoPod");

        told.step = 0;
        told.tell(1800, []);
        told.tell(2200, []);
        assert_eq!(told.who(1500, ip(7)), "TooEarly");
        assert_eq!(told.who(2000, ip(7)), "stays");
        assert_eq!(told.known(), Some(Coverage { since: time(1800), until: time(2180) }));
    }
}

/// Its end, of the clock that was ahead, seems to be yet to come.
#[test]
fn the_end_of_a_pod_by_a_clock_that_was_ahead_is_not_believed() {
    let mut told = Told::new();
    told.step = 4000;
    told.hear(0);
    let over = Life {
        ip_not_before: Some(time(4380)),
        may_lack_sandbox: true,
        ip_until: Some(time(4490)),
        ..Life::default()
    };
    told.tell(400, [add(pod("web", over))]);
    told.step = 0;
    told.tell(500, []);
    told.tell(6000, []);
    assert_ne!(told.who(3000, ip(7)), "web");
}

#[test]
fn a_smaller_step_is_within_the_skew() {
    let mut told = Told::new();
    told.tell(100, [add(pod("web", Life::default()))]);
    told.step = TICKS;
    told.tell(400, []);
    assert_eq!(told.who(300, ip(7)), "web");
}

#[test]
fn a_coverage_of_another_clock_is_not_believed() {
    let seconds = |tick| time(tick);
    let cases = [
        // Since, until, and what is known: at the tick 400.
        ((0, 400), Some((0, 400))),
        ((0, 402), Some((0, 400))),
        ((401, 402), Some((400, 400))),
        ((0, 410), None),
        ((200, 100), None),
        ((410, 400), None),
    ];
    for ((since, until), expected) in cases {
        let (mut writer, reader, start) = index(40_000, 100);
        writer.advance(moment(start, 400).covering(time(since), time(until)));
        let known = reader.load().at(time(0)).delay(Duration::ZERO).known();
        let expected =
            expected.map(|(since, until)| Coverage { since: seconds(since), until: seconds(until) });
        assert_eq!(known, expected, "{since} {until}");
    }
}

#[test]
fn the_end_of_what_is_covered_does_not_go_back() {
    let mut told = Told::new();
    told.hear(400);
    told.hear(300);
    assert_eq!(told.known(), Some(Coverage { since: time(0), until: time(380) }));
    // A part of it is taken back.
    told.tell(420, [add(pod("web", Life::default()))]);
    told.since = 430;
    told.hear(440);
    assert_eq!(told.known(), Some(Coverage { since: time(430), until: time(420) }));
}

/// The writer moves the end of the coverage on in the snapshot that a reader has. An answer, what is known of its time and
/// whether it is settled are of one moment nevertheless, and so are all answers of a batch.
#[test]
fn an_answer_and_what_is_known_of_its_time_rest_on_one_coverage() {
    let mut told = Told::new();
    told.tell(100, [add(pod("web", Life::default()))]);
    let asked = 400;
    told.hear(asked);
    let snapshot = told.reader.load();
    let then = snapshot.at(time(asked)).skew(span(SKEW)).delay(span(DELAY)).fixed();
    let tolerance = Tolerance { skew: span(SKEW), delay: span(DELAY) };
    let events = [7, 7, 8].map(|of| Event { key: ip(of).into(), at: Some(time(asked)) });
    let mut batch = snapshot.get_many_at(events, tolerance);
    assert!(matches!(batch.next(), Some(Holder::Ambiguous { .. })));

    told.hear(asked + 1000);
    let later = told.reader.load();
    assert_eq!(later.generation(), snapshot.generation(), "nothing was published");
    assert!(matches!(then.get(ip(7)), Holder::Ambiguous { .. }));
    assert!(matches!(then.get(ip(8)), Holder::Unknown(NotFound::TooLate)));
    let known = Coverage { since: time(0), until: time(asked - DELAY) };
    assert_eq!((then.known(), then.is_settled()), (Some(known), false));
    assert!(matches!(batch.next(), Some(Holder::Ambiguous { .. })));
    assert!(matches!(batch.next(), Some(Holder::Unknown(NotFound::TooLate))));
    // Asked anew.
    assert_eq!([7, 8].map(|of| told.who(asked, ip(of))), ["web", "NoPod"]);
}
