//! Several instances on one PostgreSQL and one RabbitMQ: they share the work, come and go, and send nothing twice.
//! Producers write events by SQL, as business services do, and some roll back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::ledger::{check_ledger, database, produce};
use crate::support::{Backend, Home, Server, reservation, staff};
use reqwest::Method;
use serde_json::Value;

/// Instances have names, so that traces show which one did what.
fn start(home: &Home, name: &str, roles: &str) -> Server {
    Server::start_with(home, &[("CAMPANILE_ENGINE__INSTANCE", name), ("CAMPANILE_ENGINE__ROLES", roles)])
}

/// The first instance claims many events at once, so it may take some rounds until each has had a share.
async fn share_a_load(count: usize) {
    const ROUNDS: usize = 15;
    let home = Home::new(Backend::Servers);
    let servers: Vec<Server> = (0..count).map(|n| start(&home, &format!("instance-{n}"), "")).collect();
    servers[0].put("/v1/recipients", staff()).await;
    let client = database(&home).connect().await;
    let who = async || {
        let who = client.query("SELECT DISTINCT instance FROM processed_event", &[]).await;
        who.expect("it can be asked").iter().map(|row| row.get(0)).collect::<BTreeSet<String>>()
    };
    let mut events = Vec::new();
    for round in 0..ROUNDS {
        events.extend(produce(&home, &format!("evt-{round}"), 10).await);
        if round >= 4 && who().await.len() == count {
            break;
        }
    }
    check_ledger(&home, &servers[0], &events).await;
    let who = who().await;
    assert_eq!(who.len(), count, "each had its share of the fan-out: {who:?}");
}

#[tokio::test]
async fn one_instance_does_everything() {
    share_a_load(1).await;
}

#[tokio::test]
async fn two_instances_share_a_load() {
    share_a_load(2).await;
}

#[tokio::test]
async fn four_instances_share_a_load() {
    share_a_load(4).await;
}

#[tokio::test]
async fn instances_come_and_go_while_producers_write() {
    const KILLS: usize = 6;
    let home = Home::new(Backend::Servers);
    let mut servers: Vec<Server> = (0..3).map(|n| start(&home, &format!("instance-{n}"), "")).collect();
    servers[0].put("/v1/recipients", staff()).await;
    let mut events = Vec::new();
    for kill in 0..KILLS {
        let begun = Instant::now();
        events.extend(produce(&home, &format!("evt-{kill}"), 20).await);
        let victim = kill % servers.len();
        tokio::time::sleep(Duration::from_millis(600).saturating_sub(begun.elapsed())).await;
        servers[victim].kill();
        servers[victim] = start(&home, &format!("instance-{}", kill + 3), "");
    }
    check_ledger(&home, &servers[0], &events).await;
}

#[tokio::test]
async fn the_stages_may_run_apart() {
    let home = Home::new(Backend::Servers);
    let api = start(&home, "api", "api");
    let parts: Vec<Server> = ["fan_out", "publish,recover", "receive", "send"]
        .into_iter()
        .map(|roles| start(&home, roles, roles))
        .collect();
    api.put("/v1/recipients", staff()).await;
    api.emit(&reservation("by-http")).await;
    let trace = api.settled("by-http").await;
    assert_eq!(trace["event"]["status"], "PROCESSED", "{trace}");
    assert_eq!(trace["event"]["stages"]["fan_out"]["instance"], "fan_out", "{trace}");
    for send in trace["sends"].as_array().into_iter().flatten() {
        // A websocket send is sent by being received.
        let sender = if send["channel"] == "WEBSOCKET" { "receive" } else { "send" };
        let by =
            [("publish", "publish,recover"), ("receive", "receive"), ("send", sender), ("settle", sender)];
        for (stage, instance) in by {
            assert_eq!(send["stages"][stage]["instance"], instance, "{stage} of {send}");
            assert!(send["stages"][stage]["at"].is_string(), "{stage} of {send}");
        }
    }
    let mut events = produce(&home, "by-sql", 5).await;
    events.push("by-http".to_owned());
    check_ledger(&home, &api, &events).await;
    // Without the role `api` an instance serves only operators.
    let (status, _) = parts[0].call(Method::GET, "/v1/events", None).await;
    assert_eq!(status, 404);
    assert_eq!(parts[0].get("/readyz").await["components"]["database"], "ok");
}

#[tokio::test]
async fn the_in_process_broker_serves_one_instance_on_postgresql() {
    let home = Home::new(Backend::Mixed);
    let mut first = start(&home, "first", "");
    first.put("/v1/recipients", staff()).await;
    let mut events = produce(&home, "evt", 5).await;
    check_ledger(&home, &first, &events).await;

    let second =
        home.campanile().args(["serve", "--listen", "127.0.0.1:0"]).output().expect("it ends by itself");
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("`first` already uses this database") && said.contains("broker.url"), "{said}");

    // After a crash the next instance publishes again what was in memory.
    events.extend(produce(&home, "last", 5).await);
    first.kill();
    let next = start(&home, "next", "");
    check_ledger(&home, &next, &events).await;
}

#[test]
fn roles_that_leave_part_of_the_pipeline_to_nobody_are_refused() {
    for backend in [Backend::Embedded, Backend::Mixed] {
        let home = Home::new(backend);
        let mut alone = home.campanile();
        let output = alone.args(["serve", "--roles", "api,fan_out"]).output().expect("it ends by itself");
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("this instance does not run publish, receive, send, recover"), "{said}");
    }
}

#[tokio::test]
async fn a_pooler_in_session_mode_may_stand_between() {
    let variable = "CAMPANILE_TEST_PGBOUNCER_URL";
    let pooler = std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which brings up a PgBouncer")
    });
    let home = Home::new(Backend::Servers);
    let direct = database(&home).url.clone();
    let name = direct.rsplit('/').next().expect("the URL ends with the database");
    let through_it = format!("{}/{name}", pooler.rsplit_once('/').expect("the URL names a database").0);
    let through = [
        ("CAMPANILE_DATABASE__URL", through_it.as_str()),
        ("CAMPANILE_DATABASE__DIRECT_URL", direct.as_str()),
    ];
    let server = Server::start_with(&home, &through);
    server.put("/v1/recipients", staff()).await;
    let events = produce(&home, "evt", 10).await;
    check_ledger(&home, &server, &events).await;
}

#[tokio::test]
async fn a_business_service_may_call_emit() {
    let home = Home::new(Backend::Servers);
    let server = Server::start(&home);
    server.put("/v1/recipients", staff()).await;
    let producer = database(&home).connect().await;
    let emit = "SELECT campanile.emit('evt-1', 'RESERVATION_REQUESTED', 'RESTAURANT', '5', '{\"guest\": \
        \"Ada\"}', 'HIGH')";
    for created in [true, false] {
        let row = producer.query_one(emit, &[]).await.expect("the function is there");
        assert_eq!(row.get::<_, bool>(0), created);
    }
    let trace: Value = server.settled("evt-1").await;
    assert_eq!(
        (&trace["event"]["priority"], &trace["event"]["status"]),
        (&"HIGH".into(), &"PROCESSED".into())
    );
    check_ledger(&home, &server, &["evt-1".to_owned()]).await;
}
