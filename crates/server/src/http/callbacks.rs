//! `/v1/callbacks/{provider}`: delivery receipts of providers. A signature authorises them instead of a key. They set
//! `receipt`; the status of the send does not change.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use campanile_channels::sms;
use campanile_domain::id::SendKey;
use campanile_store::Receipt;
use reqwest::Url;
use serde::Deserialize;

use super::{App, Problem};

/// The largest body of a callback. Twilio's have less than 1 KB.
pub const MAX_BYTES: usize = 64 * 1024;

/// Twilio's callback URL, and the tokens that may sign.
pub struct TwilioCallbacks {
    pub url: Url,
    pub auth_tokens: Vec<String>,
}

impl std::fmt::Debug for TwilioCallbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TwilioCallbacks").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// Our query parameter of the callback URL, which the signature covers.
#[derive(Debug, Deserialize)]
pub struct Of {
    send: Option<String>,
}

/// Receive a delivery receipt of Twilio
///
/// Twilio calls this path. Its signature is verified.
#[utoipa::path(
    post, path = "/v1/callbacks/twilio", tag = "callbacks", operation_id = "receive_twilio_receipt",
    params(("send" = Option<SendKey>, Query, description = "The send that the receipt is about.")),
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        example = "MessageSid=SM0123&MessageStatus=delivered",
    ),
    responses(
        (status = 204, description = "The receipt is recorded."),
        (status = 403, description = "The signature is wrong.", body = Problem,
         content_type = "application/problem+json"),
        (status = 404, description = "Callbacks are disabled.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn twilio(
    State(app): State<App>,
    query: Result<Query<Of>, QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let Query(Of { send }) = query.map_err(|error| Problem::bad_query(error.body_text()))?;
    let Some(callbacks) = app.twilio_callbacks.as_deref() else {
        return Err(Problem::not_found("Twilio callbacks are disabled because server.public_url is not set"));
    };
    let Some(key) = send.and_then(|send| sms::send_key(&send)) else {
        return Err(Problem::bad_query("send: not the id of an SMS send"));
    };
    let fields: Vec<(String, String)> = url::form_urlencoded::parse(&body)
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    let signature =
        headers.get("x-twilio-signature").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let url = sms::callback_url(&callbacks.url, key);
    let is_signed = |token: &String| sms::verify_callback(token, url.as_str(), &fields, signature);
    if !callbacks.auth_tokens.iter().any(is_signed) {
        return Err(Problem::forbidden(
            "invalid Twilio signature; check that server.public_url is the address that Twilio calls",
        ));
    }
    if let Some(receipt) = sms::receipt(&fields) {
        app.engine.record_receipt(key, noted(receipt)).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

fn noted(receipt: sms::Receipt) -> Receipt {
    let later_receipts = later_receipts(&receipt);
    let text = match receipt.error_code {
        Some(code) => format!("{} ({code})", receipt.status),
        None => receipt.status,
    };
    Receipt { external_id: receipt.sid, receipt: text, later_receipts }
}

/// The stored statuses that this receipt must not replace: itself, and those that come later in Twilio's order. Only
/// `read` may replace another final status. An unknown status replaces none, because its place in the order is unknown.
fn later_receipts(receipt: &sms::Receipt) -> Vec<&'static str> {
    const WAY: [&str; 5] = ["accepted", "scheduled", "queued", "sending", "sent"];
    match receipt.status.as_str() {
        "read" => vec!["read"],
        _ if receipt.is_final => sms::FINAL.to_vec(),
        status => {
            let place = WAY.iter().position(|step| *step == status).unwrap_or_default();
            [&WAY[place..], &sms::FINAL[..]].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_receipt_replaces_no_later_one() {
        let later_receipts = |status: &str| {
            let fields = [("MessageSid", "SM0123456789abcdef0123456789abcdef"), ("MessageStatus", status)];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            later_receipts(&sms::receipt(&fields).unwrap())
        };
        assert!(
            !later_receipts("queued").contains(&"accepted") && later_receipts("queued").contains(&"sent")
        );
        assert!(
            !later_receipts("delivered").contains(&"sent") && later_receipts("sent").contains(&"delivered")
        );
        assert!(later_receipts("undelivered").contains(&"delivered"));
        assert!(
            !later_receipts("read").contains(&"delivered") && later_receipts("delivered").contains(&"read")
        );
        assert!(
            later_receipts("something-new").contains(&"accepted")
                && later_receipts("something-new").contains(&"failed")
        );
        assert!(!later_receipts("delivered").contains(&"something-new"), "and is replaced by what is known");
    }
}
