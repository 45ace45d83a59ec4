//! E-mail over SMTP with the database. It is compared with Postfix's `smtp-source`, which does nothing but send to the
//! same `smtp-sink`. Both use one, ten and fifty connections, with and without a network delay. The sending stages and
//! the whole pipeline are measured.

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
use crate::sustained::{WARM_UP, median, sustained, window_of};
use crate::world::{Backend, World};

pub const CONNECTIONS: [u16; 3] = [1, 10, 50];
/// The round-trip time of the delayed network.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// About the size of Campanile's messages.
const MESSAGE_BYTES: usize = 700;
/// An upper bound of messages a second, with the database on the same machine.
const MOST: Rate = 30_000.0;
const RECEIVE_LIMIT: Duration = Duration::from_mins(3);
const START_LIMIT: Duration = Duration::from_secs(10);

pub async fn measure(bench: &Bench, report: &mut Report, connections: &[u16]) -> Result<()> {
    let sink = Sink::start().await?;
    let slow = Delay::start(sink.port, ROUND_TRIP).await?;
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for (network, port) in [("local", sink.port), ("20 ms", slow.port)] {
        for &connections in connections {
            let (mut whole, mut sends, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
            for run in 1..=bench.runs {
                theirs.push(source(&sink, port, connections, bench.window / 2).await?);
                whole.push(whole_pipeline(bench, port, connections).await?);
                sends.push(sends_alone(bench, port, connections, theirs[run - 1]).await?);
                eprintln!(
                    "  {network}, {connections} connections, run {run} of {}: smtp-source {}, sends {}, whole {}",
                    bench.runs,
                    per_second(theirs[run - 1]),
                    per_second(sends[run - 1]),
                    per_second(whole[run - 1]),
                );
            }
            let share_of = |ours: &[Rate]| {
                median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect())
            };
            let shares = [&whole, &sends].map(|ours| share_of(ours));
            let rates = [&whole, &sends, &theirs].map(|samples| median(samples.clone()));
            rows.push(vec![
                format!("{network}, {connections} connections"),
                per_second(rates[2]),
                per_second(rates[1]),
                percent(shares[1]),
                per_second(rates[0]),
                percent(shares[0]),
            ]);
            kept.push(json!({
                "round_trip_ms": if network == "local" { 0 } else { ROUND_TRIP.as_millis() },
                "connections": connections, "smtp_source": rates[2], "smtp_source_samples": theirs,
                "sends": rates[1], "sends_share": shares[1], "sends_samples": sends,
                "pipeline": rates[0], "pipeline_share": shares[0], "pipeline_samples": whole,
            }));
        }
    }
    let title = format!(
        "E-MAIL: messages per second over SMTP, PostgreSQL + RabbitMQ, medians of {} runs",
        bench.runs
    );
    let columns =
        ["network", "smtp-source alone", "claim to settled", "share", "event to settled, 1 × 1", "share"];
    report.add("email", &title, &columns, &rows, json!(kept));
    Report::remark(
        "smtp-source keeps its connections, and does not pipeline; all send to the same smtp-sink, \
         which has its part of the cores.",
    );
    Ok(())
}

async fn built(bench: &Bench, shape: Shape, port: u16, connections: u16) -> Result<World> {
    let mut world = World::build(bench, Backend::Servers).await?;
    shape.move_in(&world).await?;
    let url = format!("smtp://127.0.0.1:{port}?tls=none&connections={connections}");
    world.set("CAMPANILE_CHANNELS__EMAIL__URL", url);
    world.set("CAMPANILE_CHANNELS__EMAIL__FROM", "Trattoria <noreply@example.com>");
    Ok(world)
}

async fn whole_pipeline(bench: &Bench, port: u16, connections: u16) -> Result<Rate> {
    let shape = Shape::new(1, 1);
    let world = built(bench, shape, port, connections).await?;
    let (sample, _) = sustained(&world, shape, bench.window, 0).await?;
    world.demolish(bench).await?;
    Ok(sample.rate)
}

/// An instance that does nothing else claims, renders, sends and settles waiting messages. `theirs` is the rate of
/// `smtp-source`; pipelining may more than quadruple it.
async fn sends_alone(bench: &Bench, port: u16, connections: u16, theirs: Rate) -> Result<Rate> {
    let shape = Shape::new(100, 1);
    let world = built(bench, shape, port, connections).await?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
    let events = ((theirs * 8.0).min(MOST) * (WARM_UP + bench.window).as_secs_f64() / 100.0) as usize + 10;
    shape.order(&world, 0, events).await?;
    let receiving = world.start_roles("api,fan_out,publish,receive,recover").await?;
    let waiting = async || world.database.number("SELECT count(*) FROM send_due").await;
    let begun = Instant::now();
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    while waiting().await? < (events * 100) as f64 {
        ensure!(begun.elapsed() < RECEIVE_LIMIT, "the messages were not received in time");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    receiving.stop().await?;
    world.database.run("CHECKPOINT").await?;
    let sending = world.start_roles("api,send,recover").await?;
    let sample = window_of(&world, &sending, bench.window).await?;
    ensure!(waiting().await? > 0.0, "all messages were sent before the window ended");
    sending.stop().await?;
    world.demolish(bench).await?;
    Ok(sample.rate)
}

/// The rate of `smtp-source`, measured for about `window`.
async fn source(sink: &Sink, port: u16, connections: u16, window: Duration) -> Result<Rate> {
    let mut messages = usize::from(connections) * 20;
    loop {
        let begun = Instant::now();
        let status = Command::new(sink.program.with_file_name("smtp-source"))
            .args(["-d", "-s", &connections.to_string(), "-m", &messages.to_string()])
            .args(["-l", &MESSAGE_BYTES.to_string(), &format!("127.0.0.1:{port}")])
            .stdout(Stdio::null())
            .status()
            .await
            .context("smtp-source of Postfix can't be started")?;
        ensure!(status.success(), "smtp-source failed: {status}");
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

/// Postfix's test server, which accepts everything and stores nothing.
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
            // As root it drops to the user `nobody`, who must be able to enter the folder.
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
            command.args(["-u", "nobody"]);
        }
        command.current_dir(folder.path()).args([&format!("127.0.0.1:{port}"), "1000"]).kill_on_drop(true);
        let process = command.spawn().context("smtp-sink can't be started: install Debian's postfix")?;
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            ensure!(begun.elapsed() < START_LIMIT, "smtp-sink did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Sink { program, port, _process: process, _folder: folder })
    }
}
