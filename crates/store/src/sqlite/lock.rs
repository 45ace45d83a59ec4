//! The lock that keeps a second engine out of a folder. A second engine would publish and send the same rows. Both a
//! lock file and the folder itself are locked, so that deleting the file does not admit another engine.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::StoreError;
use crate::error::explained;

/// File permissions: only the owner may read, whatever the folder allows.
const PRIVATE: u32 = 0o600;

/// Held while the engine runs. The operating system releases it when the process dies.
#[derive(Debug)]
pub struct EngineLock {
    _file: File,
    /// `None` if the file system can't lock folders.
    _folder: Option<File>,
}

/// Takes the lock of an existing folder; `None` if another process has it.
pub fn try_lock(folder: &Path) -> io::Result<Option<EngineLock>> {
    let path = lock_file(folder);
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let folder = File::open(folder)?;
    let folder = match folder.try_lock() {
        Ok(()) => Some(folder),
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(_)) => None,
    };
    Ok(Some(EngineLock { _file: file, _folder: folder }))
}

/// Creates the folder and the database file, and locks the folder for the engine. SQLite itself would make the file
/// readable by other users.
pub fn take(path: &Path) -> Result<EngineLock, StoreError> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder).map_err(|e| {
        let text =
            format!("can't create the data folder {}: {e}; choose another with --data-dir", folder.display());
        StoreError::Unusable(explained(text, e))
    })?;
    let locked = try_lock(folder).map_err(|e| {
        let text = format!(
            "the lock {} can't be taken: {e}; check the folder's permissions, and choose a --data-dir on a local disk",
            lock_file(folder).display()
        );
        StoreError::Unusable(explained(text, e))
    })?;
    let lock = locked.ok_or_else(|| {
        StoreError::Unusable(format!(
            "another Campanile is already running on {} (it holds {}): stop it first, choose another --data-dir, \
             or use PostgreSQL to run several instances",
            path.display(),
            lock_file(folder).display()
        ).into())
    })?;
    match OpenOptions::new().create_new(true).write(true).mode(PRIVATE).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let text = format!("can't create the database {}: {error}", path.display());
            Err(StoreError::Unusable(explained(text, error)))
        }
        _ => Ok(lock),
    }
}

pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub fn lock_file(folder: &Path) -> PathBuf {
    folder.join("campanile.lock")
}
