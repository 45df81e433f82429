//! What a pod's object says about the times at which it held its keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A wall-clock time, in nanoseconds since 1970.
///
/// # Examples
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use pod_index::Time;
///
/// let time = Time::from_seconds(1_700_000_000);
/// assert_eq!(SystemTime::from(time), SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
/// assert_eq!(Time::from(SystemTime::from(time)), time);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(pub(crate) i64);

impl Time {
    /// In the year 1823. A few spans can be added to any time without an overflow.
    pub(crate) const MIN: Self = Self(-(1 << 62));
    /// In the year 2116.
    pub(crate) const MAX: Self = Self(1 << 62);

    /// The present, by the machine's wall clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// From nanoseconds since 1970, within the years 1824 to 2116.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        if nanos < Self::MIN.0 {
            Self::MIN
        } else if nanos > Self::MAX.0 {
            Self::MAX
        } else {
            Self(nanos)
        }
    }

    /// From whole seconds since 1970, within the years 1824 to 2116.
    #[inline]
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self::from_nanos(seconds.saturating_mul(1_000_000_000))
    }

    /// In nanoseconds since 1970.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// This many nanoseconds later, possibly beyond the last time.
    #[inline]
    pub(crate) const fn plus(self, nanos: i64) -> Self {
        Self(self.0.wrapping_add(nanos))
    }

    /// A later time, at most the last one.
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self::from_nanos(self.0 + nanos(span))
    }
}

/// At most 18 years.
#[expect(clippy::cast_possible_truncation, reason = "compared before")]
pub(crate) const fn nanos(span: Duration) -> i64 {
    let nanos = span.as_nanos();
    if nanos < 1 << 59 { nanos as i64 } else { 1 << 59 }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        let clamped = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self::from_nanos(clamped(since)),
            Err(before) => Self::from_nanos(-clamped(before.duration())),
        }
    }
}

impl From<Time> for SystemTime {
    fn from(Time(nanos): Time) -> Self {
        let span = Duration::from_nanos(nanos.unsigned_abs());
        let time = if nanos < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
        time.unwrap_or(UNIX_EPOCH)
    }
}

/// What a pod's object says about the times at which it held its IPs and its name. See [`PodMeta::life`](crate::PodMeta::life).
///
/// What is `None` is not known. All times but the first are of the node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Life {
    /// `metadata.creationTimestamp`: the API server's clock, in whole seconds.
    pub created: Option<Time>,
    /// The pod did not have its IPs before this time.
    pub ip_not_before: Option<Time>,
    /// The pod has had its present IPs since this time at the latest.
    pub ip_by: Option<Time>,
    /// None of its containers runs, and its sandbox may be gone: its IPs may be another pod's, although its object still
    /// has them. If this becomes false again, it may have got the same IP a second time.
    pub may_lack_sandbox: bool,
    /// If it may lack its sandbox, it had its IPs at least until this time; without a break since
    /// [`ip_by`](Self::ip_by), if that is said too.
    pub ip_until: Option<Time>,
}
