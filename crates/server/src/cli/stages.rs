//! Which instances processed a trace, and how soon: one line per stage, however many sends there are.

use std::collections::BTreeSet;
use std::fmt::Write;

use campanile_domain::time;
use serde_json::Value;

use super::output::cut;

/// Per stage the shortest and longest time since the event, and the instances, in lines of at most `columns`
/// characters. Empty if there are none.
pub fn stages(trace: &Value, columns: usize) -> String {
    let accepted = trace["event"]["created_at"].as_str().and_then(time::from_text);
    let sends = || trace["sends"].as_array().into_iter().flatten();
    let mut out = String::new();
    for name in ["fan_out", "publish", "receive", "send", "settle"] {
        let of_event = std::iter::once(&trace["event"]["stages"][name]);
        let all = || of_event.clone().chain(sends().map(|send| &send["stages"][name]));
        let by: BTreeSet<&str> = all().filter_map(|stage| stage["instance"].as_str()).collect();
        let times = all()
            .filter_map(|stage| time::from_text(stage["at"].as_str()?))
            .zip(accepted.into_iter().cycle());
        let after: BTreeSet<u128> = times.map(|(at, from)| time::between(from, at).as_millis()).collect();
        let when = match (after.first(), after.last()) {
            (Some(first), Some(last)) if first == last => format!("+{first} ms"),
            (Some(first), Some(last)) => format!("+{first} to {last} ms"),
            _ if by.is_empty() => continue,
            _ => String::new(),
        };
        let line = format!("  {name:<8} {when:<22} {}", by.into_iter().collect::<Vec<_>>().join(", "));
        let _ = writeln!(out, "{}", cut(line.trim_end(), columns));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stage_is_one_line_whatever_the_number_of_sends() {
        let stage =
            |ms: u32, by: &str| json!({"at": format!("2026-01-21T10:15:30.{ms:03}Z"), "instance": by});
        let many = "a-very-long-name-of-an-instance-that-somebody-chose-and-that-fits-nowhere";
        let sends = [(20, "a"), (30, "b")].map(|(ms, by)| {
            json!({"stages": {
                "publish": null, "receive": stage(ms, by), "send": {"at": null, "instance": "c"},
                "settle": stage(999, many),
            }})
        });
        let event = json!({"created_at": "2026-01-21T10:15:30.000Z", "stages": {"fan_out": stage(7, "a")}});
        let said = stages(&json!({"event": event, "sends": sends}), 80);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "  fan_out  +7 ms                  a");
        assert_eq!(lines[1], "  receive  +20 to 30 ms           a, b");
        assert_eq!(lines[2], "  send                            c");
        assert!(lines[3].starts_with("  settle   +999 ms") && lines[3].ends_with('…'));
        assert!(lines.len() == 4 && lines.iter().all(|line| line.chars().count() <= 80), "{said}");
        assert_eq!(stages(&json!({"event": {}}), 80), "");
    }
}
