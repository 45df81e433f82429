//! Runs a piece of work one instruction at a time, and lets another thread act between two chosen instructions.
//!
//! A race of two threads needs one of them to stop between two given instructions. A scheduler does that perhaps once in an
//! hour, a profiler's timer once in a minute. Here the processor's trap flag stops the work before *each* instruction, so
//! that a test can try every place, and its verdict depends neither on time nor on chance. x86-64 Linux only.

use std::arch::asm;
use std::io::{Read, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::libc;

/// Where the work is stopped: before the instructions with these numbers. At each, the other thread does its next part.
pub(crate) type Stops = [usize; 2];

/// Of the piece of work that runs: the signal's handler has no arguments of ours.
static STOPS: [AtomicUsize; 2] = [const { AtomicUsize::new(NEVER) }; 2];
static INSTRUCTIONS: AtomicUsize = AtomicUsize::new(0);
static OTHER_THREAD: AtomicI32 = AtomicI32::new(-1);
/// One piece of work at a time.
static RUNNING: Mutex<()> = Mutex::new(());

const NEVER: usize = usize::MAX;
/// The trap flag, among the processor's flags.
const TRAP: i32 = 1 << 8;

/// The result of `work`, and its number of instructions up to the second stop. `parts` runs on another thread, with the number of each stop.
///
/// # Panics
/// If `work` or `parts` does.
pub(crate) fn with_stops<T>(
    stops: Stops,
    work: impl FnOnce() -> T,
    mut parts: impl FnMut(u8) + Send,
) -> (T, usize) {
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let (here, mut there) = UnixStream::pair().expect("two ends");
    // SAFETY: the handler does only what a handler may do.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = before_an_instruction as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()), 0);
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut part = [0];
            // Until the other end is closed.
            while there.read(&mut part).expect("a pipe") == 1 {
                parts(part[0]);
                there.write_all(&part).expect("a pipe");
            }
        });
        let here = here;
        OTHER_THREAD.store(here.as_raw_fd(), Ordering::SeqCst);
        INSTRUCTIONS.store(0, Ordering::SeqCst);
        for (stop, at) in STOPS.iter().zip(stops) {
            stop.store(at, Ordering::SeqCst);
        }
        set_trap_flag();
        let result = work();
        clear_trap_flag();
        (result, INSTRUCTIONS.load(Ordering::SeqCst))
    })
}

/// Calls `try_out` with pairs of stops that cover a piece of work of so many instructions: with all of them if they are few,
/// otherwise with as many places as `places`, evenly.
pub(crate) fn each_pair_of_stops(instructions: usize, places: usize, mut try_out: impl FnMut(Stops)) {
    let step = instructions.div_ceil(places).max(1);
    for first in (0..instructions).step_by(step) {
        for second in (first + 1..=instructions).step_by(step) {
            try_out([first, second]);
        }
    }
}

#[inline(never)]
fn set_trap_flag() {
    // SAFETY: the handler of the signal that follows each instruction is in place.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {trap}", "popfq", trap = const TRAP) };
}

#[inline(never)]
fn clear_trap_flag() {
    // SAFETY: without the flag, instructions do what they always do.
    unsafe { asm!("pushfq", "and qword ptr [rsp], {others}", "popfq", others = const !TRAP) };
}

/// The handler. The kernel clears the trap flag while it runs.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn before_an_instruction(
    _: libc::c_int,
    _: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let at = INSTRUCTIONS.fetch_add(1, Ordering::SeqCst);
    for (part, stop) in (0..).zip(&STOPS) {
        if stop.load(Ordering::SeqCst) == at {
            let mut part: u8 = part;
            let other = OTHER_THREAD.load(Ordering::SeqCst);
            // SAFETY: handlers may write and read. The byte is there.
            unsafe {
                libc::write(other, (&raw const part).cast(), 1);
                libc::read(other, (&raw mut part).cast(), 1);
            }
        }
    }
    if STOPS.iter().all(|stop| stop.load(Ordering::SeqCst) <= at) {
        // The rest of the work runs at full speed.
        // SAFETY: the kernel passes the context of the thread, and reads its flags when this returns.
        unsafe { (*context).uc_mcontext.gregs[libc::REG_EFL as usize] &= !i64::from(TRAP) };
    }
}
