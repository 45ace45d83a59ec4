//! Compares what was committed with what arrived, which is the purpose of the harness.
//!
//! Captured messages are read from the database, and texts from the provider's ledger. A send may have been accepted
//! once more for each time that it was in doubt. If doubts are held for a person, not even then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;

use crate::fault::REFUSED_BY_A_FULL_DISK;
use crate::journal::Journal;
use crate::load::{CALM, Event, Known};
use crate::people::{Due, address_of};
use crate::provider_process::ProviderLedger;
use crate::round::{Backend, OnDoubt};
use crate::world::World;

/// A send in the database.
#[derive(Debug)]
struct Send {
    status: String,
    doubts: u32,
}

/// Event, user, channel.
type Key = (String, String, String);

#[derive(Debug)]
struct Book {
    on_doubt: OnDoubt,
    events: HashMap<String, String>,
    sends: HashMap<Key, Vec<Send>>,
    /// How often it was captured, and for which address.
    captured: HashMap<Key, (u32, String)>,
    dead_letters: HashMap<Key, Vec<String>>,
    provider: ProviderLedger,
}

/// What should exist.
#[derive(Debug, Default)]
struct Expected {
    events: HashSet<String>,
    notifications: u64,
    sends: HashMap<Key, Due>,
    texts: HashSet<(String, String)>,
}

pub async fn check(world: &World, known: &Known) -> Result<()> {
    let book = open(world).await?;
    let journal = &world.journal;
    check_transactions(&book, known, journal);
    let expected = expected(&book, known);
    for id in &expected.events {
        let status = &book.events[id];
        if status != "PROCESSED" {
            journal.find(format!("{id} ended {status}"));
        }
    }
    for (key, due) in &expected.sends {
        match book.sends.get(key).map_or(&[][..], Vec::as_slice) {
            [send] => {
                if let Some(wrong) = judge(&book, *due, key, send, journal) {
                    journal.find(format!("{wrong}: {key:?}, {send:?}"));
                }
            }
            [] => journal.find(format!("lost: {key:?} has no send")),
            several => journal.find(format!("duplicate: {key:?} has {} sends", several.len())),
        }
    }
    check_nothing_else(&book, &expected, journal);
    check_counts(world, &expected).await?;
    journal.add("events", expected.events.len() as u64);
    journal.add("sends", expected.sends.len() as u64);
    journal.add("dead letters, explained", book.dead_letters.values().map(Vec::len).sum::<usize>() as u64);
    if world.small_disk.is_some() && !journal.counts().contains_key(REFUSED_BY_A_FULL_DISK) {
        journal.find("the disk was never so full that the database noticed, so nothing was shown");
    }
    if expected.events.is_empty() || book.provider.accepted.is_empty() {
        journal.find("no message was sent, so the round proves nothing");
    }
    Ok(())
}

async fn open(world: &World) -> Result<Book> {
    let database = &world.database;
    let events = database.rows("SELECT event_id, status FROM event_outbox").await?;
    let sends = database
        .rows(
            "SELECT n.event_id, n.user_id, s.channel, s.status,
                    (SELECT count(*) FROM send_attempt a
                     WHERE a.notification_id = s.notification_id AND a.channel = s.channel AND a.outcome = 'UNKNOWN')
             FROM notification_channel_send s JOIN notification n ON n.id = s.notification_id",
        )
        .await?;
    let captured = database
        .rows(
            "SELECT event_id, user_id, channel, count(*), min(address) FROM captured_message
             GROUP BY event_id, user_id, channel",
        )
        .await?;
    let dead_letters = database
        .rows(
            "SELECT coalesce(event_id, ''), coalesce(recipient_id, ''), coalesce(channel, ''), \
            reason FROM dead_letter",
        )
        .await?;
    let key = |row: &[String]| (row[0].clone(), row[1].clone(), row[2].clone());
    let mut book = Book {
        on_doubt: world.round.on_doubt,
        events: events.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect(),
        sends: HashMap::new(),
        captured: captured
            .into_iter()
            .map(|row| (key(&row), (row[3].parse().unwrap_or(0), row[4].clone())))
            .collect(),
        dead_letters: HashMap::new(),
        provider: world.provider.ledger().await?,
    };
    for row in sends {
        let send = Send { status: row[3].clone(), doubts: row[4].parse().unwrap_or(0) };
        book.sends.entry(key(&row)).or_default().push(send);
    }
    for row in dead_letters {
        book.dead_letters.entry(key(&row)).or_default().push(row[3].clone());
    }
    Ok(book)
}

