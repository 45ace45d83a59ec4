//! Twilio's delivery callbacks: their URL, their signature, and their contents. Receiving and storing them is left to
//! others.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use campanile_domain::channel::Channel;
use campanile_domain::id::SendKey;
use reqwest::Url;
use ring::hmac;

use crate::sms::is_message_sid;

/// The query parameter with the key of the send.
pub const SEND: &str = "send";

/// The callback URL of a send. It contains the send's key, so that no index is needed. The receiver builds it again to
/// check the signature, because a proxy may change the URL that Twilio signed.
pub fn callback_url(base: &Url, key: SendKey) -> Url {
    let mut url = base.clone();
    url.query_pairs_mut().append_pair(SEND, &key.to_string());
    url
}

/// The send that a callback's query parameter names, if it is a text.
pub fn send_key(text: &str) -> Option<SendKey> {
    text.parse().ok().filter(|key: &SendKey| key.channel == Channel::Sms)
}

/// Whether somebody who knows the token sent these form parameters to this URL.
///
/// The signature covers the URL, then each name and value in the order of the names; a repeated pair counts once.
/// Twilio is inconsistent about the port in the URL, so both forms are accepted, as in Twilio's own libraries.
pub fn verify_callback(auth_token: &str, url: &str, params: &[(String, String)], signature: &str) -> bool {
    // Anybody can sign with an empty token.
    if auth_token.is_empty() {
        return false;
    }
    let Ok(tag) = STANDARD.decode(signature) else { return false };
    let mut sorted: Vec<&(String, String)> = params.iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, auth_token.as_bytes());
    with_and_without_port(url).iter().any(|url| {
        let mut signed = url.clone();
        for (name, value) in &sorted {
            signed.push_str(name);
            signed.push_str(value);
        }
        hmac::verify(&key, signed.as_bytes(), &tag).is_ok()
    })
}

/// Works on the text, because a parser would normalise the URL and change its signature.
fn with_and_without_port(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    let port = port.unwrap_or(if scheme == "https" { "443" } else { "80" });
    vec![format!("{scheme}://{host}{path}"), format!("{scheme}://{host}:{port}{path}")]
}

/// The contents of a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The external id of the send.
    pub sid: String,
    /// Twilio's status: `queued`, `sending`, `sent`, `delivered`, `undelivered`, `failed`, `read`.
    pub status: String,
    /// Why it was not delivered; see twilio.com/docs/api/errors.
    pub error_code: Option<u32>,
    /// Whether the status is final. Callbacks may arrive out of order, so a status that is not final must not replace a
    /// final one.
    pub is_final: bool,
}

/// Parses a callback. `None` if it is not about a text.
pub fn receipt(params: &[(String, String)]) -> Option<Receipt> {
    let value =
        |name: &str| params.iter().find(|(key_name, _)| key_name == name).map(|(_, value)| value.as_str());
    let sid = value("MessageSid").or_else(|| value("SmsSid")).filter(|sid| is_message_sid(sid))?;
    let status = value("MessageStatus").or_else(|| value("SmsStatus")).filter(|status| is_word(status))?;
    let error_code = value("ErrorCode").and_then(|code| code.parse().ok()).filter(|code| *code != 0);
    Some(Receipt {
        sid: sid.to_owned(),
        status: status.to_owned(),
        error_code,
        is_final: FINAL.contains(&status),
    })
}

/// The final statuses; only `read` may follow another one.
pub const FINAL: [&str; 6] =
    ["canceled", "delivered", "failed", "partially_delivered", "read", "undelivered"];

