//! Quiet hours: local wall time in the user's zone, start inclusive, end exclusive, also across midnight. Wall times
//! are compared, not durations, so quiet hours are right on both days of a DST change.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::schema::{self, schema};
use crate::time::Timestamp;

/// A time of day, `00:00` to `23:59`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HourMinute {
    minutes: u16,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a time of day: expected HH:MM from 00:00 to 23:59")]
pub struct InvalidTimeOfDay(String);

impl FromStr for HourMinute {
    type Err = InvalidTimeOfDay;

    fn from_str(text: &str) -> Result<Self, InvalidTimeOfDay> {
        let minutes = || {
            let (hour, minute) = text.split_once(':')?;
            let two_digits =
                |s: &str| (s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?;
            let (hour, minute): (u16, u16) = (two_digits(hour)?, two_digits(minute)?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        minutes()
            .map(|minutes| HourMinute { minutes })
            .ok_or_else(|| InvalidTimeOfDay(text.chars().take(20).collect()))
    }
}

schema!(HourMinute, schema::text("A time of day.", Some("^([01][0-9]|2[0-3]):[0-5][0-9]$"), "22:00"));

impl fmt::Display for HourMinute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.minutes / 60, self.minutes % 60)
    }
}

impl Serialize for HourMinute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HourMinute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What happens to a send that falls into quiet hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum QuietHoursMode {
    /// The send is dropped, and the decision says so.
    #[default]
    Suppress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    pub start: HourMinute,
    pub end: HourMinute,
    pub mode: QuietHoursMode,
}

impl QuietHours {
    pub fn hold(&self, at: Timestamp, zone: &TimeZone) -> bool {
        let local = at.to_zoned(zone.clone());
        let minutes =
            u16::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute())).unwrap_or_default();
        let (start, end) = (self.start.minutes, self.end.minutes);
        if start < end { (start..end).contains(&minutes) } else { minutes >= start || minutes < end }
    }
}

/// The name of an existing IANA time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

schema!(Zone, schema::text("The name of an IANA time zone.", None, "Europe/Rome"));

impl Zone {
    pub fn utc() -> Self {
        Zone(TimeZone::UTC)
    }

    pub fn tz(&self) -> &TimeZone {
        &self.0
    }

    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        TimeZone::get(name).map(Zone).map_err(|_| {
            format!(
                "`{}` is not a known time zone: use an IANA name such as Europe/Rome",
                name.chars().take(40).collect::<String>()
            )
        })
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(start: &str, end: &str) -> QuietHours {
        QuietHours {
            start: start.parse().unwrap(),
            end: end.parse().unwrap(),
            mode: QuietHoursMode::Suppress,
        }
    }

    fn held(hours: QuietHours, at: &str, zone: &str) -> bool {
        hours.hold(at.parse().unwrap(), zone.parse::<Zone>().unwrap().tz())
    }

    #[test]
    fn the_start_is_inside_and_the_end_is_outside() {
        let lunch = quiet("12:00", "14:00");
        assert!(!held(lunch, "2026-01-15T11:59:59Z", "UTC"));
        assert!(held(lunch, "2026-01-15T12:00:00Z", "UTC"));
        assert!(held(lunch, "2026-01-15T13:59:59Z", "UTC"));
        assert!(!held(lunch, "2026-01-15T14:00:00Z", "UTC"));
    }

    #[test]
    fn they_cross_midnight() {
        let night = quiet("22:00", "08:00");
        assert!(held(night, "2026-01-15T22:00:00Z", "UTC"));
        assert!(held(night, "2026-01-16T00:00:00Z", "UTC"));
        assert!(held(night, "2026-01-16T07:59:00Z", "UTC"));
        assert!(!held(night, "2026-01-16T08:00:00Z", "UTC"));
        assert!(!held(night, "2026-01-16T21:59:00Z", "UTC"));
    }

    #[test]
    fn the_zone_decides() {
        let night = quiet("22:00", "08:00");
        assert!(held(night, "2026-01-15T21:30:00Z", "Europe/Rome"));
        assert!(!held(night, "2026-01-15T21:30:00Z", "Europe/Lisbon"));
        assert!(held(night, "2026-01-15T16:30:00Z", "Asia/Kolkata"));
        assert!(!held(night, "2026-01-15T21:30:00Z", "America/Sao_Paulo"));
    }

    #[test]
    fn they_are_right_on_the_day_that_loses_an_hour() {
        let night = quiet("22:00", "08:00");
        // Rome, 2026-03-29: 02:00 becomes 03:00, so 08:00 is 06:00 UTC and not 07:00.
        assert!(held(night, "2026-03-29T05:59:00Z", "Europe/Rome"));
        assert!(!held(night, "2026-03-29T06:00:00Z", "Europe/Rome"));
        // New York, 2026-03-08: the change in another zone.
        assert!(held(night, "2026-03-08T11:59:00Z", "America/New_York"));
        assert!(!held(night, "2026-03-08T12:00:00Z", "America/New_York"));
        // A window inside the skipped hour suppresses nothing.
        let gap = quiet("02:15", "02:45");
        assert!(!held(gap, "2026-03-29T00:59:00Z", "Europe/Rome"));
        assert!(!held(gap, "2026-03-29T01:00:00Z", "Europe/Rome"));
    }

    #[test]
    fn they_are_right_on_the_day_that_gains_an_hour() {
        let night = quiet("22:00", "08:00");
        // Rome, 2026-10-25: 03:00 becomes 02:00, so 08:00 is 07:00 UTC again.
        assert!(held(night, "2026-10-25T06:59:00Z", "Europe/Rome"));
        assert!(!held(night, "2026-10-25T07:00:00Z", "Europe/Rome"));
        // The repeated hour is quiet both times.
        let early = quiet("02:00", "03:00");
        assert!(held(early, "2026-10-25T00:30:00Z", "Europe/Rome"));
        assert!(held(early, "2026-10-25T01:30:00Z", "Europe/Rome"));
        assert!(!held(early, "2026-10-25T02:00:00Z", "Europe/Rome"));
        // Sydney, 2026-04-05: the southern hemisphere.
        assert!(held(night, "2026-04-04T21:59:00Z", "Australia/Sydney"));
        assert!(!held(night, "2026-04-04T22:00:00Z", "Australia/Sydney"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["25:00", "24:00", "12:60", "7:00", "07:0", "0700", "", "ab:cd", "-1:00", "+1:30"] {
            assert!(text.parse::<HourMinute>().is_err(), "{text}");
        }
        assert!("Mars/Olympus".parse::<Zone>().is_err());
    }
}
