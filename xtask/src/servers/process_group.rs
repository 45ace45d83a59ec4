//! The keeper's processes and their temporary folder: starting processes, waiting for them, and ending all of them.
//!
//! Each process runs in a process group of its own with a log in the folder. Each has the folder's path in its
//! environment and passes it to its children. So processes that left their group, or that a test restarted, are found
//! as well.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::account::{Account, Last};

/// The variable that marks our processes; `node.sh` uses it, too.
const MARK: &str = "CAMPANILE_SERVERS_FOLDER";

/// How long servers may take to end before they are killed.
const GRACE: Duration = Duration::from_secs(5);

const PAUSE: Duration = Duration::from_millis(20);

/// Log lines of servers whose port is in use; the last two are Erlang's.
const PORT_IS_TAKEN: [&str; 5] = [
    "address already in use",
    "address in use",
    "eaddrinuse",
    "dist_port_already_used",
    "there is already a epmd running",
];

/// How many lines of a log are shown when a server did not start.
const TAIL_LINES: usize = 25;

#[derive(Debug)]
pub struct ProcessGroup {
    folder: PathBuf,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    /// Set at the end: no process is started any more.
    ended: bool,
    all: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    log: PathBuf,
}

/// A process that was started.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    index: usize,
    log: PathBuf,
}

impl ProcessGroup {
    /// Creates a folder whose name contains the id of this process.
    pub fn new(name: &str) -> Result<Self> {
        let folder = open_folder()?.join(format!("campanile-{name}-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let group = Self { folder, members: Mutex::default() };
        open_to_all(&group.folder)?;
        Ok(group)
    }

    /// A subfolder that every account can read.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        open_to_all(&folder)?;
        Ok(folder)
    }

    /// A server that gets this signal when the keeper has ended. It does not inherit our environment.
    pub fn server(&self, account: Account, last: Last, program: &Path) -> Command {
        self.with_environment(account.server(last, program))
    }

    /// Like `server`, for a program that tests call.
    pub fn tool(&self, account: Account, program: &Path) -> Command {
        self.with_environment(account.tool(program))
    }

    fn with_environment(&self, mut command: Command) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.current_dir(&self.folder).env_clear().env(MARK, &self.folder).env("PATH", path);
        command.env("LANG", "C.UTF-8");
        command
    }

