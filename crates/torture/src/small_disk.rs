//! A disk that is small enough to be filled: a tmpfs in a mount namespace of the harness, which disappears with it.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const MEGABYTES: usize = 160;
/// Set once the program runs in a namespace of its own.
const INSIDE: &str = "CAMPANILE_TORTURE_NAMESPACE";

/// Restarts this program in a mount namespace of its own. If that is not permitted, it continues without a small disk.
pub fn enter_own_namespace() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() || !quiet(unshare().arg("true")) {
        return Ok(());
    }
    let ourselves = std::env::current_exe().context("our own program can't be found")?;
    let error = unshare().arg(ourselves).args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
    Err(error).context("`unshare` can't be run")
}

fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        // Keeps the same user id, but with the right to mount.
        unshare.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    unshare
}

fn quiet(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[derive(Debug)]
pub struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    pub fn possible() -> bool {
        std::env::var_os(INSIDE).is_some()
    }

    pub fn mount(place: &Path) -> Result<Self> {
        let size = format!("size={MEGABYTES}m");
        let mounted = quiet(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(place));
        ensure!(mounted, "no file system can be mounted at {}", place.display());
        Ok(SmallDisk { place: place.to_owned() })
    }

    fn ballast(&self) -> PathBuf {
        self.place.join("ballast")
    }

    /// Writes until the disk is full.
    pub fn fill(&self) -> Result<()> {
        let mut ballast = File::create(self.ballast()).context("the small disk can't be written")?;
        while ballast.write_all(&[0; 4096]).is_ok() {}
        // The rest of the last block.
        while ballast.write_all(&[0; 64]).is_ok() {}
        Ok(())
    }

    pub fn free(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()).context("the ballast was there")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Processes with open files there keep it until they end.
        quiet(Command::new("umount").arg("--lazy").arg(&self.place));
    }
}
