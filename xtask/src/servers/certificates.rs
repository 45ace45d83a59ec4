//! Our own certificate authority and a certificate for `localhost`, so that TLS is tested with verification.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::account::Account;
use crate::run;

/// The machine's configuration of openssl would add extensions that clients refuse.
const CONFIGURATION: &str = "\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
authorityKeyIdentifier = keyid
subjectKeyIdentifier = hash
";

#[derive(Debug)]
pub struct Certificates {
    /// The certificate that clients trust.
    pub authority: PathBuf,
    pub server: PathBuf,
    key: PathBuf,
}

impl Certificates {
    /// A copy of the key for a server, which requires that no other account can read it.
    pub fn key_for(&self, account: Account, folder: &Path) -> Result<PathBuf> {
        let key = folder.join("server.key");
        fs::copy(&self.key, &key).context("cannot copy the key of the certificate")?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        account.give(&key)?;
        Ok(key)
    }
}

pub fn make(folder: &Path, openssl: &Path) -> Result<Certificates> {
    fs::write(folder.join("openssl.cnf"), CONFIGURATION)
        .context("cannot write the configuration of openssl")?;
    let steps = [
        "req -config openssl.cnf -x509 -extensions authority -subj /CN=Campanile-tests -days 30 \
         -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout authority.key -out authority.crt",
        "req -config openssl.cnf -subj /CN=localhost \
         -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA authority.crt -CAkey authority.key -set_serial 2 -days 30 \
         -extfile openssl.cnf -extensions server -out server.crt",
    ];
    for step in steps {
        run::output(Command::new(openssl).args(step.split_whitespace()).current_dir(folder))?;
    }
    let certificates = Certificates {
        authority: folder.join("authority.crt"),
        server: folder.join("server.crt"),
        key: folder.join("server.key"),
    };
    for public in [&certificates.authority, &certificates.server] {
        fs::set_permissions(public, fs::Permissions::from_mode(0o644))?;
    }
    Ok(certificates)
}
