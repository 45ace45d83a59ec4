//! SMS by Twilio, against a server that checks each request by Twilio's published rules and answers as documented, or
//! not at all.

use std::sync::Arc;
use std::time::Duration;

use campanile_channels::sms::{Sender, Twilio, TwilioConfig, callback_url, segments};
use campanile_channels::{Answer, Message, Provider};
use campanile_domain::channel::Channel;
use campanile_domain::finding::Level;
use campanile_domain::id::{NotificationId, SendKey};
use campanile_domain::send::{AddressOutcome, AddressResult, Outcome, OutcomeKind};
use campanile_testkit::FullListener;
use campanile_testkit::provider::http::{self, Reply};
use campanile_testkit::provider::twilio::{ACCOUNT_SID, AUTH_TOKEN, Fields, check};

use reqwest::Url;

use crate::message::message;

struct Server;

impl Server {
    async fn start(replies: Vec<Reply>) -> http::Server<Fields> {
        http::Server::start_with(check, replies).await
    }
}

const FROM: &str = "+15005550006";
/// As a person writes it.
const NUMBER: &str = "+39 055 1234567";
const SERVICE: &str = "MG0123456789abcdef0123456789abcdef";
const SID: &str = "SM0123456789abcdef0123456789abcdef";
const LONG_DEADLINE: Duration = Duration::from_secs(20);

fn twilio(address: &str, sender: &str, deadline: Duration) -> Twilio {
    configured(config(address, sender, deadline))
}

fn configured(config: TwilioConfig) -> Twilio {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Twilio::new(config).unwrap()
}

fn config(address: &str, sender: &str, deadline: Duration) -> TwilioConfig {
    TwilioConfig {
        base: format!("http://{address}").parse().unwrap(),
        account_sid: ACCOUNT_SID.to_owned(),
        auth_token: AUTH_TOKEN.to_owned(),
        sender: Sender::parse(sender).unwrap(),
        status_callback: None,
        max_segments: 10,
        deadline,
    }
}

async fn text(twilio: &Twilio, address: &str, title: &str, body: &str) -> Outcome {
    let key = SendKey { notification_id: NotificationId::generate(), channel: Channel::Sms };
    answer(twilio, key, address, title, body).await.outcome
}

async fn answer(twilio: &Twilio, key: SendKey, address: &str, title: &str, body: &str) -> Answer {
    let message = Message { key, ..message(Channel::Sms, address, title, body) };
    twilio.send(&message).await
}

/// The outcome of a text with this reply, which must not affect its number.
async fn outcome_of(reply: Reply) -> Outcome {
    let answer = answer_of(reply).await;
    assert_eq!(answer.done, []);
    answer.outcome
}

/// The result for a text and its number with this reply.
async fn answer_of(reply: Reply) -> Answer {
    let server = Server::start(vec![reply]).await;
    let twilio = twilio(&server.address, FROM, LONG_DEADLINE);
    let key = SendKey { notification_id: NotificationId::generate(), channel: Channel::Sms };
    let answer = answer(&twilio, key, NUMBER, "Title", "Body è & more").await;
    assert_eq!(server.requests().len(), 1, "one text is one request, whatever comes of it");
    answer
}

fn created() -> Reply {
    Reply::json(
        201,
        &format!(r#"{{"sid": "{SID}", "status": "queued", "error_code": null, "to": "+390551234567"}}"#),
    )
}

/// An error like Twilio's, which contains the number.
fn refused(status: u16, code: u32) -> Reply {
    let body = format!(
        r#"{{"code": {code}, "message": "The number +390551234567 is not good", "status": {status},
             "more_info": "https://www.twilio.com/docs/errors/{code}"}}"#
    );
    Reply::json(status, &body)
}

