//! Which field of a JSON text a decoder has failed at: `spec.containers[0].image`.
//!
//! Why not by the crate `serde_path_to_error`? It decodes with a decoder of its own, so that the program holds a second copy of
//! the code that decodes each type: of Kubernetes' types, these copies were a tenth of the agent's binary. The decoder says the
//! line and the column of an error, and where that is, the text alone tells.

use std::fmt::Write;

/// How deep `serde_json` decodes into types. Below it, values are skipped.
const DEEPEST: usize = 128;

/// A list or a mapping that is open at a place.
enum Open<'a> {
    /// With the index of the item.
    List(usize),
    /// With the key of the value, in its quotes. `None` where a mapping has a key and not yet its value.
    Mapping(Option<&'a [u8]>),
}

/// The path of the value at which decoding failed; empty if it is the whole text.
///
/// The decoder stops behind a value that does not fit, unless it is a list or a mapping: before most of these, it has only
/// looked at the bracket.
///
/// # Complexity
/// O(bytes up to the error). At most 128 steps are kept.
pub(super) fn of_error(json: &[u8], error: &serde_json::Error) -> String {
    let read = &json[..place(json, error)];
    let mut open = open_at(read);
    // A list where an object should be: its bracket was read.
    let is_list = error.to_string().starts_with("invalid type: sequence");
    if is_list && read.trim_ascii_end().ends_with(b"[") && json.get(read.len()) != Some(&b'[') {
        open.pop();
    }
    spelled(&open)
}

/// How many bytes the decoder had read.
fn place(json: &[u8], error: &serde_json::Error) -> usize {
    let mut lines = json.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.by_ref().take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    json.len().min(before + error.column())
}

/// What is open at the end of the beginning of a text.
fn open_at(read: &[u8]) -> Vec<Open<'_>> {
    let mut open = Vec::new();
    // Of lists and mappings that are open beyond the deepest, only the number is known.
    let mut deeper = 0_usize;
    let mut text = None;
    let mut at = 0;
    while let Some(byte) = read.get(at) {
        match byte {
            b'"' => {
                let end = end_of_text(read, at);
                text = Some(&read[at..end]);
                at = end;
                continue;
            }
            b'[' | b'{' if open.len() == DEEPEST => deeper += 1,
            b'[' => open.push(Open::List(0)),
            b'{' => open.push(Open::Mapping(None)),
            b']' | b'}' if deeper > 0 => deeper -= 1,
            b']' | b'}' => _ = open.pop(),
            b':' | b',' if deeper > 0 => {}
            b':' => {
                // In a text that is no JSON, a second colon must not make a key of a value: paths are logged.
                if let Some(Open::Mapping(key @ None)) = open.last_mut() {
                    *key = text;
                }
            }
            b',' => match open.last_mut() {
                Some(Open::List(index)) => *index += 1,
                Some(Open::Mapping(key)) => *key = None,
                None => {}
            },
            _ => {}
        }
        at += 1;
    }
    open
}

/// Where the text ends that begins with the quotation mark at this place.
fn end_of_text(read: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = read.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    read.len()
}

