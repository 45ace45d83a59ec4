//! The meaning of Twilio's answer for a text and its number.
//!
//! The status decides first, as Twilio advises, because error codes change. A code decides where it is more precise.

use std::time::Duration;

use campanile_domain::send::{AddressOutcome, AddressResult, Outcome};
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use crate::http::{read, retry_after};
use crate::sms::is_message_sid;
use crate::{Answer, Cause};

/// The meaning of an answer.
///
/// | status | outcome |
/// |---|---|
/// | 201 with a SID | sent |
/// | another 2xx, or one that can't be read | unclear: probably accepted, so it is never sent again automatically |
/// | 400, 403 with an error of Twilio's about the sender, the callback, the queue or itself | down for every message |
/// | 400, 403 with an error of Twilio's about the number | rejected; the number is dead if it can't get texts at all |
/// | 400 with another error of Twilio's | rejected: it is about this message |
/// | 429 | down: Twilio never processes such a request |
/// | 503 with an error of Twilio's | down: it says itself that it does not serve |
/// | any other 5xx | unknown: a gateway may give up while the request is still processed |
/// | all others, such as 401, 403, 404, 3xx | down: it is misconfigured, so every message would fail |
pub async fn meaning(response: Response, address: &str) -> Answer {
    let status = response.status();
    let after = retry_after(&response);
    let body = read(response).await;
    let code = body.as_deref().and_then(|body| serde_json::from_slice::<Refusal>(body).ok()).map(|r| r.code);
    let outcome = match (status.as_u16(), code) {
        (200..=299, _) => created(status, body.as_deref()),
        (429, _) | (400..=499, Some(20429)) => down(after, "Twilio rate limit exceeded (429)".to_owned()),
        (400 | 403, Some(code)) if is_account_error(code) => down(after, refusal(code)),
        (400 | 403, Some(code)) if DEAD_NUMBER_CODES.contains(&code) => return dead(address, refusal(code)),
        (400, Some(code)) => rejected(refusal(code)),
        (403, Some(code)) if BLOCKED_RECIPIENT_CODES.contains(&code) => rejected(refusal(code)),
        (503, Some(code)) => down(after, format!("Twilio is temporarily unavailable: {}", refusal(code))),
        (500..=599, _) => {
            Outcome::Unknown { error: format!("Twilio failed ({status}) and may have accepted the message") }
        }
        (401 | 403, _) => {
            let code = code.map(|code| format!(" ({})", refusal(code))).unwrap_or_default();
            let what = format!("the Twilio account lacks permission{code}");
            down(after, format!("{what}: check channels.sms.url and the account"))
        }
        _ => down(
            after,
            format!(
                "unexpected response ({status}), probably not from Twilio: check the host in channels.sms.url"
            ),
        ),
    };
    let code = code.map_or_else(|| status.as_u16().to_string(), |code| format!("{} {code}", status.as_u16()));
    let refuses_us = matches!(status.as_u16(), 401 | 403) && matches!(outcome, Outcome::Down { .. });
    Answer::from(outcome).with_cause(if refuses_us { Cause::refusal(code) } else { Cause::new(code) })
}

/// Errors for every message, until the sender is corrected.
const BAD_SENDER_CODES: [u32; 11] =
    [21212, 21601, 21603, 21606, 21607, 21659, 21660, 21661, 21701, 21704, 21705];
/// An error for every message, until the callback URL is corrected.
const BAD_CALLBACK_CODE: u32 = 21609;
/// An error for every message, until the sender's queue, which holds hours of work, is shorter.
const QUEUE_OVERFLOW_CODE: u32 = 21611;
/// An error for every message during Twilio's maintenance.
const MAINTENANCE_CODE: u32 = 21730;

fn is_account_error(code: u32) -> bool {
    BAD_SENDER_CODES.contains(&code)
        || [BAD_CALLBACK_CODE, QUEUE_OVERFLOW_CODE, MAINTENANCE_CODE].contains(&code)
}

/// The number can't get texts from anybody: it is invalid, a landline, a short code or a premium number.
const DEAD_NUMBER_CODES: [u32; 7] = [21211, 21214, 21217, 21265, 21268, 21614, 21635];
/// This account can't text the number now. Somebody may enable the country, verify the number, or text START.
const BLOCKED_RECIPIENT_CODES: [u32; 4] = [21408, 21608, 21610, 21612];

/// In our own words for frequent codes.
fn refusal(code: u32) -> String {
    let words = match code {
        20003 => "wrong credentials",
        21211 | 21214 | 21217 => "not a number that can be texted",
        21265 => "a short code can't be texted",
        21266 => "the number is the sender's own",
        21268 => "a premium number can't be texted",
        BAD_CALLBACK_CODE => "the callback URL is rejected: check server.public_url",
        QUEUE_OVERFLOW_CODE => "the sender's queue at Twilio is full",
        MAINTENANCE_CODE => "Twilio is under maintenance",
        code if BAD_SENDER_CODES.contains(&code) => {
            "the sender can't send texts: check `from` in channels.sms.url"
        }
        21408 => "texts to this country are not enabled",
        21602 | 21619 => "there is no text",
        21608 => "a trial account sends to verified numbers only",
        21610 => "the recipient has unsubscribed, and gets texts again after texting START to the sender",
        21612 => "this sender can't reach this number",
        21614 => "not a mobile number",
        21617 => "the text is longer than 1600 characters",
        21635 => "a landline can't be texted",
        _ => return format!("Twilio error {code}, see twilio.com/docs/api/errors/{code}"),
    };
    format!("Twilio error {code}, {words}")
}

#[derive(Deserialize)]
struct Created {
    sid: String,
}

/// Only the code of Twilio's error is kept: its message may quote the number.
#[derive(Deserialize)]
struct Refusal {
    code: u32,
}

fn created(status: StatusCode, body: Option<&[u8]>) -> Outcome {
    let created = body.and_then(|body| serde_json::from_slice::<Created>(body).ok());
    match created {
        Some(Created { sid }) if status == StatusCode::CREATED && is_message_sid(&sid) => {
            Outcome::Sent { external_id: Some(sid) }
        }
        Some(_) | None => Outcome::Unclear {
            error: format!(
                "Twilio accepted the message ({status}) but returned no SID: check in the Twilio console whether \
                 it was sent"
            ),
        },
    }
}

fn dead(address: &str, error: String) -> Answer {
    let end = AddressOutcome::Dead { reason: error.clone() };
    let done = vec![AddressResult { address: address.to_owned(), end }];
    Answer { done, ..Outcome::Rejected { error }.into() }
}

fn rejected(error: String) -> Outcome {
    Outcome::Rejected { error }
}

fn down(after: Option<Duration>, error: String) -> Outcome {
    Outcome::Down { after, error }
}
