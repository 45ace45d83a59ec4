//! The conformance suite, for `RabbitMQ`.

use crate::support::Place;
use campanile_broker::{conformance, for_each_check};

macro_rules! tests {
    ($($group:ident :: $check:ident)+) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $check() {
            let place = Place::new(&conformance::QUEUES);
            conformance::$check(async |limit| place.open(limit).await).await;
            place.remove().await;
        }
    )+ };
}
for_each_check!(tests);
