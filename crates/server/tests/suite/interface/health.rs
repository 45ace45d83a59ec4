//! Liveness and readiness, which need no key.

use std::process::{Command, Stdio};

use campanile_testkit::on_both;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::interface::command::Ran;
use crate::interface::fresh::{Answer, Fresh};
use crate::support::home::in_shell;
use crate::support::{Backend, Home, Server, until};

async fn a_server_says_that_it_lives_and_what_it_is_made_of(backend: Backend) {
    let server = Fresh::start(backend);
    let live = Answer::to(server.request(Method::GET, "/healthz")).await;
    assert_eq!((live.status, live.body), (200, json!("ok\n")));
    let ready = Answer::to(server.request(Method::GET, "/readyz")).await;
    assert_eq!(ready.status, 200);
    let components = &ready.body["components"];
    assert_eq!((&components["database"], &components["broker"]), (&json!("ok"), &json!("ok")));
    for channel in ["email", "push", "sms", "slack"] {
        assert!(
            components[channel].as_str().is_some_and(|state| state.starts_with("capture")),
            "{components}"
        );
    }
}

/// The limit on file sizes becomes an error, as on a full disk, instead of a signal that kills.
fn with_file_limits(home: &Home) -> Server {
    let serve = "trap '' XFSZ; exec \"$0\" serve --listen 127.0.0.1:0";
    // The limit would also apply to a file with standard error.
    Server::spawn(in_shell(serve, &home.campanile()).stderr(Stdio::null()))
}

/// Makes the database read-only or writable; reading always works.
async fn set_writable(home: &Home, server: &Server, writable: bool) {
    let Some(database) = &home.database else {
        let limit = if writable { "--fsize=unlimited:" } else { "--fsize=0:" };
        Ran::of(Command::new("prlimit").args(["--pid", &server.pid().to_string(), limit])).succeeded();
        return;
    };
    let name = database.url.rsplit('/').next().expect("the URL names a database");
    let client = database.connect().await;
    let setting = if writable {
        "RESET default_transaction_read_only"
    } else {
        "SET default_transaction_read_only = on"
    };
    client.batch_execute("SET default_transaction_read_only = off").await.expect("it may");
    client.batch_execute(&format!("ALTER DATABASE \"{name}\" {setting}")).await.expect("it may");
    // Open sessions keep their settings.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    client.batch_execute(end).await.expect("it may");
}

async fn a_server_whose_database_takes_no_writes_is_not_ready_until_it_does(backend: Backend) {
    let home = Home::new(backend);
    let server = with_file_limits(&home);
    let ready = async |status: StatusCode| {
        let said = server.try_call(Method::GET, "/readyz", None).await?;
        (said.0 == status).then_some(said.1)
    };
    until("it is ready", async || ready(StatusCode::OK).await).await;
    set_writable(&home, &server, false).await;
    let word = if backend == Backend::Embedded { "disk I/O error" } else { "read-only" };
    until("it is not ready", async || {
        let said = ready(StatusCode::SERVICE_UNAVAILABLE).await?;
        said["components"]["database"].as_str().filter(|why| why.contains(word)).map(drop)
    })
    .await;
    let doctor = Ran::of(home.campanile().args(["--url", &server.url, "doctor"]));
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.out.contains(word), "{}", doctor.out);
    if backend != Backend::Embedded {
        assert!(doctor.out.contains("the server accepts no writes"), "{}", doctor.out);
    }
    set_writable(&home, &server, true).await;
    until("it is ready again", async || ready(StatusCode::OK).await).await;
}

on_both! {
    a_server_says_that_it_lives_and_what_it_is_made_of;
    a_server_whose_database_takes_no_writes_is_not_ready_until_it_does;
}
