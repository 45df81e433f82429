//! Any bytes as a pod in protobuf: no panic, the same result twice, bounded memory, and what is decoded survives being encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pod_index_kubelet::protobuf::{decode_pod, encode_pod};

fuzz_target!(|data: &[u8]| {
    let decoded = decode_pod(data);
    assert_eq!(decoded, decode_pod(data), "the same bytes, the same pod");
    match decoded {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(decoded) => {
            // Once zeros that JSON omits are gone, nothing changes any more.
            let once = decode_pod(&encode_pod(&decoded.pod)).expect("a pod");
            let twice = decode_pod(&encode_pod(&once.pod)).expect("a pod");
            assert_eq!(once, twice);
        }
    }
});
