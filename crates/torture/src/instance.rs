//! An instance of the real binary, and a service manager that restarts it whenever it ends.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::journal::Journal;
use campanile_testkit::proxy::Proxy;

/// How long a start may take before it is repeated. The database may be unreachable meanwhile.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a service manager waits before it repeats a failed start.
const RESTART_AFTER: Duration = Duration::from_millis(300);
/// The configured deadline of a stop, and some time for the rest.
const STOP_LIMIT: Duration = Duration::from_secs(13);

/// How to start the binary.
#[derive(Debug, Clone)]
pub struct Launch {
    pub binary: PathBuf,
    pub variables: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Instance {
    pub name: String,
    launch: Launch,
    pub to_database: Option<Proxy>,
    pub to_broker: Option<Proxy>,
    pub to_provider: Proxy,
    log: PathBuf,
    journal: Arc<Journal>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    life: Option<Life>,
    /// For the next start only.
    next_variables: Vec<(String, String)>,
    next_failpoint: Option<&'static str>,
    paused: bool,
    over: bool,
}

/// A running process.
#[derive(Debug)]
struct Life {
    pid: Pid,
    /// Its address, once it listens.
    url: Option<String>,
    /// The failpoint at which it kills itself.
    failpoint: Option<&'static str>,
    suffered: Suffered,
}

/// What the harness did to it, which explains how it ends.
#[derive(Debug, Default)]
struct Suffered {
    kill: bool,
    term: Option<Instant>,
    pause: bool,
}

impl Instance {
    pub fn new(
        name: String,
        launch: Launch,
        (to_database, to_broker, to_provider): (Option<Proxy>, Option<Proxy>, Proxy),
        log: PathBuf,
        journal: Arc<Journal>,
    ) -> Self {
        Instance { name, launch, to_database, to_broker, to_provider, log, journal, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URL, while the instance listens.
    pub fn url(&self) -> Option<String> {
        self.state().life.as_ref()?.url.clone()
    }

    pub fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// `kill -9`. Returns false if it is not running.
    pub fn kill(&self) -> bool {
        self.signal(Signal::KILL, |suffered| suffered.kill = true)
    }

    pub fn terminate(&self) -> bool {
        self.signal(Signal::TERM, |suffered| suffered.term = Some(Instant::now()))
    }

    /// Suspends the process, as on a machine that swaps, and then resumes it.
    pub async fn sleep(&self, length: Duration) {
        let pid = {
            let mut state = self.state();
            state.paused = true;
            state.life.as_ref().filter(|life| life.url.is_some()).map(|life| life.pid)
        };
        if pid.is_some() && self.signal(Signal::STOP, |suffered| suffered.pause = true) {
            tokio::time::sleep(length).await;
            let same = self.state().life.as_ref().map(|life| life.pid) == pid;
            if self.signal(Signal::CONT, |_| ()) && same {
                self.journal.count("resumed after the lease expired");
            }
        }
        self.state().paused = false;
    }

    fn signal(&self, signal: Signal, mark: impl FnOnce(&mut Suffered)) -> bool {
        let mut state = self.state();
        let Some(life) = &mut state.life else { return false };
        mark(&mut life.suffered);
        kill_process(life.pid, signal).is_ok()
    }

    /// Sets additional variables for the next start.
    pub fn next_start_with(&self, variables: &[(&str, &str)]) {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.state().next_variables = variables.collect();
    }

    /// Makes the next start die when it reaches this failpoint for the nth time.
    pub fn arm(&self, failpoint: &'static str, nth: u64) {
        self.journal.note(format_args!("{} is to die at {failpoint}:{nth}", self.name));
        self.next_start_with(&[("CAMPANILE_KILL_AT", &format!("{failpoint}:{nth}"))]);
        self.state().next_failpoint = Some(failpoint);
    }

    /// Waits until an armed instance has reached its failpoint and died. Returns false after `limit`.
    pub async fn has_died_at_its_failpoint(&self, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if !self.is_armed() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    fn is_armed(&self) -> bool {
        let state = self.state();
        let lives = state.life.as_ref().is_some_and(|life| life.failpoint.is_some());
        lives || state.next_failpoint.is_some()
    }

    /// Restarts the instance until the round is over.
    pub async fn keep_up(self: Arc<Self>) {
        while !self.state().over {
            match self.live_once().await {
                Ok(true) => {}
                Ok(false) => tokio::time::sleep(RESTART_AFTER).await,
                Err(error) => {
                    self.journal.find(format!("{} can't be run: {error:#}", self.name));
                    return;
                }
            }
        }
    }

    /// Ends the instance for good, in order.
    pub fn end(&self) {
        self.state().over = true;
        self.terminate();
    }

    /// Runs the process once. Returns false if it did not come up.
    async fn live_once(&self) -> Result<bool> {
        let Some(mut child) = self.spawn()? else { return Ok(false) };
        let mut lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
        let first = tokio::time::timeout(START_LIMIT, lines.next_line()).await;
        let url = match first {
            Ok(Ok(Some(line))) => line.rsplit(' ').next().map(str::to_owned),
            Ok(Ok(None) | Err(_)) => None,
            Err(_) => {
                self.journal.count("starts given up");
                self.kill();
                None
            }
        };
        let up = url.is_some();
        if let Some(life) = &mut self.state().life {
            life.url = url;
        }
        // Drained, so that the process never blocks. The end of its output is the end of the process.
        let drain = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let status = child.wait().await;
        drain.abort();
        let life = self.state().life.take().context("it was alive")?;
        forget_fake_clock(life.pid);
        self.judge(status?, &life, up);
        Ok(up)
    }

    /// Starts the process; `None` if the round is over.
    fn spawn(&self) -> Result<Option<Child>> {
        let mut state = self.state();
        if state.over {
            return Ok(None);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        // If the harness is killed, the kernel ends the process.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.launch.binary);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CAMPANILE_") {
                command.env_remove(name);
            }
        }
        command.envs(self.launch.variables.iter().cloned()).envs(std::mem::take(&mut state.next_variables));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let child = command.spawn().context("the binary can't be started")?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("it has a number")?;
        self.journal.count("starts");
        let failpoint = state.next_failpoint.take();
        state.life = Some(Life { pid, url: None, failpoint, suffered: Suffered::default() });
        Ok(Some(child))
    }

    /// Judges whether the process ended as it should.
    fn judge(&self, status: ExitStatus, life: &Life, up: bool) {
        self.journal.note(format_args!("{} ended: {status}", self.name));
        let Suffered { kill, term, pause } = life.suffered;
        if let Some(took) =
            term.map(|told| told.elapsed()).filter(|took| *took > STOP_LIMIT && !kill && !pause)
        {
            self.journal.find(format!("{} took {took:?} to stop", self.name));
        }
        match (status.code(), status.signal(), life.failpoint) {
            (_, Some(9), _) if kill => {
                self.journal.count(if up { "killed" } else { "killed while starting" });
            }
            (_, Some(9), Some(failpoint)) => {
                self.journal.count("killed at a failpoint");
                self.journal.count(failpoint);
            }
            (Some(0), ..) if term.is_some() => self.journal.count("stopped cleanly"),
            // Exit code 1 reports that unfinished work was left to others.
            (Some(1), ..) if term.is_some() => self.journal.count("stopped, leaving something"),
            // It cannot start without its database; the service manager tries again.
            (Some(1), ..) if !up => self.journal.count("starts refused"),
            // Told to stop before its signal handlers were installed.
            (_, Some(15), _) if term.is_some() && !up => self.journal.count("stopped while starting"),
            // Only one process may run the in-process broker. One that was suspended past its lease must stop.
            (Some(1), ..) if pause && self.to_broker.is_none() => {
                self.journal.count("lost its lease after a pause");
            }
            _ => self.journal.find(format!(
                "{} exited unexpectedly: {status}; see {}",
                self.name,
                self.log.display()
            )),
        }
    }
}

/// Removes what libfaketime leaves in shared memory when its process is killed.
fn forget_fake_clock(pid: Pid) {
    let pid = pid.as_raw_nonzero();
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        // Most had no fake clock.
        let _ = std::fs::remove_file(Path::new("/dev/shm").join(name));
    }
}
