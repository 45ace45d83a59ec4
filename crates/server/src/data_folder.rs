//! The data folder and its admin key, accessible only to their owner.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;
use campanile_domain::hex::hex;

use crate::cli::output::say;
use crate::config::{Config, DatabaseChoice};

/// Creates the missing folders for the database and the key. Existing folders keep their permissions.
pub fn make(config: &Config) -> anyhow::Result<()> {
    make_private(&config.data_dir)?;
    match config.database.choice(&config.data_dir)? {
        DatabaseChoice::Sqlite { path } => path.parent().map_or(Ok(()), make_private),
        DatabaseChoice::Postgres(_) => Ok(()),
    }
}

pub fn make_private(folder: &Path) -> anyhow::Result<()> {
    // A bare file name is in the current folder.
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| {
        format!("cannot create the data folder {}; choose another with --data-dir", folder.display())
    })
}

/// The key of the configuration, of the configured file, or of the data folder; the last is created if missing.
pub fn admin_key(config: &Config) -> anyhow::Result<String> {
    if let Some(key) = config.auth.given_key()? {
        return Ok(key);
    }
    let path = config.data_dir.join("admin.key");
    match read_key(&path) {
        Ok(key) => Ok(key),
        Err(error) if error.kind() == ErrorKind::NotFound => make_key(&config.data_dir, &path),
        Err(error) => Err(error).with_context(|| format!("cannot read the admin key {}", path.display())),
    }
}

pub fn read_key(path: &Path) -> std::io::Result<String> {
    let key = std::fs::read_to_string(path)?.trim().to_owned();
    if key.is_empty() { Err(std::io::Error::other("the file is empty")) } else { Ok(key) }
}

/// Creates a key of 256 random bits, and shows it once if standard output is a terminal.
fn make_key(folder: &Path, path: &Path) -> anyhow::Result<String> {
    let key = format!("cmp_{}", random::<32>()?);
    let kept = keep(&key, folder, path)
        .with_context(|| format!("cannot write the admin key to {}", path.display()))?;
    if !kept {
        return Ok(read_key(path)?);
    }
    if std::io::stdout().is_terminal() {
        drop(say!("Admin key (shown once, stored in {}):\n\n    {key}\n", path.display()));
    }
    Ok(key)
}

/// Stores the key atomically: a crash leaves no partial file. Returns false if another process was first.
fn keep(key: &str, folder: &Path, path: &Path) -> anyhow::Result<bool> {
    // The name is random, because the process id is always the same in a container, and a leftover file must not get in
    // the way.
    let draft = folder.join(format!("admin.key.{}", random::<4>()?));
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
    writeln!(file, "{key}")?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, path);
    let kept = match &linked {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        // Some file systems have no hard links.
        Err(_) => {
            std::fs::rename(&draft, path)?;
            File::open(folder)?.sync_all()?;
            return Ok(true);
        }
    };
    std::fs::remove_file(&draft)?;
    File::open(folder)?.sync_all()?;
    Ok(kept)
}

pub fn random<const BYTES: usize>() -> anyhow::Result<String> {
    let random: [u8; BYTES] = random_bytes()?;
    Ok(hex(&random))
}

pub fn random_bytes<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut random = [0u8; BYTES];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("cannot generate a key: {error}"))?;
    Ok(random)
}
