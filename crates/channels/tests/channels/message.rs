//! The message that the tests of each provider begin with.

use campanile_channels::Message;
use campanile_domain::channel::Channel;
use campanile_domain::id::{NotificationId, SendKey};
use campanile_domain::priority::Priority;
use campanile_domain::time::Timestamp;

pub fn message<'a>(channel: Channel, address: &'a str, title: &'a str, body: &'a str) -> Message<'a> {
    Message {
        key: SendKey { notification_id: NotificationId::generate(), channel },
        event_id: "evt-1",
        event_type: "ORDER_CREATED",
        address,
        name: None,
        title,
        body,
        html: None,
        url: None,
        priority: Priority::Normal,
        created_at: Timestamp::now(),
    }
}
