//! The rules of FCM's `messages:send` and of Google's token endpoint.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Map, Value};

use super::http::Request;

pub const KEY_FILE: &str = include_str!("service-account.json");
pub const PROJECT: &str = "trattoria-test";
pub const ACCOUNT: &str = "campanile@trattoria-test.iam.gserviceaccount.com";
const KEY_ID: &str = "0123456789abcdef0123456789abcdef01234567";
/// The public half of the key in the file, as `RSAPublicKey` in DER and Base64.
const PUBLIC_KEY: &str = "\
    MIIBCgKCAQEAxB/0GxTfwcT4lpfFVfnOpuI6JcwU6sK8Zq6cXex2rDBEgppQAX9H3wwwsUOjuqcWS3Mv8hyExomsWe1NM4MM4Bz4\
    HNCMdeRf6GIZk248khH/EjFnRp99SknZbgWVmipuBT9jX1UfUzyf+NzGuPISqA1EL+8cWju+QzBpmW5cI9JB6IbjSVpG2JQZYfPL\
    jnMeacD4sHgI9o8g28/aXkCuxs25yRLId1hOWynM6LVu1u57Vq9cwYwotHk38TTMHH47IJ/DC74nI4rUaH6KS+kYboGu9nDfFWvU\
    qv2XAQ3ejQ8JM/ANHMuBgsvb01z1BdHKb/gqCVZfQCRibhqhtXr/KQIDAQAB";
/// The prefix of each issued access token.
pub const ISSUED: &str = "ya29.";

/// A request that FCM accepts.
#[derive(Debug, Clone)]
pub struct FcmRequest {
    pub access_token: String,
    pub validate_only: bool,
    pub message: Value,
}

impl FcmRequest {
    pub fn token(&self) -> &str {
        self.message["token"].as_str().unwrap()
    }
}

pub fn check(request: &Request) -> Result<Option<FcmRequest>, String> {
    let line = &request.line;
    if *line != format!("POST /v1/projects/{PROJECT}/messages:send HTTP/1.1") {
        return Err(format!("{line}: not messages:send"));
    }
    if request.values("content-type") != ["application/json"] {
        return Err(format!("the content type is {:?}", request.values("content-type")));
    }
    let [authorization] = request.values("authorization")[..] else {
        return Err("there is not one authorization".to_owned());
    };
    let access_token = authorization.strip_prefix("Bearer ").filter(|token| token.starts_with(ISSUED));
    let access_token = access_token.ok_or("the access token was not given out here")?.to_owned();
    let body: Value = serde_json::from_str(&request.body).map_err(|error| error.to_string())?;
    let body = fields(&body, "", &["message", "validate_only"])?;
    let validate_only = body.get("validate_only").is_some_and(|value| *value == Value::Bool(true));
    let message = body.get("message").ok_or("there is no message")?;
    check_message(message)?;
    Ok(Some(FcmRequest { access_token, validate_only, message: message.clone() }))
}

/// Checks a message by FCM's reference of `Message`. Fields that Campanile does not use are refused.
fn check_message(message: &Value) -> Result<(), String> {
    let all = fields(message, "message", &["token", "notification", "data", "android", "apns", "webpush"])?;
    let part = |name: &str| all.get(name).ok_or_else(|| format!("there is no {name}"));
    let token = text(part("token")?, "token")?;
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the token is none".to_owned());
    }
    let mut payload_bytes = 0;
    for (name, value) in fields(part("notification")?, "notification", &["title", "body", "image"])? {
        payload_bytes += name.len() + text(value, name)?.len();
    }
    let data = part("data")?.as_object().ok_or("data is no object")?;
    for (name, value) in data {
        payload_bytes += name.len() + text(value, name)?.len();
        let reserved = ["from", "message_type"].contains(&name.as_str())
            || ["google.", "gcm."].iter().any(|start| name.starts_with(start));
        if reserved {
            return Err(format!("data may not have {name}"));
        }
    }
    if payload_bytes > 4_096 {
        return Err(format!("the payload has {payload_bytes} bytes"));
    }
    let android = fields(part("android")?, "android", &["priority", "ttl", "notification"])?;
    one_of(android.get("priority"), &["NORMAL", "HIGH"])?;
    let ttl = text(&android["ttl"], "android.ttl")?;
    check_ttl(ttl.strip_suffix('s').ok_or("android.ttl is no duration")?)?;
    fields(&android["notification"], "android.notification", &["tag", "sound", "channel_id"])?;
    let apns = fields(part("apns")?, "apns", &["headers", "payload"])?;
    let known = ["apns-priority", "apns-expiration", "apns-collapse-id"];
    let headers = fields(&apns["headers"], "apns.headers", &known)?;
    one_of(headers.get("apns-priority"), &["10", "5", "1"])?;
    text(&headers["apns-expiration"], "apns-expiration")?
        .parse::<u64>()
        .map_err(|error| error.to_string())?;
    if let Some(payload) = apns.get("payload") {
        fields(&fields(payload, "apns.payload", &["aps"])?["aps"], "aps", &["sound"])?;
    }
    if text(&headers["apns-collapse-id"], "apns-collapse-id")?.len() > 64 {
        return Err("apns-collapse-id has more than 64 bytes".to_owned());
    }
    let webpush = fields(part("webpush")?, "webpush", &["headers", "notification", "fcm_options"])?;
    let headers = fields(&webpush["headers"], "webpush.headers", &["Urgency", "TTL"])?;
    check_ttl(text(&headers["TTL"], "TTL")?)?;
    one_of(headers.get("Urgency"), &["very-low", "low", "normal", "high"])?;
    fields(&webpush["notification"], "webpush.notification", &["tag"])?;
    if let Some(options) = webpush.get("fcm_options") {
        let link = text(&fields(options, "webpush.fcm_options", &["link"])?["link"], "link")?;
        if !link.to_lowercase().starts_with("https://") {
            return Err("the link is not https".to_owned());
        }
    }
    Ok(())
}

