//! Campanile's messages as other clients see them, and messages of other clients as Campanile sees them.

use crate::support::vandal;
use crate::support::witness::{Witness, text_value};
use crate::support::{Place, messages, publish, receive, until};
use amqprs::{BasicProperties, FieldTable, FieldValue};
use campanile_broker::{Confirm, DEAD_LETTER_QUEUE, DELIVERED_BODY_BYTES, Message, Published};

#[tokio::test]
async fn anybody_may_bind_a_queue_and_read_along() {
    let (place, witness) = (Place::new(&["notification.customer"]), Witness::new().await);
    let broker = place.open(10).await;
    let theirs = place.name("theirs");
    assert!(witness.declares_queue(&theirs, &[]).await);
    witness.bind(&theirs, &place.name("notifications.exchange"), "#").await;
    publish(&*broker, "notification.customer", 7..8).await;
    let (properties, body) = until("a message is there", async || witness.get(&theirs).await).await;
    assert_eq!(properties.content_type().map(String::as_str), Some("application/json"));
    assert_eq!(properties.delivery_mode(), Some(2));
    assert_eq!(properties.message_id().map(String::as_str), Some("00007"));
    assert_eq!(body, b"{}");
    witness.delete_queue(&theirs).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn messages_of_strangers_are_delivered_with_or_without_an_id() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(10).await;
    let (exchange, queue) = (place.name("notifications.exchange"), place.name("a"));
    let mut headers = FieldTable::new();
    headers.insert("x-delivery-count".try_into().expect("it is short"), text_value("not a number"));
    headers.insert("t".try_into().expect("it is short"), FieldValue::T(1));
    let forged = BasicProperties::default().with_message_id("forged").with_headers(headers).finish();
    witness.publish(&exchange, &queue, forged, b"\xff\x00 no JSON").await;
    witness.publish(&exchange, &queue, BasicProperties::default(), b"").await;
    let mut consumer = broker.consume("a", 10).await.expect("it is there");
    let mut deliveries = receive(&mut *consumer, 1).await;
    deliveries.extend(receive(&mut *consumer, 1).await);
    let seen: Vec<_> = deliveries.iter().map(|d| (d.message.id.as_str(), &*d.message.body)).collect();
    assert_eq!(seen, [("forged", b"\xff\x00 no JSON".as_slice()), ("", b"".as_slice())]);
    assert!(deliveries.iter().all(|delivery| delivery.delivery_count == 0));
    drop((broker, consumer));
    place.remove().await;
}

/// A client that fails on such text would lose its connection at every redelivery.
#[tokio::test]
async fn text_that_is_not_utf_8_does_not_stop_the_queue() {
    let place = Place::new(&["a"]);
    let broker = place.open(10).await;
    let (message_id, header) = ([0, 1 << 7], [1 << 5, 1 << 7]);
    vandal::publish(&place.name("a"), &[&message_id[..], &[2, 0xff, 0xfe]].concat()).await;
    let table = [1, b'h', b'S', 0, 0, 0, 1, 0xff];
    vandal::publish(&place.name("a"), &[&header[..], &[0, 0, 0, 8], &table, &[2, b'o', b'k']].concat()).await;
    publish(&*broker, "a", 0..1).await;
    let mut consumer = broker.consume("a", 10).await.expect("it is there");
    let mut ids = Vec::new();
    while ids.len() < 3 {
        ids.extend(receive(&mut *consumer, 10).await.into_iter().map(|delivery| delivery.message.id));
    }
    assert_eq!(ids, ["\u{fffd}\u{fffd}", "ok", "00000"]);
    drop((broker, consumer));
    place.remove().await;
}

#[tokio::test]
async fn large_and_empty_bodies_are_published_whole() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(10).await;
    let sent = [0, 1, 128 * 1024 - 8, 128 * 1024, 3_000_000].map(message_of);
    broker.publish("a", sent.to_vec()).await.expect("it is there");
    for message in sent {
        let (_, body) = until("a message is there", async || witness.get(&place.name("a")).await).await;
        assert!(*body == *message.body, "{} bytes arrived as {}", message.body.len(), body.len());
    }
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn bodies_up_to_what_is_promised_arrive_whole() {
    let place = Place::new(&["a"]);
    let broker = place.open(10).await;
    let sent = [0, 1, DELIVERED_BODY_BYTES - 1, DELIVERED_BODY_BYTES].map(message_of);
    broker.publish("a", sent.to_vec()).await.expect("it is there");
    let mut consumer = broker.consume("a", 10).await.expect("it is there");
    for message in sent {
        let received = receive(&mut *consumer, 1).await.remove(0).message;
        assert!(received == message, "{} bytes arrived as {}", message.body.len(), received.body.len());
    }
    drop((broker, consumer));
    place.remove().await;
}

