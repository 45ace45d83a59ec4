//! The rules of Twilio's Messages resource.

use super::http::Request;

pub const ACCOUNT_SID: &str = "AC0123456789abcdef0123456789abcdef";
pub const AUTH_TOKEN: &str = "fedcba9876543210fedcba9876543210";
/// Account and token, for HTTP basic authentication.
const AUTHORIZATION: &str =
    "Basic QUMwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjpmZWRjYmE5ODc2NTQzMjEwZmVkY2JhOTg3NjU0MzIxMA==";

pub type Fields = Vec<(String, String)>;

/// The fields of a message; `None` for a request of the account.
pub fn check(request: &Request) -> Result<Option<Fields>, String> {
    let Request { line, body, .. } = request;
    let values = |name: &str| request.values(name);
    if values("authorization") != [AUTHORIZATION] {
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
        let url = &fields[names.len()].1;
        if url.len() > 4_000 || !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(format!("`{url}` is no status callback"));
        }
    }
    if names != ["To", "From", "Body"] && names != ["To", "MessagingServiceSid", "Body"] {
        return Err(format!("the fields are {names:?}"));
    }
    let digits = fields[0].1.strip_prefix('+').unwrap_or_default();
    let is_e164 = (2..=15).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0');
    if !is_e164 {
        return Err(format!("`{}` is not E.164", fields[0].1));
    }
    if fields[2].1.is_empty() || fields[2].1.chars().count() > 1_600 {
        return Err("a body has 1 to 1600 characters".to_owned());
    }
    Ok(Some(fields))
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
