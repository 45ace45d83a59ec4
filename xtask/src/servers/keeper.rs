//! The keeper: `xtask keep`, a process that starts the servers, reports how to reach them, and ends them when its
//! parent has ended.
//!
//! It is not a command for people. Its input is a pipe that carries no data and only ever closes.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::process_group::ProcessGroup;
use super::programs::{Programs, SearchPaths};
use super::{
    CA_FILE, FAKETIME, PYTHON, Report, SMTP_SINK, VALGRIND, Variables, Wanted, certificates, install,
    pgbouncer, postgres, programs, rabbitmq,
};

/// How long all servers together may take to start. RabbitMQ needs some seconds on an idle machine.
const START_LIMIT: Duration = Duration::from_mins(2);

/// Another process may take a port before the server binds it. More failures than this have another cause.
const ATTEMPTS: u32 = 4;

pub fn keep(wanted: Wanted) -> Result<()> {
    let group = Arc::new(ProcessGroup::new("servers")?);
    let guarded = Arc::clone(&group);
    thread::spawn(move || {
        // An error of the pipe is treated as its end.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        guarded.end();
        std::process::exit(0);
    });

    let report = match start(&group, wanted) {
        Ok(variables) => Report::Ready(variables),
        Err(error) => Report::Failed(format!("{error:#}")),
    };
    let line = serde_json::to_string(&report)?;
    // If nobody reads the output, the pipe above is closed as well.
    let _ = writeln!(io::stdout(), "{line}");

    // The kernel ends each server together with the thread that started it, so this thread must stay.
    loop {
        group.reap();
        thread::sleep(Duration::from_millis(100));
    }
}

fn start(group: &ProcessGroup, wanted: Wanted) -> Result<Variables> {
    let programs = match programs::find(&SearchPaths::of_this_machine(), wanted) {
        Ok(programs) => programs,
        Err(missing) => bail!(install::request(&missing)),
    };
    let deadline = Instant::now() + START_LIMIT;
    for _ in 1..ATTEMPTS {
        let result = start_all(group, &programs, deadline);
        if !group.lost_a_port() {
            return result;
        }
        group.clear();
    }
    start_all(group, &programs, deadline)
}

/// RabbitMQ first, because it takes longest; the others start meanwhile.
fn start_all(group: &ProcessGroup, programs: &Programs, deadline: Instant) -> Result<Variables> {
    let certificates = certificates::make(&group.folder("certificates")?, &programs.openssl)?;
    let mut variables = Variables::from([
        (CA_FILE.to_owned(), certificates.authority.display().to_string()),
        (FAKETIME.to_owned(), programs.faketime.display().to_string()),
        (VALGRIND.to_owned(), programs.valgrind.display().to_string()),
        (SMTP_SINK.to_owned(), programs.smtp_sink.display().to_string()),
        (PYTHON.to_owned(), programs.python.display().to_string()),
    ]);
    let broker = match &programs.broker {
        Some(programs) => Some(rabbitmq::start(group, programs, &certificates, &mut variables)?),
        None => None,
    };
    if let Some(programs) = &programs.database {
        let database = postgres::start(group, programs, &certificates, deadline, &mut variables)?;
        let pool = pgbouncer::start(group, &programs.pgbouncer, database.port, &mut variables)?;
        group.await_text(&database.process, postgres::READY, deadline)?;
        group.await_text(&pool, pgbouncer::READY, deadline)?;
    }
    // Without its epmd, RabbitMQ takes half a minute to give up.
    ensure!(!group.lost_a_port(), "the ports of the servers are repeatedly taken by other processes");
    if let Some(process) = broker {
        group.await_text(&process, rabbitmq::READY, deadline)?;
    }
    Ok(variables)
}
