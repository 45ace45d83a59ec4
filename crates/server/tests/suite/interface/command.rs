//! The command line as a person uses it: commands that end, and commands that run until they are stopped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::interface::fresh::Fresh;
use crate::support::home::campanile;
use crate::support::until;

/// A command that was told to end must end within this time.
const EXIT_TIMEOUT: Duration = Duration::from_mins(1);

/// How a command ended, and its output.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().expect("the binary was built");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("what it says is text");
        Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Asserts the exit code, an empty standard output, and these words on standard error.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
        for leak in ["panicked", "RUST_BACKTRACE", "Error {", "Some("] {
            assert!(!self.err.contains(leak), "{}", self.err);
        }
    }

    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.succeeded()).expect("it printed JSON")
    }
}

/// Runs a command against a running server.
pub fn cli(server: &Fresh, arguments: &[&str]) -> Ran {
    Ran::of(campanile(server.folder()).args(["--url", &server.url]).args(arguments))
}

/// A command that runs until it is stopped. Dropping this kills the process.
#[derive(Debug)]
pub struct Watched {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    /// Closed when no more lines will come.
    ended: Receiver<()>,
}

impl Watched {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (from, to) = (child.stdout.take().expect("stdout is piped"), Arc::clone(&lines));
        let (end, ended) = channel();
        std::thread::spawn(move || {
            let _end = end;
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                to.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Watched { child, lines, ended }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the first line that contains all of these, and returns it.
    pub async fn line(&self, parts: &[&str]) -> String {
        until(&format!("a line has {parts:?}"), async || {
            self.lines().into_iter().find(|line| parts.iter().all(|part| line.contains(part)))
        })
        .await
    }

    /// Sends SIGTERM, and returns how the process ended.
    pub fn terminate(&mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status().expect("kill is there");
        assert!(told.success());
        let ended = self.ended.recv_timeout(EXIT_TIMEOUT);
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected), "it goes on after SIGTERM");
        self.child.wait().expect("it is our child")
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
