//! The current time in the format of annotations.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;

/// Now in UTC, as RFC 3339, with a fraction of a second if there is one.
///
/// Kubelet: `NewTimestamp().GetString()` (`pkg/kubelet/types/types.go`).
pub(super) fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or_default();
    let nanoseconds = i32::try_from(now.subsec_nanos()).unwrap_or_default();
    Timestamp::new(seconds, nanoseconds).unwrap_or_default().to_string()
}
