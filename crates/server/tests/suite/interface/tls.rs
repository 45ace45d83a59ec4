//! TLS without a proxy: the configured certificate, and a renewed one without a restart.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use campanile_testkit::certificate::Certificate;
use campanile_testkit::{Backend, until};

use crate::interface::fresh::{Fresh, client};
use crate::support::{Home, KEY, Server};

/// The status of a request by a client that trusts this certificate, or nothing if the connection is refused.
async fn status(server: &Fresh, trusted: &Certificate) -> Option<u16> {
    drop(client());
    let pem = std::fs::read(trusted.authority_file()).expect("it was written");
    let certificate = reqwest::Certificate::from_pem(&pem).expect("it is a certificate");
    let client = reqwest::Client::builder().tls_certs_only([certificate]).build().expect("it can be built");
    let port = server.url.rsplit(':').next().expect("a URL has a port");
    let request = client.get(format!("https://localhost:{port}/v1/events")).bearer_auth(KEY);
    Some(request.send().await.ok()?.status().as_u16())
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let (first, second) = (Certificate::issued(), Certificate::issued());
    let folder = tempfile::tempdir().expect("there is room");
    let file = |name: &str| folder.path().join(name);
    let install = |certificate: &Certificate| {
        let (chain, key) = certificate.files();
        std::fs::copy(key, file("key.pem")).expect("there is room");
        std::fs::copy(chain, file("cert.pem")).expect("there is room");
    };
    install(&first);
    let (cert, key) = (file("cert.pem").display().to_string(), file("key.pem").display().to_string());
    let variables =
        [("CAMPANILE_SERVER__TLS__CERT", cert.as_str()), ("CAMPANILE_SERVER__TLS__KEY", key.as_str())];
    let server = Fresh::start_with(Backend::Embedded, &variables);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    assert_eq!((status(&server, &first).await, status(&server, &second).await), (Some(200), None));
    std::fs::write(file("cert.pem"), "-----BEGIN CERTIFICATE-----").expect("there is room");
    until("the broken certificate is noticed", async || {
        assert_eq!(status(&server, &first).await, Some(200));
        (!server.logged(&["ERROR", "server.tls"]).is_empty()).then_some(())
    })
    .await;
    install(&second);
    until("the new certificate is used", async || {
        (status(&server, &second).await == Some(200)).then_some(())
    })
    .await;
    assert_eq!(status(&server, &first).await, None);
}

#[tokio::test]
async fn who_speaks_no_tls_gets_nothing_and_keeps_nobody_out() {
    let certificate = Certificate::issued();
    let (chain, key) = certificate.files();
    let variables = [
        ("CAMPANILE_SERVER__TLS__CERT", chain),
        ("CAMPANILE_SERVER__TLS__KEY", key),
        ("CAMPANILE_SERVER__MAX_CONNECTIONS", "4"),
        ("CAMPANILE_SERVER__HEADER_TIMEOUT", "500ms"),
    ];
    let server = Fresh::start_with(Backend::Embedded, &variables);
    let address = server.url.trim_start_matches("https://").to_owned();
    let silent: Vec<TcpStream> = (0..12)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).expect("the server listens");
            stream.write_all(b"GET / HTTP/1.1\r\n").expect("the server reads");
            stream
        })
        .collect();
    until("somebody with TLS is served", async || {
        (status(&server, &certificate).await == Some(200)).then_some(())
    })
    .await;
    drop(silent);
}

/// Half-open handshakes give up their places, as connections without a request do, and do not delay a stop.
#[tokio::test]
async fn handshakes_that_do_not_end_keep_no_place() {
    let certificate = Certificate::issued();
    let (chain, key) = certificate.files();
    let variables = [
        ("CAMPANILE_SERVER__TLS__CERT", chain),
        ("CAMPANILE_SERVER__TLS__KEY", key),
        ("CAMPANILE_SERVER__MAX_CONNECTIONS", "10"),
        ("CAMPANILE_SERVER__HEADER_TIMEOUT", "10m"),
    ];
    let home = Home::new(Backend::Embedded);
    let mut server = Server::start_with(&home, &variables);
    let address = server.url.trim_start_matches("https://").to_owned();
    let mut silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(&address).expect("the server listens")).collect();
    until("the places of the oldest are taken", async || {
        silent[0].set_read_timeout(Some(Duration::from_millis(10))).expect("it may wait");
        matches!(silent[0].read(&mut [0]), Ok(0)).then_some(())
    })
    .await;
    let begun = Instant::now();
    assert!(server.terminate().success());
    assert!(begun.elapsed() < Duration::from_mins(1), "it does not wait for the handshakes");
}

#[test]
fn a_certificate_without_its_key_is_refused_at_the_start() {
    let home = Home::new(Backend::Embedded);
    let certificate = Certificate::issued();
    let (chain, key) = certificate.files();
    let serve = |cert: &str, key: &str| {
        let mut command = home.campanile();
        command.env("CAMPANILE_SERVER__TLS__CERT", cert).env("CAMPANILE_SERVER__TLS__KEY", key);
        let done = command.args(["config", "check"]).output().expect("it runs");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert_eq!(serve(chain, key).0, Some(0));
    for (cert, key, says) in [
        (chain, "", "server.tls.key: is required"),
        ("", key, "server.tls.cert: is required"),
        (key, key, "server.tls.cert"),
        (chain, chain, "server.tls.key"),
        ("/nowhere", key, "server.tls.cert"),
    ] {
        let (code, said) = serve(cert, key);
        assert!(code == Some(1) && said.contains(says), "{cert} {key}: {said}");
    }
}
