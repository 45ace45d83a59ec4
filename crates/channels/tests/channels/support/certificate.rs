//! A certificate for `localhost` that is its own authority.

use std::fs;

use tempfile::TempDir;

#[derive(Debug)]
pub struct Certificate {
    _folder: TempDir,
    files: (String, String),
}

impl Certificate {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let files = (path("certificate.pem"), path("key.pem"));
        fs::write(&files.0, made.cert.pem()).unwrap();
        fs::write(&files.1, made.signing_key.serialize_pem()).unwrap();
        Certificate { _folder: folder, files }
    }

    pub fn files(&self) -> (&str, &str) {
        (&self.files.0, &self.files.1)
    }
}