/// Whether it looks like a status. Twilio adds and removes statuses, so any such word is accepted.
fn is_word(status: &str) -> bool {
    (1..=32).contains(&status.len())
        && status.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use campanile_domain::id::NotificationId;

    use super::*;

    /// The example of Twilio's documentation; the other cases are from its libraries' tests.
    const URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";
    const TOKEN: &str = "12345";
    const SIGNATURE: &str = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";

    fn params(params: &[(&str, &str)]) -> Vec<(String, String)> {
        params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn call() -> Vec<(String, String)> {
        params(&[
            ("CallSid", "CA1234567890ABCDE"),
            ("Digits", "1234"),
            ("From", "+14158675309"),
            ("To", "+18005551212"),
            ("Caller", "+14158675309"),
        ])
    }

    #[test]
    fn the_published_example_is_verified() {
        assert!(verify_callback(TOKEN, URL, &call(), SIGNATURE));
    }

    #[test]
    fn a_port_may_be_there_or_not() {
        let http = URL.replace("https", "http");
        for (url, signature) in [
            (URL.replace(".com", ".com:1234"), SIGNATURE),
            (URL.replace(".com", ".com:443"), SIGNATURE),
            (http.replace(".com", ".com:1234"), "Zmvh+3yNM1Phv2jhDCwEM3q5ebU="),
            (URL.to_owned(), "kvajT1Ptam85bY51eRf/AJRuM3w="),
            (http, "0ZXoZLH/DfblKGATFgpif+LLRf4="),
        ] {
            assert!(verify_callback(TOKEN, &url, &call(), signature), "{url}");
        }
    }

    #[test]
    fn a_value_that_comes_twice_counts_once() {
        let twice = [("Sid", "CA123"), ("SidAccount", "AC123"), ("Digits", "5678"), ("Digits", "1234")];
        let thrice = [&twice[..], &[("Digits", "1234")]].concat();
        for key_name in [&twice[..], &thrice] {
            assert!(verify_callback(TOKEN, URL, &params(key_name), "IK+Dwps556ElfBT0I3Rgjkr1wJU="));
        }
    }

    #[test]
    fn whatever_was_changed_is_noticed() {
        let mut changed = call();
        changed[1].1 = "1235".to_owned();
        let mut more = call();
        more.push(("Extra".to_owned(), String::new()));
        assert!(!verify_callback(TOKEN, URL, &changed, SIGNATURE));
        assert!(!verify_callback(TOKEN, URL, &more, SIGNATURE));
        assert!(!verify_callback(TOKEN, URL, &call()[1..], SIGNATURE));
        assert!(!verify_callback(TOKEN, &URL.replace("foo=1", "foo=2"), &call(), SIGNATURE));
        assert!(!verify_callback(TOKEN, &URL.replace("mycompany", "another"), &call(), SIGNATURE));
        assert!(!verify_callback("12346", URL, &call(), SIGNATURE));
    }

    #[test]
    fn what_is_no_signature_is_none() {
        let longer = format!("{SIGNATURE}{SIGNATURE}");
        for wrong in ["", "=", "RSOYDt4T1cUTdK1PDd93/VVr8B8", "RSOYDt4T1cUTdK1PDd93/VVr8B9=", "è", &longer] {
            assert!(!verify_callback(TOKEN, URL, &call(), wrong), "{wrong}");
        }
        for wrong in ["", "://", "no url", "https://", "https://[::1", ":"] {
            assert!(!verify_callback(TOKEN, wrong, &call(), SIGNATURE), "{wrong}");
        }
    }

    #[test]
    fn nobody_signs_with_an_empty_token() {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b""), URL.as_bytes());
        assert!(!verify_callback("", URL, &[], &STANDARD.encode(tag)));
    }

    #[test]
    fn the_address_names_its_send_beside_what_it_had() {
        let key = SendKey { notification_id: NotificationId::generate(), channel: Channel::Sms };
        let base = Url::parse("https://example.org:8443/v1/callbacks/twilio?tenant=a%20b").unwrap();
        let url = callback_url(&base, key);
        assert!(url.as_str().starts_with("https://example.org:8443/v1/callbacks/twilio?tenant=a%20b&send="));
        let send = url.query_pairs().find(|(name, _)| name == SEND).unwrap().1;
        assert_eq!(send.parse::<SendKey>().unwrap(), key);
    }

    const SID: &str = "SM0123456789abcdef0123456789abcdef";

    #[test]
    fn a_receipt_says_how_it_went() {
        for (status, is_final) in [
            ("queued", false),
            ("sending", false),
            ("sent", false),
            ("delivered", true),
            ("undelivered", true),
            ("failed", true),
            ("read", true),
            ("canceled", true),
            ("a_new_one", false),
        ] {
            let reported = params(&[("MessageSid", SID), ("MessageStatus", status), ("ErrorCode", "")]);
            let expected =
                Receipt { sid: SID.to_owned(), status: status.to_owned(), error_code: None, is_final };
            assert_eq!(receipt(&reported), Some(expected));
        }
        let reported = params(&[("SmsSid", SID), ("SmsStatus", "undelivered"), ("ErrorCode", "30003")]);
        assert_eq!(receipt(&reported).unwrap().error_code, Some(30003));
    }

    #[test]
    fn what_tells_of_no_text_is_no_receipt() {
        for reported in [
            vec![],
            vec![("MessageSid", SID)],
            vec![("MessageStatus", "sent")],
            vec![("MessageSid", "CA0123456789abcdef0123456789abcdef"), ("MessageStatus", "sent")],
            vec![("MessageSid", "SM' OR 1=1"), ("MessageStatus", "sent")],
            vec![("MessageSid", SID), ("MessageStatus", "")],
            vec![("MessageSid", SID), ("MessageStatus", "sent\r\n")],
            vec![("MessageSid", SID), ("MessageStatus", "an_endless_word_that_never_comes_to_its_end")],
        ] {
            assert_eq!(receipt(&params(&reported)), None, "{reported:?}");
        }
    }
}
