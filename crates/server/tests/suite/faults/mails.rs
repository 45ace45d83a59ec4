//! E-mail faults: instances that die before, during and after the mail server accepts, and mail servers that break off.

use std::time::Duration;

use campanile_testkit::on_both;
use campanile_testkit::provider::smtpd::{Act, ReceivedEmail, Smtpd};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Backend, Home, Server, reservation, staff, until};

const EXTENSIONS: &[&str] = &["PIPELINING"];

/// A server whose attempts are within the lease of these tests, 5 s.
fn start(home: &Home, smtpd: &Smtpd, on_doubt: &str, failpoint: Option<&str>) -> Server {
    let variables: Vec<_> = failpoint.map(|failpoint| ("CAMPANILE_KILL_AT", failpoint)).into_iter().collect();
    start_with(home, smtpd, on_doubt, &variables)
}

fn start_with(home: &Home, smtpd: &Smtpd, on_doubt: &str, more: &[(&str, &str)]) -> Server {
    let url = format!("smtp://127.0.0.1:{}?tls=none", smtpd.port);
    let mut variables = vec![
        ("CAMPANILE_CHANNELS__EMAIL__URL", url.as_str()),
        ("CAMPANILE_CHANNELS__EMAIL__FROM", "noreply@example.org"),
        ("CAMPANILE_CHANNELS__EMAIL__DEADLINE", "2s"),
        ("CAMPANILE_CHANNELS__EMAIL__ANSWER_TIMEOUT", "2s"),
        ("CAMPANILE_ENGINE__LEASE", "5s"),
        ("CAMPANILE_SEND__EMAIL__ON_DOUBT", on_doubt),
    ];
    variables.extend(more);
    Server::start_with(home, &variables)
}

/// One person with only a mailbox.
async fn anna(server: &Server) {
    let mut anna = staff()[0].clone();
    anna.as_object_mut().unwrap().retain(|field, _| field != "phone" && field != "push_tokens");
    server.put("/v1/recipients", json!([anna])).await;
}

fn email(trace: &Value) -> &Value {
    trace["sends"].as_array().unwrap().iter().find(|send| send["channel"] == "EMAIL").unwrap()
}

fn message_ids(emails: &[ReceivedEmail]) -> Vec<&str> {
    let id = |email: &'_ str| -> Option<usize> { email.find("Message-ID:") };
    emails.iter().filter_map(|email| email.text[id(&email.text)?..].lines().next()).collect()
}

/// Kills the server at the failpoint while one e-mail is sent, and restarts it. Returns the trace and what the mail
/// server has.
async fn killed_at(backend: Backend, failpoint: &str, on_doubt: &str) -> (Server, Value, Smtpd, Home) {
    let smtpd = Smtpd::start(EXTENSIONS, vec![]).await;
    let home = Home::new(backend);
    let mut server = start(&home, &smtpd, on_doubt, Some(failpoint));
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    server.died_by_sigkill().await;
    let server = start(&home, &smtpd, on_doubt, None);
    let trace = server.settled("evt-1").await;
    (server, trace, smtpd, home)
}

async fn doubts_are_sent_again(backend: Backend) {
    let (_server, trace, smtpd, _home) = killed_at(backend, "send.before_provider", "resend").await;
    assert_eq!((&email(&trace)["status"], &email(&trace)["attempt_count"]), (&json!("SENT"), &json!(2)));
    assert_eq!(smtpd.emails().len(), 1, "the mail server never heard of the first attempt");

    let (_server, trace, smtpd, _home) = killed_at(backend, "send.after_provider", "resend").await;
    assert_eq!(email(&trace)["status"], "SENT");
    let attempts = email(&trace)["attempts"].as_array().unwrap();
    assert_eq!(attempts[0]["outcome"], "UNKNOWN", "a doubt that was sent again stays recognisable: {trace}");
    let emails = smtpd.emails();
    let ids = message_ids(&emails);
    assert!(ids.len() == 2 && ids[0] == ids[1], "told twice, by the same Message-ID: {ids:?}");
}

async fn doubts_are_held(backend: Backend) {
    for failpoint in ["send.before_provider", "send.after_provider"] {
        let (server, trace, smtpd, _home) = killed_at(backend, failpoint, "hold").await;
        assert_eq!(email(&trace)["status"], "IN_DOUBT", "{failpoint}: {trace}");
        let had = smtpd.emails().len();
        assert_eq!(had, usize::from(failpoint == "send.after_provider"));
        let doubts = server.get("/v1/sends?status=IN_DOUBT").await;
        let id = doubts["items"][0]["id"].as_str().unwrap().to_owned();
        // A person decides: if the mail server has it, it is settled; else it is sent again.
        let (path, body, status) = if had == 1 {
            (format!("/v1/sends/{id}/settle"), Some(json!({"as": "SENT", "note": "seen in its log"})), "SENT")
        } else {
            (format!("/v1/sends/{id}/resend"), None, "SENT")
        };
        let (answered, body) = server.call(Method::POST, &path, body.as_ref()).await;
        assert_eq!(answered, 200, "{body}");
        let trace = server.settled("evt-1").await;
        assert_eq!(email(&trace)["status"], status, "{trace}");
        assert_eq!(smtpd.emails().len(), 1, "told once in the end");
    }
}