fn spelled(open: &[Open<'_>]) -> String {
    let mut path = String::new();
    for open in open {
        match open {
            // Cannot fail, as it is written to a string.
            Open::List(index) => _ = write!(path, "[{index}]"),
            Open::Mapping(None) => {}
            Open::Mapping(Some(key)) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&serde_json::from_slice::<String>(key).unwrap_or_default());
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::Pod;
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    /// The path by the crate that decodes once more, if this text is not a `K`.
    fn expected<'de, K: Deserialize<'de>>(json: &'de [u8]) -> Option<String> {
        let decoded: Result<K, _> =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json));
        let path = decoded.err()?.path().to_string();
        Some(if path == "." { String::new() } else { path })
    }

    /// Compares the paths. Returns whether there was an error.
    fn compare<'de, K: Deserialize<'de>>(json: &'de [u8]) -> bool {
        let Some(expected) = expected::<K>(json) else { return false };
        let Err(error) = serde_json::from_slice::<K>(json) else { panic!("only one decoder has failed") };
        assert_eq!(of_error(json, &error), expected, "{error}: {}", String::from_utf8_lossy(json));
        true
    }

    fn pod() -> Value {
        json!({
            "metadata": {
                "name": "web", "uid": "u", "labels": { "a\"b\\c\n": "[{", "app.kubernetes.io/name": "web" },
                "creationTimestamp": "2026-11-27T04:09:00Z", "generation": 7, "finalizers": ["a/b", "c/d"],
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o", "controller": true }],
            },
            "spec": {
                "hostNetwork": true, "unknown": [[{ "a": [1, { "b": [] }] }]],
                "containers": [{ "name": "a" }, {
                    "name": "c", "ports": [{ "containerPort": 80 }, { "containerPort": 81, "hostIP": "::1" }],
                    "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "key": "k" } } }],
                    "livenessProbe": { "httpGet": { "port": "http" }, "periodSeconds": 3 },
                    "resources": { "limits": { "cpu": "1", "memory": 5 } },
                }],
                "volumes": [{ "name": "v", "projected": { "sources": [{ "serviceAccountToken": { "path": "p" } }] } }],
            },
            "status": { "podIPs": [{ "ip": "10.9.8.7" }], "startTime": null, "conditions": [] },
        })
    }

    /// Calls with the text for each value in it, replaced by each of these; and without each field.
    fn each_change(whole: &mut Value, pointer: &str, call: &mut dyn FnMut(&Value)) {
        let here = whole.pointer(pointer).unwrap().clone();
        for other in [
            json!(null),
            json!(true),
            json!(-7),
            json!(1.5),
            json!(1e300),
            json!(""),
            json!("x, expected ["),
            json!([]),
            json!([null]),
            json!(["x"]),
            json!([7, []]),
            json!([{ "a": [] }]),
            json!({}),
            json!({ "a": { "b": [1] } }),
        ] {
            *whole.pointer_mut(pointer).unwrap() = other;
            call(whole);
        }
        *whole.pointer_mut(pointer).unwrap() = here.clone();
        match &here {
            Value::Object(fields) => {
                for name in fields.keys() {
                    whole.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name);
                    call(whole);
                    *whole.pointer_mut(pointer).unwrap() = here.clone();
                    let name = name.replace('~', "~0").replace('/', "~1");
                    each_change(whole, &format!("{pointer}/{name}"), call);
                }
            }
            Value::Array(items) => {
                for index in 0..items.len() {
                    each_change(whole, &format!("{pointer}/{index}"), call);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn the_path_is_that_of_a_decoder_that_follows_it() {
        let mut texts = 0;
        let mut errors = 0;
        each_change(&mut pod(), "", &mut |pod| {
            for json in [serde_json::to_vec(pod).unwrap(), serde_json::to_vec_pretty(pod).unwrap()] {
                texts += 1;
                errors += usize::from(compare::<Pod>(&json));
            }
        });
        assert!(errors > 1000, "{errors} errors in {texts} texts");
    }

    #[test]
    fn other_types_have_paths_too() {
        #[derive(Deserialize)]
        #[allow(dead_code, reason = "only its errors are of interest")]
        struct Typed {
            lists: Vec<Vec<u8>>,
            #[serde(default)]
            maps: BTreeMap<String, BTreeMap<u8, Option<u8>>>,
        }
        for json in [
            r#"{"lists": [[], [1, 2, 300]]}"#,
            r#"{"lists": [[], [1, [2]]]}"#,
            r#"{"lists": [[1], {}]}"#,
            r#"{"lists": [[1], "]]"]}"#,
            r#"{"lists": 7}"#,
            r#"{"maps": {"a": {"1": null}}, "other": "}"}"#,
            r#"{"maps": {"a\u0041\\": {"1": null, "2": -1}}}"#,
            r#"{"lists": [], "maps": {"a": {"1": null}, "b": []}}"#,
            "7",
            "\n\n[\n\n]",
        ] {
            assert!(compare::<Typed>(json.as_bytes()), "{json}");
        }
    }

    /// Here, the other decoder has no path.
    #[test]
    fn a_value_that_its_type_refuses_afterwards_has_a_path_too() {
        let json = br#"{"kind": "Pod", "apiVersion": "v2", "spec": {}}"#;
        assert_eq!(of_error(json, &serde_json::from_slice::<Pod>(json).unwrap_err()), "apiVersion");
    }

    #[test]
    fn no_value_becomes_a_key() {
        let json = br#"{"data": {"password": "hunter2": 1}}"#;
        let error = serde_json::from_slice::<BTreeMap<String, BTreeMap<String, String>>>(json).unwrap_err();
        assert_eq!(of_error(json, &error), "data.password");
    }

    #[test]
    fn skipped_values_may_be_deep() {
        let deep = format!("{}{}", "[{\"a\":".repeat(5_000), "}]".repeat(5_000)).replace(":}", ":[1,2]}");
        let json = format!(r#"{{"unknown":{deep},"spec":{{"x":{deep},"containers":[{{}},{{"name":7}}]}}}}"#);
        assert!(compare::<Pod>(json.as_bytes()));
    }
}
