//! A load under which the server is killed again and again, with the ledger checked at the end. As a test it takes
//! seconds; `cargo xtask soak --minutes N` lets it go on.

#[expect(dead_code, reason = "what the other tests need is there too")]
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use support::ledger::{check_ledger, produce};
use support::{Backend, Home, Server, reservation, staff};

const USERS: u32 = 3;
const CHANNELS: [&str; 3] = ["EMAIL", "PUSH", "SMS"];
const EVENTS_PER_LIFE: usize = 30;

/// A small generator, so that a run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// As long and as random as the caller of the soak wants it.
fn wanted() -> (Duration, u64) {
    let length =
        variable("CAMPANILE_SOAK_MINUTES").map_or(Duration::from_secs(6), |m| Duration::from_secs(60 * m));
    (length, variable("CAMPANILE_SOAK_SEED").unwrap_or(20_261_115).max(1))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[tokio::test]
async fn nothing_is_lost_or_told_twice_however_often_the_server_is_killed() {
    let (length, seed) = wanted();
    let mut random = Random(seed);
    let home = Home::new(Backend::Embedded);
    let begun = Instant::now();
    let (mut lives, mut accepted) = (0, Vec::new());
    while begun.elapsed() < length {
        lives += 1;
        let mut server = Server::start(&home);
        if lives == 1 {
            server.put("/v1/recipients", staff()).await;
        }
        accepted.extend(one_life(&server, lives, &mut random).await);
        tokio::time::sleep(Duration::from_millis(random.below(120))).await;
        server.kill();
    }
    let server = Server::start(&home);
    for event_id in &accepted {
        let trace = server.settled(event_id).await;
        assert_eq!(trace["event"]["status"], "PROCESSED", "seed {seed}: {trace}");
    }
    let expected: BTreeMap<String, u32> = accepted
        .iter()
        .flat_map(|id| {
            (1..=USERS).flat_map(move |u| CHANNELS.map(|c| (format!("{id}/RESTAURANT_USER {u}/{c}"), 1)))
        })
        .collect();
    let captured = server.captured().await;
    // An event whose answer was cut off may have been accepted; then it is whole, too.
    let unanswered: BTreeMap<_, _> =
        captured.iter().filter(|(key, _)| !expected.contains_key(*key)).collect();
    assert_eq!(unanswered.len() % (USERS as usize * CHANNELS.len()), 0, "seed {seed}: {unanswered:?}");
    let wrong: Vec<_> = expected.keys().filter(|key| captured.get(*key) != Some(&1)).collect();
    assert!(wrong.is_empty(), "seed {seed}: lost or twice: {wrong:?}");
    assert!(unanswered.values().all(|count| **count == 1), "seed {seed}: twice: {unanswered:?}");
    println!(
        "{lives} lives, {} events, {} sends: lost 0, twice 0 (seed {seed})",
        accepted.len(),
        captured.len()
    );
}

/// Emits some events, one by one or many at once; answers those that were accepted.
async fn one_life(server: &Server, life: usize, random: &mut Random) -> Vec<String> {
    let ids: Vec<String> = (0..EVENTS_PER_LIFE).map(|n| format!("life-{life}-{n}")).collect();
    let size = usize::try_from(1 + random.below(EVENTS_PER_LIFE as u64)).unwrap();
    let mut accepted = Vec::new();
    for batch in ids.chunks(size) {
        let events: Vec<Value> = batch.iter().map(|id| reservation(id)).collect();
        if server.try_call(Method::POST, "/v1/events", Some(&json!(events))).await.is_some() {
            accepted.extend_from_slice(batch);
        }
    }
    accepted
}

/// Three instances, of which one dies at a time, while producers write by SQL.
#[tokio::test]
async fn nothing_is_lost_or_told_twice_by_instances_that_are_killed_again_and_again() {
    let (length, seed) = wanted();
    let mut random = Random(seed);
    let home = Home::new(Backend::Servers);
    let mut servers = [Server::start(&home), Server::start(&home), Server::start(&home)];
    servers[0].put("/v1/recipients", staff()).await;
    let begun = Instant::now();
    let (mut kills, mut events) = (0, Vec::new());
    while begun.elapsed() < length {
        let transactions = usize::try_from(1 + random.below(10)).unwrap();
        events.extend(produce(&home, &format!("life-{kills}"), transactions).await);
        tokio::time::sleep(Duration::from_millis(random.below(800))).await;
        let victim = usize::try_from(random.below(3)).unwrap();
        servers[victim].kill();
        servers[victim] = Server::start(&home);
        kills += 1;
    }
    check_ledger(&home, &servers[0], &events).await;
    println!(
        "{kills} instances killed, {} events, {} sends: lost 0, twice 0 (seed {seed})",
        events.len(),
        events.len() * USERS as usize * CHANNELS.len()
    );
}
