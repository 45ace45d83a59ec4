//! Webhook URLs from users and tenants. Which hosts are allowed is configured by the operator and checked in the
//! channel that posts to them.

use std::net::IpAddr;

use url::Url;

/// Slack's webhooks have about 80 bytes; this allows for longer ones.
const MAX_BYTES: usize = 2_000;

/// Parses a webhook, or says why nothing can be posted to it.
pub fn webhook(text: &str) -> Result<Url, &'static str> {
    if text.len() > MAX_BYTES {
        return Err("it is longer than 2000 bytes");
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('\\') {
        return Err("it contains characters that are invalid in a URL");
    }
    let url = Url::parse(text).map_err(|_| "it is not a URL; it must begin with https://")?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("it does not begin with https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user or a password in it");
    }
    if url.scheme() == "http" && !is_this_machine(&url) {
        return Err("http:// is not encrypted; use https://");
    }
    Ok(url)
}

/// Whether the URL leads to a loopback address, where no other machine can read the traffic.
pub fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_are_https_except_to_this_machine() {
        for right in [
            "https://hooks.slack.com/services/T0/B0/x",
            "http://localhost:8080/x",
            "http://[::1]/x",
            "http://127.1/x",
        ] {
            assert_eq!(webhook(right).err(), None, "{right}");
        }
        let long = format!("https://hooks.slack.com/{}", "x".repeat(2_000));
        for (wrong, word) in [
            ("", "not a URL"),
            ("hooks.slack.com/services/T0/B0/x", "not a URL"),
            ("ftp://hooks.slack.com/x", "https://"),
            ("http://hooks.slack.com/x", "use https://"),
            ("http://10.0.0.7/x", "use https://"),
            ("https://me:pass@hooks.slack.com/x", "user"),
            ("https://hooks.slack.com/x ", "characters"),
            ("https://hooks.slack.com\\@evil.example/x", "characters"),
            (&long, "2000 bytes"),
        ] {
            let refused = webhook(wrong).expect_err(wrong);
            assert!(refused.contains(word), "{wrong}: {refused}");
        }
    }
}
