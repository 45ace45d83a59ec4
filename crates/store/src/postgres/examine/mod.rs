//! `doctor` for PostgreSQL: examines the database without changing it. Each check is a transaction with timeouts. All
//! are read-only, except for the one that tests writing. If a check fails, the others still run.

mod grants;
mod load;
mod schema;
mod writes;

use std::time::Duration;

use campanile_domain::finding::{Finding, Level};
use campanile_domain::time::Timestamp;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

use super::connect::{self, Server};
use super::migrate::OLDEST_SERVER;
use super::{Params, Postgres, PostgresConfig, statement};
use crate::examine::{CHECK_TIMEOUT, Examined, Identity, human_duration, not_checked};
use crate::{StoreError, identity};

/// The time limit for connecting: name resolution, all addresses, encryption and password.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CLOCK_DIFFERS: Duration = Duration::from_secs(1);
const CLOCK_IS_WRONG: Duration = Duration::from_secs(30);

impl Postgres {
    pub async fn examine(config: &PostgresConfig) -> Examined {
        let (mut session, answers) = match Session::open("database", "url", &config.url, config).await {
            Ok(opened) => opened,
            Err(finding) => return Examined { findings: vec![finding], identity: Identity::Unknown },
        };
        let mut findings = vec![answers];
        findings.extend(session.server().await);
        let mut direct = None;
        if !config.direct_url.is_empty() {
            match Session::open("direct database", "direct_url", &config.direct_url, config).await {
                Ok((session, answers)) => {
                    findings.push(answers);
                    direct = Some(session);
                }
                Err(finding) => findings.push(finding),
            }
        }
        findings.push(session.clock().await);
        findings.push(session.old_transactions(load::OLD).await);
        let (tables, there) = direct.as_mut().unwrap_or(&mut session).schema().await;
        findings.push(tables);
        if there {
            let grants = session.grants().await;
            // A user who may not read the tables learns nothing from them.
            let allowed = grants.level != Level::Wrong;
            findings.push(grants);
            if allowed {
                findings.push(session.writes().await);
                findings.push(session.recipients().await);
                findings.extend(session.instance().await);
                findings.extend(session.backlog().await);
            }
        } else {
            findings.extend(session.writable().await);
        }
        let identity = if there { session.identity().await } else { Identity::NoTables };
        Examined { findings, identity }
    }
}

/// A connection that only reads.
struct Session {
    client: Client,
    server: Server,
}

/// Why a check has no result.
struct Failed {
    code: Option<SqlState>,
    why: String,
}

impl Session {
    async fn open(
        subject: &'static str,
        key: &str,
        url: &str,
        config: &PostgresConfig,
    ) -> Result<(Self, Finding), Finding> {
        let wrong =
            |error: StoreError| Finding::wrong(subject, error.to_string(), format!("correct database.{key}"));
        let mut server =
            Server::new(&format!("database.{key}"), url, config.ca_file.as_deref()).map_err(wrong)?;
        server.config.application_name("campanile doctor");
        let connecting = server.config.connect(server.tls.clone());
        let Ok(connected) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await else {
            let what = format!("{} does not answer within {CONNECT_TIMEOUT:?}", server.name());
            return Err(Finding::wrong(subject, what, remedy_unreachable(key)));
        };
        let (client, connection) = connected.map_err(|error| unreachable(subject, key, &server, error))?;
        tokio::spawn(connection);
        let user = server.config.get_user().unwrap_or("the default user").to_owned();
        let answers = Finding::ok(subject, format!("{} answers, user {user}", server.name()));
        Ok((Session { client, server }, answers))
    }

