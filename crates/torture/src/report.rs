//! What a run prints: each round as it ends, and the sum of all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::fault::Fault;
use crate::round::Outcome;

/// Of the findings of one round.
const SHOWN: usize = 12;

#[derive(Debug, Default)]
pub struct Report {
    rounds: usize,
    counts: BTreeMap<&'static str, u64>,
    findings: Vec<String>,
    left_out: BTreeSet<(Fault, &'static str)>,
}

impl Report {
    pub fn add(&mut self, name: &str, seed: u64, took: Duration, outcome: Outcome) {
        let count = |what| outcome.counts.get(what).copied().unwrap_or(0);
        println!(
            "  {} events, {} sends, {} instances killed, {} doubts, in {:.0} s: {}",
            count("events"),
            count("sends"),
            count("killed") + count("killed at a failpoint"),
            count("doubts"),
            took.as_secs_f64(),
            if outcome.findings.is_empty() { "lost 0, twice 0" } else { "NOT WELL" }
        );
        for finding in outcome.findings.iter().take(SHOWN) {
            println!("  FOUND: {finding}");
        }
        self.rounds += 1;
        for (what, number) in outcome.counts {
            *self.counts.entry(what).or_default() += number;
        }
        self.findings.extend(
            outcome
                .findings
                .into_iter()
                .take(SHOWN)
                .map(|finding| format!("{name} (seed {seed}): {finding}")),
        );
        self.left_out.extend(outcome.left_out);
    }

    pub fn conclude(&self) -> Result<()> {
        let faults: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        println!("\nWhat was done to it, in {} rounds:", self.rounds);
        for name in &faults {
            println!("{:>9}  {name}", self.counts.get(name).copied().unwrap_or(0));
        }
        println!("\nWhat came of it:");
        for (what, number) in self.counts.iter().filter(|(what, _)| !faults.contains(what)) {
            println!("{number:>9}  {what}");
        }
        for (fault, variable) in &self.left_out {
            println!("LEFT OUT: {}, since {variable} is not set", fault.name());
        }
        if !self.findings.is_empty() {
            bail!("{} things were found:\n  {}", self.findings.len(), self.findings.join("\n  "));
        }
        println!("\nLost 0, told twice outside of a doubt 0, stuck 0, unexplained dead letters 0.");
        Ok(())
    }
}
