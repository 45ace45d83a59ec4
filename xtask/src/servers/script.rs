//! Shell scripts with which tests control the servers, and quoting for shells.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Writes a script that runs the command in its folder and with only its environment. The script's arguments are
/// appended.
pub fn write(path: &Path, command: &Command) -> Result<()> {
    fs::write(path, text(command))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn text(command: &Command) -> String {
    let mut text = "#!/bin/sh -e\n".to_owned();
    if let Some(folder) = command.get_current_dir() {
        let _ = writeln!(text, "cd {}", quoted(&folder.to_string_lossy()));
    }
    text.push_str("exec env -i");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(text, " {}={}", name.to_string_lossy(), quoted(&value.to_string_lossy()));
        }
    }
    for part in std::iter::once(command.get_program()).chain(command.get_args()) {
        let _ = write!(text, " {}", quoted(&part.to_string_lossy()));
    }
    text.push_str(" \"$@\"\n");
    text
}

/// The text as one word of a shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_runs_the_command_with_more_arguments() {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo "$PWD $COLOUR $1 $2 $HOME""#, "sh", "it's"]).env("COLOUR", "light red");
        command.current_dir("/").env("PATH", std::env::var_os("PATH").unwrap());
        let output =
            Command::new("sh").args(["-c", &text(&command), "script", "two words"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/ light red it's two words \n");
    }
}