/// Asserts that no error contains the number, the text, or the token.
#[track_caller]
fn assert_discreet(outcome: &Outcome, words: &[&str]) {
    let Some(error) = outcome.error() else { panic!("{outcome:?} has no error") };
    for secret in ["39055", "39 055", "Body", AUTH_TOKEN, "not good", "http://"] {
        assert!(!error.contains(secret), "`{secret}` is in: {error}");
    }
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[tokio::test]
async fn a_text_that_is_accepted_is_sent_with_its_sid() {
    assert_eq!(outcome_of(created()).await, Outcome::Sent { external_id: Some(SID.to_owned()) });
}

#[tokio::test]
async fn the_body_is_sent_and_the_title_where_there_is_none() {
    let server = Server::start(vec![created(), created(), created()]).await;
    let twilio = twilio(&server.address, FROM, LONG_DEADLINE);
    text(&twilio, "+390551234567", "Title", "Table for 4 & more:\n50% = è").await;
    text(&twilio, "+39 055 (123) 45-67", "Reservation requested", " ").await;
    let sent =
        [("To", "+390551234567"), ("From", FROM)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let bodies: Vec<_> =
        server.requests().into_iter().map(|mut fields| (fields.pop().unwrap(), fields)).collect();
    let body = |text: &str| ("Body".to_owned(), text.to_owned());
    assert_eq!(
        bodies,
        [
            (body("Table for 4 & more:\n50% = è"), sent.to_vec()),
            (body("Reservation requested"), sent.to_vec())
        ]
    );
    assert_eq!(server.connections(), 1, "connections are kept");
}

#[tokio::test]
async fn control_characters_leave_texts() {
    let server = Server::start(vec![created(), created()]).await;
    let twilio = twilio(&server.address, FROM, LONG_DEADLINE);
    text(&twilio, NUMBER, "T", "Table\r\nfor\t4\u{0}\u{1b}[31m, 19:30\u{85}").await;
    text(&twilio, NUMBER, "Title", "\u{7}").await;
    let bodies: Vec<_> = server.requests().into_iter().map(|fields| fields[2].1.clone()).collect();
    assert_eq!(bodies, ["Table\nfor 4[31m, 19:30", "Title"]);
}

#[tokio::test]
async fn a_text_names_its_send_to_who_tells_of_it_later() {
    let server = Server::start(vec![created()]).await;
    let base: Url = "https://example.org/v1/callbacks/twilio".parse().unwrap();
    let twilio = configured(TwilioConfig {
        status_callback: Some(base.clone()),
        ..config(&server.address, FROM, LONG_DEADLINE)
    });
    let key = SendKey { notification_id: NotificationId::generate(), channel: Channel::Sms };
    answer(&twilio, key, NUMBER, "T", "B").await;
    let url = callback_url(&base, key).to_string();
    assert_eq!(url, format!("{base}?send={}%3ASMS", key.notification_id));
    assert_eq!(server.requests()[0].last(), Some(&("StatusCallback".to_owned(), url)));
}

#[tokio::test]
async fn a_text_that_is_too_long_is_cut_to_its_segments() {
    for (max_segments, allowed) in [(2, 2), (0, 1), (1_000, 24)] {
        let server = Server::start(vec![created(), created()]).await;
        let twilio =
            configured(TwilioConfig { max_segments, ..config(&server.address, FROM, LONG_DEADLINE) });
        text(&twilio, NUMBER, "T", &"Your table is ready. ".repeat(100)).await;
        text(&twilio, NUMBER, "T", &"La tua prenotazione è confermata 🎉 ".repeat(100)).await;
        for (fields, dots) in server.requests().iter().zip(["...", "…"]) {
            let body = &fields[2].1;
            assert!(segments(body).segments <= allowed && body.ends_with(dots), "{body}");
        }
    }
}

#[tokio::test]
async fn a_messaging_service_and_a_name_send_too() {
    let server = Server::start(vec![created(), created()]).await;
    text(&twilio(&server.address, SERVICE, LONG_DEADLINE), "+390551234567", "T", "B").await;
    text(&twilio(&server.address, "Trattoria 5", LONG_DEADLINE), "+390551234567", "T", "B").await;
    let senders: Vec<_> = server.requests().into_iter().map(|fields| fields[1].clone()).collect();
    let expected = [("MessagingServiceSid", SERVICE), ("From", "Trattoria 5")];
    assert_eq!(senders, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[tokio::test]
async fn what_can_not_be_right_is_rejected_without_asking() {
    let server = Server::start(Vec::new()).await;
    let twilio = twilio(&server.address, FROM, LONG_DEADLINE);
    for number in
        ["055 123456", "whatsapp:+390551234567", "+0551234", "+", "", "+39055123456789012", "+39055\r\nX"]
    {
        let outcome = text(&twilio, number, "T", "B").await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{number}: {outcome:?}");
        assert_discreet(&outcome, &["phone number"]);
    }
    let outcome = text(&twilio, "+390551234567", " ", "\n").await;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn an_error_of_the_message_is_rejected_with_its_code_and_our_words() {
    for (status, code, words) in [
        (400, 21610, "unsubscribed"),
        (403, 21610, "START"),
        (400, 21408, "country"),
        (403, 21408, "country"),
        (400, 21612, "can't reach"),
        (400, 21608, "verified"),
        (400, 21266, "own"),
        (400, 21617, "1600"),
        (400, 29999, "docs/api/errors"),
    ] {
        let outcome = outcome_of(refused(status, code)).await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
        assert_discreet(&outcome, &[&code.to_string(), words]);
    }
}

#[tokio::test]
async fn a_number_that_can_not_get_texts_is_dead_as_it_was_written() {
    for (status, code, words) in [
        (400, 21211, "texted"),
        (400, 21214, "texted"),
        (400, 21217, "texted"),
        (400, 21265, "short code"),
        (400, 21268, "premium"),
        (400, 21614, "mobile"),
        (400, 21635, "landline"),
        (403, 21614, "mobile"),
    ] {
        let Answer { outcome, done, .. } = answer_of(refused(status, code)).await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
        assert_discreet(&outcome, &[&code.to_string(), words]);
        let reason = outcome.error().unwrap().to_owned();
        let end = AddressOutcome::Dead { reason };
        assert_eq!(done, [AddressResult { address: NUMBER.to_owned(), end }]);
    }
}

#[tokio::test]
async fn an_error_of_the_operator_is_nobodys_message_and_says_so() {
    let replies = [
        refused(400, 21601),
        refused(400, 21606),
        refused(400, 21607),
        refused(403, 21606),
        refused(400, 21704),
        refused(401, 20003),
        refused(403, 20008),
        refused(404, 20404),
        Reply::json(404, "<html>"),
    ];
    for reply in replies {
        let outcome = outcome_of(reply).await;
        assert!(matches!(outcome, Outcome::Down { after: None, .. }), "{outcome:?}");
        assert_discreet(&outcome, &["channels.sms.url"]);
    }
    assert_discreet(&outcome_of(refused(401, 20003)).await, &["20003", "wrong credentials"]);
    assert_discreet(&outcome_of(refused(400, 21609)).await, &["server.public_url"]);
    assert!(matches!(outcome_of(refused(400, 21609)).await, Outcome::Down { .. }));
    // A 400 that is not Twilio's says nothing about the message.
    assert!(matches!(outcome_of(Reply::json(400, "Bad Request")).await, Outcome::Down { .. }));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(Vec::new()).await;
    let location = format!("http://{}/", elsewhere.address);
    let outcome = outcome_of(Reply::json(307, "").with("Location", &location)).await;
    assert!(matches!(outcome, Outcome::Down { .. }), "{outcome:?}");
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_busy_twilio_is_asked_again_when_it_says() {
    for (header, after) in
        [(Some("7"), Some(7)), (Some("soon"), None), (None, None), (Some("999999999"), Some(86_400))]
    {
        let reply = refused(429, 20429);
        let reply = if let Some(value) = header { reply.with("Retry-After", value) } else { reply };
        let outcome = outcome_of(reply).await;
        assert_discreet(&outcome, &["429"]);
        let Outcome::Down { after: asked, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(asked, after.map(Duration::from_secs));
    }
    for reply in [refused(400, 20429), refused(400, 21611), refused(400, 21730)] {
        let outcome = outcome_of(reply.with("Retry-After", "5")).await;
        assert!(matches!(outcome, Outcome::Down { after: Some(after), .. } if after.as_secs() == 5));
    }
    let away = outcome_of(refused(503, 20503).with("Retry-After", "3")).await;
    assert!(matches!(away, Outcome::Down { after: Some(after), .. } if after.as_secs() == 3), "{away:?}");
}

#[tokio::test]
async fn a_failure_behind_the_gateway_leaves_doubt() {
    let gateway = "<html>gateway</html>";
    for reply in [
        refused(500, 20500),
        Reply::json(500, gateway),
        Reply::json(502, gateway),
        Reply::json(503, gateway),
        Reply::json(504, gateway),
    ] {
        let outcome = outcome_of(reply).await;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
        assert_discreet(&outcome, &["may have accepted"]);
    }
}

#[tokio::test]
async fn a_yes_that_can_not_be_read_is_a_doubt_that_is_not_repeated() {
    let huge = format!(r#"{{"sid": "{SID}", "body": "{}"}}"#, "x".repeat(100_000));
    for reply in [
        Reply::json(201, "created"),
        Reply::json(201, "{}"),
        Reply::json(201, r#"{"sid": "another kind"}"#),
        Reply::json(200, &format!(r#"{{"sid": "{SID}"}}"#)),
        Reply::json(204, ""),
        Reply::json(201, &huge),
        created().cut_to(150),
    ] {
        let outcome = outcome_of(reply).await;
        assert!(matches!(outcome, Outcome::Unclear { .. }), "{outcome:?}");
        assert_discreet(&outcome, &["Twilio", "returned no SID"]);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_doubt() {
    for reply in [Reply::CloseAfterReading, Reply::CloseBeforeReading, created().cut_to(5)] {
        let server = Server::start(vec![reply]).await;
        let outcome = text(&twilio(&server.address, FROM, LONG_DEADLINE), "+390551234567", "T", "B").await;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
        assert_discreet(&outcome, &["closed the connection"]);
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn silence_and_half_an_answer_end_at_the_deadline_and_leave_doubt() {
    for reply in [Reply::Silence, created().then_hang(0), created().then_hang(60)] {
        let server = Server::start(vec![reply]).await;
        let twilio = twilio(&server.address, FROM, Duration::from_millis(300));
        assert_eq!(twilio.deadline(), Duration::from_millis(300));
        let outcome =
            tokio::time::timeout(LONG_DEADLINE, text(&twilio, "+390551234567", "T", "B")).await.unwrap();
        assert_eq!(outcome.kind(), OutcomeKind::Unknown, "{outcome:?}");
        assert_discreet(&outcome, &["Twilio"]);
    }
}

#[tokio::test]
async fn a_slow_answer_within_the_deadline_counts() {
    let outcome = outcome_of(created().after(Duration::from_millis(200))).await;
    assert_eq!(outcome, Outcome::Sent { external_id: Some(SID.to_owned()) });
}

#[tokio::test]
async fn who_can_not_connect_has_sent_nothing() {
    let outcome = text(&twilio("127.0.0.1:1", FROM, LONG_DEADLINE), "+390551234567", "T", "B").await;
    assert!(matches!(outcome, Outcome::Down { after: None, .. }), "{outcome:?}");
    assert_discreet(&outcome, &["is unreachable"]);
    // A resolver refuses such a long name without asking others.
    let nowhere = format!("{}.invalid", "a".repeat(64));
    let outcome = text(&twilio(&nowhere, FROM, LONG_DEADLINE), "+390551234567", "T", "B").await;
    assert!(matches!(outcome, Outcome::Down { .. }), "{outcome:?}");
    assert_discreet(&outcome, &["Twilio is unreachable: its host name does not resolve"]);
}

#[tokio::test]
async fn who_is_not_let_in_has_sent_nothing() {
    let full = FullListener::start().await;
    let twilio = twilio(&full.address.to_string(), FROM, Duration::from_secs(1));
    let outcome = text(&twilio, "+390551234567", "T", "B").await;
    assert!(matches!(outcome, Outcome::Down { .. }), "{outcome:?}");
    assert_discreet(&outcome, &["could not be reached before the timeout"]);
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_no_doubt() {
    let server = Server::start(vec![created().then_close(), created()]).await;
    let twilio = twilio(&server.address, FROM, LONG_DEADLINE);
    for _ in 0..2 {
        let outcome = text(&twilio, "+390551234567", "T", "B").await;
        assert_eq!(outcome, Outcome::Sent { external_id: Some(SID.to_owned()) });
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn many_texts_at_once_are_each_sent_once() {
    let server = Server::start((0..200).map(|_| created()).collect()).await;
    let twilio = Arc::new(twilio(&server.address, FROM, LONG_DEADLINE));
    let texts: Vec<_> = (0..200)
        .map(|n| {
            let twilio = Arc::clone(&twilio);
            tokio::spawn(async move { text(&twilio, "+390551234567", "T", &format!("text {n}")).await })
        })
        .collect();
    for text in texts {
        assert!(matches!(text.await.unwrap(), Outcome::Sent { .. }));
    }
    let mut bodies: Vec<String> = server.requests().into_iter().map(|fields| fields[2].1.clone()).collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 200);
}

#[tokio::test]
async fn examining_sends_nothing_and_says_what_is_wrong() {
    let account = || Reply::json(200, &format!(r#"{{"sid": "{ACCOUNT_SID}", "status": "active"}}"#));
    for (reply, level, words) in [
        (account(), Level::Ok, "knows account"),
        (refused(401, 20003), Level::Wrong, "rejects the credentials of account"),
        (refused(403, 20008), Level::Note, "403"),
        (Reply::CloseAfterReading, Level::Wrong, "closed the connection"),
    ] {
        let server = Server::start(vec![reply]).await;
        let finding = twilio(&server.address, FROM, LONG_DEADLINE).examine(Channel::Sms).await;
        assert_eq!((finding.level, finding.subject), (level, "channels"), "{finding:?}");
        assert!(finding.what.contains(words) && finding.what.contains(&server.address), "{finding:?}");
        assert_eq!(finding.remedy.is_some(), level == Level::Wrong);
        assert!(!format!("{finding:?}").contains(AUTH_TOKEN));
        assert!(server.requests().is_empty(), "nothing was sent");
    }
    let nowhere = twilio("127.0.0.1:1", FROM, LONG_DEADLINE).examine(Channel::Sms).await;
    assert!(nowhere.level == Level::Wrong && nowhere.what.contains("is unreachable"), "{nowhere:?}");
}

#[test]
fn senders_are_told_apart() {
    let from = |text: &str| Some(Sender::From(text.to_owned()));
    assert_eq!(Sender::parse(SERVICE), Some(Sender::Service(SERVICE.to_owned())));
    for right in [FROM, "123", "12345", "12345678", "Trattoria", "MG Motors", "A1"] {
        assert_eq!(Sender::parse(right), from(right));
    }
    let wrong_names = ["", "a name that is too long", "Anna & Bruno", "MG0123456789", "55 66", " "];
    let wrong_numbers = ["15005550006", " 15005550006", "+1 500 555 0006", "12", "123456789"];
    for wrong in wrong_names.into_iter().chain(wrong_numbers) {
        assert_eq!(Sender::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn the_token_is_not_in_debug_output() {
    let shown = format!("{:?}", twilio("127.0.0.1:1", FROM, LONG_DEADLINE));
    assert!(shown.contains(ACCOUNT_SID) && !shown.contains(AUTH_TOKEN), "{shown}");
}