/// Kills the server while the mail server has the message and has not answered, and restarts it. Returns the trace and
/// what the mail server has.
async fn killed_during_the_email(backend: Backend, on_doubt: &str) -> (Value, Vec<ReceivedEmail>) {
    let smtpd = Smtpd::start(EXTENSIONS, vec![(".", Act::KeepAndHang)]).await;
    let home = Home::new(backend);
    let mut server = start(&home, &smtpd, on_doubt, None);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    until("the mail server has the message", async || (smtpd.emails().len() == 1).then_some(())).await;
    server.kill();
    let server = start(&home, &smtpd, on_doubt, None);
    let trace = server.settled("evt-1").await;
    (trace, smtpd.emails())
}

async fn killed_while_the_mail_server_thinks(backend: Backend) {
    let (trace, emails) = killed_during_the_email(backend, "hold").await;
    assert_eq!((&email(&trace)["status"], emails.len()), (&json!("IN_DOUBT"), 1), "{trace}");
    let (trace, emails) = killed_during_the_email(backend, "resend").await;
    let attempts = email(&trace)["attempts"].as_array().unwrap();
    assert_eq!(
        (&email(&trace)["status"], &attempts[0]["outcome"]),
        (&json!("SENT"), &json!("UNKNOWN")),
        "{trace}"
    );
    let ids = message_ids(&emails);
    assert!(ids.len() == 2 && ids[0] == ids[1], "told twice, by the same Message-ID: {ids:?}");
}

async fn a_mail_server_that_is_silent_after_the_message_of_who_holds_doubts(backend: Backend) {
    let smtpd = Smtpd::start(EXTENSIONS, vec![(".", Act::KeepAndHang)]).await;
    let home = Home::new(backend);
    let server = start(&home, &smtpd, "hold", None);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let attempts = email(&trace)["attempts"].as_array().unwrap();
    assert_eq!(
        (&email(&trace)["status"], &attempts[0]["outcome"], attempts.len()),
        (&json!("IN_DOUBT"), &json!("UNKNOWN"), 1),
        "{trace}"
    );
    assert_eq!(smtpd.emails().len(), 1, "nobody is told twice");
}

async fn a_mail_server_that_is_silent_after_the_message(backend: Backend) {
    // It hangs for the first try and accepts the second.
    let smtpd = Smtpd::start(
        EXTENSIONS,
        vec![(".", Act::KeepAndHang), (".", Act::Say("250 2.0.0 Ok: queued as Q2"))],
    )
    .await;
    let home = Home::new(backend);
    let server = start(&home, &smtpd, "resend", None);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let attempts = email(&trace)["attempts"].as_array().unwrap();
    assert_eq!(
        (&email(&trace)["status"], &attempts[0]["outcome"]),
        (&json!("SENT"), &json!("UNKNOWN")),
        "{trace}"
    );
    let emails = smtpd.emails();
    let ids = message_ids(&emails);
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
}

/// The answer of postgrey, which defers unknown senders for a while.
const GREYLISTED: Act =
    Act::Say("451 4.7.1 Greylisted, see http://postgrey.schweikert.ch/help/example.com.html");

async fn a_mail_server_that_greylists(backend: Backend) {
    for verb in ["RCPT", "."] {
        let smtpd =
            Smtpd::start(EXTENSIONS, vec![(verb, GREYLISTED), ("RCPT", Act::Wait(Duration::ZERO))]).await;
        let home = Home::new(backend);
        let server = start_with(&home, &smtpd, "hold", &[("CAMPANILE_SEND__EMAIL__DEFER_FOR", "2s")]);
        anna(&server).await;
        server.emit(&reservation("evt-1")).await;
        let trace = server.settled("evt-1").await;
        let email = email(&trace);
        assert_eq!((&email["status"], &email["attempt_count"]), (&json!("SENT"), &json!(1)), "{trace}");
        assert_eq!((&email["deferrals"], email["deferred_since"].is_string()), (&json!(1), true), "{trace}");
        assert_eq!(email["attempts"][0]["outcome"], "DEFERRED", "{trace}");
        assert_eq!(smtpd.emails().len(), 1);
    }
}

async fn a_mail_server_that_greylists_for_too_long(backend: Backend) {
    let smtpd = Smtpd::start(EXTENSIONS, vec![("RCPT", GREYLISTED), ("RCPT", GREYLISTED)]).await;
    let home = Home::new(backend);
    let server = start_with(&home, &smtpd, "hold", &[("CAMPANILE_SEND__EMAIL__DEFER_FOR", "1s")]);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    assert!(email(&trace)["last_error"].as_str().unwrap().starts_with("DEFERRED_TOO_LONG: "), "{trace}");
    let dead_letters = server.get("/v1/dead-letters?event_id=evt-1").await;
    assert_eq!(dead_letters["items"][0]["reason"], "DEFERRED_TOO_LONG", "{dead_letters}");
    let (status, body) =
        server.call(Method::POST, "/v1/dead-letters/replay", Some(&json!({"event_id": "evt-1"}))).await;
    assert_eq!(status, 200, "{body}");
    let trace = server.settled("evt-1").await;
    let email = email(&trace);
    assert_eq!((&email["status"], &email["deferrals"]), (&json!("SENT"), &json!(0)), "{trace}");
    assert!(email["deferred_since"].is_null(), "{trace}");
}

