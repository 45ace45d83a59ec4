//! Pushes by FCM, against servers that check each request by the published rules of FCM and of Google's token endpoint.
//! They answer as documented, or not at all.

mod content;

use std::sync::Arc;
use std::time::Duration;

use campanile_channels::push::{Alert, Fcm, FcmConfig, KeyFileError, ServiceAccount};
use campanile_channels::{Answer, Message, Provider};
use campanile_domain::channel::Channel;
use campanile_domain::finding::Level;
use campanile_domain::send::{AddressOutcome, Outcome};
use campanile_testkit::FullListener;
use campanile_testkit::provider::fcm::{ACCOUNT, FcmRequest, ISSUED, KEY_FILE, PROJECT, check, check_grant};
use campanile_testkit::provider::http::{Reply, Server};
use serde_json::{Value, json};

const TOKEN: &str = "fMEP0vJqS0:APA91bHqX-device_one";
const NAME: &str = "projects/trattoria-test/messages/0:1500415314455276%31bd1c9631bd1c96";
const LONG_DEADLINE: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_hours(24);

/// A key file like Google's, with this token endpoint.
fn account(token_endpoint: &str) -> ServiceAccount {
    let mut file: Value = serde_json::from_str(KEY_FILE).unwrap();
    file["token_uri"] = json!(format!("http://{token_endpoint}/token"));
    ServiceAccount::parse(&file.to_string()).unwrap()
}

fn fcm(api_address: &str, token_endpoint: &str, deadline: Duration) -> Fcm {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let base = format!("http://{api_address}").parse().unwrap();
    let alert = Alert { sound: "default".to_owned(), android_channel: "orders".to_owned() };
    Fcm::new(FcmConfig { base, account: account(token_endpoint), deadline, ttl: DAY, alert }).unwrap()
}

fn granted(name: &str, seconds: u64) -> Reply {
    let body =
        json!({"access_token": format!("{ISSUED}{name}"), "expires_in": seconds, "token_type": "Bearer"});
    Reply::json(200, &body.to_string())
}

async fn gives_out_tokens() -> Server<Value> {
    Server::start_with(check_grant, (1..9).map(|n| granted(&n.to_string(), 3_599)).collect::<Vec<_>>()).await
}

fn message<'a>(address: &'a str, title: &'a str, body: &'a str) -> Message<'a> {
    crate::message::message(Channel::Push, address, title, body)
}

async fn push(fcm: &Fcm, address: &str) -> Answer {
    fcm.send(&message(address, "Title", "Body è & more")).await
}

/// The result of a push to one device with this reply.
async fn answer_to(reply: Reply) -> Answer {
    let google = gives_out_tokens().await;
    let server = Server::start_with(check, vec![reply]).await;
    let answer = push(&fcm(&server.address, &google.address, LONG_DEADLINE), TOKEN).await;
    assert_eq!(server.requests().len(), 1, "one device is one request, whatever comes of it");
    assert_eq!(google.requests().len(), 1);
    assert_discreet(&answer);
    answer
}

fn accepted() -> Reply {
    Reply::json(200, &json!({"name": NAME}).to_string())
}

/// An error like FCM's. Its message quotes the token, which our errors must not do.
fn refused(status: u16, name: &str, code: Option<&str>) -> Reply {
    refused_with(status, name, "Something about fMEP0vJqS0:APA91bHqX", code, None)
}

fn refused_with(status: u16, name: &str, words: &str, code: Option<&str>, field: Option<&str>) -> Reply {
    let code = code.map(
        |code| json!({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}),
    );
    let field = field.map(|field| {
        json!({"@type": "type.googleapis.com/google.rpc.BadRequest",
               "fieldViolations": [{"field": field, "description": "Invalid value fMEP0vJqS0"}]})
    });
    let details: Vec<Value> = field.into_iter().chain(code).collect();
    Reply::json(
        status,
        &json!({"error": {"code": status, "message": words, "status": name, "details": details}}).to_string(),
    )
}

/// Asserts that no error contains a token, the message, or a credential.
#[track_caller]
fn assert_discreet(answer: &Answer) {
    let mut errors: Vec<&str> = answer.outcome.error().into_iter().collect();
    errors.extend(answer.done.iter().filter_map(|done| match &done.end {
        AddressOutcome::Rejected { error: reason } | AddressOutcome::Dead { reason } => Some(reason.as_str()),
        AddressOutcome::Sent { .. } => None,
    }));
    for error in errors {
        for secret in ["fMEP0", "APA91", "Body", ISSUED, "PRIVATE", "http://", "eyJ"] {
            assert!(!error.contains(secret), "`{secret}` is in: {error}");
        }
    }
}

