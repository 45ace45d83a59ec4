//! What a round did, how often, and what it found.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};

/// Shared by everything in a round.
#[derive(Debug)]
pub struct Journal {
    begun: Instant,
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    file: File,
    counts: BTreeMap<&'static str, u64>,
    findings: Vec<String>,
}

impl Journal {
    /// Also writes every entry to a file, for examining findings.
    pub fn new(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("{} can't be written", path.display()))?;
        let entries = Entries { file, counts: BTreeMap::new(), findings: Vec::new() };
        Ok(Journal { begun: Instant::now(), entries: Mutex::new(entries) })
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line about something that happened.
    pub fn note(&self, entry: impl fmt::Display) {
        let elapsed = self.begun.elapsed().as_secs_f64();
        // A journal that cannot be written does not stop the round.
        let _ = writeln!(self.entries().file, "{elapsed:8.3} {entry}");
    }

    /// Counts something.
    pub fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn add(&self, what: &'static str, number: u64) {
        *self.entries().counts.entry(what).or_default() += number;
    }

    /// Records a finding: something that must not happen.
    pub fn find(&self, finding: impl Into<String>) {
        const MOST: usize = 50;
        let finding = finding.into();
        self.note(format_args!("FOUND: {finding}"));
        let mut entries = self.entries();
        if entries.findings.len() < MOST {
            entries.findings.push(finding);
        }
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.entries().counts.clone()
    }

    pub fn findings(&self) -> Vec<String> {
        self.entries().findings.clone()
    }
}
