//! Checkpoints of an index of records.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{from_value, json};

use super::*;
use crate::records::{Change, Extract, Join, Record};
use crate::sources::SourceUpdate;

#[test]
fn a_relabelled_namespace_is_no_reason_to_look_at_the_checkpoints_of_its_pods() {
    let pod = pod("a", 1, true);
    let namespace = |label: &str| {
        let object = json!({ "name": pod.namespace(), "uid": "n", "labels": { "team": label } });
        Change::Namespaces(SourceUpdate::Set(vec![Arc::new(from_value::<ObjectMeta>(object).unwrap())]))
    };
    let (mut writer, reader) = pod_index::new::<Record>();
    let mut join = Join::new(Extract::none());
    let disk = FakeDisk::new(&Arc::default(), |_| Ok(()));
    let mut keeper = Keeper::<_, Record>::new(disk, Which::All);
    let first = [namespace("a"), Change::Pod(Operation::Upsert(pod.clone()))];
    assert!(join.write(&mut writer, first).published);
    assert_eq!(keeper.pass(reader.snapshot(), false), []);
    assert_eq!((keeper.status().files, keeper.status().written), (1, 1));

    assert!(join.write(&mut writer, [namespace("b")]).published);
    let now = reader.snapshot();
    assert_eq!(
        now.pod_by_uid("a").unwrap().namespace_object().unwrap().labels.as_ref().unwrap()["team"],
        "b"
    );
    assert!(keeper.touched(&now, false).is_empty());
    assert_eq!(keeper.pass(now, false), []);
    assert_eq!((keeper.status().files, keeper.status().written), (1, 1));

    // Another version of the pod itself.
    let again = Arc::new(Pod::clone(&pod));
    assert!(join.write(&mut writer, [Change::Pod(Operation::Upsert(again))]).published);
    assert_eq!(keeper.touched(&reader.load(), false).len(), 1);
}
