//! The meaning of FCM's answer for one device.
//!
//! FCM's own error code decides, else the status. A token is dead only if FCM itself says so: a 404 from a proxy says
//! nothing about the device.

use std::borrow::Cow;
use std::time::Duration;

use campanile_domain::send::AddressOutcome;
use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;

use crate::{Cause, http};

/// The result for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceOutcome {
    /// Final.
    Done(AddressOutcome),
    /// Not reached, for a reason that concerns this device or message.
    Retry { after: Option<Duration>, error: String },
    /// Not reached, and no other device would have been.
    Down { after: Option<Duration>, error: String, cause: Cause },
    /// It is unknown whether the device was reached.
    Unknown { error: String },
}

/// An answer, before another access token is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The access token was refused.
    Unauthenticated,
    /// The access token was accepted, but the account lacks a permission or setup.
    Forbidden,
    /// FCM processed the request and found it invalid.
    Invalid(DeviceOutcome),
    Final(DeviceOutcome),
}

/// Google advises to wait at least a minute if the answer does not say how long.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The meaning of an answer.
///
/// | status | error code of FCM | meaning |
/// |---|---|---|
/// | 200 with the message's name | | sent |
/// | another 2xx, or one that can't be read | | unknown: it may have been accepted |
/// | 404 | `UNREGISTERED` | dead |
/// | 400 | `INVALID_ARGUMENT`, about the token | dead: not a token of FCM at all |
/// | 400 | `INVALID_ARGUMENT`, about anything else | rejected |
/// | 403 | `SENDER_ID_MISMATCH` | rejected: the token or the key file belongs to another project |
/// | 401 | `THIRD_PARTY_AUTH_ERROR` | retry: Apple's key in Firebase is wrong, and other devices may be reached |
/// | 429 | `QUOTA_EXCEEDED` | retry: it may be this device's quota only |
/// | 429 | none | down: too many requests of all clients |
/// | 503 | `UNAVAILABLE`, or Google's status of that name | down: it says itself that it does not serve |
/// | any other 5xx, `INTERNAL` too | | unknown: a gateway may give up while the request is still processed |
/// | 401, 403, 404 and all others | none | down: the configuration must be corrected; no message is at fault |
pub async fn reply(response: Response) -> Reply {
    let status = response.status().as_u16();
    let after = http::retry_after(&response);
    let body = http::read(response).await;
    if (200..=299).contains(&status) {
        return Reply::Final(accepted(status, body.as_deref()));
    }
    let problem = body.as_deref().and_then(Problem::read);
    let code = problem.as_ref().and_then(Problem::code).unwrap_or_default();
    match (status, code) {
        (404, "UNREGISTERED") => {
            dead("the app was uninstalled or has a new registration token (FCM: UNREGISTERED)")
        }
        (403, "SENDER_ID_MISMATCH") => rejected(
            "the registration token belongs to another Firebase project than the service account (FCM: \
             SENDER_ID_MISMATCH)",
        ),
        (401, "THIRD_PARTY_AUTH_ERROR" | "APNS_AUTH_ERROR") => Reply::Final(DeviceOutcome::Retry {
            after,
            error: format!(
                "the device's push service rejected FCM's credentials ({code}): \
                 check the APNs key or the web push certificate in the Firebase console"
            ),
        }),
        (429, "QUOTA_EXCEEDED") => Reply::Final(DeviceOutcome::Retry {
            after: after.or(Some(DEFAULT_RETRY_AFTER)),
            error: "FCM's quota for the project or the device is exceeded (QUOTA_EXCEEDED)".to_owned(),
        }),
        (429, _) => {
            down(after.or(Some(DEFAULT_RETRY_AFTER)), "429", "FCM rate limit exceeded (429)".to_owned())
        }
        (503, code) if code == "UNAVAILABLE" || problem.as_ref().is_some_and(|p| p.is("UNAVAILABLE")) => {
            down(after, "503 UNAVAILABLE", "FCM is temporarily unavailable (UNAVAILABLE)".to_owned())
        }
        (500..=599, _) => Reply::Final(DeviceOutcome::Unknown {
            error: format!("FCM failed ({status}) and may have accepted the message"),
        }),
        (401, _) => Reply::Unauthenticated,
        (403, _) => Reply::Forbidden,
        (400, _) => match problem {
            Some(problem) if problem.is("INVALID_ARGUMENT") => invalid(&problem),
            Some(_) | None => unexpected_response(status),
        },
        _ => unexpected_response(status),
    }
}