    /// Runs one check. Timeouts limit how long it waits for locks and for the answer.
    async fn ask(&mut self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, String> {
        self.run(sql, params, true).await.map_err(|Failed { why, .. }| why)
    }

    async fn run(&mut self, sql: &str, params: Params<'_>, read_only: bool) -> Result<Vec<Row>, Failed> {
        let millis = CHECK_TIMEOUT.as_millis();
        let deadlines = format!(
            "SET LOCAL statement_timeout = '{millis}ms'; SET LOCAL lock_timeout = '1s'; SET LOCAL enable_seqscan = off"
        );
        let asked = async {
            let transaction = self.client.build_transaction();
            // "read write" would override a server's default of read-only transactions.
            let transaction = if read_only { transaction.read_only(true) } else { transaction };
            let transaction = transaction.start().await?;
            transaction.batch_execute(&deadlines).await?;
            let rows = transaction.query(sql, params).await?;
            transaction.commit().await?;
            Ok(rows)
        };
        match tokio::time::timeout(2 * CHECK_TIMEOUT, asked).await {
            Ok(answer) => answer.map_err(|error: tokio_postgres::Error| {
                let code = error.code().cloned();
                let why = match code {
                    Some(SqlState::QUERY_CANCELED) => format!("timed out after {CHECK_TIMEOUT:?}"),
                    _ => connect::error(error).to_string(),
                };
                Failed { code, why }
            }),
            Err(_) => Err(Failed { code: None, why: format!("no answer within {:?}", 2 * CHECK_TIMEOUT) }),
        }
    }

    /// A user who may not read the tables gets no identity.
    async fn identity(&mut self) -> Identity {
        let rows = self.ask(statement::DATABASE_IDENTITY, &[]).await.unwrap_or_default();
        rows.first().map_or(Identity::Unknown, |row| Identity::Known(identity(&[row.get(0), row.get(1)])))
    }

    async fn server(&mut self) -> Vec<Finding> {
        const SUBJECT: &str = "PostgreSQL";
        let facts = "SELECT current_setting('server_version_num')::int,
            split_part(current_setting('server_version'), ' ', 1),
                            current_setting('server_encoding'), pg_is_in_recovery(), current_setting('fsync') = 'on',
                            coalesce((SELECT s.version FROM pg_stat_ssl s WHERE s.pid = pg_backend_pid()), '')";
        let rows = match self.ask(facts, &[]).await {
            Ok(rows) => rows,
            Err(why) => return vec![not_checked(SUBJECT, &why)],
        };
        let Some(row) = rows.first() else { return Vec::new() };
        let (number, version, encoding): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
        let (standby, fsync, tls): (bool, bool, String) = (row.get(3), row.get(4), row.get(5));
        let what = format!("{version}, encoding {encoding}");
        let mut findings = vec![if number < OLDEST_SERVER {
            Finding::wrong(SUBJECT, what, "15 or newer is needed: upgrade the server")
        } else if encoding != "UTF8" {
            Finding::wrong(SUBJECT, what, "create a database with ENCODING 'UTF8' and set database.url to it")
        } else if standby {
            let remedy = "set database.url to the primary, or add target_session_attrs=read-write to it";
            Finding::wrong(SUBJECT, format!("{what}; a standby, which is read-only"), remedy)
        } else {
            Finding::ok(SUBJECT, what)
        }];
        if !fsync {
            findings.push(
                Finding::note("durability", "fsync is off: a crash of the server may lose what was accepted")
                    .with_remedy("turn fsync on in postgresql.conf, unless this is a test"),
            );
        }
        findings.push(encryption(&tls, is_remote(&self.server)));
        findings
    }

    async fn clock(&mut self) -> Finding {
        let before = Timestamp::now();
        let answer = self.ask("SELECT clock_timestamp()", &[]).await;
        let after = Timestamp::now();
        let at: Option<Timestamp> = answer.ok().and_then(|rows| rows.first()?.try_get(0).ok());
        at.map_or_else(|| not_checked("clock", "the server did not answer"), |at| clock(before, at, after))
    }
}

fn unreachable(subject: &'static str, key: &str, server: &Server, error: tokio_postgres::Error) -> Finding {
    let name = server.name();
    let user = server.config.get_user().unwrap_or_default();
    match error.code() {
        Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => Finding::wrong(
            subject,
            format!("{name} refuses user `{user}`: {}", server_message(&error)),
            format!("correct user and password in database.{key}, or allow them in pg_hba.conf"),
        ),
        Some(&SqlState::INVALID_CATALOG_NAME) => Finding::wrong(
            subject,
            format!("{name}: {}", server_message(&error)),
            format!(
                "CREATE DATABASE {} ENCODING 'UTF8' TEMPLATE template0; or correct database.{key}",
                server.config.get_dbname().unwrap_or("campanile")
            ),
        ),
        Some(_) => {
            Finding::wrong(subject, format!("{name}: {}", server_message(&error)), remedy_unreachable(key))
        }
        None => {
            let why = match connect::error(error) {
                StoreError::Unavailable(why) => why.to_string(),
                other => other.to_string(),
            };
            let why = why.trim_start_matches("error connecting to server: ");
            Finding::wrong(subject, format!("{name} can't be reached: {why}"), remedy_unreachable(key))
        }
    }
}

fn server_message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}

