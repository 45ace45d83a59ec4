//! The ledger, in a file and in memory, and the fate of requests.

use std::fs::File;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::random::Random;

/// The most lines of one page.
const MAX_PAGE: usize = 10_000;

/// The provider's behaviour. All values but `slow_ms` are permille of the correct requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mode {
    /// The delay before each answer, after the message was accepted.
    pub slow_ms: u64,
    refuse_503: u64,
    busy_429: u64,
    /// Accepted, then the connection is closed without an answer.
    accept_then_close: u64,
    /// Accepted, and never answered.
    accept_then_silence: u64,
}

impl Mode {
    /// The fate of a request, for a random number below 1,000.
    fn fate(&self, drawn: u64) -> Fate {
        let shares = [
            (self.refuse_503, Fate::Refuse),
            (self.busy_429, Fate::Busy),
            (self.accept_then_close, Fate::Accept(Then::Close)),
            (self.accept_then_silence, Fate::Accept(Then::Silence)),
        ];
        let mut below = 0;
        for (share, fate) in shares {
            below += share;
            if drawn < below {
                return fate;
            }
        }
        Fate::Accept(Then::Answer)
    }

    pub fn is_possible(&self) -> bool {
        let shares = [self.refuse_503, self.busy_429, self.accept_then_close, self.accept_then_silence];
        shares.iter().try_fold(0u64, |sum, share| sum.checked_add(*share)).is_some_and(|sum| sum <= 1_000)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Refuse,
    Busy,
    Accept(Then),
}

/// What follows after a message was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Answer,
    Close,
    Silence,
}

impl Then {
    /// The form in the ledger.
    fn as_str(self) -> &'static str {
        match self {
            Then::Answer => "ok",
            Then::Close => "accept_then_close",
            Then::Silence => "accept_then_silence",
        }
    }
}

#[derive(Debug)]
pub struct Book {
    file: File,
    /// All lines, each with its line feed.
    lines: Vec<u8>,
    /// The end of each line: line `n` ends at `ends[n - 1]`.
    ends: Vec<usize>,
    pub mode: Mode,
    seed: u64,
    random: Random,
}

#[derive(Debug, Serialize)]
struct Accepted<'a> {
    n: usize,
    to: &'a str,
    body: &'a str,
    sid: &'a str,
    mode: &'static str,
}

impl Book {
    pub fn new(file: File, seed: u64) -> Self {
        let random = Random::new(seed, "provider");
        Book { file, lines: Vec::new(), ends: Vec::new(), mode: Mode::default(), seed, random }
    }

    /// The fate of the next request.
    pub fn fate(&mut self) -> Fate {
        self.mode.fate(self.random.below(1_000))
    }

    /// Records a message and returns its SID.
    pub fn accept(&mut self, to: &str, body: &str, then: Then) -> io::Result<String> {
        let n = self.ends.len() + 1;
        let sid = format!("SM{:016x}{n:016x}", self.seed);
        self.append(&Accepted { n, to, body, sid: &sid, mode: then.as_str() })?;
        Ok(sid)
    }

    pub fn note_violation(&mut self, violation: &str) -> io::Result<()> {
        let n = self.ends.len() + 1;
        self.append(&json!({ "n": n, "violation": violation }))
    }

    /// Each line is one write, so that readers of the file see whole lines.
    fn append(&mut self, line: &impl Serialize) -> io::Result<()> {
        let begin = self.lines.len();
        serde_json::to_writer(&mut self.lines, line)?;
        self.lines.push(b'\n');
        if let Err(error) = self.file.write_all(&self.lines[begin..]) {
            self.lines.truncate(begin);
            return Err(error);
        }
        self.ends.push(self.lines.len());
        Ok(())
    }

    /// The lines after `after` as a JSON array. A line feed is never part of a line, so it can become a comma.
    pub fn page(&self, after: usize) -> Vec<u8> {
        let last = after.saturating_add(MAX_PAGE).min(self.ends.len());
        let end_of = |line: usize| line.checked_sub(1).map_or(0, |at| self.ends[at]);
        let lines = if after < last { &self.lines[end_of(after)..end_of(last)] } else { &[] };
        let mut page = Vec::with_capacity(lines.len() + 2);
        page.push(b'[');
        page.extend(lines.iter().map(|byte| if *byte == b'\n' { b',' } else { *byte }));
        if page.len() > 1 {
            page.pop();
        }
        page.push(b']');
        page
    }
}
