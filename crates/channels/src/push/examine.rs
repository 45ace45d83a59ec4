//! Checks whether FCM would accept our messages, without sending any.

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
const FCM_UNREACHABLE_REMEDY: &str =
    "pushes are retried meanwhile; check channels.push.url and that the host is reachable from here";
const TOKEN_HOST_UNREACHABLE_REMEDY: &str =
    "pushes are retried meanwhile; check that the host of `token_uri` in the key file is reachable from here";
const BAD_KEY_REMEDY: &str = "pushes are retried meanwhile; correct the clock, or replace the key file";
/// A token that no device has.
const UNUSED_TOKEN: &str = "nobody";

impl Fcm {
    /// Asks FCM to validate a message to an invalid token. If FCM complains only about the token, the credentials work.
    pub(super) async fn dry_run(&self, channel: Channel) -> Finding {
        let is_sent = format!("{channel} is sent by fcm");
        let (authority, account) = (&self.authority, self.account.client_email());
        let times = self.times();
        let bearer = match self.access.bearer(None, times.last_start).await {
            Ok(bearer) => bearer,
            Err(why) => {
                let what = format!("{is_sent}, but {}", why.error);
                return Finding::wrong(
                    SUBJECT,
                    what,
                    if why.refused { BAD_KEY_REMEDY } else { TOKEN_HOST_UNREACHABLE_REMEDY },
                );
            }
        };
        match self.ask(&dry_run_request(), &bearer, times).await {
            Reply::Invalid(_) | Reply::Final(DeviceOutcome::Done(_)) => Finding::ok(
                SUBJECT,
                format!("{is_sent}: {authority} accepts {account} for project {}", self.account.project_id()),
            ),
            Reply::Unauthenticated => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {authority}: {}", self.unauthenticated_error()),
                "replace the key file with one of an enabled service account",
            ),
            Reply::Forbidden => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {authority} denies permission"),
                self.forbidden_error(),
            ),
            Reply::Final(DeviceOutcome::Down { error, .. }) => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {authority}: {error}"),
                FCM_UNREACHABLE_REMEDY,
            ),
            Reply::Final(DeviceOutcome::Retry { error, .. } | DeviceOutcome::Unknown { error }) => {
                Finding::note(SUBJECT, format!("{is_sent}; {authority}: {error}"))
            }
        }
    }
}

fn dry_run_request() -> Vec<u8> {
    let now = Timestamp::now();
    let message = Message {
        key: SendKey { notification_id: NotificationId::generate(), channel: Channel::Push },
        event_id: "examine",
        event_type: "EXAMINE",
        address: UNUSED_TOKEN,
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
    content.request(UNUSED_TOKEN, true)
}
