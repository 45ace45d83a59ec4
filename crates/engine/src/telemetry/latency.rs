//! Latency histograms, from the creation of an event to each stage, by channel and priority. The exporter's own
//! histograms keep every value until the next scrape. These only count, so their cost does not depend on scrapes.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::priority::Priority;
use campanile_domain::time::{self, Timestamp};

pub const EVENT_TO_FAN_OUT: &str = "campanile_event_to_fan_out_seconds";
pub const EVENT_TO_RECEIVED: &str = "campanile_event_to_received_seconds";
pub const EVENT_TO_SENT: &str = "campanile_event_to_sent_seconds";

/// Upper bounds, in milliseconds and as Prometheus label. Longer times count only in `+Inf`.
const BOUNDS: [(u64, &str); 8] = [
    (10, "0.01"),
    (50, "0.05"),
    (250, "0.25"),
    (1_000, "1"),
    (5_000, "5"),
    (30_000, "30"),
    (300_000, "300"),
    (3_600_000, "3600"),
];
const BUCKETS: usize = BOUNDS.len() + 1;

const PRIORITIES: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

/// The histograms of one instance since its start. Each series exists from the start, at zero.
#[derive(Debug, Default)]
pub struct Latencies {
    pub fan_out: Histogram,
    pub received: Histogram,
    pub sent: Histogram,
}

impl Latencies {
    /// The histograms in the text format of `/metrics`.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (name, help, histogram) in [
            (
                EVENT_TO_FAN_OUT,
                "Seconds from the creation of an event to the commit of its fan-out, per row",
                &self.fan_out,
            ),
            (
                EVENT_TO_RECEIVED,
                "Seconds from the creation of an event until its row was received",
                &self.received,
            ),
            (
                EVENT_TO_SENT,
                "Seconds from the creation of an event until a send succeeded, including retries",
                &self.sent,
            ),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
            histogram.render(name, &mut out);
        }
        out
    }
}

/// One histogram per channel and priority.
#[derive(Debug)]
pub struct Histogram(PerChannel<[Series; 3]>);

#[derive(Debug, Default)]
struct Series {
    /// Counts per bucket, not cumulative; the last bucket is `+Inf`.
    buckets: [AtomicU64; BUCKETS],
    sum_ms: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram(PerChannel::from_fn(|_| Default::default()))
    }
}

impl Histogram {
    /// Counts an event that was created at `from` and reached the stage at `now`, both by the database's clock.
    pub(crate) fn observe(&self, channel: Channel, priority: Priority, from: Timestamp, now: Timestamp) {
        let series = &self.0.get(channel)[priority_index(priority)];
        let ms = millis(time::between(from, now));
        let bucket = BOUNDS.iter().position(|(bound, _)| ms <= *bound).unwrap_or(BOUNDS.len());
        series.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        series.sum_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn render(&self, name: &str, out: &mut String) {
        for channel in Channel::ALL {
            for priority in PRIORITIES {
                let series = &self.0.get(channel)[priority_index(priority)];
                let labels = format!("channel=\"{}\",priority=\"{}\"", channel.as_str(), priority.as_str());
                let mut count = 0;
                let bounds = BOUNDS.iter().map(|(_, bound)| *bound).chain(["+Inf"]);
                for (bucket, bound) in series.buckets.iter().zip(bounds) {
                    count += bucket.load(Ordering::Relaxed);
                    let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
                }
                let sum = Duration::from_millis(series.sum_ms.load(Ordering::Relaxed)).as_secs_f64();
                let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
            }
        }
    }
}

fn priority_index(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(latencies: &Latencies, beginning: &str) -> Vec<String> {
        let text = latencies.render();
        text.lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
    }

    #[test]
    fn buckets_count_all_that_took_no_longer() {
        let latencies = Latencies::default();
        let came = Timestamp::UNIX_EPOCH;
        for ms in [0, 10, 11, 1_000, 4_000_000] {
            let now = time::later(came, Duration::from_millis(ms));
            latencies.sent.observe(Channel::Email, Priority::High, came, now);
        }
        // A negative duration, from a clock that was set back, counts as zero.
        latencies.sent.observe(
            Channel::Email,
            Priority::High,
            time::later(came, Duration::from_secs(9)),
            came,
        );
        let series = |end: &str| format!("campanile_event_to_sent_seconds_{end}");
        let labels = r#"channel="EMAIL",priority="HIGH""#;
        for (bound, count) in [("0.01", 3), ("0.05", 4), ("0.25", 4), ("1", 5), ("3600", 5), ("+Inf", 6)] {
            let bucket = series(&format!("bucket{{{labels},le=\"{bound}\"}}"));
            assert_eq!(lines(&latencies, &bucket), [format!("{bucket} {count}")]);
        }
        let count = series(&format!("count{{{labels}}}"));
        assert_eq!(lines(&latencies, &count), [format!("{count} 6")]);
        let sum = series(&format!("sum{{{labels}}}"));
        assert_eq!(lines(&latencies, &sum), [format!("{sum} 4001.021")]);
    }

    #[test]
    fn every_series_is_there_from_the_start() {
        let text = Latencies::default().render();
        assert_eq!(text.lines().filter(|line| line.contains("_count{")).count(), 3 * 5 * 3);
        assert!(
            text.lines().filter(|line| !line.starts_with('#')).all(|line| line.ends_with(" 0")),
            "{text}"
        );
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), 3);
    }
}
