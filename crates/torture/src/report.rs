//! The output of a run: each round as it ends, and the totals.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::fault::{FAILPOINTS, Fault};
use crate::round::Outcome;

/// The most findings that are printed per round.
const SHOWN: usize = 12;

#[derive(Debug, Default)]
pub struct Report {
    rounds: usize,
    counts: BTreeMap<&'static str, u64>,
    findings: Vec<String>,
    left_out: BTreeSet<(&'static str, &'static str)>,
}

impl Report {
    pub fn add(&mut self, name: &str, seed: u64, took: Duration, outcome: Result<Outcome>) {
        self.rounds += 1;
        let Outcome { counts, findings, left_out } = outcome.unwrap_or_else(|error| Outcome {
            counts: BTreeMap::new(),
            findings: vec![format!("the round could not be run: {error:#}")],
            left_out: Vec::new(),
        });
        let count = |what| counts.get(what).copied().unwrap_or(0);
        println!(
            "  {} events, {} sends, {} instances killed, {} doubts, in {:.0} s: {}",
            count("events"),
            count("sends"),
            count("killed") + count("killed at a failpoint"),
            count("doubts"),
            took.as_secs_f64(),
            if findings.is_empty() { "lost 0, duplicates 0" } else { "FAILED" }
        );
        for finding in findings.iter().take(SHOWN) {
            println!("  FOUND: {finding}");
        }
        for (what, number) in counts {
            *self.counts.entry(what).or_default() += number;
        }
        let repeat = format!("(--only {name} --seed {seed})");
        self.findings.extend(findings.into_iter().take(SHOWN).map(|finding| format!("{finding} {repeat}")));
        self.left_out.extend(left_out.into_iter().map(|(fault, variable)| (fault.name(), variable)));
    }

    pub fn leave_out(&mut self, what: &'static str, why: &'static str) {
        self.left_out.insert((what, why));
    }

    pub fn conclude(&self) -> Result<()> {
        let faults: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        println!("\nInjected faults in {} rounds:", self.rounds);
        self.print(&faults);
        println!("\nFailpoints reached:");
        self.print(&FAILPOINTS);
        println!("\nResults:");
        let others = self.counts.keys().filter(|what| !faults.contains(what) && !FAILPOINTS.contains(what));
        self.print(&others.copied().collect::<Vec<_>>());
        for (what, why) in &self.left_out {
            println!("SKIPPED: {what}; {why} is missing");
        }
        if !self.findings.is_empty() {
            bail!("{} problems found:\n  {}", self.findings.len(), self.findings.join("\n  "));
        }
        println!("\nLost 0, duplicates without a doubt 0, stuck 0, unexplained dead letters 0.");
        Ok(())
    }

    fn print(&self, counts: &[&str]) {
        for what in counts {
            println!("{:>9}  {what}", self.counts.get(what).copied().unwrap_or(0));
        }
    }
}
