//! The shape of an event: a number of recipients times a number of channels, with rules and texts as on a restaurant
//! platform.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::world::World;

/// These channels go through every stage, settling included; a websocket send would be sent when received. SMS is left
/// to the probes, which have a provider.
pub const CHANNELS: [&str; 3] = ["EMAIL", "PUSH", "SLACK"];
/// The number of people over all restaurants.
const PEOPLE: usize = 3_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub recipients: usize,
    pub channels: usize,
}

impl Shape {
    pub const ALL: [Shape; 3] = [Shape::new(1, 1), Shape::new(3, 3), Shape::new(100, 2)];
    pub const USUAL: Shape = Shape::new(3, 3);

    pub const fn new(recipients: usize, channels: usize) -> Self {
        Shape { recipients, channels }
    }

    /// Notifications per event.
    pub fn notifications(self) -> usize {
        self.recipients * self.channels
    }

    fn restaurants(self) -> usize {
        PEOPLE.div_ceil(self.recipients)
    }

    /// Writes the people and rules of this shape.
    pub async fn move_in(self, world: &World) -> Result<()> {
        self.write_rules(world, &CHANNELS[..self.channels]).await?;
        let (people, restaurants) = (self.restaurants() * self.recipients, self.restaurants());
        let sql = format!(
            "INSERT INTO recipient (user_type, user_id, entity_type, entity_id, role, name, email, push_tokens,
            slack_webhook, locale, time_zone)
             SELECT 'RESTAURANT_USER', 'staff-' || n, 'RESTAURANT', 'r' || (n % {restaurants}),
                    CASE WHEN n < {restaurants} THEN 'MANAGER' ELSE 'WAITER' END, 'Person ' || n,
                        'person' || n || '@example.com',
                    json('[\"token-' || n || '\"]'), 'https://hooks.slack.com/services/T0/B0/' || n, 'it-IT',
                        'Europe/Rome'
             FROM ({}) s",
            series(0, people)
        );
        world.database.run(&sql).await
    }

    pub async fn write_rules(self, world: &World, channels: &[&str]) -> Result<()> {
        let routes: Vec<String> =
            channels.iter().map(|channel| format!("('ORDER_CREATED', '{channel}', true)")).collect();
        let sql = format!(
            "INSERT INTO event_type_channel_routing (event_type, channel, mandatory) VALUES {};
             INSERT INTO template (event_type, channel, locale, title, body) VALUES
             ('ORDER_CREATED', '*', '*', 'Order {{{{ payload.number }}}}',
              '{{{{ payload.guest }}}} ordered {{{{ payload.dishes }}}} dishes, \
              to be served at {{{{ payload.at }}}}.')",
            routes.join(", ")
        );
        world.database.run(&sql).await
    }

    /// Writes events with these numbers in one transaction, as a business service does.
    pub async fn order(self, world: &World, first: usize, events: usize) -> Result<()> {
        let sql = format!(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
             SELECT 'order-' || n, 'ORDER_CREATED', 'RESTAURANT', 'r' || (n % {}),
                    json('{{\"number\": ' || n || ', \"guest\": \"Giulia Rossi\", \"dishes\": 4, \
                    \"at\": \"19:30\", \"table\": 12}}')
             FROM ({}) s",
            self.restaurants(),
            series(first, events)
        );
        world.database.run(&sql).await
    }

    /// An event for HTTP.
    pub fn event(self, number: usize) -> Value {
        json!({
            "event_id": format!("order-{number}"), "event_type": "ORDER_CREATED", "aggregate_type": "RESTAURANT",
            "aggregate_id": format!("r{}", number % self.restaurants()),
            "payload": {
                "number": number, "guest": "Giulia Rossi", "dishes": 4, "at": "19:30", "table": 12,
            },
        })
    }

    /// The statement for one event, with `campanile.emit`.
    pub fn emit(self, number: usize) -> String {
        format!(
            "SELECT emit('order-{number}', 'ORDER_CREATED', 'RESTAURANT', 'r{}',
                    '{{\"number\": {number}, \"guest\": \"Giulia Rossi\", \"dishes\": 4, \
                    \"at\": \"19:30\", \"table\": 12}}')",
            number % self.restaurants()
        )
    }
}

/// Numbers, in SQL of both databases.
pub fn series(first: usize, count: usize) -> String {
    format!(
        "WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n + 1 < {}) SELECT n FROM s",
        first + count
    )
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.recipients, self.channels)
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = text.split_once('x').and_then(|(recipients, channels)| {
            Some(Shape::new(recipients.trim().parse().ok()?, channels.trim().parse().ok()?))
        });
        shape
            .filter(|shape| {
                (1..=1_000).contains(&shape.recipients) && (1..=CHANNELS.len()).contains(&shape.channels)
            })
            .ok_or_else(|| {
                format!(
                    "`{text}` is no shape; write recipients x channels, such as 3x3, with at most 1000 and 3"
                )
            })
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}x{}", self.recipients, self.channels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_they_are_written() {
        assert_eq!("3x3".parse(), Ok(Shape::USUAL));
        assert_eq!("100x2".parse(), Ok(Shape::new(100, 2)));
        assert!(["3", "0x1", "3x4", "x"].iter().all(|text| text.parse::<Shape>().is_err()));
    }
}
