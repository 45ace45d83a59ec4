//! Runs other programs so that none outlives xtask or its time limit.
//!
//! A child runs under coreutils' `timeout`, which leads a process group of its own and kills the whole group at the
//! limit. In its own group it does not get Ctrl-C. So `setpriv --pdeathsig` makes the kernel signal `timeout` when
//! xtask ends, for whatever reason.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a child that was asked to end may take before it is killed. nextest gives its tests 10 s of this. Each test
/// is in a group that only nextest knows, so nextest must not end first.
const GRACE_SECONDS: u32 = 30;

pub fn headline(text: &str) {
    println!("\n==> {text}");
}

/// A call of the cargo that runs xtask, in the workspace's root.
///
/// The variables that `cargo run` sets for xtask are removed. Otherwise build scripts that depend on them, and
/// everything that depends on those, would be rebuilt whenever `cargo build` and `cargo xtask` alternate.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_our_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command that must succeed within the limit; `what` names it in errors.
pub fn within(limit: Duration, what: &str, command: &Command) -> Result<()> {
    succeed(limit, what, command, Stdio::inherit()).map(drop)
}

/// Like `within`, but returns the command's standard output; its standard error is shown.
pub fn output_within(limit: Duration, what: &str, command: &Command) -> Result<String> {
    let written = succeed(limit, what, command, Stdio::piped())?;
    String::from_utf8(written).with_context(|| format!("{what} does not write UTF-8"))
}

fn succeed(limit: Duration, what: &str, command: &Command, output: Stdio) -> Result<Vec<u8>> {
    let (end, written) = run(limit, command, output)?;
    match end {
        End::Succeeded => Ok(written),
        End::Failed(status) => bail!("{what} failed ({status}); see its output above"),
        End::OutOfTime => bail!("{what} ran out of time after {} s", limit.as_secs()),
    }
}

/// The output of a command that must succeed.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {shown}"))?;
    ensure!(output.status.success(), "{shown} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("{shown} prints something else than UTF-8"))
}

/// Whether a command such as `cargo nextest --version` is available.
pub fn works(mut command: Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

#[derive(Debug)]
enum End {
    Succeeded,
    Failed(ExitStatus),
    OutOfTime,
}

/// Runs a command, and returns how it ended and what it wrote to a piped output.
fn run(limit: Duration, command: &Command, output: Stdio) -> Result<(End, Vec<u8>)> {
    let started = Instant::now();
    let Output { status, stdout, .. } = bounded(limit, command)
        .stdout(output)
        .spawn()
        .and_then(Child::wait_with_output)
        .context("cannot start `setpriv`; on Debian: apt-get install util-linux coreutils")?;
    let end = if status.success() {
        End::Succeeded
    } else if started.elapsed() >= limit {
        End::OutOfTime
    } else {
        End::Failed(status)
    };
    Ok((end, stdout))
}

fn bounded(limit: Duration, command: &Command) -> Command {
    let mut bounded = Command::new("setpriv");
    bounded
        .args(["--pdeathsig", "TERM", "timeout"])
        .arg(format!("--kill-after={GRACE_SECONDS}"))
        .arg(limit.as_secs().to_string())
        .arg(command.get_program())
        .args(command.get_args())
        // A background group that reads from the terminal would be stopped.
        .stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        bounded.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    bounded
}

fn describes_our_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn success_and_failure_are_told_apart() {
        let limit = Duration::from_mins(1);
        assert!(within(limit, "it", &shell("exit 0")).is_ok());
        let error = within(limit, "it", &shell("exit 3")).unwrap_err().to_string();
        assert!(error.contains("it failed") && error.contains('3'), "{error}");
    }

    #[test]
    fn child_is_stopped_with_its_own_children_when_its_time_is_up() {
        let started = Instant::now();
        let error =
            within(Duration::from_secs(1), "it", &shell("sleep 60 | sleep 60")).unwrap_err().to_string();
        assert!(error.contains("after 1 s"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn environment_and_folder_reach_the_child() {
        let mut command = shell(r#"test "$COLOUR" = red && test "$(pwd)" = /"#);
        command.env("COLOUR", "red").current_dir("/");
        assert!(within(Duration::from_mins(1), "it", &command).is_ok());
    }

    #[test]
    fn output_within_the_time_is_kept() {
        let limit = Duration::from_mins(1);
        assert_eq!(output_within(limit, "it", &shell("echo yes")).unwrap(), "yes\n");
        assert!(output_within(limit, "it", &shell("echo no; exit 1")).is_err());
    }

    #[test]
    fn output_of_a_failed_command_is_an_error_that_says_why() {
        assert_eq!(output(&mut shell("echo yes")).unwrap(), "yes\n");
        let error = output(&mut shell("echo why >&2; exit 1")).unwrap_err().to_string();
        assert!(error.ends_with("why"), "{error}");
    }

    #[test]
    fn only_what_describes_xtask_is_taken_from_the_environment() {
        assert!(describes_our_package("CARGO_PKG_NAME"));
        assert!(!describes_our_package("CARGO_HOME"));
        assert!(!describes_our_package("CARGO_TARGET_DIR"));
    }
}
