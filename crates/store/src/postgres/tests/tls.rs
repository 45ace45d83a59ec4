//! Tests TLS as it is used in production: verified against a certificate authority. The server of `cargo xtask test`
//! supports it.

use std::path::PathBuf;

use crate::Store;
use crate::postgres::test_database::Database;
use crate::postgres::{Postgres, PostgresConfig};

const CA_FILE: &str = "CAMPANILE_TEST_CA_FILE";

fn ca_file() -> PathBuf {
    let file = std::env::var_os(CA_FILE).filter(|file| !file.is_empty()).unwrap_or_else(|| {
        panic!(
            "{CA_FILE} is not set: it names the authority (PEM) of the test database's certificate, \
             and that database must \
             offer TLS; `cargo xtask test` brings up one that does"
        )
    });
    PathBuf::from(file)
}

/// Connects by the host name for which the certificate was issued.
fn config(database: &Database, options: &str, ca_file: Option<PathBuf>) -> PostgresConfig {
    let url = database.url.replace("@127.0.0.1:", "@localhost:");
    PostgresConfig { url: format!("{url}{options}"), direct_url: String::new(), ca_file, max_connections: 4 }
}

async fn is_encrypted(database: &Database, config: &PostgresConfig) -> bool {
    let store = Postgres::open(config).await.unwrap();
    store.now().await.unwrap();
    let client = database.connect().await;
    let all = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
               WHERE a.datname = current_database() AND a.application_name = 'campanile'";
    client.query_one(all, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_certificate_by_the_given_authority_is_accepted() {
    let database = Database::new().await;
    for options in ["?sslmode=verify-full", ""] {
        assert!(is_encrypted(&database, &config(&database, options, Some(ca_file()))).await, "{options}");
    }
    let in_url = format!("?sslmode=verify-full&sslrootcert={}", ca_file().display());
    assert!(is_encrypted(&database, &config(&database, &in_url, None)).await);
}

#[tokio::test]
async fn a_certificate_by_an_unknown_authority_is_refused() {
    let _offers_tls = ca_file();
    let database = Database::new().await;
    let refused = Postgres::open(&config(&database, "?sslmode=verify-full", None)).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("TLS handshake") && error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn encryption_alone_needs_no_authority() {
    let _offers_tls = ca_file();
    let database = Database::new().await;
    for options in ["?sslmode=require", "?sslmode=prefer", ""] {
        assert!(is_encrypted(&database, &config(&database, options, None)).await, "{options}");
    }
    assert!(!is_encrypted(&database, &config(&database, "?sslmode=disable", None)).await);
}

#[tokio::test]
async fn a_file_without_an_authority_is_named() {
    let database = Database::empty().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = Postgres::open(&config(&database, "", Some(file.path().to_owned()))).await;
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains(&file.path().display().to_string()) && error.contains("no certificate"),
        "{error}"
    );
}