fn remedy_unreachable(key: &str) -> String {
    format!("check that it is running and that host and port in database.{key} are correct")
}

fn is_remote(server: &Server) -> bool {
    server.config.get_hosts().iter().any(|host| match host {
        Host::Tcp(name) => {
            let address = name.parse::<std::net::IpAddr>();
            name != "localhost" && !address.is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => false,
    })
}

fn encryption(tls: &str, remote: bool) -> Finding {
    const SUBJECT: &str = "encryption";
    match (tls, remote) {
        ("", false) => Finding::ok(SUBJECT, "none; not needed on one machine"),
        ("", true) => Finding::note(SUBJECT, "none; addresses and passwords cross the network unencrypted")
            .with_remedy("turn ssl on in postgresql.conf, and add sslmode=verify-full to database.url"),
        (version, _) => Finding::ok(SUBJECT, version.replace("TLSv", "TLS ")),
    }
}

/// Compares the clocks. `before` and `after` are this machine's times around the query, so that network time does not
/// count as a difference.
fn clock(before: Timestamp, at: Timestamp, after: Timestamp) -> Finding {
    const SUBJECT: &str = "clock";
    let difference = if at < before {
        before.duration_since(at)
    } else if at > after {
        at.duration_since(after)
    } else {
        return Finding::ok(SUBJECT, "in sync with the server's clock");
    };
    let difference = Duration::try_from(difference).unwrap_or_default();
    let side = if at < before { "behind" } else { "ahead of" };
    let what = format!("the server's clock is {} {side} ours", human_duration(difference));
    let remedy = "synchronise both machines with NTP";
    if difference > CLOCK_IS_WRONG {
        Finding::wrong(SUBJECT, what, remedy)
    } else if difference > CLOCK_DIFFERS {
        Finding::note(SUBJECT, what).with_remedy(remedy)
    } else {
        Finding::ok(SUBJECT, what)
    }
}

#[cfg(test)]
mod tests {
    use campanile_domain::time;

    use super::*;

    #[test]
    fn clocks_are_compared_without_what_the_way_took() {
        let at = |text: &str| time::from_text(text).unwrap();
        let (before, after) = (at("2026-01-21T12:00:00Z"), at("2026-01-21T12:00:40Z"));
        let level = |text: &str| clock(before, at(text), after).level;
        assert_eq!(level("2026-01-21T12:00:39Z"), Level::Ok);
        assert_eq!(level("2026-01-21T11:59:59.5Z"), Level::Ok);
        assert_eq!(level("2026-01-21T11:59:50Z"), Level::Note);
        let wrong = clock(before, at("2026-01-21T12:05:40Z"), after);
        assert_eq!(
            (wrong.level, wrong.what.as_str()),
            (Level::Wrong, "the server's clock is 5 min ahead of ours")
        );
    }

    #[test]
    fn encryption_is_asked_for_where_there_is_a_network() {
        let remote = |url: &str| is_remote(&Server::new("database.url", url, None).unwrap());
        assert!(remote("postgres://db.example/d") && remote("postgres://10.0.0.7/d"));
        assert!(!remote("postgres://localhost/d") && !remote("postgres://127.0.0.1:5499/d"));
        assert!(!remote("postgres://[::1]/d") && !remote("postgres:///d?host=/run/postgresql"));
        assert_eq!(encryption("", true).level, Level::Note);
        assert_eq!(encryption("", false).level, Level::Ok);
        assert_eq!(encryption("TLSv1.3", true), Finding::ok("encryption", "TLS 1.3"));
    }
}
