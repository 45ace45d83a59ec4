//! PgBouncer in session mode in front of PostgreSQL, as in many installations.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::account::{Account, Last};
use super::process_group::{Process, ProcessGroup};
use super::{PGBOUNCER_URL, Variables, ports};

/// Its log line when it accepts connections.
pub const READY: &str = "process up";

pub fn start(
    group: &ProcessGroup,
    program: &Path,
    database_port: u16,
    variables: &mut Variables,
) -> Result<Process> {
    let account = Account::of("postgres")?;
    let [port] = ports::free()?;
    let file = group.folder("pgbouncer")?.join("pgbouncer.ini");
    fs::write(&file, settings(port, database_port))
        .with_context(|| format!("cannot write {}", file.display()))?;

    let mut server = group.server(account, Last::Kill, program);
    server.arg(&file);
    let process = group.start("pgbouncer", account, server)?;
    variables.insert(PGBOUNCER_URL.to_owned(), format!("postgres://postgres@127.0.0.1:{port}/postgres"));
    Ok(process)
}

/// Idle connections are closed soon: tests drop their databases, which PostgreSQL refuses while a connection is open.
fn settings(port: u16, database_port: u16) -> String {
    format!(
        "[databases]\n* = host=127.0.0.1 port={database_port} user=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = session\nmax_client_conn = 500\ndefault_pool_size = 50\n\
         server_idle_timeout = 1\nlog_connections = 0\nlog_disconnections = 0\n"
    )
}
