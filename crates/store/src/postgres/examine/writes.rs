//! Checks that the server accepts writes. A read-only server still answers every query.

use campanile_domain::finding::Finding;
use tokio_postgres::error::SqlState;

use super::{Failed, Session};
use crate::examine::not_checked;

const SUBJECT: &str = "writes";

const READ_ONLY: &str = "SELECT current_setting('default_transaction_read_only') = 'on'";
/// Writes a row unchanged, and skips a row that another transaction is writing.
const WRITE: &str = "UPDATE campanile.instance SET started_at = started_at
    WHERE id = (SELECT id FROM campanile.instance ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED)";

impl Session {
    /// Checks a database without tables. It can only be asked whether it is read-only.
    pub(super) async fn writable(&mut self) -> Option<Finding> {
        let rows = self.ask(READ_ONLY, &[]).await.ok()?;
        let read_only = rows.first().is_some_and(|row| row.get(0));
        read_only.then(|| refused("default_transaction_read_only is on"))
    }

    pub(super) async fn writes(&mut self) -> Finding {
        match self.run(WRITE, &[], false).await {
            Ok(_) => Finding::ok(SUBJECT, "the server accepts writes"),
            Err(Failed { code: Some(SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::DISK_FULL), why }) => {
                refused(&why)
            }
            Err(Failed { why, .. }) => not_checked(SUBJECT, &why),
        }
    }
}

fn refused(why: &str) -> Finding {
    let remedy = "free disk space on the server, or undo what made it read-only (default_transaction_read_only, \
        a failover, a \
                  provider's limit), or set database.url to another server";
    Finding::wrong(SUBJECT, format!("the server accepts no writes: {why}"), remedy)
}
