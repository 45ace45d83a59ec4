//! Checks for work that waits in the database, and for sessions that block others.

use std::time::Duration;

use campanile_domain::finding::Finding;

use super::Session;
use crate::examine::{self, human_duration, not_checked};

/// A transaction that is open for longer than this is reported. It keeps dead rows from being vacuumed, and queues slow
/// down.
pub(super) const OLD: Duration = Duration::from_mins(5);

const OPEN: &str = "
    SELECT 'process ' || pid || coalesce(' (' || nullif(application_name, '') || ')',
        '') || ', ' || coalesce(state, 'active') AS who,
           'SELECT pg_terminate_backend(' || pid || ')' AS remedy,
           extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND clock_timestamp() - xact_start > make_interval(secs => $1)
    UNION ALL
    SELECT 'prepared transaction ' || quote_literal(gid), 'ROLLBACK PREPARED ' || quote_literal(gid),
           extract(epoch FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts
    WHERE database = current_database() AND clock_timestamp() - prepared > make_interval(secs => $1)
    ORDER BY seconds DESC LIMIT 5";

/// Reads the oldest event of each lane, so that the query can use the index.
const OLDEST: &str = "
    SELECT extract(epoch FROM campanile.now() - min(oldest.created_at))::float8
    FROM generate_series(0, 2) lane (n), LATERAL (
        (SELECT created_at FROM campanile.event_outbox
         WHERE status = 'PENDING' AND fan_out_cursor IS NULL AND lane = n ORDER BY lane, id LIMIT 1)
        UNION ALL
        (SELECT created_at FROM campanile.event_outbox
         WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL AND lane = n ORDER BY lane, id LIMIT 1)) oldest";

const UNPUBLISHED: &str = "
    SELECT count(*), min(first_id::text) FROM campanile.publish_chunk
    WHERE lease_until IS NULL OR lease_until < campanile.now()";

impl Session {
    pub(super) async fn old_transactions(&mut self, older_than: Duration) -> Finding {
        const SUBJECT: &str = "transactions";
        let rows = match self.ask(OPEN, &[&older_than.as_secs_f64()]).await {
            Ok(rows) => rows,
            Err(why) => return not_checked(SUBJECT, &why),
        };
        if rows.is_empty() {
            return Finding::ok(SUBJECT, format!("none open longer than {}", human_duration(older_than)));
        }
        let open = |row: &tokio_postgres::Row| {
            let seconds: f64 = row.get("seconds");
            let since = human_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default());
            format!("{}, open for {since}", row.get::<_, String>("who"))
        };
        let what: Vec<String> = rows.iter().map(open).collect();
        let remedy: String = rows[0].get("remedy");
        Finding::note(SUBJECT, what.join("; ")).with_remedy(format!(
            "dead rows accumulate while it is open; end it in its client, or run {remedy}"
        ))
    }

    /// With the in-process broker only one instance runs, and the lease names it.
    pub(super) async fn instance(&mut self) -> Option<Finding> {
        let held = "SELECT holder, name FROM campanile.lease WHERE lease_until > campanile.now() ORDER BY name LIMIT 1";
        let rows = self.ask(held, &[]).await.ok()?;
        let (holder, name): (String, String) = rows.first().map(|row| (row.get(0), row.get(1)))?;
        Some(Finding::ok("instance", format!("{holder} is running and holds the {name} lease")))
    }

    pub(super) async fn backlog(&mut self) -> Vec<Finding> {
        let oldest = match self.ask(OLDEST, &[]).await {
            Ok(rows) => {
                let seconds: Option<f64> = rows.first().and_then(|row| row.get(0));
                examine::waiting(seconds.map(|s| Duration::try_from_secs_f64(s).unwrap_or_default()))
            }
            Err(why) => not_checked("events", &why),
        };
        let unpublished = match self.ask(UNPUBLISHED, &[]).await {
            Ok(rows) => rows.first().map_or_else(
                || not_checked("publishing", "no answer"),
                |row| examine::unpublished(row.get::<_, i64>(0).try_into().unwrap_or_default(), row.get(1)),
            ),
            Err(why) => not_checked("publishing", &why),
        };
        let dead_letters =
            self.count("SELECT count(*) FROM campanile.dead_letter WHERE replayed_at IS NULL").await;
        let in_doubt = self.count("SELECT count(*) FROM campanile.send_in_doubt").await;
        vec![
            oldest,
            unpublished,
            dead_letters.map_or_else(|why| not_checked("dead letters", &why), examine::dead_letters),
            in_doubt.map_or_else(|why| not_checked("sends in doubt", &why), examine::in_doubt),
        ]
    }

    async fn count(&mut self, sql: &str) -> Result<u64, String> {
        let rows = self.ask(sql, &[]).await?;
        Ok(rows.first().map(|row| row.get::<_, i64>(0)).unwrap_or_default().try_into().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use campanile_domain::finding::Level;

    use super::*;
    use crate::postgres::test_database::Database;

    #[tokio::test]
    async fn a_transaction_that_stays_open_is_named() {
        let database = Database::new().await;
        let (mut session, _) = Session::open("database", "url", &database.url, &database.config())
            .await
            .expect("the database is there");
        assert_eq!(session.old_transactions(OLD).await.level, Level::Ok);
        let idle_client = database.connect().await;
        idle_client.batch_execute("SET application_name = 'forgetful'; BEGIN; SELECT 1").await.unwrap();
        let found = session.old_transactions(Duration::ZERO).await;
        assert_eq!(found.level, Level::Note);
        assert!(found.what.contains("(forgetful), idle in transaction, open for 0."), "{}", found.what);
        assert!(found.remedy.unwrap_or_default().contains("pg_terminate_backend("));
    }
}
