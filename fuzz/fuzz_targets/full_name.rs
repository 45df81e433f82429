//! Any string as a full name and as a UID: what parses keeps its spelling, what does not parse is not found,
//! and the UID types distinguish all spellings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pod_index::{FullName, MirrorPodUid, PodMeta, PodUid, ResolvedPodUid, UidRef};

struct Slim<'a>(&'a str, &'a str, &'a str);

impl PodMeta for Slim<'_> {
    fn uid(&self) -> &str {
        self.0
    }
    fn name(&self) -> &str {
        self.1
    }
    fn namespace(&self) -> &str {
        self.2
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
}

fuzz_target!(|text: (&str, &str, &str)| {
    let (text, other, third) = text;
    let parts: Vec<_> = text.split('_').collect();
    match text.parse::<FullName>() {
        Ok(full_name) => {
            assert_eq!([full_name.name(), full_name.namespace()], parts[..]);
            assert!(parts.iter().all(|part| !part.is_empty()));
            assert_eq!(full_name, text);
            assert_eq!(FullName::new(parts[1], parts[0]).expect("good parts"), full_name);
        }
        Err(error) => {
            assert!(parts.len() != 2 || parts.contains(&""), "{error}");
        }
    }

    for (one, another) in [(text, other), (other, third), (text, text)] {
        let (left, right) = (PodUid::from(one), PodUid::from(another));
        assert_eq!(left.to_string(), one);
        assert_eq!(left == right, one == another);
        assert_eq!(left.cmp(&right), one.cmp(another));
        assert_eq!(UidRef::from(one) == UidRef::from(another), one == another);
        assert_eq!(MirrorPodUid::from(one), one);
        assert_eq!(PodUid::from(ResolvedPodUid::from(one)), left);
    }

    let (mut writer, reader) = pod_index::new();
    let good = ![text, other, third].contains(&"") && !other.contains('_') && !third.contains('_');
    let added = writer.upsert_pod(Slim(text, other, third));
    assert_eq!(added.is_ok(), good);
    let snapshot = reader.load();
    assert_eq!(snapshot.pod_by_uid(text).is_some(), good);
    assert_eq!(snapshot.pod_by_name(third, other).is_some(), good);
    assert_eq!(snapshot.pod_by_full_name(&format!("{other}_{third}")).is_some(), good);
    assert_eq!(snapshot.translate_pod_uid(other), other);
});
