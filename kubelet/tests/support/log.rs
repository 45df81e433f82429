//! Everything that is logged, in memory.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::filter::LevelFilter;

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// What all tests of this program log, at every level, from the first call on.
    pub fn of_the_process() -> Self {
        static ALL: OnceLock<Log> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_max_level(LevelFilter::TRACE)
                .with_writer(move || writer.clone())
                .init();
            log
        });
        all.clone()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
