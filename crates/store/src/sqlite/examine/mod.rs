//! `doctor` for SQLite: examines the file without changing it and without its lock, so that a running instance is not
//! disturbed.

mod writes;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use campanile_domain::finding::Finding;
use campanile_domain::time::{self, Timestamp};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::{Sqlite, lock, migrations, statement};
use crate::examine::{self, CHECK_TIMEOUT, Examined, Identity, Schema, not_checked};
use crate::identity;
use writes::writes;

const MIB: u64 = 1024 * 1024;
const LOW_SPACE_BYTES: u64 = 1024 * MIB;
const CRITICAL_SPACE_BYTES: u64 = 100 * MIB;
/// The timeout of the check that reads the whole file.
const INTEGRITY_TIMEOUT: Duration = Duration::from_secs(20);

impl Sqlite {
    pub async fn examine(path: &Path) -> Examined {
        let path = path.to_owned();
        let examined = tokio::task::spawn_blocking(move || examine(&path)).await;
        examined.unwrap_or_else(|error| unknown(not_checked("database", &error.to_string())))
    }
}

pub(super) fn examine(path: &Path) -> Examined {
    let folder = lock::folder_of(path);
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let what = format!("SQLite, {} does not exist yet; `campanile serve` creates it", path.display());
            let mut findings = vec![Finding::note("database", what)];
            findings.extend(disk(folder));
            findings.extend(nearest_existing(folder).map(|there| writes(path, there)));
            return Examined { findings, identity: Identity::NoTables };
        }
        Err(error) => return unknown(unusable(path, &error.to_string())),
    };
    let connection = match open(path) {
        Ok(connection) => connection,
        Err(error) => return unknown(unusable(path, &error.to_string())),
    };
    let what = format!("SQLite, {} ({} MiB)", path.display(), metadata.len().div_ceil(MIB));
    let mut findings = vec![Finding::ok("database", what)];
    findings.extend(readable_by_others(path, folder, metadata.permissions().mode()));
    findings.extend(disk(folder));
    findings.push(writes(path, folder));
    findings.push(instance(folder));
    findings.push(integrity(&connection, path));
    let identity = match schema(&connection) {
        Ok(Schema::Missing) => {
            findings.push(Schema::Missing.finding(Ok(())));
            Identity::NoTables
        }
        Ok(schema) => {
            findings.push(schema.finding(Ok(())));
            findings.extend(backlog(&connection));
            let made_at =
                connection.query_row(statement::DATABASE_IDENTITY, [], |row| row.get::<_, String>(0));
            made_at.map_or(Identity::Unknown, |made_at| Identity::Known(identity(&[&made_at])))
        }
        Err(why) => {
            findings.push(not_checked("tables", &why));
            Identity::Unknown
        }
    };
    Examined { findings, identity }
}

fn unknown(finding: Finding) -> Examined {
    Examined { findings: vec![finding], identity: Identity::Unknown }
}

fn unusable(path: &Path, why: &str) -> Finding {
    Finding::wrong(
        "database",
        format!("SQLite, {} can't be read: {why}", path.display()),
        "check the file's permissions; if it is damaged, restore a backup, or choose another --data-dir",
    )
}

/// A file that no process has open has no log beside it. Opening it as immutable creates none.
fn open(path: &Path) -> Result<Connection, rusqlite::Error> {
    let log = PathBuf::from(format!("{}-wal", path.display()));
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = if log.exists() {
        Connection::open_with_flags(path, read_only)?
    } else {
        let name = path.display().to_string().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let flags = read_only | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?
    };
    connection.busy_timeout(CHECK_TIMEOUT)?;
    // SQLite reads the file only when a statement runs.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Checks that only the owner may read the file, because it holds addresses. If no other user may enter the folder, the
/// permissions of the file do not matter.
fn readable_by_others(path: &Path, folder: &Path, mode: u32) -> Option<Finding> {
    let of_others = |mode: u32| mode & 0o077 != 0;
    let open = folder.metadata().is_ok_and(|folder| of_others(folder.permissions().mode()));
    (open && of_others(mode)).then(|| {
        Finding::note(
            "permissions",
            format!("other users can open {} (mode {:o})", path.display(), mode & 0o777),
        )
        .with_remedy(format!("chmod 600 {0} {0}-*", path.display()))
    })
}

fn disk(folder: &Path) -> Option<Finding> {
    let there = nearest_existing(folder)?;
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(free_space(disk.f_bavail * disk.f_frsize, there))
}

/// The nearest existing folder. A folder that is created later will be on the same disk.
fn nearest_existing(folder: &Path) -> Option<&Path> {
    let mut ancestors = folder.ancestors().filter(|folder| folder.exists());
    // A relative path ends in the current folder.
    ancestors.next().or_else(|| folder.is_relative().then(|| Path::new(".")))
}

fn free_space(free_bytes: u64, folder: &Path) -> Finding {
    let what = if free_bytes < 10 * LOW_SPACE_BYTES {
        format!("{} MiB free", free_bytes / MIB)
    } else {
        format!("{} GiB free", free_bytes / MIB / 1024)
    };
    let remedy = || format!("free disk space for {}, or lower retain.days", folder.display());
    if free_bytes < CRITICAL_SPACE_BYTES {
        Finding::wrong("disk", what, remedy())
    } else if free_bytes < LOW_SPACE_BYTES {
        Finding::note("disk", what).with_remedy(remedy())
    } else {
        Finding::ok("disk", what)
    }
}

/// The holder of the lock, as the operating system lists it. If this took the lock, even for a moment, no instance
/// could start meanwhile.
fn instance(folder: &Path) -> Finding {
    const SUBJECT: &str = "instance";
    let locked = [lock::lock_file(folder), folder.to_owned()];
    match std::fs::read_to_string("/proc/locks") {
        Ok(locks) => {
            let holder = |path: &PathBuf| holder(&locks, path.metadata().ok()?.ino());
            match locked.iter().find_map(holder) {
                Some(pid) => Finding::ok(SUBJECT, format!("process {pid} is using this file")),
                None => Finding::ok(SUBJECT, "no instance is using this file"),
            }
        }
        Err(error) => not_checked(SUBJECT, &format!("/proc/locks: {error}")),
    }
}

/// Lines look like `1: FLOCK  ADVISORY  WRITE 4711 fe:01:123456 0 EOF`. On some file systems the device differs from
/// the one in the file's metadata.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    let of_this = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, device, ..] = fields[..] else { return None };
        let found: u64 = device.rsplit(':').next()?.parse().ok()?;
        (found == inode).then(|| pid.parse().ok()).flatten()
    };
    locks.lines().find_map(of_this)
}

