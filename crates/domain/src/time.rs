//! Timestamps and durations. Other code uses `time::Timestamp`, so that the library can be replaced here.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};

use crate::schema::schema;

pub use jiff::Timestamp;

/// Timestamps are stored in milliseconds. The fixed width keeps texts in chronological order.
pub fn to_text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A timestamp that answers write as tables do, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(self.0))
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Timestamp::deserialize(deserializer).map(Moment)
    }
}

schema!(
    Moment,
    ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .examples(["2026-01-21T10:15:30.000Z"])
        .into()
);

/// `0001-01-01T00:00:00Z` and `9999-12-30T00:00:00Z`: the range that every database can store and show in every time
/// zone.
const FIRST: Timestamp = Timestamp::constant(-62_135_596_800, 0);
const LAST: Timestamp = Timestamp::constant(253_402_128_000, 0);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must lie between 0001-01-01T00:00:00Z and 9999-12-30T00:00:00Z")]
pub struct OutOfRange;

/// Checks that every database can store this timestamp.
pub fn check(at: Timestamp) -> Result<(), OutOfRange> {
    if (FIRST..=LAST).contains(&at) { Ok(()) } else { Err(OutOfRange) }
}

pub fn from_text(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Adds a duration. It saturates instead of failing: a due time that far away never comes.
pub fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Subtracts a duration, saturating at the earliest timestamp.
pub fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// The duration between two timestamps; zero if `to` is earlier.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// Parses `500ms`, `10s`, `15m`, `1h`.
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
        let json = r#""2026-01-21T10:15:30.000Z""#;
        assert_eq!(serde_json::to_string(&Moment(at)).unwrap(), json);
        assert_eq!(serde_json::from_str::<Moment>(json).unwrap(), Moment(at));
    }
}
