//! Queues of notification messages. User types are configured with the queue that their messages travel by; broadcasts
//! have a queue of their own. A broker's queues have no priorities, so each has a twin for `HIGH`.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::priority::Priority;

/// Rows of audience `ALL` travel by a queue of their own, so that a broadcast delays nobody else.
static BROADCAST: LazyLock<Queue> = LazyLock::new(|| Queue::named("notification.broadcast"));
const HIGH_TWIN: &str = ".high";

/// One queue, by the name that configuration, tables and the broker know. Several user types may share a queue. A
/// clone is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Queue {
    name: Arc<str>,
    urgent: bool,
}

impl Queue {
    /// Reads a name. Only here does a name say that its queue is the twin for `HIGH`.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Queue { urgent: name.ends_with(HIGH_TWIN), name }
    }

    pub fn broadcast() -> Self {
        BROADCAST.clone()
    }

    /// The queue for messages of this priority: itself, or its twin for `HIGH`.
    #[must_use]
    pub fn for_priority(&self, priority: Priority) -> Self {
        match priority {
            Priority::High => Queue { name: format!("{}{HIGH_TWIN}", self.name).into(), urgent: true },
            Priority::Normal | Priority::Low => self.clone(),
        }
    }

    /// Whether its messages overtake those of other queues.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Queue::named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_high_travels_by_a_twin() {
        let queue = Queue::named("notification.restaurant");
        assert_eq!(queue.for_priority(Priority::Low), queue);
        assert_eq!(queue.for_priority(Priority::Normal), queue);
        let twin = queue.for_priority(Priority::High);
        assert_eq!(twin.to_string(), "notification.restaurant.high");
        assert!(twin.is_urgent() && !queue.is_urgent());
        assert_eq!(Queue::named(twin.as_str()), twin, "a stored name is read back");
    }

    #[test]
    fn any_name_may_be_configured() {
        let queue = Queue::named("bells.monk");
        assert_eq!(queue.for_priority(Priority::High).as_str(), "bells.monk.high");
        assert_eq!(serde_json::to_string(&queue).unwrap(), "\"bells.monk\"");
        assert_eq!(serde_json::from_str::<Queue>("\"bells.monk\"").unwrap(), queue);
    }
}
