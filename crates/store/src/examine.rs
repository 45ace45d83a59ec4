//! Derives the findings of `doctor` from figures that each back end reads in its own way.

use std::time::Duration;

use campanile_domain::finding::Finding;
use campanile_domain::time::{self, Timestamp};

/// A check that takes longer is stopped, and a finding reports it.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// An older event is reported, because a running engine takes on events within its polling interval.
const EVENT_WAITS_LONG: Duration = Duration::from_mins(1);

/// The findings, and the database that they are about.
#[derive(Debug)]
pub struct Examined {
    pub findings: Vec<Finding>,
    pub identity: Identity,
}

/// The database that was examined, as [`Store::identity`](crate::Store::identity) names it.
#[derive(Debug, PartialEq, Eq)]
pub enum Identity {
    Known(String),
    /// There are no tables yet, so no server uses this database.
    NoTables,
    /// The identity could not be read.
    Unknown,
}

/// The state of a schema, compared with the migrations of this release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    Missing,
    /// The names of migrations that are not applied yet.
    Older(Vec<String>),
    UpToDate,
    /// The last applied version. This release does not know it.
    Newer(i64),
}

impl Schema {
    /// `applied` are version numbers in the database; `known` are names of this release, such as `V1__first_tables`.
    pub fn of(applied: &[i64], known: &[impl AsRef<str>]) -> Self {
        let known = || known.iter().map(AsRef::as_ref);
        let missing: Vec<String> =
            known().filter(|name| !applied.contains(&version(name))).map(str::to_owned).collect();
        let latest = known().map(version).max().unwrap_or_default();
        match applied.iter().max() {
            None => Schema::Missing,
            Some(_) if !missing.is_empty() => Schema::Older(missing),
            Some(&last) if last > latest => Schema::Newer(last),
            Some(_) => Schema::UpToDate,
        }
    }

    /// The finding about the schema. An outdated schema is an error only if this user may not create or upgrade it.
    pub fn finding(&self, may_migrate: Result<(), String>) -> Finding {
        const SUBJECT: &str = "tables";
        let outdated = |what: String| match may_migrate {
            Ok(()) => Finding::note(SUBJECT, what)
                .with_remedy("run `campanile migrate`, or start `campanile serve`, which migrates at start"),
            Err(remedy) => Finding::wrong(SUBJECT, what, remedy),
        };
        match self {
            Schema::Missing => outdated("not created yet".to_owned()),
            Schema::Older(missing) => {
                outdated(format!("older than this release: {} not applied yet", missing.join(", ")))
            }
            Schema::UpToDate => Finding::ok(SUBJECT, "up to date"),
            Schema::Newer(last) => Finding::note(
                SUBJECT,
                format!(
                    "newer than this release (V{last}); this release still works, and ignores what was added"
                ),
            ),
        }
    }
}

fn version(name: &str) -> i64 {
    let digits = name.trim_start_matches('V').split('_').next().unwrap_or_default();
    digits.parse().unwrap_or_default()
}

/// The finding about the oldest event that waits.
pub(crate) fn waiting(oldest: Option<Duration>) -> Finding {
    const SUBJECT: &str = "events";
    match oldest {
        None => Finding::ok(SUBJECT, "none pending"),
        Some(age) if age < EVENT_WAITS_LONG => {
            Finding::ok(SUBJECT, format!("the oldest has been pending for {}", human_duration(age)))
        }
        Some(age) => {
            Finding::note(SUBJECT, format!("the oldest has been pending for {}", human_duration(age)))
                .with_remedy(
                    "check that an instance with the role fan_out is running; `campanile tail` shows events \
                as they are processed",
                )
        }
    }
}

/// The finding about chunks that no instance publishes now. `oldest` is the first id of the oldest chunk; an id begins
/// with the time at which it was made.
pub(crate) fn unpublished(chunks: u64, first_id: Option<&str>) -> Finding {
    const SUBJECT: &str = "publishing";
    if chunks == 0 {
        return Finding::ok(SUBJECT, "no batch waits for the broker");
    }
    let age = first_id.and_then(made_at).map(|at| time::between(at, Timestamp::now())).unwrap_or_default();
    let waiting = if chunks == 1 { "1 batch waits".to_owned() } else { format!("{chunks} batches wait") };
    let what = format!("{waiting} for the broker, the oldest for {}", human_duration(age));
    if age < EVENT_WAITS_LONG {
        return Finding::ok(SUBJECT, what);
    }
    Finding::note(SUBJECT, what).with_remedy(
        "check that an instance with the role publish is running and the broker is reachable; \
         /readyz of that instance names the full queue",
    )
}

