//! What was committed against what arrived: the one question that all of this is about.
//!
//! What `capture` keeps is read from the database, what the provider accepted from its own ledger. A send that was in doubt, and only such a
//! one, may have been accepted once more per doubt.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;

use crate::diary::Diary;
use crate::load::{Event, Known};
use crate::people::Due;
use crate::provider_process::ProviderLedger;
use crate::world::World;

/// A send as the database has it.
#[derive(Debug)]
struct Send {
    status: String,
    doubts: u32,
}

/// Event, user, channel.
type Key = (String, String, String);

#[derive(Debug)]
struct Book {
    events: HashMap<String, String>,
    sends: HashMap<Key, Send>,
    captured: HashMap<Key, u32>,
    letters: HashMap<Key, Vec<String>>,
    provider: ProviderLedger,
}

pub async fn check(world: &World, known: &Known) -> Result<()> {
    let book = open(world).await?;
    let diary = &world.diary;
    let (mut present, mut expected) = (HashSet::new(), 0);
    let all_there =
        |events: &[Event]| events.iter().filter(|event| book.events.contains_key(&event.id)).count();
    for events in &known.committed {
        if all_there(events) != events.len() {
            diary.find(format!("lost: {} was committed, and is not there", events[0].id));
        }
    }
    for events in &known.rolled_back {
        if all_there(events) != 0 {
            diary.find(format!("{} was rolled back, and is there", events[0].id));
        }
    }
    for events in &known.unknown {
        let there = all_there(events);
        if there != 0 && there != events.len() {
            diary.find(format!(
                "of {} and its transaction, {there} of {} are there",
                events[0].id,
                events.len()
            ));
        }
    }
    for event in known.committed.iter().chain(&known.unknown).flatten() {
        if book.events.contains_key(&event.id) && present.insert(event.id.clone()) {
            expected += check_event(&book, event, diary);
        }
    }
    for id in book.events.keys().filter(|id| !present.contains(*id)) {
        diary.find(format!("{id} is there, and nobody wrote it"));
    }
    check_nothing_else(&book, known, &present, expected, diary);
    diary.add("events", present.len() as u64);
    diary.add("sends", expected as u64);
    diary.add("dead letters, explained", book.letters.values().map(Vec::len).sum::<usize>() as u64);
    Ok(())
}

async fn open(world: &World) -> Result<Book> {
    let events = world.database.rows("SELECT event_id, status FROM event_outbox").await?;
    let sends = world
        .database
        .rows(
            "SELECT n.event_id, n.user_id, s.channel, s.status,
                    (SELECT count(*) FROM send_attempt a
                     WHERE a.notification_id = s.notification_id AND a.channel = s.channel AND a.outcome = 'UNKNOWN')
             FROM notification_channel_send s JOIN notification n ON n.id = s.notification_id",
        )
        .await?;
    let captured = world
        .database
        .rows("SELECT event_id, user_id, channel, count(*) FROM captured_message GROUP BY event_id, user_id, channel")
        .await?;
    let letters = world
        .database
        .rows("SELECT coalesce(event_id, ''), coalesce(recipient_id, ''), coalesce(channel, ''), reason FROM dead_letter")
        .await?;
    let key = |row: &[String]| (row[0].clone(), row[1].clone(), row[2].clone());
    let mut by_key: HashMap<Key, Vec<String>> = HashMap::new();
    for row in letters {
        by_key.entry(key(&row)).or_default().push(row[3].clone());
    }
    Ok(Book {
        events: events.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect(),
        sends: sends
            .into_iter()
            .map(|row| (key(&row), Send { status: row[3].clone(), doubts: row[4].parse().unwrap_or(0) }))
            .collect(),
        captured: captured.into_iter().map(|row| (key(&row), row[3].parse().unwrap_or(0))).collect(),
        letters: by_key,
        provider: world.provider.ledger().await?,
    })
}

