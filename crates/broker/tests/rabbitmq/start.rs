//! What `RabbitMQ` contains after a start, and the error when a start is impossible.

use crate::support::impostor;
use crate::support::proxy::Proxy;
use crate::support::witness::{Witness, text_value};
use crate::support::{Place, make_good, messages, publish, receive_and_ack, until, within};
use amqprs::{BasicProperties, FieldValue};
use campanile_broker::{Broker, BrokerError, DEAD_LETTER_QUEUE, RabbitMq, RabbitMqConfig};
use campanile_domain::finding::Level;

#[tokio::test]
async fn the_topology_is_exactly_as_promised() {
    let (place, witness) = (Place::new(&["notification.customer"]), Witness::new().await);
    let broker = place.open(10).await;
    let (exchange, dlx) = (place.name("notifications.exchange"), place.name("notifications.dlx"));
    let realtime = place.name("notifications.websocket");
    for name in [&exchange, &dlx, &realtime] {
        assert!(witness.declares_exchange(name, "topic", true).await);
        assert!(!witness.declares_exchange(name, "topic", false).await);
        assert!(!witness.declares_exchange(name, "direct", true).await);
    }
    let (queue, dlq) = (place.name("notification.customer"), place.name(DEAD_LETTER_QUEUE));
    let quorum = ("x-queue-type", text_value("quorum"));
    let limit = ("x-delivery-limit", FieldValue::l(100));
    let dead_letters = ("x-dead-letter-exchange", text_value(&dlx));
    let mailings = place.name("mailing.jobs.process");
    for queue in [&queue, &mailings] {
        assert!(witness.declares_queue(queue, &[quorum.clone(), limit.clone(), dead_letters.clone()]).await);
        assert!(!witness.declares_queue(queue, &[quorum.clone(), dead_letters.clone()]).await);
        assert!(!witness.declares_queue(queue, &[quorum.clone(), limit.clone()]).await);
    }
    // Nothing is published to this queue yet, so it is not counted.
    assert!(broker.depths().iter().all(|(queue, _)| !queue.contains("mailing")));
    let no_limit = ("x-delivery-limit", FieldValue::l(i64::from(i32::MAX)));
    assert!(witness.declares_queue(&dlq, &[quorum.clone(), no_limit]).await);
    assert!(!witness.declares_queue(&dlq, &[quorum, limit]).await);

    let message = |id: &str| BasicProperties::default().with_message_id(id).finish();
    witness.publish(&exchange, &queue, message("by its own name"), b"{}").await;
    witness.publish(&exchange, "notification.other", message("by another name"), b"{}").await;
    witness.publish(&dlx, "whatever", message("dead"), b"{}").await;
    let (properties, _) = until("a message is there", async || witness.get(&queue).await).await;
    assert_eq!(properties.message_id().map(String::as_str), Some("by its own name"));
    assert!(witness.get(&queue).await.is_none());
    let (properties, _) = until("a message is there", async || witness.get(&dlq).await).await;
    assert_eq!(properties.message_id().map(String::as_str), Some("dead"));
    witness.publish(&exchange, &mailings, message("a hint"), b"{}").await;
    let (properties, _) = until("a message is there", async || witness.get(&mailings).await).await;
    assert_eq!(properties.message_id().map(String::as_str), Some("a hint"));
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn queues_that_were_not_there_are_lost_and_those_that_were_are_not() {
    let place = Place::new(&["a", "b"]);
    let broker = place.find(10).await;
    // Another instance that checks before they are restored also finds them lost.
    let other = place.find(10).await;
    for broker in [&other, &broker] {
        assert!(
            matches!(broker.publish("a", messages(0..1)).await, Err(BrokerError::Lost(queue)) if queue == "a")
        );
        assert!(matches!(broker.consume("a", 1).await, Err(BrokerError::Lost(queue)) if queue == "a"));
        assert_eq!(broker.losses(), ["a", "b", DEAD_LETTER_QUEUE]);
    }
    make_good(&*broker).await;
    until("nothing is lost", async || other.losses().is_empty().then_some(())).await;
    publish(&*broker, "a", 0..3).await;
    drop(broker);
    let broker = place.find(10).await;
    assert_eq!(broker.losses(), Vec::<String>::new());
    assert_eq!(broker.depths(), [("a", 3), ("b", 0), (DEAD_LETTER_QUEUE, 0)].map(|(q, n)| (q.to_owned(), n)));
    drop(broker);
    let witness = Witness::new().await;
    witness.delete_queue(&place.name("b")).await;
    let broker = place.find(10).await;
    assert_eq!(broker.losses(), ["b"]);
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_queue_that_somebody_declared_otherwise_is_named() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let foreign = place.name("a");
    assert!(witness.declares_queue(&foreign, &[("x-queue-type", text_value("classic"))]).await);
    let error = misconfigured(place.config()).await;
    for part in [&*foreign, "current is", "x-queue-type quorum", "x-delivery-limit 100", "delete"] {
        assert!(error.contains(part), "{error}");
    }
    place.remove().await;
}

#[tokio::test]
async fn a_queue_that_belongs_to_somebody_else_alone_is_named() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let foreign = place.name("a");
    witness.declare_exclusive_queue(&foreign).await;
    let error = misconfigured(place.config()).await;
    for part in [&*foreign, "RESOURCE_LOCKED", "close that connection", "`broker.prefix`"] {
        assert!(error.contains(part), "{error}");
    }
    let findings = RabbitMq::examine(&place.config()).await;
    let wrong = findings.iter().find(|finding| finding.level == Level::Wrong).expect("it is found");
    assert!(wrong.what.contains(&foreign) && wrong.remedy.is_some(), "{wrong:?}");
    drop(witness);
}

