//! The conformance suite, for the in-process broker: in virtual time, and in real time on several threads.

use campanile_domain::queue::Queue;
use std::sync::Arc;

use campanile_broker::{Broker, InProcess, conformance, for_each_check};

async fn in_process(limit: usize) -> Arc<dyn Broker> {
    Arc::new(InProcess::new(conformance::QUEUES.map(Queue::named), limit))
}

mod in_virtual_time {
    use super::{conformance, for_each_check, in_process};

    macro_rules! tests {
        ($($group:ident :: $check:ident)+) => { $(
            #[tokio::test(start_paused = true)]
            async fn $check() {
                conformance::$check(in_process).await;
            }
        )+ };
    }
    for_each_check!(tests);
}

mod on_several_threads {
    use super::{conformance, for_each_check, in_process};

    macro_rules! tests {
        ($($group:ident :: $check:ident)+) => { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $check() {
                conformance::$check(in_process).await;
            }
        )+ };
    }
    for_each_check!(tests);
}
