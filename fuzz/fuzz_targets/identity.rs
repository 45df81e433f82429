//! Any bytes as an event's identity: no parser panics, and every result is part of the input and is found
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pod_index::identity::{Cgroup, ContainerId, ContainerLog, Identity, PodLog};

fuzz_target!(|bytes: &[u8]| {
    if let Some(cgroup) = Cgroup::from_proc(bytes) {
        found(&cgroup, &String::from_utf8_lossy(bytes));
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Some(cgroup) = Cgroup::from_path(text) {
        found(&cgroup, text);
        assert!(!text.contains('\0'));
    }
    if let Ok(id) = text.parse::<ContainerId>() {
        assert!(text.contains(&id.to_string()));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(matches!(Identity::parse(text), Ok(Identity::ContainerId(again)) if again == id));
    }
    if let Some(log) = PodLog::from_path(text) {
        let PodLog { namespace, name, pod_uid, container, attempt, .. } = log;
        let again = format!("/{namespace}_{name}_{pod_uid}/{container}/{attempt}.log");
        assert_eq!(PodLog::from_path(&again), Some(log));
    }
    if let Some(log) = ContainerLog::from_path(text) {
        assert!(!log.name.is_empty() && text.contains(log.name));
        if let (Some(namespace), Some(container), Some(id)) = (log.namespace, log.container, log.container_id) {
            let again = format!("{}_{namespace}_{container}-{id}.log", log.name);
            assert_eq!(ContainerLog::from_path(&again), Some(log));
        }
    }
    if let Ok(identity) = Identity::parse(text) {
        assert_eq!(Identity::parse_lenient(text), Ok(identity));
    }
    match Identity::parse_lenient(text) {
        Ok(Identity::Uid(uid)) => assert_eq!(uid.to_string(), text.trim_ascii()),
        Ok(Identity::Name { namespace, name }) => {
            assert!(!namespace.is_empty() && !name.is_empty());
            let again = format!("{namespace}/{name}");
            assert_eq!(Identity::parse_lenient(&again), Ok(Identity::Name { namespace, name }));
        }
        Ok(Identity::Pid(pid)) => assert_eq!(pid.to_string(), text.trim_ascii()),
        Ok(Identity::Cgroup(cgroup)) => found(&cgroup, text),
        Ok(_) | Err(_) => {}
    }
});

fn found(cgroup: &Cgroup, text: &str) {
    assert!(cgroup.pod_uid.is_some() || cgroup.container_id.is_some());
    if let Some(uid) = &cgroup.pod_uid {
        assert!(!uid.to_string().is_empty());
        assert!(text.replace('_', "-").contains(&uid.to_string().replace('_', "-")));
    }
    if let Some(id) = cgroup.container_id {
        assert!(text.contains(&id.to_string()));
    }
}