/// Otherwise anybody who may publish could fill the memory of all instances with a prefetch of large messages.
#[tokio::test]
async fn what_a_stranger_publishes_is_cut_to_size_and_does_not_stop_the_queue() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(10).await;
    let (exchange, queue) = (place.name("notifications.exchange"), place.name("a"));
    let large = message_of(1_000_000);
    for id in ["large", "larger"] {
        let properties = BasicProperties::default().with_message_id(id).finish();
        witness.publish(&exchange, &queue, properties, &large.body).await;
    }
    publish(&*broker, "a", 0..1).await;
    let mut consumer = broker.consume("a", 1).await.expect("it is there");
    for id in ["large", "larger", "00000"] {
        let delivery = receive(&mut *consumer, 1).await.remove(0);
        assert_eq!(delivery.message.id, id);
        if id == "00000" {
            assert_eq!(*delivery.message.body, *b"{}");
        } else {
            assert!(*delivery.message.body == large.body[..DELIVERED_BODY_BYTES], "{delivery:?}");
        }
        consumer.ack(&[delivery.tag]).await.expect("it is there");
    }
    until("the queue is as deep as expected", async || {
        broker.depths().contains(&("a".to_owned(), 0)).then_some(())
    })
    .await;
    drop((broker, consumer));
    place.remove().await;
}

#[tokio::test]
async fn what_the_broker_would_choke_on_is_refused_and_the_rest_taken() {
    let place = Place::new(&["a"]);
    let broker = place.open(10).await;
    let mut batch = messages(0..4);
    batch[1].id = "i".repeat(256);
    batch[2].body = vec![b' '; 17 * 1024 * 1024].into();
    let Ok(Published::Confirmed(confirms)) = broker.publish("a", batch).await else {
        panic!("the broker is there, and the queue is empty");
    };
    assert_eq!((&confirms[0], &confirms[3]), (&Confirm::Accepted, &Confirm::Accepted));
    assert!(confirms[1..3].iter().all(|confirm| matches!(confirm, Confirm::Refused { .. })), "{confirms:?}");
    let longest = Message { id: "i".repeat(255), body: (*b"{}").into(), stamp: None };
    let accepted = Published::Confirmed(vec![Confirm::Accepted]);
    assert_eq!(broker.publish("a", vec![longest]).await.expect("it is there"), accepted);
    until("the queue is as deep as expected", async || {
        broker.depths().contains(&("a".to_owned(), 3)).then_some(())
    })
    .await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_message_that_no_queue_takes_is_refused() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(10).await;
    let (queue, exchange) = (place.name("a"), place.name("notifications.exchange"));
    witness.unbind(&queue, &exchange, &queue).await;
    let Ok(Published::Confirmed(confirms)) = broker.publish("a", messages(0..3)).await else {
        panic!("the broker is there, and the queue is empty");
    };
    for confirm in confirms {
        assert!(
            matches!(&confirm, Confirm::Refused { reason } if reason.contains("NO_ROUTE")),
            "{confirm:?}"
        );
    }
    witness.bind(&queue, &exchange, &queue).await;
    publish(&*broker, "a", 3..6).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_dead_letter_says_where_it_died() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(10).await;
    publish(&*broker, "a", 0..2).await;
    let mut consumer = broker.consume("a", 10).await.expect("it is there");
    let first = receive(&mut *consumer, 1).await;
    consumer.reject(&[first[0].tag]).await.expect("it is there");
    let dead_letters = place.name(DEAD_LETTER_QUEUE);
    let (properties, _) = until("a message is there", async || witness.get(&dead_letters).await).await;
    assert_eq!(properties.message_id().map(String::as_str), Some("00000"));
    let headers = properties.headers().expect("a dead letter has headers");
    let deaths = headers.get(&"x-death".try_into().expect("it is short")).expect("it died");
    let deaths = format!("{deaths:?}");
    assert!(deaths.contains(&place.name("a")) && deaths.contains("rejected"), "{deaths}");

    // The second one comes as a redelivery after a release.
    let second = receive(&mut *consumer, 1).await;
    consumer.release(&[second[0].tag]).await.expect("it is there");
    let again = receive(&mut *consumer, 1).await;
    assert_eq!((again[0].redelivered, again[0].delivery_count), (true, 1));
    consumer.reject(&[again[0].tag]).await.expect("it is there");
    let mut undertaker = broker.consume(DEAD_LETTER_QUEUE, 10).await.expect("it is there");
    assert_eq!(receive(&mut *undertaker, 1).await[0].message.id, "00001");
    drop((broker, consumer, undertaker));
    place.remove().await;
}

/// A message with a body of this size whose bytes are hard to confuse.
fn message_of(bytes: usize) -> Message {
    let body = (0..bytes).map(|byte| u8::try_from(byte % 251).unwrap_or_default());
    Message { id: "id".to_owned(), body: body.collect(), stamp: None }
}
