//! Flamegraphs from criterion: `cargo bench ... -- --profile-time 5 FILTER` writes `profile/flamegraph.svg`
//! beside the results of each bench.

use std::fs::{self, File};
use std::path::Path;

use inferno::flamegraph::{self, Options};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

/// Samples per second; prime, to avoid resonance with periodic work.
const FREQUENCY: i32 = 997;

/// Draws a flamegraph.
#[derive(Default)]
pub struct Flamegraph {
    running: Option<ProfilerGuard<'static>>,
}

impl criterion::profiler::Profiler for Flamegraph {
    fn start_profiling(&mut self, _: &str, _: &Path) {
        self.running = ProfilerGuardBuilder::default().frequency(FREQUENCY).build().ok();
    }

    fn stop_profiling(&mut self, id: &str, folder: &Path) {
        let Some(report) = self.running.take().and_then(|guard| guard.report().build().ok()) else { return };
        // One line per stack, from the outermost function inwards, as flamegraph tools expect.
        let lines: Vec<String> = report
            .data
            .iter()
            .map(|(stack, count)| {
                let frames = stack.frames.iter().rev().flat_map(|inlined| inlined.iter().rev());
                let names: Vec<_> = frames.map(pprof::Symbol::name).collect();
                // Frames of criterion and the runtime around the bench are useless.
                let start = names.iter().rposition(|name| name.contains("Bencher")).unwrap_or(0);
                format!("{} {count}", names[start..].join(";"))
            })
            .collect();
        let mut options = Options::default();
        options.title = id.to_owned();
        options.count_name = "samples".to_owned();
        let drawn = fs::create_dir_all(folder)
            .and_then(|()| File::create(folder.join("flamegraph.svg")))
            .map(|file| flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), file));
        if !matches!(drawn, Ok(Ok(()))) {
            eprintln!("no flamegraph of {id}: {drawn:?}");
        }
    }
}
