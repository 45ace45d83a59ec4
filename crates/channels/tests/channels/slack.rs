//! Messages to Slack's webhooks, against a server that checks each request by Slack's published rules and answers as
//! documented, or not at all. Also webhooks to addresses that are not allowed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_channels::slack::{AllowedHost, Slack, SlackConfig};
use campanile_channels::{Answer, Chain, Message, Provider};
use campanile_domain::channel::Channel;
use campanile_domain::finding::Level;
use campanile_domain::send::{AddressOutcome, AddressResult, Outcome};
use campanile_testkit::provider::http::{self, Reply};
use campanile_testkit::provider::slack::{PATH, check};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::{Value, json};

const LONG_DEADLINE: Duration = Duration::from_secs(20);

async fn serve(replies: Vec<Reply>) -> http::Server<Value> {
    http::Server::start_with(check, replies).await
}

/// A provider that allows these hosts, with a resolver that returns this address for every name.
fn slack(hosts: &[&str], resolves_to: &str, deadline: Duration) -> Slack {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let allowed_hosts = hosts.iter().map(|host| AllowedHost::parse(host).unwrap()).collect();
    let names = FakeResolver(vec![SocketAddr::new(resolves_to.parse().unwrap(), 0)]);
    Slack::with_resolver(SlackConfig { allowed_hosts, deadline, per_second: 1_000.0 }, Arc::new(names))
        .unwrap()
}

struct FakeResolver(Vec<SocketAddr>);

impl Resolve for FakeResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
    }
}

async fn post(slack: &Slack, webhook: &str, title: &str, body: &str) -> Answer {
    slack.send(&message(webhook, title, body)).await
}

fn message<'a>(webhook: &'a str, title: &'a str, body: &'a str) -> Message<'a> {
    crate::message::message(Channel::Slack, webhook, title, body)
}

/// The result for a message and its webhook with these replies; each must be requested.
async fn answer_of(replies: Vec<Reply>, deadline: Duration) -> Answer {
    let asked = replies.len();
    let server = serve(replies).await;
    let slack = slack(&[&server.address], "127.0.0.1", deadline);
    let answer = post(&slack, &webhook(&server), "Title", "Body & more").await;
    assert_eq!(server.requests().len(), asked);
    answer
}

/// The outcome of a message with this reply, which must not affect its webhook.
async fn outcome_of(reply: Reply) -> Outcome {
    let answer = answer_of(vec![reply], LONG_DEADLINE).await;
    assert_eq!(answer.done, []);
    answer.outcome
}

fn webhook(server: &http::Server<Value>) -> String {
    format!("http://{}{PATH}", server.address)
}

fn ok() -> Reply {
    Reply::json(200, "ok")
}

