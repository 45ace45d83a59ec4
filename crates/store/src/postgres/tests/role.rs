//! Creates a role for a single test. Roles belong to the whole server, so each role is dropped with its test.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::Client;

use super::connect;
use crate::postgres::PostgresConfig;
use crate::postgres::test_database::Database;

/// A role that may log in and do nothing else.
#[derive(Debug)]
pub struct Role {
    pub name: String,
    /// The URL to connect as this role.
    pub url: String,
    /// The URL of a user who may drop the role.
    admin: String,
}

impl Role {
    pub async fn new(database: &Database, what: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("campanile_test_{what}_{}_{number}", std::process::id());
        let admin = connect(&database.url).await;
        let make = format!("DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN PASSWORD 'secret'");
        admin.batch_execute(&make).await.unwrap();
        let (scheme, rest) = database.url.split_once("://").unwrap();
        let host = rest.split_once('@').map_or(rest, |(_, host)| host);
        let url = format!("{scheme}://{name}:secret@{host}");
        Role { name, url, admin: database.url.clone() }
    }

    pub async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    pub fn config(&self) -> PostgresConfig {
        PostgresConfig { url: self.url.clone(), direct_url: String::new(), ca_file: None, max_connections: 4 }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        // Uses its own runtime, because the runtime of the test must not be blocked.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let admin = connect(&admin).await;
                let drop = format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}");
                admin.batch_execute(&drop).await.unwrap();
            });
        });
        drop(dropped.join());
    }
}