/// Checks a lifetime in seconds; FCM's maximum is four weeks.
fn check_ttl(seconds: &str) -> Result<(), String> {
    let ttl: u64 = seconds.parse().map_err(|_| format!("a ttl of `{seconds}`"))?;
    if ttl > 28 * 24 * 3_600 { Err(format!("a ttl of {ttl} s")) } else { Ok(()) }
}

fn fields<'a>(value: &'a Value, name: &str, known: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let object = value.as_object().ok_or_else(|| format!("`{name}` is no object"))?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(unknown) => Err(format!("`{name}` has an unknown field {unknown}")),
        None => Ok(object),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("`{name}` is no text"))
}

fn one_of(value: Option<&Value>, known: &[&str]) -> Result<(), String> {
    let right = value.and_then(Value::as_str).is_some_and(|value| known.contains(&value));
    if right { Ok(()) } else { Err(format!("{value:?} is none of {known:?}")) }
}

/// Checks the claims of a token request, by RFC 7523 and Google's rules.
pub fn check_grant(request: &Request) -> Result<Option<Value>, String> {
    if request.line != "POST /token HTTP/1.1" {
        return Err(format!("{}: not the token endpoint", request.line));
    }
    if request.values("content-type") != ["application/x-www-form-urlencoded"] {
        return Err(format!("the content type is {:?}", request.values("content-type")));
    }
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
    let assertion = request.body.strip_prefix(grant).ok_or("the grant is another")?;
    let (signed, signature) = assertion.rsplit_once('.').ok_or("the assertion is no JWT")?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|error| error.to_string())?;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, STANDARD.decode(PUBLIC_KEY).unwrap())
        .verify(signed.as_bytes(), &signature)
        .map_err(|_| "the signature is wrong".to_owned())?;
    let (header, claims) = signed.split_once('.').ok_or("the assertion is no JWT")?;
    let [header, claims] = [header, claims].map(|part| {
        let json = URL_SAFE_NO_PAD.decode(part).map_err(|error| error.to_string())?;
        serde_json::from_slice::<Value>(&json).map_err(|error| error.to_string())
    });
    let (header, claims) = (header?, claims?);
    if header != serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": KEY_ID}) {
        return Err(format!("the header is {header}"));
    }
    fields(&claims, "claims", &["iss", "scope", "aud", "iat", "exp"])?;
    let audience = format!("http://{}/token", request.values("host").concat());
    let expected = [
        ("iss", ACCOUNT),
        ("scope", "https://www.googleapis.com/auth/firebase.messaging"),
        ("aud", audience.as_str()),
    ];
    for (name, value) in expected {
        if claims[name] != value {
            return Err(format!("{name} is {}", claims[name]));
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let [issued, ends] = ["iat", "exp"].map(|name| claims[name].as_u64().unwrap_or_default());
    if issued > now || now - issued > 60 || ends != issued + 3_600 {
        return Err(format!("it is {now}, and good from {issued} to {ends}"));
    }
    Ok(Some(claims))
}
