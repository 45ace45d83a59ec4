//! An instance of the real binary, and the service manager that starts it again whenever it has ended.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::diary::Diary;
use crate::proxy::Proxy;

/// How long a start may take before it is given up and made again; a database may be black-holed meanwhile.
const START_LIMIT: Duration = Duration::from_secs(30);
/// What a service manager waits before it starts a process again that did not come up.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// How the binary is started.
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
    diary: Arc<Diary>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    life: Option<Life>,
    /// For the next start only.
    next_variables: Vec<(String, String)>,
    over: bool,
}

/// A process that runs.
#[derive(Debug)]
struct Life {
    pid: Pid,
    /// Where it listens, once it does.
    url: Option<String>,
    /// It kills itself at a failpoint.
    failpoint: bool,
    suffered: Suffered,
}

/// What we did to it: the end that it comes to is then no surprise.
#[derive(Debug, Default)]
struct Suffered {
    kill: bool,
    term: bool,
    pause: bool,
}

impl Instance {
    pub fn new(
        name: String,
        launch: Launch,
        (to_database, to_broker, to_provider): (Option<Proxy>, Option<Proxy>, Proxy),
        log: PathBuf,
        diary: Arc<Diary>,
    ) -> Self {
        Instance { name, launch, to_database, to_broker, to_provider, log, diary, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it listens, if it does just now.
    pub fn url(&self) -> Option<String> {
        self.state().life.as_ref()?.url.clone()
    }

    /// `kill -9`. False if it is not running.
    pub fn kill(&self) -> bool {
        self.signal(Signal::KILL, |suffered| suffered.kill = true)
    }

    pub fn terminate(&self) -> bool {
        self.signal(Signal::TERM, |suffered| suffered.term = true)
    }

    /// Not scheduled any more, as on a machine that swaps or sleeps.
    pub fn pause(&self) -> bool {
        self.signal(Signal::STOP, |suffered| suffered.pause = true)
    }

    pub fn resume(&self) -> bool {
        self.signal(Signal::CONT, |_| ())
    }

    fn signal(&self, signal: Signal, mark: impl FnOnce(&mut Suffered)) -> bool {
        let mut state = self.state();
        let Some(life) = &mut state.life else { return false };
        mark(&mut life.suffered);
        kill_process(life.pid, signal).is_ok()
    }

    /// What the next start finds in its environment, besides the usual.
    pub fn next_start_with(&self, variables: &[(&str, &str)]) {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.state().next_variables = variables.collect();
    }

    /// Starts it again and again, until the round is over.
    pub async fn keep_up(self: Arc<Self>) {
        while !self.state().over {
            match self.live_once().await {
                Ok(true) => {}
                Ok(false) => tokio::time::sleep(RESTART_AFTER).await,
                Err(error) => {
                    self.diary.find(format!("{} can't be run: {error:#}", self.name));
                    return;
                }
            }
        }
    }

    /// Ends it for good, in order.
    pub fn end(&self) {
        self.state().over = true;
        self.resume();
        self.terminate();
    }

    /// One life, to its end. False if it did not come up.
    async fn live_once(&self) -> Result<bool> {
        let mut child = self.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
        let first = tokio::time::timeout(START_LIMIT, lines.next_line()).await;
        let url = match first {
            Ok(Ok(Some(line))) => line.rsplit(' ').next().map(str::to_owned),
            Ok(Ok(None) | Err(_)) => None,
            Err(_) => {
                self.diary.count("starts given up");
                self.kill();
                None
            }
        };
        let up = url.is_some();
        if let Some(life) = &mut self.state().life {
            life.url = url;
        }
        // Drained, so that it never waits for a reader; its end is the end of the process.
        let drain = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let status = child.wait().await;
        drain.abort();
        let life = self.state().life.take().context("it was alive")?;
        forget_fake_clock(life.pid);
        self.judge(status?, &life, up);
        Ok(up)
    }

    fn spawn(&self) -> Result<Child> {
        let mut state = self.state();
        let next = std::mem::take(&mut state.next_variables);
        let failpoint = next.iter().any(|(name, _)| name == "CAMPANILE_KILL_AT");
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        // Whoever starts it may be killed, too; then the kernel ends it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.launch.binary);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CAMPANILE_") {
                command.env_remove(name);
            }
        }
        command.envs(self.launch.variables.iter().cloned()).envs(next);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let child = command.spawn().context("the binary can't be started")?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("it has a number")?;
        self.diary.count("starts");
        state.life = Some(Life { pid, url: None, failpoint, suffered: Suffered::default() });
        Ok(child)
    }

    /// Which ends are as they should be.
    fn judge(&self, status: ExitStatus, life: &Life, up: bool) {
        self.diary.note(format_args!("{} ended: {status}", self.name));
        match (status.code(), status.signal()) {
            (_, Some(9)) if life.suffered.kill => self.diary.count("killed"),
            (_, Some(9)) if life.failpoint => self.diary.count("killed at a failpoint"),
            (Some(0), _) if life.suffered.term => self.diary.count("stopped in order"),
            // What could not be finished in time is left to others, and it says so.
            (Some(1), _) if life.suffered.term => self.diary.count("stopped, leaving something"),
            // Without its database it can't start; a service manager tries again.
            (Some(1), _) if !up => self.diary.count("starts refused"),
            // Told to stop before it had learned how.
            (_, Some(15)) if life.suffered.term && !up => self.diary.count("stopped in order"),
            // The in-process broker may run once: who slept past its lease gives way.
            (Some(1), _) if life.suffered.pause => self.diary.count("gave way after a pause"),
            _ => self.diary.find(format!(
                "{} ended by itself: {status}; see {}",
                self.name,
                self.log.display()
            )),
        }
    }
}

/// What libfaketime leaves in memory when its process is killed.
fn forget_fake_clock(pid: Pid) {
    let pid = pid.as_raw_nonzero();
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        // Most had no fake clock.
        let _ = std::fs::remove_file(std::path::Path::new("/dev/shm").join(name));
    }
}