/// Checks that committed transactions exist, rolled back ones do not, and none exists in part.
fn check_transactions(book: &Book, known: &Known, journal: &Journal) {
    let there = |events: &[Event]| events.iter().filter(|event| book.events.contains_key(&event.id)).count();
    for events in &known.committed {
        if there(events) != events.len() {
            journal.find(format!("lost: {} was committed, and is not there", events[0].id));
        }
    }
    for events in &known.rolled_back {
        if there(events) != 0 {
            journal.find(format!("{} was rolled back, and is there", events[0].id));
        }
    }
    for events in &known.unknown {
        let there = there(events);
        if there != 0 && there != events.len() {
            let (id, all) = (&events[0].id, events.len());
            journal.find(format!("of {id} and its transaction, {there} of {all} are there"));
        }
    }
}

fn expected(book: &Book, known: &Known) -> Expected {
    let mut expected = Expected::default();
    for event in known.committed.iter().chain(&known.unknown).flatten() {
        if !book.events.contains_key(&event.id) || !expected.events.insert(event.id.clone()) {
            continue;
        }
        for user in event.group.users() {
            expected.notifications += 1;
            for (channel, due) in event.group.due(user) {
                expected.sends.insert((event.id.clone(), user.to_string(), (*channel).to_owned()), *due);
                if *due == Due::Texted {
                    expected.texts.insert((event.id.clone(), event.group.phone(user)));
                }
            }
        }
    }
    expected
}

/// What is wrong with a send, if anything.
fn judge(book: &Book, due: Due, key: &Key, send: &Send, journal: &Journal) -> Option<&'static str> {
    let dead_letters = book.dead_letters.get(key).map_or(&[][..], Vec::as_slice);
    let held = send.status == "IN_DOUBT";
    if held && (book.on_doubt == OnDoubt::Resend || send.doubts != 1) {
        return Some("held, without a doubt or against the policy");
    }
    match due {
        Due::Live => (send.status != "SENT").then_some("lost"),
        Due::Captured => match (send.status.as_str(), book.captured.get(key)) {
            ("SENT", Some((1, address))) => {
                (*address != address_of(&key.1, &key.2)).then_some("sent to the wrong address")
            }
            (_, None) => Some("lost"),
            (_, Some((1, _))) => Some("captured, and the send does not know it"),
            (_, Some(_)) => Some("told twice"),
        },
        Due::Rejected => {
            let settled = send.status == "FAILED" && dead_letters == ["REJECTED"];
            (!(settled || held && dead_letters.is_empty())).then_some("neither rejected nor explained")
        }
        Due::Texted => texted(book, key, send, journal),
    }
}

fn texted(book: &Book, key: &Key, send: &Send, journal: &Journal) -> Option<&'static str> {
    journal.add("doubts", send.doubts.into());
    let number = address_of(&key.1, &key.2);
    let accepted = book.provider.accepted.get(&(key.0.clone(), number)).copied().unwrap_or(0);
    // Otherwise a server that puts every send in doubt would pass all other checks.
    if key.0.starts_with(CALM) && (accepted, send.doubts) != (1, 0) {
        return Some("in doubt although nothing went wrong");
    }
    match (send.status.as_str(), accepted, book.on_doubt) {
        ("SENT", 0, _) => Some("lost: the provider never saw it"),
        ("SENT", n, OnDoubt::Hold) => {
            (n != 1 || send.doubts != 0).then_some("sent twice, although doubts are held")
        }
        ("SENT", n, OnDoubt::Resend) if n > 1 + send.doubts => Some("sent twice without a doubt"),
        ("SENT", n, OnDoubt::Resend) => {
            journal.add("sent again because of a doubt", u64::from(n - 1));
            None
        }
        ("IN_DOUBT", 0, _) => {
            journal.count("held in doubt, had not arrived");
            None
        }
        ("IN_DOUBT", 1, _) => {
            journal.count("held in doubt, had arrived");
            None
        }
        ("IN_DOUBT", ..) => Some("held, and sent twice"),
        _ => Some("neither sent nor in doubt"),
    }
}