fn busy(after: &str) -> Reply {
    Reply::json(429, r#"{"ok": false, "error": "rate_limited"}"#).with("Retry-After", after)
}

const SENT: Outcome = Outcome::Sent { external_id: None };

/// Asserts that no error contains the webhook, the message, or the response.
#[track_caller]
fn assert_discreet(outcome: &Outcome, words: &[&str]) {
    let Some(error) = outcome.error() else { panic!("{outcome:?} has no error") };
    for secret in ["/services", "T0000", "XXXX", "127.0.0.1", "evil", "Body", "Title", "<html>"] {
        assert!(!error.contains(secret), "`{secret}` is in: {error}");
    }
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[tokio::test]
async fn a_message_that_is_taken_is_sent() {
    assert_eq!(outcome_of(ok()).await, SENT);
    assert_eq!(outcome_of(Reply::json(200, "ok\n")).await, SENT);
}

#[tokio::test]
async fn a_message_has_a_header_a_section_and_small_print() {
    let server = serve(vec![ok(), ok(), ok(), ok()]).await;
    let slack = slack(&[&server.address], "127.0.0.1", LONG_DEADLINE);
    post(&slack, &webhook(&server), "Table <4> & more", "*Anna*: see https://a.example/?b=1&c=2").await;
    post(&slack, &webhook(&server), "Order created", " \n").await;
    post(&slack, &webhook(&server), "", "Only a body").await;
    post(&slack, &webhook(&server), "Two\nlines\u{0}", "\u{1b}one\r\ntwo").await;
    let header =
        |text: &str| json!({"type": "header", "text": {"type": "plain_text", "text": text, "emoji": false}});
    let section =
        |text: &str| json!({"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": true}});
    let small = json!({"type": "context", "elements": [{"type": "plain_text", "text": "ORDER_CREATED",
        "emoji": false}]});
    let body = "*Anna*: see <https://a.example/?b=1&amp;c=2>";
    assert_eq!(
        server.requests(),
        [
            json!({
                "text": format!("Table &lt;4&gt; &amp; more\n{body}"),
                "blocks": [header("Table <4> & more"), section(body), small],
            }),
            json!({"text": "Order created", "blocks": [header("Order created"), small]}),
            json!({"text": "Only a body", "blocks": [section("Only a body"), small]}),
            json!({"text": "Two\nlines\none\ntwo", "blocks": [header("Two lines"), section("one\ntwo"), small]}),
        ]
    );
    assert_eq!(server.connections(), 1, "connections are kept");
}

#[tokio::test]
async fn whatever_is_written_keeps_to_slacks_rules() {
    let bad = [
        "<!channel> <!here> <!everyone> <@U123> <#C123> <!subteam^S1> <!date^1^{date}|x>".to_owned(),
        "<https://evil.example|https://bank.example> https://a.example|<!channel>".to_owned(),
        "&".repeat(10_000),
        "<".repeat(10_000),
        "è😀".repeat(10_000),
        "https://a.example/& ".repeat(1_000),
        "a\u{0}b\r\n\u{1b}[31m\u{7f}\"}]}".to_owned(),
        "line\nline\r\nline".to_owned(),
        "👩\u{200d}👧".repeat(500),
    ];
    let server = serve(bad.iter().map(|_| ok()).collect()).await;
    let slack = slack(&[&server.address], "127.0.0.1", LONG_DEADLINE);
    for text in &bad {
        assert_eq!(post(&slack, &webhook(&server), text, text).await.outcome, SENT);
    }
    assert_eq!(server.requests().len(), bad.len());
}

#[tokio::test]
async fn nothing_to_say_is_rejected_without_asking() {
    let server = serve(Vec::new()).await;
    let slack = slack(&[&server.address], "127.0.0.1", LONG_DEADLINE);
    for (title, body) in [("", ""), (" ", "\n"), ("\u{0}", "\u{1b} \u{7f}")] {
        let outcome = post(&slack, &webhook(&server), title, body).await.outcome;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
        assert_discreet(&outcome, &["nothing to send"]);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_refusal_is_final_with_slacks_own_word() {
    for (status, word) in [
        (400, "invalid_payload"),
        (400, "user_not_found"),
        (400, "no_text"),
        (400, "too_many_attachments"),
        (400, "invalid_blocks"),
        (403, "action_prohibited"),
        (403, "posting_to_general_channel_denied"),
        (404, "channel_not_found"),
        (410, "channel_is_archived"),
    ] {
        let outcome = outcome_of(Reply::json(status, word)).await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
        assert_discreet(&outcome, &[word]);
    }
}

#[tokio::test]
async fn a_webhook_that_is_no_more_is_dead() {
    for (status, word) in [
        (403, "invalid_token"),
        (404, "no_service"),
        (404, "no_service_id"),
        (404, "no_team"),
        (403, "team_disabled"),
    ] {
        let server = serve(vec![Reply::json(status, word)]).await;
        let slack = slack(&[&server.address], "127.0.0.1", LONG_DEADLINE);
        let Answer { outcome, done, .. } = post(&slack, &webhook(&server), "Title", "Body").await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
        assert_discreet(&outcome, &[word]);
        let end = AddressOutcome::Dead { reason: outcome.error().unwrap().to_owned() };
        assert_eq!(done, [AddressResult { address: webhook(&server), end }]);
    }
}

#[tokio::test]
async fn words_that_are_not_slacks_are_not_repeated() {
    for (status, said) in
        [(400, "<html>evil</html>"), (404, "no_service, said evil"), (401, ""), (405, "evil"), (418, "evil")]
    {
        let outcome = outcome_of(Reply::json(status, said)).await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
        assert_discreet(&outcome, &[&status.to_string()]);
    }
}

#[tokio::test]
async fn a_failure_or_a_strange_success_leaves_doubt() {
    let huge = "x".repeat(100_000);
    for reply in [
        Reply::json(500, "rollup_error"),
        Reply::json(502, "<html>"),
        Reply::json(503, ""),
        Reply::json(504, "no_service"),
        Reply::json(200, ""),
        Reply::json(200, "<html>evil"),
        Reply::json(200, &huge),
        Reply::json(201, "ok"),
        Reply::json(204, ""),
        ok().cut_to(70),
        ok().cut_to(5),
        Reply::CloseAfterReading,
    ] {
        let outcome = outcome_of(reply).await;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
        assert_discreet(&outcome, &["Slack"]);
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_at_once_leaves_doubt() {
    let server = serve(vec![Reply::CloseBeforeReading]).await;
    let slack = slack(&[&server.address], "127.0.0.1", LONG_DEADLINE);
    let outcome = post(&slack, &webhook(&server), "Title", "Body").await.outcome;
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn silence_and_half_an_answer_end_at_the_deadline_and_leave_doubt() {
    for reply in [Reply::Silence, ok().then_hang(0), ok().then_hang(70)] {
        let started = Instant::now();
        let outcome = answer_of(vec![reply], Duration::from_millis(300)).await.outcome;
        assert!(started.elapsed() < LONG_DEADLINE);
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_slow_answer_within_the_deadline_counts() {
    assert_eq!(outcome_of(ok().after(Duration::from_millis(200))).await, SENT);
}

fn rate_limited(answer: Answer) -> (Duration, String) {
    let Outcome::RateLimited { after, error } = answer.outcome else { panic!("{answer:?}") };
    (after, error)
}

#[tokio::test]
async fn a_busy_webhook_is_left_alone_for_as_long_as_slack_says() {
    for (reply, after) in [
        (busy("30"), Duration::from_secs(30)),
        (busy("0"), Duration::from_millis(1)),
        (busy("86400"), Duration::from_mins(15)),
        (busy("soon"), Duration::from_secs(10)),
        (Reply::json(429, ""), Duration::from_secs(10)),
    ] {
        let answer = answer_of(vec![reply], LONG_DEADLINE).await;
        assert_discreet(&answer.outcome, &["429"]);
        assert_eq!(rate_limited(answer).0, after, "it is not slept away: the send waits in the database");
    }
}

#[tokio::test]
async fn all_that_wait_for_a_webhook_wait_together_and_others_do_not() {
    let (server, other) = (serve(vec![busy("600")]).await, serve(vec![ok()]).await);
    let slack = slack(&[&server.address, &other.address], "127.0.0.1", LONG_DEADLINE);
    let first = rate_limited(post(&slack, &webhook(&server), "Title", "Body").await).0;
    assert_eq!(first, Duration::from_mins(10));
    for _ in 0..3 {
        let answer = post(&slack, &webhook(&server), "Title", "Body").await;
        assert_discreet(&answer.outcome, &["rate limited"]);
        let after = rate_limited(answer).0;
        assert!(after > Duration::from_mins(5), "{after:?}");
    }
    assert_eq!(post(&slack, &webhook(&other), "Title", "Body").await.outcome, SENT);
    assert_eq!(server.requests().len(), 1, "it is left alone");
}

#[tokio::test]
async fn who_can_not_connect_has_sent_nothing() {
    let slack = slack(&["127.0.0.1:1"], "127.0.0.1", LONG_DEADLINE);
    let outcome = post(&slack, &format!("http://127.0.0.1:1{PATH}"), "T", "B").await.outcome;
    assert!(matches!(outcome, Outcome::Down { after: None, .. }), "{outcome:?}");
    assert_discreet(&outcome, &["is unreachable"]);
}

#[tokio::test]
async fn a_dead_host_stops_no_other() {
    let server = serve((0..10).map(|_| ok()).collect()).await;
    let slack = slack(&["127.0.0.1:1", &server.address], "127.0.0.1", LONG_DEADLINE);
    let chain = Chain::of(Arc::new(slack));
    let (dead, alive) = (format!("http://127.0.0.1:1{PATH}"), webhook(&server));
    for _ in 0..10 {
        chain.send(&message(&dead, "T", "B"), || Duration::from_mins(1)).await;
        let asked = chain.send(&message(&alive, "T", "B"), || Duration::from_mins(1)).await;
        assert_eq!(asked.answer.outcome, SENT);
    }
    assert_eq!(chain.first().down(), ["slack at 127.0.0.1:1"]);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = serve(Vec::new()).await;
    let outcome = outcome_of(Reply::json(307, "").with("Location", &webhook(&elsewhere))).await;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    assert_discreet(&outcome, &["not followed"]);
    assert_eq!(elsewhere.connections(), 0);
}

/// All of them would reach the server if they were not refused.
#[tokio::test]
async fn a_webhook_that_was_not_allowed_is_refused_without_asking() {
    let server = serve(Vec::new()).await;
    let port = server.address.rsplit_once(':').unwrap().1;
    let slack = slack(&["hooks.slack.com", "127.0.0.1:1"], "127.0.0.1", LONG_DEADLINE);
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "017700000001",
        "localhost",
        "[::ffff:127.0.0.1]",
        "evil.example",
        "hooks.slack.com",
        "hooks.slack.com@127.0.0.1",
        "127.0.0.1:1@127.0.0.1",
    ] {
        for scheme in ["http", "https"] {
            let outcome = post(&slack, &format!("{scheme}://{host}:{port}{PATH}"), "T", "B").await.outcome;
            assert!(matches!(outcome, Outcome::Rejected { .. }), "{scheme}://{host}: {outcome:?}");
            assert_discreet(&outcome, &["Slack webhook"]);
        }
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_name_that_leads_into_the_house_is_refused_before_anybody_connects() {
    let server = serve(Vec::new()).await;
    let port = server.address.rsplit_once(':').unwrap().1;
    let host = format!("hooks.example:{port}");
    for inside in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "fd00::1",
    ] {
        let slack = slack(&[&host], inside, LONG_DEADLINE);
        let outcome = post(&slack, &format!("https://{host}{PATH}"), "T", "B").await.outcome;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{inside}: {outcome:?}");
        assert_discreet(&outcome, &["public address"]);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_host_below_an_allowed_name_must_be_public_too() {
    let server = serve(Vec::new()).await;
    let port = server.address.rsplit_once(':').unwrap().1;
    let slack = slack(&[&format!("*.hooks.example:{port}")], "10.0.0.1", LONG_DEADLINE);
    for (host, words) in [("a.hooks.example", "public address"), ("hooks.example", "allowed_hosts")] {
        let outcome = post(&slack, &format!("https://{host}:{port}{PATH}"), "T", "B").await.outcome;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{host}: {outcome:?}");
        assert_discreet(&outcome, &[words]);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn localhost_leads_to_this_machine_if_it_was_allowed() {
    let server = serve(vec![ok()]).await;
    let host = server.address.replace("127.0.0.1", "localhost");
    let webhook = format!("http://{host}{PATH}");
    assert_eq!(post(&slack(&[&host], "127.0.0.1", LONG_DEADLINE), &webhook, "T", "B").await.outcome, SENT);
    let outcome = post(&slack(&[&host], "10.0.0.1", LONG_DEADLINE), &webhook, "T", "B").await.outcome;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn names_are_looked_up_by_the_system_as_a_rule() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = serve(vec![ok()]).await;
    let host = server.address.replace("127.0.0.1", "localhost");
    let config = |host: &str| SlackConfig {
        allowed_hosts: vec![AllowedHost::parse(host).unwrap()],
        deadline: LONG_DEADLINE,
        per_second: 1_000.0,
    };
    let slack = Slack::new(config(&host)).unwrap();
    assert_eq!(post(&slack, &format!("http://{host}{PATH}"), "T", "B").await.outcome, SENT);
    let slack = Slack::new(config("no-such-host.invalid")).unwrap();
    let outcome = post(&slack, &format!("https://no-such-host.invalid{PATH}"), "T", "B").await.outcome;
    assert!(matches!(outcome, Outcome::Down { .. }), "{outcome:?}");
}

#[tokio::test]
async fn examining_sends_nothing_and_says_whose_webhooks_are_taken() {
    let finding =
        slack(&["hooks.slack.com", "[::1]:8080"], "127.0.0.1", LONG_DEADLINE).examine(Channel::Slack).await;
    assert_eq!(finding.level, Level::Ok);
    assert_eq!(finding.what, "SLACK is sent by slack to webhooks of hooks.slack.com, [::1]:8080");
    let finding = slack(&[], "127.0.0.1", LONG_DEADLINE).examine(Channel::Slack).await;
    assert!(finding.level == Level::Wrong && finding.remedy.is_some(), "{finding:?}");
}

struct FailingResolver;

impl Resolve for FailingResolver {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(async { Err("nobody has it".into()) })
    }
}

#[tokio::test]
async fn a_host_whose_name_does_not_resolve_is_told_from_one_that_is_away() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let allowed_hosts = vec![AllowedHost::parse("hooks.example").unwrap()];
    let config = SlackConfig { allowed_hosts, deadline: LONG_DEADLINE, per_second: 1_000.0 };
    let slack = Slack::with_resolver(config, Arc::new(FailingResolver)).unwrap();
    let outcome = post(&slack, "https://hooks.example/services/T0/B0/x", "Title", "Body").await.outcome;
    assert_eq!(outcome.error(), Some("Slack is unreachable: its host name does not resolve"), "{outcome:?}");
}