#[tokio::test]
async fn a_mailing_queue_that_somebody_declared_otherwise_is_named() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let foreign = place.name("mailing.jobs.process");
    assert!(witness.declares_queue(&foreign, &[("x-queue-type", text_value("classic"))]).await);
    let error = misconfigured(place.config()).await;
    assert!(error.contains(&foreign), "{error}");
    place.remove().await;
}

#[tokio::test]
async fn who_answers_without_speaking_amqp_is_not_waited_for() {
    let answers: [&'static [&'static [u8]]; 4] = [
        &[b"HTTP/1.1 400 Bad Request\r\n\r\n"],
        // The answer of a TLS port to a plain client.
        &[b"\x15\x03\x01\x00\x02\x02\x46"],
        &[b"E"],
        // Begins like a frame, but is none.
        &[b"\x01\x00\x00\x00\x00\x00\x02hello"],
    ];
    for answers in answers {
        let url = impostor::url(answers).await;
        let error = misconfigured(RabbitMqConfig { url, ..Place::new(&["a"]).config() }).await;
        for part in ["127.0.0.1:", "does not speak AMQP 0-9-1", "check the port", "`amqps://`"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

/// A broker that is about to start, or a proxy in front of one, closes the connection without an answer.
#[tokio::test]
async fn who_says_nothing_is_waited_for() {
    let url = impostor::url(&[]).await;
    let config = RabbitMqConfig { url, ..Place::new(&["a"]).config() };
    let broker = within(RabbitMq::open(config)).await.expect("it waits");
    assert!(broker.unavailable_reason().is_some());
}

#[tokio::test]
async fn an_exchange_that_somebody_declared_otherwise_is_named() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let foreign = place.name("notifications.exchange");
    assert!(witness.declares_exchange(&foreign, "fanout", true).await);
    let error = misconfigured(place.config()).await;
    let findings = RabbitMq::examine(&place.config()).await;
    let wrong = findings.iter().find(|finding| finding.level == Level::Wrong).expect("it is found");
    for part in [&*foreign, "fanout", "topic"] {
        assert!(error.contains(part) && wrong.what.contains(part), "{error} {wrong:?}");
    }
    place.remove().await;
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_shown() {
    let mut url = crate::support::url();
    url.set_password(Some("not-the-password")).expect("a URL of a broker has a password");
    let error = misconfigured(RabbitMqConfig { url: url.to_string(), ..Place::new(&["a"]).config() }).await;
    assert!(error.contains("refuses user"), "{error}");
    assert!(!error.contains("not-the-password"), "{error}");
}

#[tokio::test]
async fn a_virtual_host_that_does_not_exist_is_named() {
    let mut url = crate::support::url();
    url.set_path("/no-such-host");
    let error = misconfigured(RabbitMqConfig { url: url.to_string(), ..Place::new(&["a"]).config() }).await;
    assert!(error.contains("`no-such-host`"), "{error}");
}

#[tokio::test]
async fn a_name_that_is_too_long_is_refused() {
    let prefix = "p".repeat(250);
    let error = misconfigured(RabbitMqConfig { prefix, ..Place::new(&["a"]).config() }).await;
    assert!(error.contains("255 bytes"), "{error}");
}

#[tokio::test]
async fn a_broker_that_is_not_there_yet_is_waited_for() {
    let (place, mut proxy) = (Place::new(&["a"]), Proxy::down().await);
    let config = RabbitMqConfig { url: proxy.url(), ..place.config() };
    let broker = within(RabbitMq::open(config)).await.expect("it waits");
    let refused = broker.publish("a", messages(0..1)).await.expect_err("nobody is there");
    let BrokerError::Unreachable(reason) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("127.0.0.1:") && !reason.contains("guest"), "{reason}");
    assert!(matches!(broker.consume("a", 10).await, Err(BrokerError::Unreachable(_))));
    assert!(broker.losses().is_empty() && broker.unavailable_reason().is_some());
    proxy.restore().await;
    until("the broker is back", async || broker.unavailable_reason().is_none().then_some(())).await;
    assert_eq!(make_good(&broker).await, ["a", DEAD_LETTER_QUEUE]);
    publish(&broker, "a", 0..3).await;
    receive_and_ack(&mut *broker.consume("a", 10).await.expect("it is there"), 0..3).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn debug_output_shows_no_password() {
    let place = Place::new(&["a"]);
    let url = "amqp://somebody:secret@localhost/%2f".to_owned();
    assert!(!format!("{:?}", RabbitMqConfig { url, ..place.config() }).contains("secret"));
}

#[tokio::test]
async fn an_examination_finds_what_is_missing_or_foreign_and_changes_nothing() {
    let place = Place::new(&["a", "b"]);
    let found = async || {
        let findings = RabbitMq::examine(&place.config()).await;
        let findings = findings.into_iter().filter(|finding| finding.subject != "permissions");
        findings.map(|finding| (finding.level, finding.what)).collect::<Vec<_>>()
    };
    let empty = found().await;
    assert!(empty[0].0 == Level::Ok && empty[1].1.contains("no queue exists yet"), "{empty:?}");
    // The examination created none of them.
    assert_eq!(found().await, empty);
    let broker = place.open(10).await;
    publish(&*broker, "a", 0..3).await;
    let whole = until("the messages are found", async || {
        Some(found().await).filter(|found| found[1].1.contains("3 messages"))
    })
    .await;
    assert!(whole[1].0 == Level::Ok && whole[1].1.contains("all 3 queues"), "{whole:?}");
    drop(broker);
    let witness = Witness::new().await;
    let mailings = place.name("mailing.jobs.process");
    witness.delete_queue(&mailings).await;
    let without_mailings = found().await;
    assert!(
        without_mailings[1].0 == Level::Note && without_mailings[1].1.contains(&mailings),
        "{without_mailings:?}"
    );
    place.find(10).await;
    assert_eq!(found().await, whole);
    witness.delete_queue(&place.name("b")).await;
    let missing = found().await;
    assert!(missing[1].0 == Level::Note && missing[1].1.contains(&place.name("b")), "{missing:?}");
    place.remove().await;
    let nobody =
        RabbitMqConfig { url: "amqp://anna:secret@127.0.0.1:1".to_owned(), ..Place::new(&["a"]).config() };
    let nobody = RabbitMq::examine(&nobody).await;
    assert!(nobody[0].level == Level::Wrong && nobody[0].remedy.is_some(), "{nobody:?}");
    assert!(!format!("{nobody:?}").contains("secret"), "{nobody:?}");
}

async fn misconfigured(config: RabbitMqConfig) -> String {
    match within(RabbitMq::open(config)).await {
        Err(BrokerError::Misconfigured(error)) => error,
        other => panic!("it was to be refused, but {other:?}"),
    }
}