/// Everything that the event was to cause. Answers how many sends that are.
fn check_event(book: &Book, event: &Event, diary: &Diary) -> usize {
    let status = &book.events[&event.id];
    if status != "PROCESSED" {
        diary.find(format!("{} ended {status}", event.id));
    }
    let mut sends = 0;
    for user in event.group.users() {
        for (channel, due) in event.group.due(user) {
            sends += 1;
            let key = (event.id.clone(), user.to_string(), (*channel).to_owned());
            let Some(send) = book.sends.get(&key) else {
                diary.find(format!("lost: {key:?} has no send"));
                continue;
            };
            let number = event.group.phone(user);
            if let Some(wrong) = judge(book, *due, &key, send, &number, diary) {
                diary.find(format!("{wrong}: {key:?}, {send:?}"));
            }
        }
    }
    sends
}

fn judge(book: &Book, due: Due, key: &Key, send: &Send, number: &str, diary: &Diary) -> Option<&'static str> {
    let captured = book.captured.get(key).copied().unwrap_or(0);
    let letters = book.letters.get(key).map_or(&[][..], Vec::as_slice);
    match due {
        Due::Live => (send.status != "SENT").then_some("lost"),
        Due::Captured => match (send.status.as_str(), captured) {
            ("SENT", 1) => None,
            (_, 0) => Some("lost"),
            (_, 1) => Some("captured, and the send does not know it"),
            _ => Some("told twice"),
        },
        Due::Rejected => {
            let settled = send.status == "FAILED" && letters == ["REJECTED"];
            // Held doubts of a number that is rejected anyway.
            let held = send.status == "IN_DOUBT" && letters.is_empty();
            (!settled && !held).then_some("neither rejected nor explained")
        }
        Due::Texted => {
            diary.add("doubts", send.doubts.into());
            let accepted =
                book.provider.accepted.get(&(key.0.clone(), number.to_owned())).copied().unwrap_or(0);
            match (send.status.as_str(), accepted) {
                ("SENT", 0) => Some("lost: the provider never saw it"),
                ("SENT", n) if n > 1 + send.doubts => Some("told twice outside of every doubt"),
                ("SENT", n) => {
                    diary.add("told again within a doubt", u64::from(n - 1));
                    None
                }
                ("IN_DOUBT", 0) => {
                    diary.count("held in doubt, had not arrived");
                    None
                }
                ("IN_DOUBT", 1) => {
                    diary.count("held in doubt, had arrived");
                    None
                }
                ("IN_DOUBT", _) => Some("held, and told twice"),
                _ => Some("neither sent nor in doubt"),
            }
        }
    }
}

/// Nobody got what nobody was to get.
fn check_nothing_else(book: &Book, known: &Known, present: &HashSet<String>, expected: usize, diary: &Diary) {
    if book.sends.len() != expected {
        diary.find(format!("there are {} sends where {expected} were decided", book.sends.len()));
    }
    for (key, count) in book.captured.iter().filter(|(key, _)| !present.contains(&key.0)) {
        diary.find(format!("captured {count} times of what nobody committed: {key:?}"));
    }
    for (event_id, _) in book.provider.accepted.keys().filter(|(event_id, _)| !present.contains(event_id)) {
        diary.find(format!("texted of what nobody committed: {event_id}"));
    }
    for violation in &book.provider.violations {
        diary.find(format!("against the provider's rules: {violation}"));
    }
    let group: HashMap<&str, _> = known
        .committed
        .iter()
        .chain(&known.unknown)
        .flatten()
        .map(|event| (event.id.as_str(), event.group))
        .collect();
    for (key, reasons) in &book.letters {
        let due = group.get(key.0.as_str()).and_then(|group| {
            let user = key.1.parse().ok()?;
            group.due(user).iter().find(|(channel, _)| *channel == key.2)
        });
        if !matches!(due, Some((_, Due::Rejected))) {
            diary.find(format!("a dead letter that nothing explains: {key:?}, {reasons:?}"));
        }
    }
}

/// How much is still under way, by what it is.
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
