//! The back ends that a test runs on, and the macro that makes a test for each.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// SQLite and the in-process broker.
    Embedded,
    /// PostgreSQL and, where a whole server is tested, RabbitMQ.
    Servers,
    /// PostgreSQL and the in-process broker.
    Mixed,
}

/// Makes two tests of each function `async fn name(backend: Backend)`: `name::embedded` and `name::on_servers`.
///
/// `name: check` gives them a name of their own, and calls `check`. `current_thread:` at the beginning is for tests
/// whose values belong to their thread, such as metrics.
#[macro_export]
macro_rules! on_both {
    (@tests $flavor:tt $call:expr) => {
        #[tokio::test(flavor = $flavor)]
        async fn embedded() {
            $call($crate::Backend::Embedded).await;
        }

        #[tokio::test(flavor = $flavor)]
        async fn on_servers() {
            $call($crate::Backend::Servers).await;
        }
    };
    (current_thread: $($name:ident;)+) => {
        $(mod $name {
            $crate::on_both!(@tests "current_thread" super::$name);
        })+
    };
    ($($name:ident;)+) => {
        $(mod $name {
            $crate::on_both!(@tests "multi_thread" super::$name);
        })+
    };
    ($($name:ident: $check:expr;)+) => {
        $(mod $name {
            use super::*;

            $crate::on_both!(@tests "multi_thread" ($check));
        })+
    };
}
