//! Which URLs are accepted as webhooks. They come from users and tenants, so only hosts that the operator allows are
//! accepted. The guard checks the address again when connecting.

use std::fmt;

use campanile_domain::people::address::webhook;
use reqwest::Url;

/// A host whose webhooks are accepted, with a port if it is not the default: `hooks.slack.com`, `[::1]:8080`. Or all
/// hosts below a name: `*.slack.com`.
///
/// A name must resolve to public addresses. To allow an internal machine, use its address, or `localhost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    /// Normalised as in URLs: in lower case, IPv6 addresses in brackets.
    host: String,
    /// Allows the hosts below the name, at any depth, but not the name itself.
    subdomains: bool,
    port: Option<u16>,
}

const WILDCARD: &str = "*.";

impl AllowedHost {
    pub fn parse(text: &str) -> Option<Self> {
        let (name, subdomains) = text.strip_prefix(WILDCARD).map_or((text, false), |name| (name, true));
        if name.is_empty() || name.contains(['/', '\\', '@', '?', '#', '*']) || !is_graphic(name) {
            return None;
        }
        let url = Url::parse(&format!("https://{name}")).ok()?;
        // Addresses have no subdomains, and `*.com` would be too broad.
        let has_subdomains = url.domain().is_some_and(|name| name.trim_matches('.').contains('.'));
        if subdomains && !has_subdomains {
            return None;
        }
        Some(AllowedHost { host: url.host_str()?.to_owned(), subdomains, port: url.port() })
    }

    fn allows(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_named = if self.subdomains {
            host.strip_suffix(&self.host).is_some_and(|name| name.len() > 1 && name.ends_with('.'))
        } else {
            host == self.host
        };
        is_named && url.port() == self.port
    }
}

/// Checks that a webhook may be posted to. The error contains no part of it.
pub fn check_webhook(text: &str, allowed: &[AllowedHost]) -> Result<(), String> {
    check(text, allowed).map(drop)
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subdomains = if self.subdomains { WILDCARD } else { "" };
        match self.port {
            Some(port) => write!(f, "{subdomains}{}:{port}", self.host),
            None => write!(f, "{subdomains}{}", self.host),
        }
    }
}

/// The URL to post to, or an error without any part of it. The checked URL is used for posting, so the text is never
/// parsed again in another way.
pub fn check(text: &str, allowed: &[AllowedHost]) -> Result<Url, String> {
    let url = webhook(text).map_err(|why| format!("the Slack webhook can't be used: {why}"))?;
    if !allowed.iter().any(|host| host.allows(&url)) {
        return Err("the Slack webhook's host is not in channels.slack.allowed_hosts".to_owned());
    }
    Ok(url)
}

