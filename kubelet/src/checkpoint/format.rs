//! File names and file content of checkpoints. Pure: no file is touched here.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;

use super::{RESTORED_ANNOTATION, is_restored};
use crate::fnv::{fnv1a_64, fnv1a_128};
use crate::memory::{self, Bounded};
use pod_index::PodMeta;

const HEADER: &str = "# pod-index checkpoint ";
const VERSION: u32 = 1;
const PREFIX: &str = "Pod_";
const SUFFIX: &str = ".yaml";
/// The longest UID that fits into a file name as hex digits, with space for `.unusable.99`. The name of a
/// longer UID is a hash.
const LONGEST_UID: usize = 110;
/// What is wrong with the beginning of a file.
const CUT: &str = "it was cut off";

/// The file name for a pod. Any UID has one.
pub(super) fn file_name(uid: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if uid.len() > LONGEST_UID {
        return format!("{PREFIX}%%{:032x}{SUFFIX}", fnv1a_128(&[uid.as_bytes()]));
    }
    if uid.bytes().all(plain) {
        return format!("{PREFIX}{uid}{SUFFIX}");
    }
    let digits = uid.bytes().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    format!("{PREFIX}%{digits}{SUFFIX}")
}

/// Whether a file of this name counts as a checkpoint.
pub(super) fn is_file_name(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// The JSON of a pod's file.
pub(super) fn json(pod: &Pod) -> Result<Vec<u8>, serde_json::Error> {
    let mut pod = Cow::Borrowed(pod);
    if is_restored(&*pod) {
        pod.to_mut().metadata.annotations.as_mut().map(|annotations| annotations.remove(RESTORED_ANNOTATION));
    }
    serde_json::to_vec(&*pod)
}

/// The file content for this JSON. Its checksum finds what a disk or an editor has damaged, not what was forged.
pub(super) fn sealed(json: &[u8]) -> Vec<u8> {
    let header = format!("{HEADER}{VERSION} {:016x}\n", fnv1a_64(json));
    [header.as_bytes(), json, b"\n"].concat()
}

/// The JSON in a file, or why it cannot be used.
pub(super) fn unsealed(bytes: &[u8]) -> Result<&[u8], String> {
    let header = HEADER.as_bytes();
    let Some(rest) = bytes.strip_prefix(header) else {
        let is_cut = header.starts_with(bytes);
        return Err(if is_cut { CUT } else { "it is not a checkpoint of this program" }.to_owned());
    };
    let mut lines = rest.splitn(2, |byte| *byte == b'\n');
    let line = lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    let (version, hash) = line.split_once(' ').ok_or(CUT)?;
    match version.parse::<u32>() {
        Ok(VERSION) => {}
        Ok(newer) if newer > VERSION => {
            return Err(format!("it is of version {newer}, and this program knows {VERSION} only"));
        }
        _ => return Err("its first line is damaged".to_owned()),
    }
    let body = lines.next().unwrap_or_default();
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    if hash != format!("{:016x}", fnv1a_64(body)) {
        return Err("its bytes are not those that were written".to_owned());
    }
    Ok(body)
}

/// The pod in a file of this name, and its JSON; or why it cannot be used. A pod that takes too much memory lacks parts.
pub(super) fn decode<'a>(name: &str, bytes: &'a [u8]) -> Result<(Pod, Cow<'a, [u8]>), String> {
    let body = unsealed(bytes)?;
    // The decoder's error is left out: it may quote a value.
    let Bounded { object: pod, reduced } =
        memory::decode_within::<Pod>(memory::LIMIT_RESTORED, body).map_err(|_| "it holds no pod")?;
    if pod.uid().is_empty() {
        return Err("its pod has no UID".to_owned());
    }
    if file_name(pod.uid()) != name {
        return Err("it holds a pod of another UID than its name says".to_owned());
    }
    // As if the file had only what is left of it: it is not written until the pod has changed.
    let written = reduced.and_then(|_| json(&pod).ok()).map_or(Cow::Borrowed(body), Cow::Owned);
    Ok((pod, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some("web".to_owned());
        pod.metadata.namespace = Some("default".to_owned());
        pod.metadata.annotations = Some([("a".to_owned(), "b\nc".to_owned())].into());
        pod
    }

    #[test]
    fn a_pod_is_decoded_as_it_was_encoded_without_the_mark() {
        let mut marked = pod("u1");
        let written = json(&marked).unwrap();
        let bytes = sealed(&written);
        assert_eq!(decode("Pod_u1.yaml", &bytes).unwrap(), (pod("u1"), Cow::Borrowed(&*written)));
        marked
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert(RESTORED_ANNOTATION.to_owned(), "true".to_owned());
        assert_eq!(json(&marked).unwrap(), written, "a restored pod equals the original");
    }

    #[test]
    fn files_cut_off_at_any_byte_or_with_any_byte_changed_are_rejected() {
        let bytes = sealed(&json(&pod("u1")).unwrap());
        for end in 0..bytes.len() - 1 {
            let error = decode("Pod_u1.yaml", &bytes[..end]).unwrap_err();
            assert!([CUT, "its bytes are not those that were written"].contains(&&*error), "{end}: {error}");
        }
        assert!(
            decode("Pod_u1.yaml", &bytes[..bytes.len() - 1]).is_ok(),
            "only the last line's end is missing"
        );
        for at in 0..bytes.len() - 1 {
            for flip in [1, 0x20, 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                assert!(decode("Pod_u1.yaml", &damaged).is_err(), "byte {at} changed by {flip:#x}");
            }
        }
    }

    #[test]
    fn foreign_files_and_files_of_newer_versions_are_recognized() {
        let bytes = sealed(&json(&pod("u1")).unwrap());
        let foreign = "it is not a checkpoint of this program";
        for (name, bytes, message) in [
            ("Pod_u2.yaml", &*bytes, "it holds a pod of another UID than its name says"),
            ("Pod_u1.yaml", b"{\"Data\":{\"Pod\":{}},\"Checksum\":1}", foreign),
            ("Pod_u1.yaml", b"\0\0\0\0", foreign),
            ("Pod_u1.yaml", b"apiVersion: v1\nkind: Pod\n", foreign),
            ("Pod_u1.yaml", b"#", CUT),
            (
                "Pod_u1.yaml",
                b"# pod-index checkpoint 2 sha256:0\n{}\n",
                "it is of version 2, and this program knows 1 only",
            ),
            ("Pod_u1.yaml", b"# pod-index checkpoint x y\n{}\n", "its first line is damaged"),
        ] {
            assert_eq!(decode(name, bytes).unwrap_err(), message);
        }
    }

    #[test]
    fn no_uid_escapes_the_directory_and_no_two_share_a_name() {
        assert_eq!(file_name("0f1e-2d"), "Pod_0f1e-2d.yaml");
        let odd = ["../../etc/passwd", "a/b", "a.b", "%61", "A b", "ä", "\0", ".", "%"];
        let long = ["u".repeat(111), "ä".repeat(56), "ä".repeat(55), "../".repeat(5000), "u".repeat(112)];
        let names: std::collections::BTreeSet<_> =
            odd.into_iter().chain(long.iter().map(String::as_str)).map(file_name).collect();
        assert_eq!(names.len(), odd.len() + long.len());
        for name in &names {
            assert!(
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_%.".contains(&byte)),
                "{name}"
            );
            assert!(name.len() < 240 && is_file_name(name));
        }
    }

    #[test]
    fn a_pod_with_a_uid_of_any_length_is_restored_and_one_without_is_not() {
        for uid in ["u".repeat(110), "u".repeat(111), "u".repeat(100_000)] {
            let bytes = sealed(&json(&pod(&uid)).unwrap());
            assert_eq!(decode(&file_name(&uid), &bytes).unwrap().0, pod(&uid));
        }
        let bytes = sealed(&json(&pod("")).unwrap());
        assert_eq!(decode(&file_name(""), &bytes).unwrap_err(), "its pod has no UID");
    }
}
