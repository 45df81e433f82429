//! The cases of OpenTelemetry's `k8sattributes` processor.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::Operation;
use pod_index_kubelet::records::{Associated, Change, Join, Record, Resource, Rules, Value as Attached};
use pod_index_kubelet::sources::SourceUpdate;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct File {
    pods: BTreeMap<String, Pod>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    test: String,
    name: String,
    pod: String,
    extract: Value,
    #[serde(default)]
    conventions: Option<String>,
    /// Added to the pod's.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owners: Vec<ObjectMeta>,
    #[serde(default)]
    namespaces: Vec<ObjectMeta>,
    #[serde(default)]
    nodes: Vec<ObjectMeta>,
    /// `None`: by UID, by IP, by `host.name`.
    association: Option<Value>,
    #[serde(default)]
    default_association: bool,
    resource: BTreeMap<String, String>,
    connection: Option<IpAddr>,
    expect: BTreeMap<String, Value>,
    differs: Option<String>,
    ours: Option<BTreeMap<String, Value>>,
    refused: Option<String>,
}

impl Resource for Case {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.resource.get(name).map(String::as_str)
    }

    fn connection(&self) -> Option<IpAddr> {
        self.connection
    }
}

impl Case {
    /// What is added to the resource: what it does not have, or has empty.
    fn added(&self, pod: Pod) -> Result<BTreeMap<String, Value>, String> {
        let by = |name: &str| json!({ "sources": [{ "from": "resource_attribute", "name": name }] });
        let association = self.association.clone();
        let association =
            association.unwrap_or_else(|| json!([by("k8s.pod.uid"), by("k8s.pod.ip"), by("host.name")]));
        let mut rules = json!({ "extract": self.extract });
        if !self.default_association {
            rules["pod_association"] = association;
        }
        if let Some(conventions) = &self.conventions {
            rules["conventions"] = json!(conventions);
        }
        let rules = Rules::parse(&rules.to_string()).map_err(|error| error.to_string())?;
        let mut pod = pod;
        pod.metadata.labels.get_or_insert_default().extend(self.labels.clone());
        pod.metadata.annotations.get_or_insert_default().extend(self.annotations.clone());
        let (mut writer, reader) = pod_index::new::<Record>();
        let mut join = Join::new(rules.extract);
        let set = |objects: &[ObjectMeta]| SourceUpdate::Set(objects.iter().cloned().map(Arc::new).collect());
        let applied = join.write(
            &mut writer,
            [
                Change::Pod(Operation::Upsert(pod.into())),
                Change::Owners(set(&self.owners)),
                Change::Namespaces(set(&self.namespaces)),
                Change::Nodes(set(&self.nodes)),
            ],
        );
        assert!(applied.refused.is_empty(), "{:?}", applied.refused);
        let snapshot = reader.load();
        let found = rules.associations.find(&snapshot, self);
        let Some(attributes) = found.attributes() else {
            assert!(matches!(found, Associated::Missing));
            return Ok(BTreeMap::new());
        };
        let mut added = BTreeMap::new();
        for attribute in attributes {
            let value = match &attribute.value {
                Attached::Text(text) => json!(**text),
                Attached::Texts(texts) => texts.iter().map(|text| json!(**text)).collect(),
                _ => unreachable!("there is no other kind"),
            };
            let is_there = self.resource.get(&*attribute.name).is_some_and(|value| !value.is_empty());
            let before = if is_there { None } else { added.insert(attribute.name.to_string(), value) };
            assert!(before.is_none(), "{attribute} occurs twice");
        }
        Ok(added)
    }
}

#[test]
fn the_attributes_are_those_of_the_processor() {
    let file: File = serde_json::from_str(include_str!("k8sattributes.json")).unwrap();
    let (mut equal, mut different, mut wrong) = (0, Vec::new(), Vec::new());
    for case in &file.cases {
        let added = case.added(file.pods[&case.pod].clone());
        let expected = Ok(case.expect.clone());
        let is_as_said = match (&case.differs, &case.refused) {
            (None, None) => added == expected,
            (Some(_), Some(refused)) => added.as_ref().is_err_and(|error| error.contains(&**refused)),
            (Some(_), None) => added.as_ref().ok() == case.ours.as_ref() && added != expected,
            (None, Some(_)) => false,
        };
        match &case.differs {
            _ if !is_as_said => {
                wrong.push(format!("{} {}: {added:?}, not {expected:?}", case.test, case.name));
            }
            None => equal += 1,
            Some(why) => different.push(format!("{} {}: {why}", case.test, case.name)),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((file.cases.len(), equal, different.len()), (144, 137, 7), "{different:#?}");
}
