//! Waits for conditions in other tasks or processes, without guessing how long they take.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Far longer than anything takes, also on a machine with much else to do.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Repeats `find` until it returns something; panics with `what` after two minutes.
pub async fn until<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    until_ok(what, async || find().await.ok_or("nothing")).await
}

/// Repeats `find` until it returns `Ok`; panics with `what` and with the last error after two minutes.
pub async fn until_ok<T, E: Debug>(what: &str, mut find: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    let mut last_error = None;
    loop {
        let remaining = WAIT_TIMEOUT.saturating_sub(begun.elapsed());
        let Ok(found) = tokio::time::timeout(remaining, find()).await else {
            panic!("waited {WAIT_TIMEOUT:?} in vain until {what}: {last_error:#?}");
        };
        match found {
            Ok(found) => return found,
            Err(error) => last_error = Some(error),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The result of something that must end by itself; panics after two minutes.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_TIMEOUT, future).await.expect("this takes no time worth mentioning")
}
