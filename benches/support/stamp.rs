//! Time stamps that wait for the timed work.

use quanta::Clock;

/// The processor's time stamp, read after everything before it is done and before anything after it starts.
///
/// A plain stamp does not wait for pending loads, so it does not measure a lookup that misses the caches.
#[inline]
#[must_use]
pub fn ordered(clock: &Clock) -> u64 {
    fence();
    let stamp = clock.raw();
    fence();
    stamp
}

#[inline]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: needs SSE2, which every x86-64 processor has.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
