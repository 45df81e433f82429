//! A thread for what takes long to compute, so that the runtime's threads are free for short requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::thread;

use crossbeam_channel::Sender;
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that computes what may take long. It starts with the first work.
#[derive(Debug, Default)]
pub(crate) struct Encoder(OnceLock<Sender<Work>>);

impl Encoder {
    /// `None` if the work has panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let work = Box::new(move || {
            // The client may have gone while the work waited.
            if !done.is_closed() {
                let _ = done.send(work());
            }
        });
        // Its clients wait for their turns before they send, so few works wait here.
        self.thread().send(work).ok()?;
        result.await.ok()
    }

    fn thread(&self) -> &Sender<Work> {
        self.0.get_or_init(|| {
            let (sender, works) = crossbeam_channel::unbounded::<Work>();
            // If there can be no more threads, the receiver is dropped, and sending fails.
            let _ = thread::Builder::new().name("encoder".to_owned()).spawn(move || {
                for work in works {
                    // A panic has been printed. It ends the request alone.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                }
            });
            sender
        })
    }
}
