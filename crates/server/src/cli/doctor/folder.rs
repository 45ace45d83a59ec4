//! Checks the data folder and its admin key: that they exist and only their owner can access them.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use campanile_domain::finding::Finding;

use crate::config::Config;
use crate::data_folder::read_key;

pub fn examine(config: &Config) -> Vec<Finding> {
    vec![folder(&config.data_dir), key(config)]
}

fn folder(path: &Path) -> Finding {
    const SUBJECT: &str = "data folder";
    let shown = path.display();
    match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::note(SUBJECT, format!("{shown} does not exist yet; `campanile serve` creates it"))
        }
        Err(error) => Finding::wrong(
            SUBJECT,
            format!("cannot open {shown}: {error}"),
            "choose another with --data-dir, or grant this user access",
        ),
        Ok(found) if !found.is_dir() => {
            Finding::wrong(SUBJECT, format!("{shown} is not a folder"), "choose another with --data-dir")
        }
        Ok(found) => match Access::of(&found) {
            Access::Owner(mode) => Finding::ok(SUBJECT, format!("{shown}, mode {mode:o}")),
            Access::Others(mode) => {
                Finding::note(SUBJECT, format!("{shown} is accessible to other users, mode {mode:o}"))
                    .with_remedy(format!("chmod 700 {shown}"))
            }
        },
    }
}

fn key(config: &Config) -> Finding {
    const SUBJECT: &str = "admin key";
    let given = &config.auth.admin_key_file;
    if !config.auth.admin_key.is_empty() {
        Finding::ok(SUBJECT, "from the configuration")
    } else if given.as_os_str().is_empty() {
        our_key(SUBJECT, &config.data_dir.join("admin.key"))
    } else {
        given_key(SUBJECT, given)
    }
}

fn our_key(subject: &'static str, path: &Path) -> Finding {
    let shown = path.display();
    match read_key(path).and_then(|_| path.metadata()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::note(subject, format!("{shown} does not exist yet; `campanile serve` creates it"))
        }
        Err(error) => Finding::wrong(
            subject,
            format!("cannot read {shown}: {error}"),
            "grant this user read access, or remove it; the next start creates a new one",
        ),
        Ok(found) => match Access::of(&found) {
            Access::Owner(mode) => Finding::ok(subject, format!("{shown}, mode {mode:o}")),
            Access::Others(mode) => Finding::wrong(
                subject,
                format!("{shown} is readable by other users, mode {mode:o}"),
                format!(
                    "chmod 600 {shown}; if the key may be compromised, remove it; the next start creates a new one"
                ),
            ),
        },
    }
}

/// Checks a key file from the configuration. Files that an orchestrator mounts are often readable by others, so this is
/// no error.
fn given_key(subject: &'static str, path: &Path) -> Finding {
    let shown = path.display();
    match read_key(path).and_then(|_| path.metadata()) {
        Err(error) => {
            Finding::wrong(subject, format!("cannot read {shown}: {error}"), "correct auth.admin_key_file")
        }
        Ok(found) => match Access::of(&found) {
            Access::Owner(mode) => Finding::ok(subject, format!("{shown}, mode {mode:o}")),
            Access::Others(mode) => {
                Finding::note(subject, format!("{shown} is readable by other users, mode {mode:o}"))
                    .with_remedy(format!("chmod 600 {shown}"))
            }
        },
    }
}

/// Who can access a file, with its mode.
enum Access {
    Owner(u32),
    Others(u32),
}

impl Access {
    fn of(file: &Metadata) -> Self {
        let mode = file.permissions().mode() & 0o777;
        if mode & 0o077 != 0 { Access::Others(mode) } else { Access::Owner(mode) }
    }
}