/// The first 48 bits of a UUID of version 7 are milliseconds since 1970.
fn made_at(id: &str) -> Option<Timestamp> {
    let digits: String = id.chars().filter(|c| *c != '-').take(12).collect();
    Timestamp::from_millisecond(i64::from_str_radix(&digits, 16).ok()?).ok()
}

pub(crate) fn dead_letters(count: u64) -> Finding {
    const SUBJECT: &str = "dead letters";
    match count {
        0 => Finding::ok(SUBJECT, "none"),
        count => Finding::note(SUBJECT, format!("{count} not replayed")).with_remedy(
            "`campanile dead-letters list` shows them, `campanile dead-letters replay --all` tries them again",
        ),
    }
}

pub(crate) fn in_doubt(count: u64) -> Finding {
    const SUBJECT: &str = "sends in doubt";
    match count {
        0 => Finding::ok(SUBJECT, "none"),
        count => Finding::note(SUBJECT, format!("{count}; it is unknown whether they were delivered"))
            .with_remedy("`campanile trace EVENT_ID` shows each; check with the provider before resending"),
    }
}

/// The finding for a check that timed out or was refused.
pub(crate) fn not_checked(subject: &'static str, why: &str) -> Finding {
    Finding::note(subject, format!("not checked: {why}"))
}

/// The duration in the largest unit that fits.
pub(crate) fn human_duration(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use campanile_domain::finding::Level;

    use super::*;

    const KNOWN: [&str; 2] = ["V1__first_tables", "V2__leases"];

    #[test]
    fn a_schema_is_compared_by_its_versions() {
        assert_eq!(Schema::of(&[], &KNOWN), Schema::Missing);
        assert_eq!(Schema::of(&[1], &KNOWN), Schema::Older(vec!["V2__leases".to_owned()]));
        assert_eq!(Schema::of(&[1, 2], &KNOWN), Schema::UpToDate);
        assert_eq!(Schema::of(&[1, 2, 10], &KNOWN), Schema::Newer(10));
        assert_eq!(Schema::of(&[1, 10], &KNOWN), Schema::Older(vec!["V2__leases".to_owned()]));
    }

    #[test]
    fn a_schema_that_nobody_may_upgrade_is_wrong() {
        let older = Schema::of(&[1], &KNOWN);
        assert_eq!(older.finding(Ok(())).level, Level::Note);
        let wrong = older.finding(Err("ask the owner".to_owned()));
        assert_eq!((wrong.level, wrong.remedy.as_deref()), (Level::Wrong, Some("ask the owner")));
        assert!(wrong.what.contains("V2__leases"), "{}", wrong.what);
        assert_eq!(Schema::Newer(3).finding(Err(String::new())).level, Level::Note);
    }

    #[test]
    fn what_waits_for_long_is_noted() {
        assert_eq!(waiting(None).level, Level::Ok);
        assert_eq!(waiting(Some(Duration::from_secs(3))).level, Level::Ok);
        let long = waiting(Some(Duration::from_hours(3)));
        assert_eq!((long.level, long.what.as_str()), (Level::Note, "the oldest has been pending for 3 h"));
        assert_eq!(unpublished(0, None).level, Level::Ok);
        let now = format!("{:012x}-7000", Timestamp::now().as_millisecond());
        assert_eq!(unpublished(2, Some(&now)).level, Level::Ok);
        let old = unpublished(2, Some("0190163d-8694-739b-aea5-966c26f8ad91"));
        assert_eq!(old.level, Level::Note);
        assert!(old.what.starts_with("2 batches") && old.what.ends_with(" days"), "{}", old.what);
        assert_eq!((dead_letters(0).level, dead_letters(2).level), (Level::Ok, Level::Note));
        assert_eq!((in_doubt(0).level, in_doubt(1).level), (Level::Ok, Level::Note));
    }
}