/// It answers after more than the lease, and gets one message.
async fn a_mail_server_that_takes_longer_than_the_lease(backend: Backend) {
    let smtpd = Smtpd::start(EXTENSIONS, vec![(".", Act::Wait(Duration::from_secs(7)))]).await;
    let home = Home::new(backend);
    let patient = [("CAMPANILE_CHANNELS__EMAIL__ANSWER_TIMEOUT", "60s")];
    let server = start_with(&home, &smtpd, "resend", &patient);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let email = email(&trace);
    assert_eq!((&email["status"], &email["attempts"]), (&json!("SENT"), &json!([])), "{trace}");
    assert_eq!(smtpd.emails().len(), 1);
}

async fn a_mail_server_that_never_answers(backend: Backend) {
    let smtpd = Smtpd::start(EXTENSIONS, vec![(".", Act::KeepAndHang), (".", Act::KeepAndHang)]).await;
    let home = Home::new(backend);
    let server = start(&home, &smtpd, "resend", None);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    assert_eq!(email(&trace)["status"], "IN_DOUBT", "{trace}");
    assert_eq!(smtpd.emails().len(), 2, "repeated once");
}

async fn stopped_while_the_mail_server_thinks(backend: Backend) {
    let smtpd = Smtpd::start(EXTENSIONS, vec![(".", Act::KeepAndHang)]).await;
    let home = Home::new(backend);
    let patient =
        [("CAMPANILE_CHANNELS__EMAIL__ANSWER_TIMEOUT", "5m"), ("CAMPANILE_SERVER__STOP_DEADLINE", "6s")];
    let mut server = start_with(&home, &smtpd, "hold", &patient);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    until("the mail server has the message", async || (smtpd.emails().len() == 1).then_some(())).await;
    assert!(server.terminate().success());
    // The doubt is written at once, without waiting for the lease.
    let server = start(&home, &smtpd, "hold", None);
    let trace = server.settled("evt-1").await;
    assert_eq!(email(&trace)["status"], "IN_DOUBT", "{trace}");
    let error = email(&trace)["last_error"].as_str().unwrap();
    assert!(error.contains("had not answered before shutdown"), "{error}");
}

async fn a_mail_server_that_refuses_us(backend: Backend) {
    let refusals = [
        ("MAIL", "553 5.7.1 <noreply@example.org>: Sender address rejected: not owned by user"),
        ("RCPT", "554 5.7.1 <anna@example.com>: Relay access denied"),
    ];
    for (verb, said) in refusals {
        let first = Smtpd::start(EXTENSIONS, vec![(verb, Act::Say(said))]).await;
        let second = Smtpd::start(EXTENSIONS, vec![]).await;
        let home = Home::new(backend);
        let urls =
            format!("smtp://127.0.0.1:{}?tls=none smtp://127.0.0.1:{}?tls=none", first.port, second.port);
        let server = start_with(&home, &first, "hold", &[("CAMPANILE_CHANNELS__EMAIL__URL", &urls)]);
        anna(&server).await;
        server.emit(&reservation("evt-1")).await;
        let trace = server.settled("evt-1").await;
        let email = email(&trace);
        assert_eq!((&email["status"], &email["provider"]), (&json!("SENT"), &json!("smtp-2")), "{trace}");
        assert_eq!((first.emails().len(), second.emails().len()), (0, 1));
    }
}

async fn a_mail_server_that_is_busy_for_a_while(backend: Backend) {
    let busy = Act::Say("450 4.2.1 try again later");
    let smtpd =
        Smtpd::start(EXTENSIONS, vec![("MAIL", busy.clone()), ("MAIL", busy), ("RCPT", Act::Close)]).await;
    let home = Home::new(backend);
    let server = start(&home, &smtpd, "hold", None);
    anna(&server).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    // A refusal, or a break before the message is out, is no doubt: it is retried even if doubts are held.
    assert_eq!(
        (&email(&trace)["status"], &email(&trace)["attempt_count"]),
        (&json!("SENT"), &json!(3)),
        "{trace}"
    );
    assert_eq!(smtpd.emails().len(), 1);
}

on_both! {
    doubts_are_sent_again;
    doubts_are_held;
    killed_while_the_mail_server_thinks;
    a_mail_server_that_is_silent_after_the_message;
    a_mail_server_that_is_silent_after_the_message_of_who_holds_doubts;
    a_mail_server_that_is_busy_for_a_while;
    a_mail_server_that_refuses_us;
    a_mail_server_that_greylists;
    a_mail_server_that_greylists_for_too_long;
    a_mail_server_that_takes_longer_than_the_lease;
    a_mail_server_that_never_answers;
    stopped_while_the_mail_server_thinks;
}
