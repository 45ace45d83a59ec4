//! A value that is read from files, and again when they change: keys that verify tokens, and certificates. While the
//! files cannot be used, the value read before stays.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The minimum time between two looks at the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Reloaded<T> {
    /// The setting that names the files, for the log.
    setting: &'static str,
    files: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> anyhow::Result<T>,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    value: Arc<T>,
    /// Of the files that the value was read from.
    versions: Vec<Option<Version>>,
    checked_at: Instant,
    /// The error of the last attempt, so that a lasting one is logged once.
    error: Option<String>,
}

/// Differs after each change of a file, also if another file took its place: modification time, length, inode.
type Version = (i64, i64, u64, u64);

impl<T> Reloaded<T> {
    pub fn open(
        setting: &'static str,
        files: Vec<PathBuf>,
        read: fn(&[PathBuf]) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let versions = versions(&files);
        let value = Arc::new(read(&files)?);
        let state = State { value, versions, checked_at: Instant::now(), error: None };
        Ok(Reloaded { setting, files, read, state: Mutex::new(state) })
    }

    /// The value, read again if the files have changed. An attempt that fails is repeated at the next check: the files
    /// may have become readable without another change.
    pub fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked_at.elapsed() >= CHECK_INTERVAL {
            state.checked_at = Instant::now();
            let versions = versions(&self.files);
            if versions != state.versions {
                self.reload(&mut state, versions);
            }
        }
        Arc::clone(&state.value)
    }

    fn reload(&self, state: &mut State<T>, versions: Vec<Option<Version>>) {
        let setting = self.setting;
        match (self.read)(&self.files) {
            Ok(value) => {
                tracing::info!(setting, "changed files were read again");
                state.value = Arc::new(value);
                state.versions = versions;
                state.error = None;
            }
            Err(error) => {
                let error = format!("{error:#}");
                if state.error.as_ref() != Some(&error) {
                    tracing::error!(
                        setting,
                        error,
                        "changed files cannot be used; those read before stay in use"
                    );
                }
                state.error = Some(error);
            }
        }
    }
}

fn versions(files: &[PathBuf]) -> Vec<Option<Version>> {
    let version = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.mtime(), metadata.mtime_nsec(), metadata.len(), metadata.ino()))
    };
    files.iter().map(version).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    static FAILS: AtomicBool = AtomicBool::new(false);

    fn read(files: &[PathBuf]) -> anyhow::Result<String> {
        anyhow::ensure!(!FAILS.load(Ordering::Relaxed), "permission denied");
        Ok(std::fs::read_to_string(&files[0])?)
    }

    /// The value at the next check.
    fn next(reloaded: &Reloaded<String>) -> String {
        reloaded.state.lock().unwrap().checked_at = Instant::now().checked_sub(CHECK_INTERVAL).unwrap();
        reloaded.current().as_ref().clone()
    }

    #[test]
    fn a_changed_file_is_tried_until_it_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "old").unwrap();
        let reloaded = Reloaded::open("test", vec![file.clone()], read).unwrap();
        assert_eq!(next(&reloaded), "old");
        FAILS.store(true, Ordering::Relaxed);
        std::fs::write(&file, "longer").unwrap();
        assert_eq!((next(&reloaded), next(&reloaded)), ("old".to_owned(), "old".to_owned()));
        FAILS.store(false, Ordering::Relaxed);
        assert_eq!(next(&reloaded), "longer", "although the file did not change again");
    }
}
