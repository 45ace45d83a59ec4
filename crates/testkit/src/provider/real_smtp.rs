//! Real SMTP servers from Debian's packages, started for one test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// aiosmtpd, which ends when its input is closed.
#[derive(Debug)]
pub struct Python {
    pub port: u16,
    process: Child,
    output: Mutex<BufReader<ChildStdout>>,
}

impl Python {
    pub fn start(arguments: &[&str]) -> Self {
        let python = std::env::var("CAMPANILE_TEST_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned());
        let mut process = Command::new(python)
            .args(["-c", include_str!("aiosmtpd_server.py")])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 with aiosmtpd (Debian's python3-aiosmtpd)");
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("a port: is python3-aiosmtpd installed?");
        Python { port, process, output: Mutex::new(output) }
    }

    /// The next message that it accepted.
    pub fn message(&self) -> Value {
        let mut line = String::new();
        self.output.lock().unwrap().read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Postfix's server for load tests. It writes each message to a file.
#[derive(Debug)]
pub struct Sink {
    pub port: u16,
    process: Child,
    folder: TempDir,
}

impl Sink {
    pub async fn start() -> Self {
        let program =
            std::env::var("CAMPANILE_TEST_SMTP_SINK").unwrap_or_else(|_| "/usr/sbin/smtp-sink".to_owned());
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            // As root it drops to the user `nobody`, who must be able to write here.
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
            command.args(["-u", "nobody"]);
        }
        let process = command
            .current_dir(folder.path())
            .args(["-d", "mail.", &format!("127.0.0.1:{port}"), "128"])
            .spawn()
            .expect("smtp-sink of Debian's postfix");
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(begun.elapsed() < START_TIMEOUT, "smtp-sink does not come up");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Sink { port, process, folder }
    }

    pub fn messages(&self) -> usize {
        let files = fs::read_dir(self.folder.path()).unwrap().flatten();
        files
            .filter(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.contains("Message-ID:")))
            .count()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