    pub fn start(&self, name: &'static str, account: Account, mut command: Command) -> Result<Process> {
        let log = self.log(name);
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        account.give(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let mut members = self.members();
        ensure!(!members.ended, "{name} is not started any more");
        let child = command.spawn().with_context(|| format!("cannot start {name} by `setpriv`"))?;
        members.all.push(Member { child, log: log.clone() });
        Ok(Process { name, index: members.all.len() - 1, log })
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Waits until the server's log contains these words, which mean that it accepts connections.
    pub fn await_text(&self, process: &Process, words: &str, deadline: Instant) -> Result<()> {
        match self.watch(process, deadline, || read(&process.log).contains(words))? {
            None => Ok(()),
            Some(status) => bail!(process.did_not_come_up(status)),
        }
    }

    /// Waits until the process has ended successfully.
    pub fn await_success(&self, process: &Process, deadline: Instant) -> Result<()> {
        match self.watch(process, deadline, || false)? {
            Some(status) if !status.success() => bail!(process.did_not_come_up(status)),
            _ => Ok(()),
        }
    }

    /// Waits until the process has ended, and returns its status, or until the condition holds, and returns `None`.
    fn watch(
        &self,
        process: &Process,
        deadline: Instant,
        condition: impl Fn() -> bool,
    ) -> Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.members().all[process.index].child.try_wait()? {
                return Ok(Some(status));
            }
            if condition() {
                return Ok(None);
            }
            if Instant::now() > deadline {
                bail!("{} takes too long; the end of its log:\n{}", process.name, tail(&read(&process.log)));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reaps ended processes, so that a restart does not find their ids in use.
    pub fn reap(&self) {
        for member in &mut self.members().all {
            member.lives();
        }
    }

    /// Whether a server failed to get its port. RabbitMQ then ends, or continues with the ports that it got.
    pub fn lost_a_port(&self) -> bool {
        self.members().all.iter().any(|member| tells_of_a_taken_port(&read(&member.log)))
    }

    /// Ends all processes and empties the folder, for another attempt.
    pub fn clear(&self) {
        let mut members = self.members();
        self.stop_all(&mut members);
        members.all.clear();
        let inside = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in inside {
            remove(&entry.path());
        }
    }

    /// Ends all processes and removes the folder.
    pub fn end(&self) {
        let mut members = self.members();
        members.ended = true;
        // The first pass misses processes that are just executing another program, whose environment is empty, and
        // those that a test's tool is starting. Without the folder nothing more can start.
        for _ in 0..2 {
            self.stop_all(&mut members);
            remove(&self.folder);
        }
    }

    /// A panic elsewhere must not keep the servers alive.
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop_all(&self, members: &mut Members) {
        let started = Instant::now();
        loop {
            let late = started.elapsed() > GRACE;
            let strays = marked(&self.folder);
            // `initdb` leaves shared memory behind if it is killed or signalled, and ends by itself within a second.
            if !late && strays.iter().any(|id| name(*id) == "initdb") {
                thread::sleep(PAUSE);
                continue;
            }
            for member in &mut members.all {
                if member.lives()
                    && let Some(id) = i32::try_from(member.child.id()).ok().and_then(Pid::from_raw)
                {
                    let _ = kill_process_group(id, ending(id, late));
                }
            }
            for &id in &strays {
                let _ = kill_process(id, ending(id, late));
            }
            let left = members.all.iter_mut().any(Member::lives);
            if (!left && strays.is_empty()) || started.elapsed() > GRACE * 2 {
                break;
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Member {
    fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Process {
    fn did_not_come_up(&self, status: ExitStatus) -> String {
        format!("{} did not come up ({status}); the end of its log:\n{}", self.name, tail(&read(&self.log)))
    }
}

fn read(log: &Path) -> String {
    fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn tells_of_a_taken_port(log: &str) -> bool {
    let log = log.to_lowercase();
    PORT_IS_TAKEN.iter().any(|words| log.contains(words))
}

/// The folder for temporary files, if servers under other accounts can reach it.
fn open_folder() -> Result<PathBuf> {
    let candidates = [std::env::temp_dir(), PathBuf::from("/tmp")];
    let Some(folder) = candidates.iter().find(|folder| is_open(folder)) else {
        bail!("{} is not open to all; name another folder by TMPDIR", candidates[0].display());
    };
    Ok(folder.clone())
}

fn is_open(folder: &Path) -> bool {
    folder.is_absolute()
        && folder
            .ancestors()
            .all(|part| fs::metadata(part).is_ok_and(|about| about.permissions().mode() & 0o001 != 0))
}

/// Opens a folder to all accounts that servers run as, because the umask may be narrower.
fn open_to_all(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot open {} to all", folder.display()))
}

/// The signal for ending a process. PostgreSQL leaves shared memory behind when killed, but not when it aborts.
fn ending(id: Pid, late: bool) -> Signal {
    if name(id) == "postgres" && !late { Signal::QUIT } else { Signal::KILL }
}

fn name(id: Pid) -> String {
    let name = fs::read_to_string(format!("/proc/{}/comm", id.as_raw_nonzero())).unwrap_or_default();
    name.trim().to_owned()
}

/// The processes that have the folder in their environment.
fn marked(folder: &Path) -> Vec<Pid> {
    let mark = format!("{MARK}={}", folder.display());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(|id| {
            let environment = fs::read(format!("/proc/{}/environ", id.as_raw_nonzero())).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .collect()
}

/// Removes a folder, retrying while ending processes still write to it.
fn remove(path: &Path) {
    let deadline = Instant::now() + GRACE;
    loop {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Err(error) if path.exists() && Instant::now() > deadline => {
                eprintln!("cannot remove {}: {error}", path.display());
                return;
            }
            Err(_) if path.exists() => thread::sleep(PAUSE),
            _ => return,
        }
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let first = lines.len().saturating_sub(TAIL_LINES);
    lines[first..].iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn shell(group: &ProcessGroup, script: &str) -> Command {
        let mut command = group.server(Account::Ourselves, Last::Kill, Path::new("sh"));
        command.args(["-c", script]);
        command
    }

    #[test]
    fn end_leaves_neither_processes_nor_the_folder() {
        let group = ProcessGroup::new("end").unwrap();
        // A process that leaves its group and its parent, as daemons do.
        let script = "setsid sleep 1000 & echo up; exec sleep 1001";
        let process = group.start("sleeper", Account::Ourselves, shell(&group, script)).unwrap();
        group.await_text(&process, "up", soon()).unwrap();
        group.end();
        assert!(marked(&group.folder).is_empty());
        assert!(!group.folder.exists());
        assert!(group.start("late", Account::Ourselves, shell(&group, "exit 0")).is_err());
    }

    #[test]
    fn process_that_ends_too_early_shows_its_log() {
        let group = ProcessGroup::new("early").unwrap();
        let failing = shell(&group, "echo no such thing; exit 3");
        let process = group.start("failing", Account::Ourselves, failing).unwrap();
        let error = group.await_text(&process, "up", soon()).unwrap_err().to_string();
        assert!(error.contains("failing did not come up") && error.ends_with("    no such thing"), "{error}");
        assert!(!group.lost_a_port());
        group.end();
    }

    #[test]
    fn taken_port_is_told_from_other_failures_and_forgotten_with_the_attempt() {
        let group = ProcessGroup::new("port").unwrap();
        let failing = shell(&group, "echo 'bind(): Address already in use'");
        let process = group.start("failing", Account::Ourselves, failing).unwrap();
        group.await_success(&process, soon()).unwrap();
        assert!(group.lost_a_port());
        group.clear();
        assert!(!group.lost_a_port());
        assert_eq!(fs::read_dir(&group.folder).unwrap().count(), 0);
        group.end();
    }

    #[test]
    fn only_the_end_of_a_long_log_is_shown() {
        let log: String = (0..100).fold(String::new(), |log, number| log + &format!("line {number}\n"));
        let shown = tail(&log);
        assert!(shown.starts_with("    line 75\n") && shown.ends_with("    line 99"), "{shown}");
    }
}
