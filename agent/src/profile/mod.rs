//! Where the agent's time goes: a profile of all its threads, in the form that `go tool pprof` reads.
//!
//! The kernel stops a thread after each hundredth of a second of CPU that the process took, and the stack that it is in
//! there is noted. Until somebody asks, nothing of that is there: no timer, no signal handler, no memory. From the first
//! profile on the profiler keeps its tables, which are some two hundred megabytes.
//!
//! Samples within the C library are left out: whoever is stopped in the midst of an allocation must not be unwound by what
//! might allocate. What the kernel does for the agent counts where the agent asked for it, if that is not there.
//!
//! Names come from the binary's own symbols. One that was stripped of them tells next to nothing. One that is linked
//! statically cannot tell its C library from the rest, and takes none.

mod proto;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::{Frames, ProfilerGuard, ProfilerGuardBuilder, Symbol};

use self::proto::Profile;

/// Samples for each second of CPU; prime, so as not to beat with anything.
const FREQUENCY: i32 = 97;

/// What must not be unwound.
#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
))]
const LEFT_OUT: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// A profile that is being taken. Dropping it ends that.
pub(super) struct Recording {
    /// `None` once it has ended.
    guard: Option<ProfilerGuard<'static>>,
}

/// Whether the profiler's file was taken from it, which it opens by name when it is asked what it saw.
static LACKS_ITS_FILE: AtomicBool = AtomicBool::new(false);

impl Recording {
    /// Begins. Of two in one process the second fails.
    pub(super) fn start() -> Result<Self, String> {
        if cfg!(target_feature = "crt-static") {
            return Err("this binary is linked statically, so allocations could not be left out".to_owned());
        }
        let builder = ProfilerGuardBuilder::default().frequency(FREQUENCY);
        #[cfg(any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            target_arch = "riscv64",
            target_arch = "loongarch64"
        ))]
        let builder = builder.blocklist(&LEFT_OUT);
        if LACKS_ITS_FILE.load(Ordering::Relaxed) {
            // One that ends makes the file for the next.
            drop(builder.clone().build().map_err(|error| error.to_string())?);
            LACKS_ITS_FILE.store(false, Ordering::Relaxed);
        }
        let guard = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { guard: Some(guard) })
    }

    /// Ends it; what was seen, as a gzipped `profile.proto`. Takes a while: the names are looked for now.
    pub(super) fn finish(self) -> Result<Vec<u8>, String> {
        let guard = self.guard.as_ref().ok_or("it has ended")?;
        let seen = guard.report().build_unresolved().map_err(|error| error.to_string())?;
        // Looking for names is nothing that the profile should show.
        drop(self);
        let mut profile = Profile::new(FREQUENCY, seen.timing.start_time, seen.timing.duration);
        for (stack, count) in seen.data {
            let stack = Frames::from(stack);
            let seen = stack.frames.iter().skip_while(|inlined| inlined.iter().all(is_the_profilers));
            let frames = seen.map(|inlined| {
                inlined.iter().map(|symbol| proto::Frame {
                    name: symbol.name(),
                    file: symbol.filename.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
                    line: symbol.lineno.unwrap_or_default(),
                })
            });
            profile.add(frames, &stack.thread_name, u64::try_from(count).unwrap_or_default());
        }
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&profile.finish()).and_then(|()| gzip.finish()).map_err(|error| error.to_string())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        drop(self.guard.take());
        if remove_files() > 0 {
            LACKS_ITS_FILE.store(true, Ordering::Relaxed);
        }
    }
}

/// Removes the file that the profiler has open for the next profile, where Linux tells which; it would be there still when
/// this process has ended. Nothing else here makes temporary files.
fn remove_files() -> usize {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return 0 };
    // Without symbolic links, as the descriptors are told of.
    let Ok(place) = std::env::temp_dir().canonicalize() else { return 0 };
    let is_its = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        path.parent() == Some(&*place) && name.is_some_and(|name| name.starts_with(".tmp"))
    };
    let open = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    open.filter(is_its).filter(|path| fs::remove_file(path).is_ok()).count()
}

/// What stopped the thread, which it was not at by itself.
fn is_the_profilers(symbol: &Symbol) -> bool {
    let name = symbol.name();
    ["backtrace::", "pprof::"].iter().any(|room| name.trim_start_matches('<').starts_with(room))
}
