//! Times as text, in UTC with milliseconds, which both databases understand; without a time library.

use std::time::{SystemTime, UNIX_EPOCH};

const MS_PER_DAY: i64 = 24 * 60 * 60 * 1000;
/// From year 1 to the second last day of year 9999, as in the table.
const FIRST_DAY: i64 = -719_162;
const LAST_DAY: i64 = 2_932_894;

/// `None` outside of the years 1 to 9999.
pub fn to_text(at: SystemTime) -> Option<String> {
    let ms = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).ok()?,
        // Rounds down, as for later times.
        Err(before) => -i64::try_from(before.duration().as_nanos().div_ceil(1_000_000)).ok()?,
    };
    let (day, of_day) = (ms.div_euclid(MS_PER_DAY), ms.rem_euclid(MS_PER_DAY));
    if !(FIRST_DAY..=LAST_DAY).contains(&day) {
        return None;
    }
    let (year, month, day) = date(day);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"))
}

/// Year, month and day of a day since 1970. Years start in March, so that leap days come last. The calendar repeats
/// every 400 years.
fn date(day: i64) -> (i64, i64, i64) {
    let since_march_of_0 = day + 719_468;
    let (era, of_era) = (since_march_of_0.div_euclid(146_097), since_march_of_0.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(ms: u64) -> Option<String> {
        to_text(UNIX_EPOCH + Duration::from_millis(ms))
    }

    fn before(ms: u64) -> Option<String> {
        to_text(UNIX_EPOCH - Duration::from_millis(ms))
    }

    #[test]
    fn moments_have_their_dates() {
        assert_eq!(after(0).unwrap(), "1970-01-01T00:00:00.000Z");
        assert_eq!(after(951_827_696_789).unwrap(), "2000-02-29T12:34:56.789Z");
        assert_eq!(after(1_709_164_800_000).unwrap(), "2024-02-29T00:00:00.000Z");
        assert_eq!(after(4_107_542_400_000).unwrap(), "2100-03-01T00:00:00.000Z");
        assert_eq!(before(1).unwrap(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn the_ends_of_time_are_those_of_the_table() {
        assert_eq!(before(62_135_596_800_000).unwrap(), "0001-01-01T00:00:00.000Z");
        assert_eq!(before(62_135_596_800_001), None);
        assert_eq!(after(253_402_127_999_999).unwrap(), "9999-12-29T23:59:59.999Z");
        assert_eq!(after(253_402_128_000_000), None);
    }
}
