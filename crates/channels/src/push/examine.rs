//! Whether FCM would let us send, found out without sending anything.

use std::time::Duration;

use campanile_domain::channel::Channel;
use campanile_domain::finding::Finding;
use campanile_domain::id::{NotificationId, SendKey};
use campanile_domain::priority::Priority;
use campanile_domain::time::Timestamp;

use crate::Message;
use crate::push::Fcm;
use crate::push::content::{Alert, Content, Lifetime};
use crate::push::reply::{DeviceOutcome, Reply};

const SUBJECT: &str = "channels";
const WAIT: &str =
    "pushes are retried meanwhile; check channels.push.url and that the host is reachable from here";
const OPEN: &str =
    "pushes are retried meanwhile; check that the host of `token_uri` in the key file is reachable from here";
const REPLACE: &str = "pushes are retried meanwhile; correct the clock, or replace the key file";
/// No device has it.
const NOBODY: &str = "nobody";

impl Fcm {
    /// Asks FCM to check a message to a token that nobody has, and to send nothing. Who is told that the token is wrong has been
    /// let in.
    pub(super) async fn look(&self, channel: Channel) -> Finding {
        let is_sent = format!("{channel} is sent by fcm");
        let (place, account) = (&self.place, self.account.client_email());
        let times = self.times();
        let bearer = match self.access.bearer(None, times.last_start).await {
            Ok(bearer) => bearer,
            Err(why) => {
                let what = format!("{is_sent}, but {}", why.error);
                return Finding::wrong(SUBJECT, what, if why.refused { REPLACE } else { OPEN });
            }
        };
        match self.ask(&harmless(), &bearer, times).await {
            Reply::Wrong(_) | Reply::Said(DeviceOutcome::Done(_)) => Finding::ok(
                SUBJECT,
                format!("{is_sent}: {place} accepts {account} for project {}", self.account.project_id()),
            ),
            Reply::NotLetIn => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {place}: {}", self.not_let_in()),
                "replace the key file with one of an enabled service account",
            ),
            Reply::NotAllowed => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {place} denies permission"),
                self.not_allowed(),
            ),
            Reply::Said(DeviceOutcome::Down { error, .. }) => {
                Finding::wrong(SUBJECT, format!("{is_sent}, but {place}: {error}"), WAIT)
            }
            Reply::Said(DeviceOutcome::Retry { error, .. } | DeviceOutcome::Unknown { error }) => {
                Finding::note(SUBJECT, format!("{is_sent}; {place}: {error}"))
            }
        }
    }
}

fn harmless() -> Vec<u8> {
    let now = Timestamp::now();
    let message = Message {
        key: SendKey { notification_id: NotificationId::generate(), channel: Channel::Push },
        event_id: "examine",
        event_type: "EXAMINE",
        address: NOBODY,
        name: None,
        title: "Campanile checks whether it may send",
        body: "",
        html: None,
        url: None,
        priority: Priority::Low,
        created_at: now,
    };
    let alert = Alert::default();
    let lifetime = Lifetime::of(now, Duration::from_mins(1), now).expect("it is of this moment");
    let content = Content::of(&message, &alert, lifetime).expect("there is a title");
    content.request(NOBODY, true)
}
