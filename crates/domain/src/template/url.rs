//! Checks the links that a template's `url` renders.

/// Browsers and FCM accept no longer links.
pub const MAX_BYTES: usize = 2 * 1024;
/// Schemes that run or read something on the device instead of leading somewhere.
const REFUSED: [&str; 8] =
    ["javascript", "vbscript", "data", "blob", "file", "filesystem", "about", "view-source"];

/// The rendered link. `None` if it is blank.
pub fn checked(written: &str) -> Result<Option<String>, String> {
    let url = written.trim();
    if url.is_empty() {
        return Ok(None);
    }
    let no_link = |why: &str| {
        let shown: String = url.chars().take(80).flat_map(char::escape_default).collect();
        format!("`{shown}` {why}: expected a link such as https://example.org/orders/5 or myapp://orders/5")
    };
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(no_link(
            "has a space or a control character; use `| urlencode` for what comes from an event",
        ));
    }
    let Some((scheme, rest)) = url.split_once("://") else { return Err(no_link("has no scheme")) };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme {
        return Err(no_link("has no scheme"));
    }
    if REFUSED.iter().any(|refused| scheme.eq_ignore_ascii_case(refused)) {
        return Err(no_link("has a scheme that is not allowed"));
    }
    if rest.is_empty() || rest.starts_with(['/', '?', '#']) && scheme.to_ascii_lowercase().starts_with("http")
    {
        return Err(no_link("has no host or path"));
    }
    Ok(Some(url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_web_and_of_apps_are_taken() {
        for url in [
            "https://example.org/a?b=c#d",
            "http://localhost:3000",
            "myapp://orders/5",
            "com.example.app:///inbox",
        ] {
            assert_eq!(checked(&format!(" {url}\n")), Ok(Some(url.to_owned())));
        }
        assert_eq!(checked(" \n"), Ok(None));
    }

    #[test]
    fn what_is_no_link_is_refused() {
        for url in [
            "orders/5",
            "/orders/5",
            "//example.org",
            "example.org",
            "https:",
            "https://",
            "https:///a",
            "HTTPS://?a",
            "https://a b",
            "https://a/\u{0}",
            "javascript:alert(1)",
            "JavaScript://%0aalert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "5app://x",
            "a b://x",
            "é://x",
        ] {
            assert!(checked(url).unwrap_err().contains("expected a link such as"), "{url}");
        }
    }
}
