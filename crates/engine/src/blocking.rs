//! Runs work that may keep a core busy for a long time, such as rendering, outside the runtime's threads. The runtime
//! has few threads, and they serve HTTP and all tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// How long work may run inline before the delay affects other tasks. It is longer than deciding a usual batch takes,
/// because each move to another thread has a cost.
pub const MAX_INLINE: Duration = Duration::from_millis(20);

/// Runs `work` on this thread. Another thread takes over this thread's other tasks.
pub fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // A single-threaded runtime has no other thread.
        _ => work(),
    }
}

/// Runs the renderings of messages that are being sent. While renderings are fast, each runs in the task that needs it.
/// After a slow one, they run by `run_blocking`, one at a time, until one is fast again.
#[derive(Debug)]
pub struct Renderings {
    slow: AtomicBool,
    permit: Semaphore,
}

impl Default for Renderings {
    fn default() -> Self {
        Renderings { slow: AtomicBool::new(false), permit: Semaphore::new(1) }
    }
}

impl Renderings {
    pub async fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let permit = if self.slow.load(Ordering::Relaxed) { self.permit.acquire().await.ok() } else { None };
        let begun = Instant::now();
        let done = if permit.is_some() { run_blocking(work) } else { work() };
        self.slow.store(begun.elapsed() > MAX_INLINE, Ordering::Relaxed);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// The runtime has one thread, and the work waits for the other task. The test ends only if the work does not block
    /// that thread.
    #[test]
    fn others_go_on_while_slow_work_is_done() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let renderings = Arc::new(Renderings { slow: AtomicBool::new(true), ..Renderings::default() });
        let yields = Arc::new(AtomicU32::new(0));
        runtime.block_on(async {
            let working = tokio::spawn({
                let (renderings, yields) = (Arc::clone(&renderings), Arc::clone(&yields));
                async move {
                    renderings
                        .run(|| {
                            while yields.load(Ordering::Relaxed) < 10 {
                                std::thread::yield_now();
                            }
                        })
                        .await;
                }
            });
            let other = tokio::spawn({
                let yields = Arc::clone(&yields);
                async move {
                    for _ in 0..10 {
                        yields.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    }
                }
            });
            other.await.unwrap();
            working.await.unwrap();
        });
    }
}
