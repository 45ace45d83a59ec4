//! Writes millions of rows by COPY: people, and history as the engine leaves it behind with providers other than
//! `capture`.

use std::fmt::Write;
use std::pin::pin;

use anyhow::Result;
use futures_util::SinkExt;
use tokio_postgres::Client;
use uuid::{NoContext, Timestamp, Uuid};

use crate::shape::{CHANNELS, Shape};
use crate::world::World;

/// Bytes that are passed to the driver at once.
const PIECE_BYTES: usize = 64 * 1024;

/// The staff of one restaurant with `size` members.
pub async fn members(world: &World, size: usize) -> Result<()> {
    let columns =
        "recipient (user_type, user_id, entity_type, entity_id, role, name, email, locale, time_zone)";
    let client = world.database.client().await?;
    let row = |text: &mut String, n: usize| {
        writeln!(
            text,
            "RESTAURANT_USER\tmember-{size}-{n}\tRESTAURANT\tmembers-{size}\tWAITER\tPerson \
             {n}\tperson{n}@example.com\tit-IT\tEurope/Rome"
        )
    };
    copy(&client, columns, 0..size, row).await
}

/// Events of the usual shape from a day ago, with all their rows, until there are `notifications` notifications.
pub async fn history(world: &World, notifications: usize) -> Result<()> {
    let shape = Shape::USUAL;
    let events = notifications / shape.notifications();
    let day_ago = 86_400;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs() - day_ago;
    let id = |person: usize| notification_id(now, person);
    let at = "yesterday";
    let people = 0..events * shape.recipients;
    let client = world.database.client().await?;
    let of = |person: usize| (person / shape.recipients, person % 3_000);

    let columns = "event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, status, \
        created_at, published_at, processed_at)";
    let row = |text: &mut String, n: usize| {
        writeln!(
            text,
            "past-{n}\tORDER_CREATED\tRESTAURANT\tr{}\t{{\"number\": {n}}}\tPROCESSED\t{at}\t{at}\t{at}",
            n % 1_000
        )
    };
    copy(&client, columns, 0..events, row).await?;

    let columns = "processed_event (event_id, body_hash, status, recipients, sends, instance, created_at)";
    let row = |text: &mut String, n: usize| writeln!(text, "past-{n}\t{n:064x}\tSUCCESS\t3\t9\tbench\t{at}");
    copy(&client, columns, 0..events, row).await?;

    let columns = "event_notification (event_id, entity_type, entity_id, shared_read)";
    let row = |text: &mut String, n: usize| writeln!(text, "past-{n}\tRESTAURANT\tr{}\tt", n % 1_000);
    copy(&client, columns, 0..events, row).await?;

    let columns = "outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address, \
        title, body, priority, audience, entity_type, entity_id, shared_read, queue, created_at)";
    let row = |text: &mut String, person: usize| {
        let (event, staff) = of(person);
        CHANNELS.iter().try_for_each(|channel| {
            writeln!(
                text,
                "{}\t{channel}\tpast-{event}\tRESTAURANT_USER\tstaff-{staff}\tperson{staff}@example.com\tOrder \
                 {event}\tGiulia Rossi ordered 4 dishes, \
                 to be served at 19:30.\tNORMAL\trestaurant\tRESTAURANT\tr{}\tt\tnotification.restaurant\t{at}",
                id(person), event % 1_000
            )
        })
    };
    copy(&client, columns, people.clone(), row).await?;

    let columns = "notification (id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, \
        body, properties, priority, shared_read, created_at)";
    let row = |text: &mut String, person: usize| {
        let (event, staff) = of(person);
        writeln!(
            text,
            "{1}\tpast-{event}\tORDER_CREATED\tRESTAURANT_USER\tstaff-{staff}\tRESTAURANT\tr{0}\tOrder \
             {event}\tGiulia Rossi ordered 4 dishes, \
             to be served at \
             19:30.\t{{\"audience\":\"restaurant\",\"aggregate_type\":\"RESTAURANT\",\"aggregate_id\":\"r{0}\",\
             \"payload\":{{\"number\":{event}}}}}\tNORMAL\tt\t{at}",
            event % 1_000,
            id(person)
        )
    };
    copy(&client, columns, people.clone(), row).await?;

    let columns = "send (notification_id, channel, recipient_address, status, attempt_count, provider, \
        created_at, sent_at)";
    let row = |text: &mut String, person: usize| {
        let (_, staff) = of(person);
        CHANNELS.iter().try_for_each(|channel| {
            writeln!(text, "{}\t{channel}\tperson{staff}@example.com\tSENT\t1\tsmtp\t{at}\t{at}", id(person))
        })
    };
    copy(&client, columns, people, row).await?;
    world.database.run("VACUUM ANALYZE").await
}

/// Ids as the engine creates them, increasing with time. The same arguments give the same id.
fn notification_id(second: u64, person: usize) -> Uuid {
    let nanos = u32::try_from(person % 1_000_000).unwrap_or_default() * 1_000;
    let later = u64::try_from(person / 1_000_000).unwrap_or_default();
    let mut bytes = Uuid::new_v7(Timestamp::from_unix(NoContext, second + later, nanos)).into_bytes();
    bytes[8..].copy_from_slice(&(person as u64 | 1 << 63).to_be_bytes());
    Uuid::from_bytes(bytes)
}

async fn copy(
    client: &Client,
    columns: &str,
    numbers: std::ops::Range<usize>,
    row: impl Fn(&mut String, usize) -> std::fmt::Result,
) -> Result<()> {
    let mut sink =
        pin!(client.copy_in::<_, std::io::Cursor<String>>(&format!("COPY {columns} FROM STDIN")).await?);
    let mut piece = String::with_capacity(2 * PIECE_BYTES);
    for number in numbers {
        row(&mut piece, number)?;
        if piece.len() > PIECE_BYTES {
            sink.feed(std::io::Cursor::new(std::mem::take(&mut piece))).await?;
        }
    }
    sink.send(std::io::Cursor::new(piece)).await?;
    sink.finish().await?;
    Ok(())
}
