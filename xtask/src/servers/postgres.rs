//! PostgreSQL with an empty cluster: durable as in production, with optional TLS and no passwords.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result};

use super::account::{Account, Last};
use super::certificates::Certificates;
use super::process_group::{Process, ProcessGroup};
use super::programs::DatabasePrograms;
use super::{DATABASE_URL, PG_CTL, Variables, ports, script};

/// Its log line when it accepts connections.
pub const READY: &str = "database system is ready to accept connections";

#[derive(Debug)]
pub struct Postgres {
    pub process: Process,
    pub port: u16,
}

pub fn start(
    group: &ProcessGroup,
    programs: &DatabasePrograms,
    certificates: &Certificates,
    deadline: Instant,
    variables: &mut Variables,
) -> Result<Postgres> {
    let account = Account::of("postgres")?;
    let folder = group.folder("postgres")?;
    account.give(&folder)?;
    let data = folder.join("data");

    let mut initdb = group.server(account, Last::Kill, &programs.postgresql.join("initdb"));
    // Durability of the cluster's creation does not matter, because it is used only once.
    initdb
        .args(["-A", "trust", "-U", "postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-D"])
        .arg(&data);
    group.await_success(&group.start("initdb", account, initdb)?, deadline)?;

    let [port] = ports::free()?;
    let key = certificates.key_for(account, &folder)?;
    let settings = format!(
        "\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
         max_connections = 300\nshared_buffers = 128MB\nlog_line_prefix = '%m [%p] %d '\n\
         shared_preload_libraries = 'pg_stat_statements'\n\
         ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\n",
        folder.display(),
        certificates.server.display(),
        key.display()
    );
    OpenOptions::new()
        .append(true)
        .open(data.join("postgresql.conf"))
        .and_then(|mut file| file.write_all(settings.as_bytes()))
        .context("cannot write postgresql.conf")?;

    let mut server = group.server(account, Last::Quit, &programs.postgresql.join("postgres"));
    server.arg("-D").arg(&data);
    let process = group.start("postgres", account, server)?;

    let mut pg_ctl = group.tool(account, &programs.postgresql.join("pg_ctl"));
    pg_ctl.arg("-D").arg(&data).arg("-l").arg(group.log("postgres"));
    let control = folder.join("pg_ctl");
    script::write(&control, &pg_ctl)?;

    variables.insert(DATABASE_URL.to_owned(), format!("postgres://postgres@127.0.0.1:{port}/postgres"));
    variables.insert(PG_CTL.to_owned(), control.display().to_string());
    Ok(Postgres { process, port })
}