fn is_graphic(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(hosts: &[&str]) -> Vec<AllowedHost> {
        hosts.iter().map(|host| AllowedHost::parse(host).unwrap()).collect()
    }

    #[test]
    fn a_host_is_a_host_and_perhaps_a_port() {
        for (text, shown) in [
            ("hooks.slack.com", "hooks.slack.com"),
            ("Hooks.Slack.com:443", "hooks.slack.com"),
            ("hooks.example:8443", "hooks.example:8443"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:8080", "[::1]:8080"),
            ("localhost", "localhost"),
            ("*.Slack.com", "*.slack.com"),
            ("*.slack.com:8443", "*.slack.com:8443"),
        ] {
            assert_eq!(AllowedHost::parse(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "https://hooks.slack.com",
            "hooks.slack.com/",
            "hooks.slack.com/services",
            "me@hooks.slack.com",
            "a b",
            "hooks.slack.com:99999",
            ":80",
            "hooks.slack.com?x",
            "hooks.slack.com#x",
            "*.slack.com/",
            "*",
            "*.",
            "*.com",
            "*.com.",
            "*.localhost",
            "*.127.0.0.1",
            "*.[::1]",
            "**.slack.com",
            "*.*.slack.com",
            "hooks.*.com",
            "*slack.com",
            "*.@slack.com",
            "::1",
            "hööks.example",
        ] {
            assert_eq!(AllowedHost::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn webhooks_of_allowed_hosts_are_taken() {
        let allowed = hosts(&[
            "hooks.slack.com",
            "hooks.example:8443",
            "127.0.0.1:8080",
            "[::1]",
            "localhost:8080",
            "10.0.0.7",
        ]);
        for right in [
            "https://hooks.slack.com/services/T0/B0/x",
            "https://HOOKS.slack.COM:443/services/T0/B0/x",
            "https://hooks.example:8443/hooks/x",
            "http://127.0.0.1:8080/x",
            "http://localhost:8080/x",
            "http://[::1]/x",
            "https://10.0.0.7/x",
        ] {
            assert_eq!(check(right, &allowed).err(), None, "{right}");
        }
    }

    #[test]
    fn all_others_are_refused_in_words_that_do_not_show_them() {
        let allowed = hosts(&["hooks.slack.com", "hooks.example:8443", "127.0.0.1:8080", "10.0.0.7"]);
        let long = format!("https://hooks.slack.com/{}", "x".repeat(2_000));
        for (wrong, word) in [
            ("", "not a URL"),
            ("hooks.slack.com/services/T0/B0/x", "not a URL"),
            ("ftp://hooks.slack.com/x", "https://"),
            ("file:///etc/passwd", "https://"),
            ("javascript:alert(1)", "https://"),
            ("http://hooks.slack.com/x", "use https://"),
            ("http://10.0.0.7/x", "use https://"),
            ("https://hooks.slack.com.evil.example/x", "allowed_hosts"),
            ("https://evil.example/hooks.slack.com", "allowed_hosts"),
            ("https://xhooks.slack.com/x", "allowed_hosts"),
            ("https://slack.com/x", "allowed_hosts"),
            ("https://hooks.slack.com./x", "allowed_hosts"),
            ("https://hooks.slack.com:8443/x", "allowed_hosts"),
            ("https://hooks.example/x", "allowed_hosts"),
            ("https://hooks.slack.com@evil.example/x", "user"),
            ("https://hooks.slack.com:x@evil.example/x", "user"),
            ("https://me:pass@hooks.slack.com/x", "user"),
            ("https://:pass@hooks.slack.com/x", "password"),
            ("https://evil.example#@hooks.slack.com/x", "allowed_hosts"),
            ("https://evil.example?@hooks.slack.com/x", "allowed_hosts"),
            ("https://evil.example\\@hooks.slack.com/x", "characters"),
            ("https://hooks.slack.com\\@evil.example/x", "characters"),
            ("https://hooks.slack.com/x\r\nHost: evil.example", "characters"),
            ("https://hooks.slack.com/x ", "characters"),
            ("https://hooks.slack\t.com/x", "characters"),
            ("https://hooks。slack。com/x", "characters"),
            ("http://127.0.0.1/x", "allowed_hosts"),
            ("http://127.1:8081/x", "allowed_hosts"),
            ("http://2130706433/x", "allowed_hosts"),
            ("http://0x7f000001/x", "allowed_hosts"),
            ("http://017700000001/x", "allowed_hosts"),
            ("http://localhost:8080/x", "allowed_hosts"),
            ("http://[::1]:8080/x", "allowed_hosts"),
            ("http://[::ffff:127.0.0.1]:8080/x", "use https://"),
            ("http://169.254.169.254/latest/meta-data/", "use https://"),
            ("https://[fd00::1]/x", "allowed_hosts"),
            (&long, "2000 bytes"),
        ] {
            let refused = check(wrong, &allowed).expect_err(wrong);
            assert!(refused.contains(word), "{wrong}: {refused}");
        }
        let none = check("https://hooks.slack.com/services/T0/B0/x", &[]);
        assert!(none.is_err());
    }

    #[test]
    fn all_hosts_below_a_name_may_be_allowed_and_not_the_name_itself() {
        let allowed = hosts(&["*.slack.com", "*.example.org:8443"]);
        for right in [
            "https://hooks.slack.com/x",
            "https://a.b.HOOKS.slack.com:443/x",
            "https://hooks.example.org:8443/x",
        ] {
            assert_eq!(check(right, &allowed).err(), None, "{right}");
        }
        for wrong in [
            "https://slack.com/x",
            "https://.slack.com/x",
            "https://xslack.com/x",
            "https://hooks.slack.com.evil.example/x",
            "https://slack.com.evil/x",
            "https://hooks.slack.com:8443/x",
            "https://hooks.slack.com./x",
            "https://hooks.example.org/x",
            "https://hooks.slack.com@evil.example/x",
            "https://evil.example/hooks.slack.com",
            "https://127.0.0.1/x",
        ] {
            assert!(check(wrong, &allowed).is_err(), "{wrong}");
        }
        let plain = check("http://hooks.slack.com/x", &allowed).expect_err("in the clear");
        assert!(plain.contains("use https://"), "{plain}");
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let allowed = hosts(&["127.0.0.1:8080"]);
        for same in ["http://127.0.0.1:8080/", "http://127.1:8080/", "http://2130706433:8080/"] {
            assert_eq!(check(same, &allowed).unwrap().host_str(), Some("127.0.0.1"));
        }
    }
}
