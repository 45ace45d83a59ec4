//! E-mail over SMTP, database and all, beside Postfix's `smtp-source`, which does nothing but send, to the same `smtp-sink`; over one, ten
//! and fifty connections, and the same with a network that takes its time.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::bench::Bench;
use crate::delay::Delay;
use crate::limit::Rate;
use crate::report::{Report, per_second, percent};
use crate::shape::Shape;
use crate::sustained::{median, sustained};
use crate::world::{Backend, World};

const CONNECTIONS: [usize; 3] = [1, 10, 50];
/// There and back, together.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// About what our letters have.
const LETTER_BYTES: usize = 700;
const START_LIMIT: Duration = Duration::from_secs(10);

pub async fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let sink = Sink::start().await?;
    let slow = Delay::start(sink.port, ROUND_TRIP).await?;
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for (network, port) in [("local", sink.port), ("20 ms", slow.port)] {
        for connections in CONNECTIONS {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for run in 1..=bench.runs {
                theirs.push(source(&sink, port, connections, bench.window / 2).await?);
                ours.push(campanile(bench, port, connections).await?);
                eprintln!("  {network}, {connections} connections, run {run} of {}", bench.runs);
            }
            let share = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
            let (rate, source) = (median(ours.clone()), median(theirs.clone()));
            rows.push(vec![
                format!("{network}, {connections} connections"),
                per_second(rate),
                per_second(source),
                percent(share),
            ]);
            kept.push(json!({
                "round_trip_ms": if network == "local" { 0 } else { ROUND_TRIP.as_millis() },
                "connections": connections, "rate": rate, "smtp_source": source, "share": share,
                "samples": ours, "smtp_source_samples": theirs,
            }));
        }
    }
    let title = format!(
        "E-MAIL: from committed event to settled send, 1 × 1, PostgreSQL + RabbitMQ, medians of {} runs",
        bench.runs
    );
    let columns = ["network", "mails a second", "smtp-source alone", "share"];
    report.add("email", &title, &columns, &rows, json!(kept));
    Report::remark(
        "smtp-source keeps its connections, and does not pipeline; both send to the same smtp-sink.",
    );
    Ok(())
}

async fn campanile(bench: &Bench, port: u16, connections: usize) -> Result<Rate> {
    let mut world = World::build(bench, Backend::Servers).await?;
    let shape = Shape::new(1, 1);
    shape.move_in(&world).await?;
    let url = format!("smtp://127.0.0.1:{port}?tls=none&connections={connections}");
    world.set("CAMPANILE_CHANNELS__EMAIL__URL", url);
    world.set("CAMPANILE_CHANNELS__EMAIL__FROM", "Trattoria <noreply@example.com>");
    world.set("CAMPANILE_SEND__EMAIL__CONCURRENCY", connections.to_string());
    let (sample, _) = sustained(&world, shape, bench.window, 0).await?;
    world.demolish(bench).await?;
    Ok(sample.rate)
}

/// How many a second `smtp-source` sends, for about so long.
async fn source(sink: &Sink, port: u16, connections: usize, window: Duration) -> Result<Rate> {
    let mut messages = connections * 20;
    loop {
        let begun = Instant::now();
        let status = Command::new(sink.program.with_file_name("smtp-source"))
            .args(["-d", "-s", &connections.to_string(), "-m", &messages.to_string()])
            .args(["-l", &LETTER_BYTES.to_string(), &format!("127.0.0.1:{port}")])
            .stdout(Stdio::null())
            .status()
            .await
            .context("smtp-source of Postfix can't be started")?;
        ensure!(status.success(), "smtp-source ended badly: {status}");
        let took = begun.elapsed();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate of how many fill the time"
        )]
        let (rate, enough) = {
            let rate = messages as f64 / took.as_secs_f64();
            (rate, (rate * window.as_secs_f64()) as usize)
        };
        if took * 2 >= window {
            return Ok(rate);
        }
        messages = enough.max(messages * 2);
    }
}

/// Postfix's mail server for tests, which takes everything and keeps nothing.
#[derive(Debug)]
struct Sink {
    program: PathBuf,
    port: u16,
    _process: Child,
    _folder: TempDir,
}

impl Sink {
    async fn start() -> Result<Self> {
        let program = std::env::var_os("CAMPANILE_TEST_SMTP_SINK").map(PathBuf::from);
        let program = program.unwrap_or_else(|| Path::new("/usr/sbin/smtp-sink").to_owned());
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
        let mut command = Command::new(&program);
        if rustix::process::geteuid().is_root() {
            // It wants to be nobody then, in a folder that nobody may enter.
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
            command.args(["-u", "nobody"]);
        }
        command.current_dir(folder.path()).args([&format!("127.0.0.1:{port}"), "1000"]).kill_on_drop(true);
        let process = command.spawn().context("smtp-sink can't be started: install Debian's postfix")?;
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            ensure!(begun.elapsed() < START_LIMIT, "smtp-sink does not come up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Sink { program, port, _process: process, _folder: folder })
    }
}
