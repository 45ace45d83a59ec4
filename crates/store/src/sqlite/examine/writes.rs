//! Checks that the disk accepts writes. It uses a file beside the database, because a write into the database would
//! block a running instance.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use campanile_domain::finding::Finding;
use rustix::fs::Access;

const SUBJECT: &str = "writes";
/// More bytes than fit into the last block of a full disk.
const PROBE_BYTES: usize = 64 * 1024;

/// `folder` contains the file, or is where the file's folder would be created.
pub(super) fn writes(path: &Path, folder: &Path) -> Finding {
    let log = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let files = [path.to_owned(), log("-wal"), log("-shm"), folder.join("campanile.lock")];
    for file in files.iter().filter(|file| file.exists()) {
        if let Err(error) = rustix::fs::access(file, Access::WRITE_OK) {
            return refused(file, &error.into());
        }
    }
    match probe_write(folder) {
        Ok(()) => Finding::ok(SUBJECT, format!("{} is writable", folder.display())),
        Err(error) => refused(folder, &error),
    }
}

/// Writes a file that is unlinked first, so that nothing is left even if the process dies.
fn probe_write(folder: &Path) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let path = folder.join(format!(".campanile-doctor-{}-{now}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    file.write_all(&vec![0; PROBE_BYTES])?;
    file.sync_all()
}

fn refused(path: &Path, why: &io::Error) -> Finding {
    Finding::wrong(
        SUBJECT,
        format!("{} can't be written: {why}", path.display()),
        "free disk space, mount the disk read-write, or grant this user write permission; or choose another --data-dir",
    )
}