fn rejected(error: &str) -> Reply {
    Reply::Final(DeviceOutcome::Done(AddressOutcome::Rejected { error: error.to_owned() }))
}

fn dead(reason: &str) -> Reply {
    Reply::Final(DeviceOutcome::Done(AddressOutcome::Dead { reason: reason.to_owned() }))
}

fn down(after: Option<Duration>, code: impl Into<Cow<'static, str>>, error: String) -> Reply {
    Reply::Final(DeviceOutcome::Down { after, error, cause: Cause::new(code) })
}

fn unexpected_response(status: u16) -> Reply {
    down(
        None,
        status.to_string(),
        format!(
            "unexpected response ({status}): the host is not FCM, or the project does not exist; \
             check channels.push.url and the key file"
        ),
    )
}

fn invalid(problem: &Problem) -> Reply {
    let end = if problem.is_about_the_token() {
        AddressOutcome::Dead { reason: "not a registration token (FCM: INVALID_ARGUMENT)".to_owned() }
    } else {
        let field = problem.field().map(|field| format!(", field {field}")).unwrap_or_default();
        AddressOutcome::Rejected { error: format!("FCM rejected this message (INVALID_ARGUMENT{field})") }
    };
    Reply::Invalid(DeviceOutcome::Done(end))
}

fn accepted(status: u16, body: Option<&[u8]>) -> DeviceOutcome {
    let accepted = body.and_then(|body| serde_json::from_slice::<Accepted>(body).ok());
    match accepted {
        Some(Accepted { name }) if status == 200 && is_name(&name) => {
            DeviceOutcome::Done(AddressOutcome::Sent { external_id: Some(name) })
        }
        Some(_) | None => DeviceOutcome::Unknown {
            error: format!(
                "FCM's response ({status}) has no message name; the message may have been accepted"
            ),
        },
    }
}

#[derive(Deserialize)]
struct Accepted {
    name: String,
}

/// Such as `projects/trattoria/messages/0:1500415314455276%31bd1c9631bd1c96`.
fn is_name(name: &str) -> bool {
    name.starts_with("projects/") && name.len() <= 255 && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// An error of Google's APIs. Its message is searched and never repeated, because it may quote the request.
struct Problem {
    status: String,
    message: String,
    details: Vec<Value>,
}

impl Problem {
    fn read(body: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let error = document.get("error")?;
        Some(Problem {
            status: error.get("status")?.as_str()?.to_owned(),
            message: error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
            details: error.get("details").and_then(Value::as_array).cloned().unwrap_or_default(),
        })
    }

    /// FCM's own code, which is more precise than Google's status.
    fn code(&self) -> Option<&str> {
        self.of_type("google.firebase.fcm.v1.FcmError").find_map(|detail| detail.get("errorCode")?.as_str())
    }

    /// Compares FCM's code, or else Google's status.
    fn is(&self, name: &str) -> bool {
        self.code().unwrap_or(&self.status) == name
    }

    fn is_about_the_token(&self) -> bool {
        self.fields().any(|field| field == "message.token")
            || self.message.contains("not a valid FCM registration token")
    }

    /// The first invalid field, if it looks like a field name.
    fn field(&self) -> Option<&str> {
        self.fields().find(|field| {
            (1..=80).contains(&field.len())
                && field.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.[]".contains(&byte))
        })
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        self.of_type("google.rpc.BadRequest")
            .filter_map(|detail| detail.get("fieldViolations")?.as_array())
            .flatten()
            .filter_map(|violation| violation.get("field")?.as_str())
    }

    fn of_type(&self, name: &'static str) -> impl Iterator<Item = &Value> {
        self.details.iter().filter(move |detail| {
            let type_url = detail.get("@type").and_then(Value::as_str);
            type_url.and_then(|url| url.strip_prefix("type.googleapis.com/")) == Some(name)
        })
    }
}
