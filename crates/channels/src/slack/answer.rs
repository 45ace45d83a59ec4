//! The meaning of Slack's answer for a message and for its webhook.

use std::time::Duration;

use campanile_domain::send::{AddressOutcome, AddressResult, Outcome};
use reqwest::{Response, StatusCode};

use crate::dns::is_caused_by;
use crate::http::{self, read, retry_after};
use crate::slack::guard::NoPublicAddress;
use crate::{Answer, Cause};

/// The answer for a request without a response, or one that was refused because of the webhook's address.
pub fn no_response(error: &reqwest::Error) -> Answer {
    if is_caused_by::<NoPublicAddress>(error) {
        let error = "the Slack webhook's host does not resolve to a public address".to_owned();
        return Outcome::Rejected { error }.into();
    }
    http::no_response("Slack", error)
}

#[derive(Debug)]
pub enum Meaning {
    Final(Answer),
    /// Nothing was accepted. It may be posted again after this time, if Slack gives one.
    Busy(Option<Duration>),
}

/// The meaning of an answer.
///
/// | status | outcome |
/// |---|---|
/// | 200 `ok` | sent |
/// | another 2xx, or one that can't be read | unknown: it may have been accepted |
/// | 429 | busy: the webhook gets no posts for as long as Slack says |
/// | another 4xx, or a 3xx | rejected; if Slack says that the webhook does not exist, it is dead |
/// | 5xx, such as `rollup_error` | unknown: it may have been posted |
pub async fn meaning(response: Response, address: &str) -> Meaning {
    let status = response.status();
    let after = retry_after(&response);
    let body = read(response).await;
    let code = body.as_deref().and_then(|body| str::from_utf8(body).ok()).map(str::trim);
    let outcome = match status.as_u16() {
        200 if code == Some("ok") => Outcome::Sent { external_id: None },
        429 => return Meaning::Busy(after),
        300..=399 => {
            let error = format!("the Slack webhook redirects ({status}); redirects are not followed");
            Outcome::Rejected { error }
        }
        400..=499 => return Meaning::Final(refused(status, code, address)),
        500..=599 => {
            Outcome::Unknown { error: format!("Slack failed ({status}) and may have posted the message") }
        }
        _ => Outcome::Unknown {
            error: format!("unexpected response from Slack ({status}); the message may have been posted"),
        },
    };
    Meaning::Final(Answer::from(outcome).with_cause(Cause::new(status.as_u16().to_string())))
}

/// A refusal. Only known codes are repeated, because the answer may contain anything.
fn refused(status: StatusCode, code: Option<&str>, address: &str) -> Answer {
    let Some((code, meaning)) = KNOWN_CODES.iter().find(|(known, _)| Some(*known) == code) else {
        return Outcome::Rejected { error: format!("Slack rejected the message ({status})") }.into();
    };
    let error = format!("Slack rejected the message ({code}): {meaning}");
    let done = if DEAD_WEBHOOK_CODES.contains(code) {
        let end = AddressOutcome::Dead { reason: error.clone() };
        vec![AddressResult { address: address.to_owned(), end }]
    } else {
        Vec::new()
    };
    Answer { done, ..Outcome::Rejected { error }.into() }
}

/// Codes for a webhook or workspace that was removed. An archived channel is not one: it may come back.
const DEAD_WEBHOOK_CODES: [&str; 5] =
    ["invalid_token", "no_service", "no_service_id", "no_team", "team_disabled"];

const KNOWN_CODES: [(&str, &str); 17] = [
    ("action_prohibited", "an administrator has restricted posting"),
    ("channel_is_archived", "the channel is archived"),
    ("channel_not_found", "there is no such channel"),
    ("invalid_blocks", "the message format is invalid"),
    ("invalid_blocks_format", "the message format is invalid"),
    ("invalid_payload", "the message format is invalid"),
    ("invalid_token", "the webhook is not valid any more"),
    ("missing_text_or_fallback_or_attachments", "there is no text"),
    ("no_active_hooks", "the webhook is disabled"),
    ("no_service", "the webhook is disabled, removed or not valid"),
    ("no_service_id", "the webhook is not valid"),
    ("no_team", "there is no such workspace"),
    ("no_text", "there is no text"),
    ("posting_to_general_channel_denied", "an administrator has restricted posting to this channel"),
    ("team_disabled", "the workspace is not active any more"),
    ("too_many_attachments", "the message format is invalid"),
    ("user_not_found", "there is no such user"),
];