/// The kind of an outcome, and of each address with a final result.
fn kinds(answer: &Answer) -> (&'static str, Vec<&'static str>) {
    let outcome = match &answer.outcome {
        Outcome::Sent { .. } => "sent",
        Outcome::Retry { .. } => "retry",
        Outcome::Down { .. } => "down",
        Outcome::Rejected { .. } => "rejected",
        Outcome::Deferred { .. } => "deferred",
        Outcome::Unknown { .. } | Outcome::Unanswered { .. } | Outcome::Unclear { .. } => "unknown",
        Outcome::Expired { .. } => "expired",
        Outcome::RateLimited { .. } | Outcome::NotAttempted { .. } | Outcome::TemplateFailed { .. } => {
            "not attempted"
        }
    };
    let ends = answer.done.iter().map(|done| match &done.end {
        AddressOutcome::Sent { .. } => "sent",
        AddressOutcome::Rejected { .. } => "rejected",
        AddressOutcome::Dead { .. } => "dead",
    });
    (outcome, ends.collect())
}

#[track_caller]
fn assert_says(answer: &Answer, words: &[&str]) {
    let error = answer.outcome.error().unwrap_or_else(|| panic!("{answer:?} has no error"));
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[tokio::test]
async fn a_push_that_is_accepted_is_sent_with_its_name() {
    let answer = answer_to(accepted()).await;
    assert_eq!(answer.outcome, Outcome::Sent { external_id: Some(NAME.to_owned()) });
    assert_eq!(answer.done.len(), 1);
    assert_eq!(answer.done[0].address, TOKEN);
    assert_eq!(answer.done[0].end, AddressOutcome::Sent { external_id: Some(NAME.to_owned()) });
}

/// The status, Google's name for it, FCM's code, the outcome, and words of our error.
type Case = (u16, &'static str, Option<&'static str>, &'static str, &'static [&'static str]);

#[tokio::test]
async fn every_documented_error_is_understood() {
    let table: [Case; 21] = [
        (404, "NOT_FOUND", Some("UNREGISTERED"), "dead", &["UNREGISTERED"]),
        (403, "PERMISSION_DENIED", Some("SENDER_ID_MISMATCH"), "rejected", &["another Firebase project"]),
        (400, "INVALID_ARGUMENT", Some("INVALID_ARGUMENT"), "rejected", &["INVALID_ARGUMENT"]),
        (400, "INVALID_ARGUMENT", None, "rejected", &["INVALID_ARGUMENT"]),
        (401, "UNAUTHENTICATED", Some("THIRD_PARTY_AUTH_ERROR"), "retry", &["APNs key"]),
        (401, "UNAUTHENTICATED", Some("APNS_AUTH_ERROR"), "retry", &["APNs key"]),
        (429, "RESOURCE_EXHAUSTED", Some("QUOTA_EXCEEDED"), "retry", &["QUOTA_EXCEEDED"]),
        (429, "RESOURCE_EXHAUSTED", None, "down", &["rate limit exceeded"]),
        (503, "UNAVAILABLE", Some("UNAVAILABLE"), "down", &["UNAVAILABLE"]),
        (503, "UNAVAILABLE", None, "down", &["UNAVAILABLE"]),
        (500, "INTERNAL", Some("INTERNAL"), "unknown", &["500", "may have accepted"]),
        (500, "INTERNAL", None, "unknown", &["may have accepted"]),
        (500, "UNKNOWN", Some("UNSPECIFIED_ERROR"), "unknown", &["may have accepted"]),
        (504, "DEADLINE_EXCEEDED", None, "unknown", &["504"]),
        (503, "INTERNAL", None, "unknown", &["503"]),
        (403, "PERMISSION_DENIED", None, "down", &["enable the Firebase Cloud Messaging API", PROJECT]),
        // A device is dead only if FCM itself says so.
        (404, "NOT_FOUND", None, "down", &["the project does not exist"]),
        (404, "NOT_FOUND", Some("UNSPECIFIED_ERROR"), "down", &["the project does not exist"]),
        (400, "FAILED_PRECONDITION", None, "down", &["400"]),
        (409, "ABORTED", None, "down", &["409"]),
        (307, "MOVED", None, "down", &["307"]),
    ];
    for (status, name, code, expected, words) in table {
        let answer = answer_to(refused(status, name, code)).await;
        let (outcome, ends) = kinds(&answer);
        match expected {
            "dead" | "rejected" => assert_eq!((outcome, ends), ("rejected", vec![expected]), "{answer:?}"),
            _ => assert_eq!((outcome, ends), (expected, Vec::new()), "{status} {code:?}: {answer:?}"),
        }
        assert_says(&answer, words);
    }
}

#[tokio::test]
async fn a_token_that_is_none_is_dead_and_another_wrong_field_is_named() {
    let invalid =
        |words, field| refused_with(400, "INVALID_ARGUMENT", words, Some("INVALID_ARGUMENT"), field);
    for reply in [
        invalid("The registration token is not a valid FCM registration token", None),
        invalid("Request contains an invalid argument.", Some("message.token")),
        refused_with(400, "INVALID_ARGUMENT", "Invalid", None, Some("message.token")),
    ] {
        let answer = answer_to(reply).await;
        assert_eq!(kinds(&answer), ("rejected", vec!["dead"]), "{answer:?}");
        assert_says(&answer, &["not a registration token"]);
    }
    let answer = answer_to(invalid("Invalid value", Some("message.data[0].value"))).await;
    assert_eq!(kinds(&answer), ("rejected", vec!["rejected"]));
    assert_says(&answer, &["message.data[0].value"]);
    let answer = answer_to(invalid("Invalid value", Some("fMEP0vJqS0 <b>"))).await;
    assert_says(&answer, &["(INVALID_ARGUMENT)"]);
}

#[tokio::test]
async fn a_busy_fcm_is_asked_again_when_it_says_or_after_a_minute() {
    let quota = || refused(429, "RESOURCE_EXHAUSTED", Some("QUOTA_EXCEEDED"));
    let crowded = || refused(429, "RESOURCE_EXHAUSTED", None);
    let away = || refused(503, "UNAVAILABLE", Some("UNAVAILABLE"));
    for (reply, expected) in [
        (quota(), Some(60)),
        (quota().with("Retry-After", "7"), Some(7)),
        (quota().with("Retry-After", "soon"), Some(60)),
        (quota().with("Retry-After", "999999999"), Some(86_400)),
        (crowded(), Some(60)),
        (crowded().with("Retry-After", "90"), Some(90)),
        (away(), None),
        (away().with("Retry-After", "3"), Some(3)),
    ] {
        let answer = answer_to(reply).await;
        let (Outcome::Retry { after, .. } | Outcome::Down { after, .. }) = answer.outcome else {
            panic!("{answer:?}");
        };
        assert_eq!(after, expected.map(Duration::from_secs));
    }
}

#[tokio::test]
async fn what_is_not_of_fcm_says_nothing_about_the_device() {
    let page = "<!DOCTYPE html><title>Error</title>";
    for (status, expected) in [
        (400, "down"),
        (403, "down"),
        (404, "down"),
        (429, "down"),
        (500, "unknown"),
        (502, "unknown"),
        (503, "unknown"),
        (504, "unknown"),
    ] {
        let answer = answer_to(Reply::json(status, page)).await;
        assert_eq!(kinds(&answer), (expected, Vec::new()), "{status}: {answer:?}");
    }
}

#[tokio::test]
async fn an_answer_that_can_not_be_read_leaves_doubt() {
    let huge = json!({"name": NAME, "more": "x".repeat(100_000)}).to_string();
    for reply in [
        Reply::json(200, "accepted"),
        Reply::json(200, "{}"),
        Reply::json(200, r#"{"name": "something else"}"#),
        Reply::json(200, r#"{"name": "projects/a\nb"}"#),
        Reply::json(204, ""),
        Reply::json(200, &huge),
        accepted().cut_to(80),
        accepted().cut_to(5),
        Reply::CloseAfterReading,
    ] {
        let answer = answer_to(reply).await;
        assert_eq!(kinds(&answer), ("unknown", Vec::new()), "{answer:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_doubt_and_one_that_was_closed_meanwhile_does_not() {
    let google = gives_out_tokens().await;
    let server = Server::start_with(check, vec![Reply::CloseBeforeReading]).await;
    let answer = push(&fcm(&server.address, &google.address, LONG_DEADLINE), TOKEN).await;
    assert_eq!(kinds(&answer), ("unknown", Vec::new()), "{answer:?}");
    assert_says(&answer, &["closed the connection"]);

    let server = Server::start_with(check, vec![accepted().then_close(), accepted()]).await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    for _ in 0..2 {
        assert_eq!(kinds(&push(&fcm, TOKEN).await).0, "sent");
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn silence_and_half_an_answer_end_at_the_deadline_and_leave_doubt() {
    for reply in [Reply::Silence, accepted().then_hang(0), accepted().then_hang(80)] {
        let google = gives_out_tokens().await;
        let server = Server::start_with(check, vec![reply]).await;
        let fcm = fcm(&server.address, &google.address, Duration::from_millis(600));
        assert_eq!(fcm.deadline(), Duration::from_millis(600));
        let answer = tokio::time::timeout(LONG_DEADLINE, push(&fcm, TOKEN)).await.unwrap();
        assert_eq!(kinds(&answer), ("unknown", Vec::new()), "{answer:?}");
        assert_discreet(&answer);
    }
}

#[tokio::test]
async fn the_deadline_is_that_of_the_whole_attempt() {
    let deadline = Duration::from_secs(3);
    let slowly = granted("1", 3_599).after(deadline / 3);
    let google = Server::start_with(check_grant, vec![slowly]).await;
    let server = Server::start_with(check, vec![Reply::Silence]).await;
    let fcm = fcm(&server.address, &google.address, deadline);
    let grace = Duration::from_millis(500);
    let answer = tokio::time::timeout(deadline + grace, push(&fcm, TOKEN)).await.unwrap();
    assert_eq!(kinds(&answer), ("unknown", Vec::new()), "{answer:?}");
}

#[tokio::test]
async fn who_can_not_connect_has_sent_nothing() {
    let google = gives_out_tokens().await;
    for api_address in ["127.0.0.1:1", "no-such-host.invalid"] {
        let answer = push(&fcm(api_address, &google.address, LONG_DEADLINE), "a b").await;
        assert_eq!(kinds(&answer), ("down", Vec::new()), "{answer:?}");
        assert_says(&answer, &["2 of 2 devices: FCM is unreachable"]);
    }
}

#[tokio::test]
async fn who_is_not_connected_in_time_has_sent_nothing() {
    let full = FullListener::start().await;
    let google = gives_out_tokens().await;
    let answer = push(&fcm(&full.address.to_string(), &google.address, Duration::from_secs(1)), TOKEN).await;
    assert_eq!(kinds(&answer), ("down", Vec::new()), "{answer:?}");
    assert_says(&answer, &["could not be reached before the timeout"]);
}

#[tokio::test]
async fn tokens_that_are_none_are_rejected_without_asking() {
    let google = gives_out_tokens().await;
    let server = Server::start_with(check, Vec::new()).await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    for token in ["fMEP0\nX", "fMEP0\r\nHost:", "fMEP0è", "fMEP0\0", "fMEP0\u{a0}", &"APA91".repeat(1_000)] {
        let answer = push(&fcm, token).await;
        assert_eq!(kinds(&answer), ("rejected", vec!["rejected"]), "{answer:?}");
        assert_eq!(answer.done[0].address, token);
        assert_says(&answer, &["not a registration token"]);
        assert_discreet(&answer);
    }
    for address in ["", " ", "   "] {
        let answer = push(&fcm, address).await;
        assert_eq!(kinds(&answer), ("rejected", Vec::new()), "{answer:?}");
    }
    let nothing = fcm.send(&message(TOKEN, " ", "\n")).await;
    assert_eq!(kinds(&nothing), ("rejected", Vec::new()));
    assert_says(&nothing, &["nothing to send"]);
    assert_eq!((server.connections(), google.connections()), (0, 0));
}

#[tokio::test]
async fn whatever_is_to_be_said_keeps_to_the_rules_of_fcm() {
    let texts =
        ["x", "è", "🍝", "\"", "\r\n\0x", "👩\u{200d}🍳", "</script>{{}}"].map(|text| text.repeat(5_000));
    let google = gives_out_tokens().await;
    let server = Server::start_with(check, texts.iter().map(|_| accepted()).collect::<Vec<_>>()).await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    for text in &texts {
        let answer = fcm.send(&message(TOKEN, text, text)).await;
        assert_eq!(kinds(&answer), ("sent", vec!["sent"]));
    }
    let asked = server.requests();
    assert_eq!(asked.len(), texts.len());
    for (asked, text) in asked.iter().zip(&texts) {
        for part in ["title", "body"] {
            let said = asked.message["notification"][part].as_str().unwrap();
            let kept = said.strip_suffix('…').expect("it is cut");
            let text = text.replace(['\r', '\0'], "");
            assert!(text.trim().starts_with(kept) && kept.len() > 80, "{part} of {:?}", &text[..8]);
        }
    }
}

/// The reply for a token, which its name determines.
fn by_name(asked: &FcmRequest) -> Reply {
    match asked.token().trim_end_matches(|c: char| c.is_ascii_digit()) {
        "sent" => accepted(),
        "dead" => refused(404, "NOT_FOUND", Some("UNREGISTERED")),
        "wrong" => refused(400, "INVALID_ARGUMENT", Some("INVALID_ARGUMENT")),
        "quota" => refused(429, "RESOURCE_EXHAUSTED", Some("QUOTA_EXCEEDED")),
        "away" => refused(503, "UNAVAILABLE", Some("UNAVAILABLE")).with("Retry-After", "90"),
        "broken" => refused(500, "INTERNAL", Some("INTERNAL")),
        "slow" => accepted().after(Duration::from_millis(100)),
        "late" => accepted().after(Duration::from_millis(2_300)),
        "silent" => Reply::Silence,
        other => panic!("{other}"),
    }
}

async fn named() -> Server<FcmRequest> {
    Server::start_with(check, by_name as fn(&FcmRequest) -> Reply).await
}

#[tokio::test]
async fn each_device_has_its_own_end_and_all_have_one_outcome() {
    let google = gives_out_tokens().await;
    let server = named().await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    let table: [(&str, &str, &[&str], Option<u64>); 11] = [
        ("sent1 sent2", "sent", &["sent", "sent"], None),
        ("dead1 sent1 wrong1", "sent", &["dead", "sent", "rejected"], None),
        ("dead1 dead2 wrong1", "rejected", &["dead", "dead", "rejected"], None),
        ("sent1 quota1", "retry", &["sent"], Some(60)),
        ("quota1 away1", "retry", &[], Some(90)),
        ("away1 away2", "down", &[], Some(90)),
        ("dead1 away1", "down", &["dead"], Some(90)),
        // Another provider would send a duplicate to the first device.
        ("sent1 away1", "retry", &["sent"], Some(90)),
        ("sent1 broken1 away1", "unknown", &["sent"], None),
        ("broken1 dead1", "unknown", &["dead"], None),
        ("sent1  sent1 è", "sent", &["sent", "rejected"], None),
    ];
    for (address, expected, ends, wait) in table {
        let answer = push(&fcm, address).await;
        assert_eq!(kinds(&answer), (expected, ends.to_vec()), "{address}: {answer:?}");
        if let Outcome::Retry { after, .. } | Outcome::Down { after, .. } = &answer.outcome {
            assert_eq!(*after, wait.map(Duration::from_secs), "{address}");
        }
        for done in &answer.done {
            assert!(address.split(' ').any(|token| token == done.address));
        }
    }
    let answer = push(&fcm, "dead1 dead2 wrong1").await;
    assert_says(&answer, &["2 of 3 devices: the app was uninstalled", "1 of 3 devices: FCM rejected"]);
    assert!(!answer.outcome.error().unwrap().contains("dead1"), "{answer:?}");
}

#[tokio::test]
async fn many_devices_are_told_ten_at_a_time_and_each_once() {
    let google = gives_out_tokens().await;
    let server = named().await;
    let tokens: Vec<String> = (0..35).map(|n| format!("slow{n}")).collect();
    let answer = push(&fcm(&server.address, &google.address, LONG_DEADLINE), &tokens.join(" ")).await;
    assert!(matches!(answer.outcome, Outcome::Sent { .. }), "{answer:?}");
    let done: Vec<&String> = answer.done.iter().map(|done| &done.address).collect();
    assert_eq!(done, tokens.iter().collect::<Vec<_>>());
    let mut asked: Vec<String> = server.requests().iter().map(|asked| asked.token().to_owned()).collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!((asked.len(), server.requests().len()), (35, 35));
    assert_eq!(server.connections(), 10);
    assert_eq!(google.requests().len(), 1, "all waited for the same access token");
}

#[tokio::test]
async fn a_device_that_hangs_holds_up_no_other() {
    let google = gives_out_tokens().await;
    let server = named().await;
    let tokens: Vec<String> =
        ["silent".to_owned()].into_iter().chain((0..25).map(|n| format!("sent{n}"))).collect();
    let answer =
        push(&fcm(&server.address, &google.address, Duration::from_secs(2)), &tokens.join(" ")).await;
    assert_eq!(kinds(&answer), ("unknown", vec!["sent"; 25]), "{answer:?}");
    assert_says(&answer, &["1 of 26 devices: FCM did not answer in time"]);
}

#[tokio::test]
async fn a_device_that_is_reached_too_late_is_left_for_the_next_attempt() {
    let google = gives_out_tokens().await;
    let server = named().await;
    let tokens: Vec<String> = (0..12).map(|n| format!("late{n}")).collect();
    let fcm = fcm(&server.address, &google.address, Duration::from_secs(3));
    let answer = push(&fcm, &tokens.join(" ")).await;
    assert_eq!(kinds(&answer), ("retry", vec!["sent"; 10]), "{answer:?}");
    assert_says(&answer, &["2 of 12 devices: the attempt's deadline was reached"]);
    assert_eq!(server.requests().len(), 10);
}

#[tokio::test]
async fn an_access_token_is_renewed_before_it_ends() {
    let google = Server::start_with(
        check_grant,
        vec![granted("short", 299), granted("long", 3_599), granted("never", 3_599)],
    )
    .await;
    let server = named().await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    for _ in 0..4 {
        push(&fcm, "sent").await;
    }
    let used: Vec<String> = server.requests().into_iter().map(|asked| asked.access_token).collect();
    assert_eq!(used, ["ya29.short", "ya29.long", "ya29.long", "ya29.long"]);
}

#[tokio::test]
async fn an_access_token_is_used_while_it_is_good_though_no_other_is_given_out() {
    let google = Server::start_with(check_grant, vec![granted("short", 299), Reply::json(503, "{}")]).await;
    let server = named().await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    for _ in 0..4 {
        assert_eq!(kinds(&push(&fcm, "sent").await).0, "sent");
    }
    assert_eq!(google.requests().len(), 2, "and the next renewal waits for a while");
}

#[tokio::test]
async fn an_access_token_that_ended_is_not_used() {
    let google = Server::start_with(check_grant, vec![granted("ended", 0), Reply::json(503, "{}")]).await;
    let server = named().await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    assert_eq!(kinds(&push(&fcm, "sent").await).0, "sent", "it was good when it was given out");
    assert_eq!(kinds(&push(&fcm, "sent").await).0, "down");
    assert_eq!(server.requests().len(), 1);
}

/// Accepts only the second access token.
fn by_access_token(asked: &FcmRequest) -> Reply {
    match asked.access_token.as_str() {
        "ya29.1" => refused(401, "UNAUTHENTICATED", None),
        _ => accepted(),
    }
}

#[tokio::test]
async fn an_access_token_that_is_not_accepted_is_renewed_once_for_all() {
    let google = gives_out_tokens().await;
    let server = Server::start_with(check, by_access_token as fn(&FcmRequest) -> Reply).await;
    let fcm = Arc::new(fcm(&server.address, &google.address, LONG_DEADLINE));
    let pushes: Vec<_> = (0..20)
        .map(|_| {
            let fcm = Arc::clone(&fcm);
            tokio::spawn(async move { push(&fcm, "a b c d e").await })
        })
        .collect();
    for push in pushes {
        assert_eq!(kinds(&push.await.unwrap()), ("sent", vec!["sent"; 5]));
    }
    assert_eq!(google.requests().len(), 2, "a second was needed once");
}

fn nobody_is_let_in(_: &FcmRequest) -> Reply {
    refused(401, "UNAUTHENTICATED", None)
}

#[tokio::test]
async fn who_is_not_let_in_at_all_asks_twice_and_says_so() {
    let google = gives_out_tokens().await;
    let server = Server::start_with(check, nobody_is_let_in as fn(&FcmRequest) -> Reply).await;
    let answer = push(&fcm(&server.address, &google.address, LONG_DEADLINE), TOKEN).await;
    assert_eq!(kinds(&answer), ("down", Vec::new()), "{answer:?}");
    assert_says(&answer, &["does not accept the access tokens", ACCOUNT]);
    assert_discreet(&answer);
    assert_eq!((server.requests().len(), google.requests().len()), (2, 2));
}

#[tokio::test]
async fn without_an_access_token_nothing_is_sent_and_the_reason_is_told() {
    let oauth = |status, code: &str| {
        Reply::json(
            status,
            &json!({"error": code, "error_description": "Invalid JWT Signature. eyJ"}).to_string(),
        )
    };
    let odd_bearer = json!({"access_token": "a\nb", "expires_in": 9, "token_type": "Bearer"}).to_string();
    let another_kind = json!({"access_token": "a", "expires_in": 9, "token_type": "mac"}).to_string();
    for (reply, words, after) in [
        (oauth(400, "invalid_grant"), "clock", None),
        (oauth(401, "invalid_client"), "(invalid_client)", None),
        (oauth(400, "Eyj <script>"), "token_uri", None),
        (Reply::json(404, "<html>"), "token_uri", None),
        (Reply::json(302, "").with("Location", "http://127.0.0.1:1/"), "token_uri", None),
        (Reply::json(500, "{}"), "temporarily unavailable", None),
        (oauth(503, "backend_error").with("Retry-After", "5"), "temporarily unavailable", Some(5)),
        (Reply::json(429, "{}"), "temporarily unavailable", None),
        (Reply::json(200, "{}"), "returned no access token", None),
        (Reply::json(200, &odd_bearer), "returned no access token", None),
        (Reply::json(200, &another_kind), "returned no access token", None),
        (granted("1", 9).cut_to(90), "returned no access token", None),
        (Reply::CloseAfterReading, "closed the connection", None),
    ] {
        let google = Server::start_with(check_grant, vec![reply]).await;
        let server = Server::start_with(check, Vec::new()).await;
        let answer = push(&fcm(&server.address, &google.address, LONG_DEADLINE), TOKEN).await;
        assert_eq!(kinds(&answer), ("down", Vec::new()), "{words}: {answer:?}");
        assert_says(&answer, &[words]);
        assert_discreet(&answer);
        let Outcome::Down { after: asked, .. } = answer.outcome else { unreachable!() };
        assert_eq!(asked, after.map(Duration::from_secs));
        assert_eq!((google.requests().len(), server.connections()), (1, 0));
    }
    let answer = push(&fcm("127.0.0.1:1", "127.0.0.1:1", LONG_DEADLINE), &format!("è {TOKEN}")).await;
    assert_eq!(kinds(&answer), ("down", vec!["rejected"]), "{answer:?}");
    assert_says(&answer, &["1 of 2 devices: 127.0.0.1:1 is unreachable"]);
}

#[tokio::test]
async fn a_token_endpoint_that_hangs_is_asked_by_one_and_all_end_in_time() {
    let google = Server::start_with(check_grant, vec![Reply::Silence]).await;
    let server = Server::start_with(check, Vec::new()).await;
    let fcm = fcm(&server.address, &google.address, Duration::from_millis(800));
    let answer = tokio::time::timeout(LONG_DEADLINE, push(&fcm, "a b c d e f g h")).await.unwrap();
    assert_eq!(kinds(&answer), ("down", Vec::new()), "{answer:?}");
    assert_says(&answer, &["did not answer in time"]);
    assert_eq!((google.requests().len(), server.connections()), (1, 0));
}

#[tokio::test]
async fn examining_sends_nothing_and_says_what_is_wrong() {
    let no_token =
        || refused_with(400, "INVALID_ARGUMENT", "Invalid", Some("INVALID_ARGUMENT"), Some("message.token"));
    for (reply, level, words) in [
        (no_token(), Level::Ok, "accepts campanile@trattoria-test.iam.gserviceaccount.com for project"),
        (
            Reply::json(200, r#"{"name": "projects/trattoria-test/messages/fake_message_id"}"#),
            Level::Ok,
            "accepts",
        ),
        (refused(403, "PERMISSION_DENIED", None), Level::Wrong, "denies permission"),
        (refused(503, "UNAVAILABLE", None), Level::Wrong, "UNAVAILABLE"),
        (Reply::json(404, "<html>"), Level::Wrong, "the host is not FCM"),
        (refused(500, "INTERNAL", None), Level::Note, "500"),
    ] {
        let google = gives_out_tokens().await;
        let server = Server::start_with(check, vec![reply]).await;
        let finding = fcm(&server.address, &google.address, LONG_DEADLINE).examine(Channel::Push).await;
        assert_eq!((finding.level, finding.subject), (level, "channels"), "{finding:?}");
        assert!(finding.what.contains(words) && finding.what.contains(&server.address), "{finding:?}");
        assert_eq!(finding.remedy.is_some(), level == Level::Wrong);
        assert!(server.requests().iter().all(|asked| asked.validate_only), "nothing was sent");
    }
    let google =
        Server::start_with(check_grant, vec![Reply::json(400, r#"{"error": "invalid_grant"}"#)]).await;
    let finding = fcm("127.0.0.1:1", &google.address, LONG_DEADLINE).examine(Channel::Push).await;
    assert!(finding.level == Level::Wrong && finding.what.contains("invalid_grant"), "{finding:?}");
    assert!(finding.remedy.unwrap().contains("key file"));
}

#[test]
fn a_key_file_that_is_wrong_is_named_and_never_shown() {
    let file = || serde_json::from_str::<Value>(KEY_FILE).unwrap();
    let with = |name: &str, value: Value| {
        let mut file = file();
        file[name] = value;
        ServiceAccount::parse(&file.to_string()).unwrap_err()
    };
    for field in ["type", "project_id", "private_key_id", "private_key", "client_email", "token_uri"] {
        let mut missing = file();
        missing.as_object_mut().unwrap().remove(field);
        let error = ServiceAccount::parse(&missing.to_string()).unwrap_err();
        assert!(error.to_string().contains(&format!("has no `{field}`")), "{error}");
        assert!(with(field, json!(null)).to_string().contains(field));
        assert!(with(field, json!(["x"])).to_string().contains(field));
    }
    let key = file()["private_key"].as_str().unwrap().to_owned();
    for wrong in [
        key.replace("PRIVATE KEY", "RSA PRIVATE KEY"),
        key.replace('\n', " "),
        key.replacen("MII", "MIJ", 1),
        key[..600].to_owned(),
        "secret".to_owned(),
    ] {
        assert_eq!(with("private_key", json!(wrong)), KeyFileError::Key);
    }
    for wrong in ["../other", "a/b", "Trattoria", "a b", "a?b", "a%2fb", "a\n"] {
        assert_eq!(with("project_id", json!(wrong)), KeyFileError::Invalid("project_id"));
    }
    for wrong in [
        "http://oauth2.googleapis.com/token",
        "ftp://127.0.0.1/",
        "oauth2.googleapis.com",
        "https://somebody:secret@oauth2.googleapis.com/token",
        "file:///etc/passwd",
    ] {
        assert_eq!(with("token_uri", json!(wrong)), KeyFileError::TokenUri);
    }
    assert_eq!(with("type", json!("authorized_user")), KeyFileError::WrongType);
    assert_eq!(with("client_email", json!("somebody")), KeyFileError::Invalid("client_email"));
    assert_eq!(with("project_info", json!({})), KeyFileError::AppConfig);
    for (wrong, line) in [("", 1), ("{\n\"private_key\": secret", 2), ("[\"secret\"]", 1)] {
        let error = ServiceAccount::parse(wrong).unwrap_err();
        assert!(matches!(error, KeyFileError::NotJson { line: at, .. } if at == line), "{error:?}");
        assert!(!error.to_string().contains("secret") && error.to_string().contains("Firebase console"));
    }
}

#[tokio::test]
async fn neither_key_nor_access_token_is_in_debug_output() {
    let google = gives_out_tokens().await;
    let server = named().await;
    let config = FcmConfig {
        base: "http://127.0.0.1:1".parse().unwrap(),
        account: account("127.0.0.1:1"),
        deadline: LONG_DEADLINE,
        ttl: DAY,
        alert: Alert::default(),
    };
    let shown = format!("{config:?}");
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    push(&fcm, "sent").await;
    for shown in [shown, format!("{fcm:?}")] {
        assert!(shown.contains(PROJECT) && shown.contains(ACCOUNT), "{shown}");
        for secret in ["PRIVATE", "RsaKeyPair", "MII", ISSUED] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_said() {
    let google = gives_out_tokens().await;
    let nowhere = format!("{}.invalid", "a".repeat(64));
    let answer = push(&fcm(&nowhere, &google.address, LONG_DEADLINE), TOKEN).await;
    assert_eq!(kinds(&answer), ("down", vec![]));
    assert_says(&answer, &["FCM is unreachable: its host name does not resolve"]);
}