/// Checks that nobody got anything that was not for them.
fn check_nothing_else(book: &Book, expected: &Expected, journal: &Journal) {
    for id in book.events.keys().filter(|id| !expected.events.contains(*id)) {
        journal.find(format!("{id} exists, but no producer wrote it"));
    }
    for key in book.sends.keys().filter(|key| !expected.sends.contains_key(*key)) {
        journal.find(format!("a send without a decision: {key:?}"));
    }
    for key in book.captured.keys().filter(|key| expected.sends.get(*key) != Some(&Due::Captured)) {
        journal.find(format!("unexpected captured message: {key:?}"));
    }
    for text in book.provider.accepted.keys().filter(|text| !expected.texts.contains(*text)) {
        journal.find(format!("unexpected SMS: {text:?}"));
    }
    for (key, reasons) in
        book.dead_letters.iter().filter(|(key, _)| expected.sends.get(*key) != Some(&Due::Rejected))
    {
        journal.find(format!("a dead letter that nothing explains: {key:?}, {reasons:?}"));
    }
    for violation in &book.provider.violations {
        journal.find(format!("against the provider's rules: {violation}"));
    }
}

/// Checks the totals of the tables.
async fn check_counts(world: &World, expected: &Expected) -> Result<()> {
    let counts = [
        ("notifications", "SELECT count(*) FROM notification", expected.notifications),
        ("rows", "SELECT count(*) FROM notification_outbox", expected.sends.len() as u64),
        (
            "rows that were given up",
            "SELECT count(*) FROM notification_outbox WHERE status <> 'DELIVERED'",
            0,
        ),
        ("events half decided", "SELECT count(*) FROM processed_event WHERE status <> 'SUCCESS'", 0),
    ];
    for (what, sql, right) in counts {
        let found = world.database.number(sql).await?;
        if found != right {
            world.journal.find(format!("there are {found} {what} where there should be {right}"));
        }
    }
    if world.round.backend == Backend::Servers && world.servers.steers_rabbitmq() {
        check_queues(world).await?;
    }
    Ok(())
}

/// Checks that the broker is empty. Its counts lag by some seconds.
async fn check_queues(world: &World) -> Result<()> {
    const LOOKS: u32 = 8;
    let list = ["-q", "list_queues", "name", "messages", "--no-table-headers"];
    let mut left = String::new();
    for _ in 0..LOOKS {
        let listed = world.servers.rabbitmqctl(&list).await?;
        let ours = listed.lines().filter(|line| line.starts_with(&world.prefix) && !line.ends_with("\t0"));
        left = ours.collect::<Vec<_>>().join(", ");
        if left.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.journal.find(format!("messages are left in the broker: {left}"));
    Ok(())
}

/// How much is still in progress, by kind.
pub async fn under_way(world: &World) -> Result<BTreeMap<&'static str, u64>> {
    let questions = [
        ("events", "SELECT count(*) FROM event_outbox WHERE status IN ('PENDING', 'PUBLISHED')"),
        ("chunks", "SELECT count(*) FROM publish_chunk"),
        ("rows", "SELECT count(*) FROM notification_outbox WHERE status IN ('PENDING', 'PUBLISHED')"),
        ("sends", "SELECT count(*) FROM notification_channel_send WHERE status IN ('DUE', 'SENDING')"),
        ("waiting sends", "SELECT count(*) FROM send_due"),
        ("claims", "SELECT count(*) FROM send_claim"),
    ];
    let mut found = BTreeMap::new();
    for (what, sql) in questions {
        let count = world.database.number(sql).await?;
        if count > 0 {
            found.insert(what, count);
        }
    }
    Ok(found)
}
