//! The kernel's data about processes: CPU time and memory.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// CPU time of the programs on this machine since their start.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTime {
    pub engine: Duration,
    pub database: Duration,
    pub broker: Duration,
}

/// CPU time per notification, in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CpuEach {
    pub engine: f64,
    pub database: f64,
    pub broker: f64,
}

impl CpuTime {
    /// CPU time of this engine, and of all PostgreSQL and RabbitMQ processes on the machine. If the benchmark's are the
    /// only ones, this is what they cost.
    pub fn now(engine: u32) -> Result<Self> {
        let mut time = CpuTime::default();
        for process in all_processes()? {
            let spent = process.spent;
            match process.name.as_str() {
                _ if process.pid == engine => time.engine += spent,
                "postgres" => time.database += spent,
                name if name.starts_with("beam") => time.broker += spent,
                _ => {}
            }
        }
        Ok(time)
    }

    pub fn since(self, before: CpuTime, notifications: f64) -> CpuEach {
        let each = |now: Duration, before: Duration| {
            now.saturating_sub(before).as_secs_f64() * 1e6 / notifications.max(1.0)
        };
        CpuEach {
            engine: each(self.engine, before.engine),
            database: each(self.database, before.database),
            broker: each(self.broker, before.broker),
        }
    }
}

struct Process {
    pid: u32,
    name: String,
    /// Including ended children: a database has many short-lived ones.
    spent: Duration,
}

fn all_processes() -> Result<Vec<Process>> {
    let numbers =
        fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // Processes that end meanwhile are skipped.
    Ok(numbers.filter_map(|pid| process(pid).ok()).collect())
}

fn process(pid: u32) -> Result<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name is in parentheses and may contain any character.
    let (begin, end) = (stat.find('(').context("no name")?, stat.rfind(')').context("no name")?);
    let fields: Vec<&str> = stat[end + 1..].split_whitespace().collect();
    let ticks =
        |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
    // utime, stime, cutime and cstime, counted after the name.
    let spent = (11..=14).map(ticks).sum::<u64>();
    let spent = Duration::from_millis(spent * 1_000 / rustix::param::clock_ticks_per_second());
    Ok(Process { pid, name: stat[begin + 1..end].to_owned(), spent })
}

/// In MB: now, and the peak since it was last reset.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Memory {
    pub resident_mb: f64,
    pub peak_mb: f64,
}

pub fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the engine has ended")?;
    let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).collect();
    let mb = |name: &str| {
        let kb = fields.get(name).and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok());
        kb.map(|kb| kb * 1_024.0 / 1e6).with_context(|| format!("the kernel does not tell {name}"))
    };
    Ok(Memory { resident_mb: mb("VmRSS")?, peak_mb: mb("VmHWM")? })
}

/// Resets the peak.
pub fn forget_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the kernel does not let the peak be forgotten")
}