fn integrity(connection: &Connection, path: &Path) -> Finding {
    const SUBJECT: &str = "integrity";
    let checked = with_timeout(connection, INTEGRITY_TIMEOUT, |connection| {
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
    });
    match checked {
        Ok(answer) if answer == "ok" => Finding::ok(SUBJECT, "no damage found"),
        Ok(damage) => damaged(path, damage.lines().last().unwrap_or_default()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            damaged(path, &error.to_string())
        }
        Err(error) => not_checked(SUBJECT, &why(&error)),
    }
}

fn damaged(path: &Path, how: &str) -> Finding {
    let remedy = format!("stop the instance, keep a copy of {}, and restore a backup", path.display());
    Finding::wrong("integrity", format!("the file is damaged: {how}"), remedy)
}

fn schema(connection: &Connection) -> Result<Schema, String> {
    let applied = with_timeout(connection, CHECK_TIMEOUT, |connection| {
        let known = "SELECT 1 FROM sqlite_schema WHERE name = 'refinery_schema_history'";
        if connection.query_row(known, [], |_| Ok(())).optional()?.is_none() {
            return Ok(Vec::new());
        }
        let mut versions = connection.prepare("SELECT version FROM refinery_schema_history")?;
        versions.query_map([], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()
    })
    .map_err(|error| why(&error))?;
    let known: Vec<String> =
        migrations().map_err(|error| error.to_string())?.iter().map(ToString::to_string).collect();
    Ok(Schema::of(&applied, &known))
}

fn backlog(connection: &Connection) -> Vec<Finding> {
    let count = |sql: &str| {
        with_timeout(connection, CHECK_TIMEOUT, |connection| {
            connection.query_row(sql, [], |row| row.get::<_, u64>(0))
        })
    };
    let oldest = with_timeout(connection, CHECK_TIMEOUT, |connection| {
        let sql = "SELECT min(created_at) FROM event_outbox WHERE status = 'PENDING'";
        connection.query_row(sql, [], |row| row.get::<_, Option<String>>(0))
    });
    let age = |at: String| time::from_text(&at).map(|at| time::between(at, Timestamp::now()));
    let chunks = with_timeout(connection, CHECK_TIMEOUT, |connection| {
        let sql =
            "SELECT count(*), min(first_id) FROM publish_chunk WHERE lease_until IS NULL OR lease_until < ?1";
        let now = time::to_text(Timestamp::now());
        connection.query_row(sql, [now], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, Option<String>>(1)?)))
    });
    let dead_letters = count("SELECT count(*) FROM dead_letter WHERE replayed_at IS NULL");
    let in_doubt = count("SELECT count(*) FROM send_in_doubt");
    vec![
        oldest.map_or_else(
            |error| not_checked("events", &why(&error)),
            |at| examine::waiting(at.and_then(age)),
        ),
        chunks.map_or_else(
            |error| not_checked("publishing", &why(&error)),
            |(count, first)| examine::unpublished(count, first.as_deref()),
        ),
        dead_letters.map_or_else(|error| not_checked("dead letters", &why(&error)), examine::dead_letters),
        in_doubt.map_or_else(|error| not_checked("sends in doubt", &why(&error)), examine::in_doubt),
    ]
}

/// Runs a check, and interrupts it at its timeout.
fn with_timeout<T>(
    connection: &Connection,
    timeout: Duration,
    work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let handle = connection.get_interrupt_handle();
    let (done, ended) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                handle.interrupt();
            }
        });
        let result = work(connection);
        drop(done);
        result
    })
}

fn why(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => "timed out".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use campanile_domain::finding::Level;

    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_by_its_file() {
        let locks = "1: POSIX  ADVISORY  READ 7 fe:01:123456 128 128\n2: \
            FLOCK  ADVISORY  WRITE 4711 fe:01:123456 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 4712 fe:01:123456 0 EOF\n";
        assert_eq!(holder(locks, 123_456), Some(4711));
        assert_eq!(holder(locks, 23_456), None);
        assert_eq!(holder("nonsense\n", 1), None);
    }

    #[test]
    fn a_disk_that_fills_is_reported_in_time() {
        let level = |mib: u64| free_space(mib * MIB, Path::new("/data")).level;
        assert_eq!((level(50), level(500), level(50_000)), (Level::Wrong, Level::Note, Level::Ok));
    }

    #[test]
    fn what_takes_too_long_is_interrupted() {
        let connection = Connection::open_in_memory().unwrap();
        let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
        let interrupted = with_timeout(&connection, Duration::from_millis(20), |connection| {
            connection.query_row(endless, [], |row| row.get::<_, i64>(0))
        });
        assert_eq!(why(&interrupted.unwrap_err()), "timed out");
    }
}
