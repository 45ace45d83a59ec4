//! Moments and durations. The rest of the code names `time::Timestamp`, so that the library behind it can change here.

use std::time::Duration;

pub use jiff::Timestamp;

/// Milliseconds are what is stored: the fixed width keeps text times in order.
pub fn to_text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

pub fn from_text(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Saturates at the end of time instead of failing: a due time that far away never comes.
pub fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Saturates at the beginning of time.
pub fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// How long from one moment to another; zero if it lies behind.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// `500ms`, `10s`, `15m`, `1h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed =
        text.parse::<jiff::SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed.ok_or_else(|| format!("`{text}` is not a duration: expected something like 500ms, 10s or 15m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_times_have_a_fixed_width_and_come_back() {
        let at: Timestamp = "2026-01-21T10:15:30Z".parse().unwrap();
        assert_eq!(to_text(at), "2026-01-21T10:15:30.000Z");
        assert_eq!(from_text(&to_text(at)), Some(at));
    }
}
