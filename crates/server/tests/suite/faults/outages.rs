//! Faults of PostgreSQL and RabbitMQ at run time: ended connections, missing queues, foreign messages. Afterwards the
//! ledger is right.

use crate::support::ledger::{check_ledger, database, produce};
use crate::support::{Backend, Home, Server, reservation, staff, until};
use campanile_broker::{Broker, Message, RabbitMq, RabbitMqConfig, Stamp};
use reqwest::Method;
use serde_json::{Value, json};

fn broker(home: &Home) -> &RabbitMqConfig {
    home.broker.as_ref().expect("the instances share a broker")
}

#[tokio::test]
async fn connections_to_the_database_end_and_are_made_again() {
    let home = Home::new(Backend::Servers);
    let servers = [Server::start(&home), Server::start(&home)];
    servers[0].put("/v1/recipients", staff()).await;
    let vandal = database(&home).connect().await;
    let mut events = Vec::new();
    for round in 0..5 {
        events.extend(produce(&home, &format!("evt-{round}"), 10).await);
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name = 'campanile'";
        vandal.batch_execute(cut).await.expect("the database is there");
    }
    check_ledger(&home, &servers[0], &events).await;
}

#[tokio::test]
async fn an_outage_is_logged_when_it_begins_and_when_it_is_over() {
    let home = Home::new(Backend::Servers);
    let server = Server::start(&home);
    server.put("/v1/recipients", staff()).await;
    database(&home).close().await;
    server.log_line(&["WARN", "database unavailable"]).await;
    until("requests are refused", async || {
        let (status, _) = server.try_call(Method::GET, "/v1/events", None).await?;
        (status == 503).then_some(())
    })
    .await;
    for _ in 0..20 {
        server.try_call(Method::GET, "/v1/events", None).await;
    }
    database(&home).reopen().await;
    let line = server.log_line(&["INFO", "the database is back after"]).await;
    let (_, duration) = line.rsplit_once(' ').expect("it says for how long");
    assert!(duration.starts_with(|digit: char| digit.is_ascii_digit()), "{line}");
    let refused = server.logged(&["requests failed because the database is unavailable"]);
    assert!(
        refused.len() == 1 && refused[0].contains("requests=1"),
        "one line, however many ask: {refused:?}"
    );
    server.emit(&json!([reservation("evt-1")])).await;
    assert_eq!(server.settled("evt-1").await["event"]["status"], "PROCESSED");
}

/// The fan-out's claim waits for a lock of another session for an unknown time.
#[tokio::test]
async fn nobody_waits_for_a_fan_out_that_is_under_way() {
    let home = Home::new(Backend::Servers);
    let server = Server::start(&home);
    server.put("/v1/recipients", staff()).await;
    let stranger = database(&home).connect().await;
    let in_the_way = "BEGIN; INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
                      VALUES ('slow', '', 'SUCCESS', 'a stranger', now())";
    stranger.batch_execute(in_the_way).await.expect("the database is there");
    server.emit(&json!([reservation("slow")])).await;
    let client = database(&home).connect().await;
    until("the fan-out waits", async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = \
            current_database()";
        (client.query_one(waits, &[]).await.ok()?.get::<_, i64>(0) > 0).then_some(())
    })
    .await;
    let mut urgent = reservation("urgent");
    urgent["priority"] = json!("HIGH");
    server.emit(&json!([reservation("usual"), urgent])).await;
    for event in ["urgent", "usual"] {
        assert_eq!(server.settled(event).await["event"]["status"], "PROCESSED");
    }
    assert_eq!(server.get("/v1/events/slow").await["event"]["status"], "PENDING");
    stranger.batch_execute("ROLLBACK").await.expect("the database is there");
    assert_eq!(server.settled("slow").await["event"]["status"], "PROCESSED");
}

#[tokio::test]
async fn queues_that_vanish_are_made_again_with_what_was_in_them() {
    let home = Home::new(Backend::Servers);
    let servers = [Server::start(&home), Server::start(&home)];
    servers[0].put("/v1/recipients", staff()).await;
    let mut events = Vec::new();
    for round in 0..4 {
        events.extend(produce(&home, &format!("evt-{round}"), 20).await);
        RabbitMq::remove(broker(&home)).await.expect("the broker is there");
    }
    check_ledger(&home, &servers[0], &events).await;
}

#[tokio::test]
async fn whoever_dies_before_a_lost_queue_is_made_again_leaves_the_loss_to_be_found() {
    let home = Home::new(Backend::Servers);
    let roles = ("CAMPANILE_ENGINE__ROLES", "api,fan_out,publish,recover");
    let mut without_receivers = Server::start_with(&home, &[roles]);
    without_receivers.put("/v1/recipients", staff()).await;
    let events = produce(&home, "evt", 5).await;
    until("everything is published", async || {
        let client = database(&home).connect().await;
        let waiting = "SELECT (SELECT count(*) FROM publish_chunk) + (SELECT count(*) FROM event_outbox WHERE \
            status = 'PENDING')";
        (client.query_one(waiting, &[]).await.ok()?.get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    without_receivers.kill();
    RabbitMq::remove(broker(&home)).await.expect("the broker is there");
    let mut dies = Server::start_with(&home, &[("CAMPANILE_KILL_AT", "recover.before_restore")]);
    dies.died_by_sigkill().await;
    let server = Server::start(&home);
    check_ledger(&home, &server, &events).await;
}

#[tokio::test]
async fn messages_that_nobody_of_ours_wrote_reach_nobody_and_end_in_the_dead_letters() {
    let home = Home::new(Backend::Servers);
    let server = Server::start(&home);
    server.put("/v1/recipients", staff()).await;
    let stranger = RabbitMq::open(broker(&home).clone()).await.expect("the broker is there");
    let message = |id: &str| {
        Message {
        id: id.to_owned(),
        body: br#"{"v": 1, "event_id": "forged", "recipient_type": "CUSTOMER", "recipient_id": "1", "channel": "EMAIL",
                   "recipient_address": "victim@example.com", "title": "Pay here"}"#[..]
            .into(),
        stamp: Some(Stamp { instance: i32::MAX, at_ms: i64::MIN }),
    }
    };
    let forged = ["", "no key", "01990000-0000-7000-8000-000000000000:EMAIL"].map(message).to_vec();
    until("the queues are there", async || {
        stranger.publish("notification.customer", forged.clone()).await.ok()
    })
    .await;
    let dead_letters = until("all of them are dead letters", async || {
        let dead_letters = server.get("/v1/dead-letters").await["items"].as_array()?.clone();
        (dead_letters.len() == forged.len()).then_some(dead_letters)
    })
    .await;
    let reasons: Vec<&Value> = dead_letters.iter().map(|dead_letter| &dead_letter["reason"]).collect();
    assert_eq!(json!(reasons), json!(["UNREADABLE_MESSAGE", "UNREADABLE_MESSAGE", "UNKNOWN_MESSAGE"]));
    // The queue is consumed further.
    server.emit(&reservation("evt-1")).await;
    assert_eq!(server.settled("evt-1").await["event"]["status"], "PROCESSED");
    assert_eq!(server.captured().await.len(), 9);
}
