//! The rules of Twilio's Messages resource, for the scripted server and for the fault harness, whose provider is a
//! process with a ledger.

use std::fmt::{self, Display, Formatter};

use serde_json::json;

use super::http::{Reply, Request};

pub const ACCOUNT_SID: &str = "AC0123456789abcdef0123456789abcdef";
pub const AUTH_TOKEN: &str = "fedcba9876543210fedcba9876543210";
/// Account and token, for HTTP basic authentication.
const AUTHORIZATION: &str =
    "Basic QUMwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjpmZWRjYmE5ODc2NTQzMjEwZmVkY2JhOTg3NjU0MzIxMA==";

pub type Fields = Vec<(String, String)>;

/// The URL of a configuration.
pub fn url(address: &str, sender: &str) -> String {
    format!("http://{ACCOUNT_SID}:{AUTH_TOKEN}@{address}?from={sender}")
}

/// The answer to the message of this number.
pub fn created(number: usize) -> Reply {
    Reply::json(201, &json!({"sid": format!("SM{number:032x}"), "status": "queued"}).to_string())
}

pub fn error(status: u16, code: u32, message: &str) -> Reply {
    Reply::json(status, &json!({"code": code, "message": message, "status": status}).to_string())
}

pub fn is_authenticated(request: &Request) -> bool {
    request.values("authorization") == [AUTHORIZATION]
}

/// The fields of a message; `None` for a request of the account.
pub fn check(request: &Request) -> Result<Option<Fields>, String> {
    let Request { line, body, .. } = request;
    let values = |name: &str| request.values(name);
    if !is_authenticated(request) {
        return Err(format!("{line}: not authenticated"));
    }
    if *line == format!("GET /2010-04-01/Accounts/{ACCOUNT_SID}.json HTTP/1.1") {
        return if body.is_empty() { Ok(None) } else { Err("a GET has no body".to_owned()) };
    }
    if *line != format!("POST /2010-04-01/Accounts/{ACCOUNT_SID}/Messages.json HTTP/1.1") {
        return Err(format!("{line}: not the Messages resource"));
    }
    if values("content-type") != ["application/x-www-form-urlencoded"] {
        return Err(format!("the content type is {:?}", values("content-type")));
    }
    let fields: Fields = body
        .split('&')
        .map(|field| field.split_once('=').ok_or_else(|| format!("`{field}` is no field")))
        .map(|field| field.map(|(name, value)| (decoded(name), decoded(value))))
        .collect::<Result<_, _>>()?;
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    if names.last() == Some(&"StatusCallback") {
        names.pop();
    }
    if names != ["To", "From", "Body"] && names != ["To", "MessagingServiceSid", "Body"] {
        return Err(format!("the fields are {names:?}"));
    }
    match NewMessage::read(fields.clone()) {
        Ok(_) => Ok(Some(fields)),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// A message that Twilio accepts.
#[derive(Debug)]
pub struct NewMessage {
    pub to: String,
    pub from: Option<String>,
    pub service: Option<String>,
    pub body: String,
}

/// The answer to a request that breaks a rule.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub code: u32,
    pub message: String,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.code, self.message)
    }
}

/// The fields of a new message, from Twilio's reference.
const FIELDS: &str = "To From MessagingServiceSid Body MediaUrl ContentSid ContentVariables StatusCallback \
    ApplicationSid \
    MaxPrice ProvideFeedback Attempt ValidityPeriod ForceDelivery ContentRetention AddressRetention SmartEncoded \
    PersistentAction TrafficType ShortenUrls ScheduleType SendAt SendAsMms RiskCheck";
const MAX_BODY_CHARACTERS: usize = 1_600;
const MAX_URL_BYTES: usize = 4_000;

impl NewMessage {
    /// Checks a form by the rules of the Messages resource. In one respect it is stricter: Twilio ignores unknown
    /// fields, and this refuses them.
    pub fn read(fields: Fields) -> Result<Self, Refusal> {
        let bad = |code, message: &str| Refusal { status: 400, code, message: message.to_owned() };
        let mut rest = fields;
        let mut take = |name: &str| -> Result<Option<String>, Refusal> {
            let Some(at) = rest.iter().position(|(field, _)| field == name) else { return Ok(None) };
            let (_, value) = rest.swap_remove(at);
            if rest.iter().any(|(field, _)| field == name) {
                return Err(bad(20001, &format!("{name} is there twice")));
            }
            Ok(Some(value).filter(|value| !value.is_empty()))
        };
        let (to, body) = (take("To")?, take("Body")?);
        let (from, service) = (take("From")?, take("MessagingServiceSid")?);
        let callback = take("StatusCallback")?;
        if let Some((field, _)) =
            rest.iter().find(|(field, _)| !FIELDS.split(' ').any(|known| known == field))
        {
            return Err(bad(20001, &format!("{field} is no field of a message")));
        }
        let to = to.ok_or_else(|| bad(21604, "A 'To' phone number is required."))?;
        if !is_e164(&to) {
            return Err(bad(21211, "Invalid 'To' Phone Number"));
        }
        match (&from, &service) {
            (None, None) => return Err(bad(21603, "A 'From' phone number is required.")),
            (Some(from), _) if !is_sender(from) => return Err(bad(21212, "Invalid From Number")),
            (_, Some(service)) if !is_sid("MG", service) => {
                return Err(bad(21701, "The Messaging Service does not exist"));
            }
            (Some(_), _) | (None, Some(_)) => {}
        }
        let body = body.ok_or_else(|| bad(21602, "Message body is required."))?;
        if body.chars().count() > MAX_BODY_CHARACTERS {
            return Err(bad(21617, "The concatenated message body exceeds the 1600 character limit."));
        }
        if callback.is_some_and(|url| !is_url(&url)) {
            return Err(bad(21609, "Invalid 'StatusCallback' URL"));
        }
        Ok(NewMessage { to, from, service, body })
    }
}

fn is_url(url: &str) -> bool {
    url.len() <= MAX_URL_BYTES && (url.starts_with("http://") || url.starts_with("https://"))
}

fn is_e164(number: &str) -> bool {
    number.strip_prefix('+').is_some_and(|digits| {
        (2..=15).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_digit())
            && !digits.starts_with('0')
    })
}

/// Whether it is a number, a short code, or a name.
fn is_sender(from: &str) -> bool {
    is_e164(from)
        || (1..=11).contains(&from.len())
            && from.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b' ')
}

/// Whether it is an id of this kind, such as `SM` of a message.
pub fn is_sid(prefix: &str, sid: &str) -> bool {
    sid.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Decodes a form value.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex =
                    [rest.next(), rest.next()].map(|digit| char::from(digit.unwrap()).to_digit(16).unwrap());
                bytes.push(u8::try_from(hex[0] * 16 + hex[1]).unwrap());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}
