//! Which provider of a channel is asked, when one is down and when all are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use campanile_channels::{Answer, Availability, Cause, Chain, Link, Message, Provider, RateLimit};
use campanile_domain::channel::Channel;
use campanile_domain::id::{NotificationId, SendKey};
use campanile_domain::priority::Priority;
use campanile_domain::send::Outcome;
use campanile_domain::time::Timestamp;
use campanile_testkit::log::Log;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_mins(1);

/// Returns these answers in order, then is down or working as scripted.
#[derive(Debug, Default)]
struct ScriptedProvider {
    answers: Mutex<VecDeque<Answer>>,
    is_down: Mutex<bool>,
    asked: Mutex<usize>,
    hangs: bool,
}

impl ScriptedProvider {
    fn down() -> Arc<Self> {
        Arc::new(ScriptedProvider { is_down: Mutex::new(true), ..ScriptedProvider::default() })
    }

    fn well() -> Arc<Self> {
        Arc::default()
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    fn answers_with(&self, answer: impl Into<Answer>) {
        self.answers.lock().unwrap().push_back(answer.into());
    }

    fn recover(&self) {
        *self.is_down.lock().unwrap() = false;
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn send(&self, _: &Message<'_>) -> Answer {
        *self.asked.lock().unwrap() += 1;
        if self.hangs {
            return std::future::pending().await;
        }
        let scripted = self.answers.lock().unwrap().pop_front();
        let is_down = *self.is_down.lock().unwrap();
        let usual = if is_down { down(None) } else { Outcome::Sent { external_id: None } };
        scripted.unwrap_or_else(|| usual.into())
    }
}

/// Posts to the host of a message's address. Hosts whose names begin with `dead` do not answer.
#[derive(Debug, Default)]
struct Hosts {
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Provider for Hosts {
    fn name(&self) -> &'static str {
        "hosts"
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn host(&self, message: &Message<'_>) -> Option<String> {
        Some(message.address.to_owned())
    }

    async fn send(&self, message: &Message<'_>) -> Answer {
        self.asked.lock().unwrap().push(message.address.to_owned());
        if message.address.starts_with("dead") {
            Answer::from(down(None)).with_cause(Cause::new("unreachable"))
        } else {
            SENT.into()
        }
    }
}

fn down(after: Option<Duration>) -> Outcome {
    Outcome::Down { after, error: "away".to_owned() }
}

fn chain(providers: &[&Arc<ScriptedProvider>]) -> Chain {
    Chain::new(
        providers.iter().map(|scripted| Link::new(Arc::clone(scripted) as Arc<dyn Provider>, None)).collect(),
    )
}

async fn send(chain: &Chain) -> (Outcome, String) {
    send_within(chain, LEASE).await
}

async fn send_within(chain: &Chain, lease: Duration) -> (Outcome, String) {
    send_to(chain, "a@example.com", lease).await
}

async fn send_to(chain: &Chain, address: &str, lease: Duration) -> (Outcome, String) {
    let begun = Instant::now();
    let message = Message {
        key: SendKey { notification_id: NotificationId::generate(), channel: Channel::Email },
        event_id: "evt-1",
        event_type: "T",
        address,
        name: None,
        title: "",
        body: "",
        html: None,
        url: None,
        priority: Priority::Normal,
        created_at: Timestamp::now(),
    };
    let asked = chain.send(&message, || lease.saturating_sub(begun.elapsed())).await;
    (asked.answer.outcome, asked.provider.to_owned())
}

const SENT: Outcome = Outcome::Sent { external_id: None };

#[tokio::test(start_paused = true)]
async fn what_one_can_not_take_goes_to_the_next_in_the_same_attempt() {
    let (first, second) = (ScriptedProvider::down(), ScriptedProvider::well());
    let chain = chain(&[&first, &second]);
    assert_eq!(send(&chain).await, (SENT, "scripted-2".to_owned()));
    assert_eq!((first.asked(), second.asked()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_being_down_is_failed_over_and_then_the_first_is_asked_again() {
    let (first, second) = (ScriptedProvider::down(), ScriptedProvider::well());
    let chain = chain(&[&first, &second]);
    for _ in 0..3_600 {
        assert_eq!(send(&chain).await.1, "scripted-2");
        sleep(Duration::from_secs(1)).await;
    }
    assert!((5..100).contains(&first.asked()), "asked {} times in an hour", first.asked());
    first.recover();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(send(&chain).await.1, "scripted");
    assert_eq!(send(&chain).await.1, "scripted", "the circuit is closed again");
}

#[tokio::test(start_paused = true)]
async fn while_all_are_down_nothing_is_claimed_and_then_one_finds_out() {
    let only = ScriptedProvider::down();
    let chain = chain(&[&only]);
    for _ in 0..5 {
        assert_eq!(chain.availability(), Availability::Available);
        assert!(matches!(send(&chain).await.0, Outcome::Down { .. }));
    }
    let Availability::Unavailable(wait) = chain.availability() else { panic!("{:?}", chain.availability()) };
    assert!(matches!(send(&chain).await.0, Outcome::NotAttempted { after } if after <= wait));
    assert_eq!(only.asked(), 5, "nobody is asked while the circuit is open");
    sleep(wait).await;
    assert_eq!(chain.availability(), Availability::ProbeOnly);
    send(&chain).await;
    let Availability::Unavailable(longer) = chain.availability() else {
        panic!("{:?}", chain.availability())
    };
    assert!(longer > wait, "it is left alone for longer each time");
    only.recover();
    sleep(longer).await;
    assert_eq!(send(&chain).await.0, SENT);
    assert_eq!(chain.availability(), Availability::Available);
}

#[tokio::test(start_paused = true)]
async fn only_one_at_a_time_finds_out() {
    let only = Arc::new(ScriptedProvider { hangs: true, ..ScriptedProvider::default() });
    let chain = chain(&[&only]);
    for _ in 0..5 {
        assert!(matches!(send(&chain).await.0, Outcome::Unknown { .. }), "a hang is a doubt");
    }
    sleep(Duration::from_mins(1)).await;
    let many = futures_util::future::join_all((0..10).map(|_| send(&chain))).await;
    let attempted =
        many.iter().filter(|(outcome, _)| !matches!(outcome, Outcome::NotAttempted { .. })).count();
    assert_eq!((attempted, only.asked()), (1, 6));
}

#[tokio::test(start_paused = true)]
async fn who_says_when_to_come_back_is_left_alone_until_then() {
    let (first, second) = (ScriptedProvider::well(), ScriptedProvider::well());
    first.answers_with(down(Some(Duration::from_mins(2))));
    let chain = chain(&[&first, &second]);
    assert_eq!(send(&chain).await.1, "scripted-2");
    sleep(Duration::from_secs(119)).await;
    assert_eq!(send(&chain).await.1, "scripted-2");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(send(&chain).await.1, "scripted");
}

#[tokio::test(start_paused = true)]
async fn what_is_about_the_message_does_not_open_the_circuit() {
    let only = ScriptedProvider::well();
    let chain = chain(&[&only]);
    for _ in 0..20 {
        let outcome = Outcome::Retry { after: None, error: "greylisted".to_owned() };
        only.answers_with(outcome.clone());
        assert_eq!(send(&chain).await.0, outcome);
    }
    assert_eq!(chain.availability(), Availability::Available);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_accepted_goes_to_nobody_else() {
    let (first, second) = (ScriptedProvider::well(), ScriptedProvider::well());
    first.answers_with(Outcome::Unknown { error: "cut off".to_owned() });
    assert!(matches!(send(&chain(&[&first, &second])).await.0, Outcome::Unknown { .. }));
    assert_eq!(second.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_that_are_down_are_both_named() {
    let (first, second) = (ScriptedProvider::down(), ScriptedProvider::down());
    let (outcome, provider) = send(&chain(&[&first, &second])).await;
    assert_eq!(outcome.error(), Some("away; scripted-2: away"));
    assert_eq!(provider, "scripted-2");
}

#[tokio::test(start_paused = true)]
async fn a_pace_is_kept_and_who_can_not_wait_is_let_go() {
    let only = ScriptedProvider::well();
    let chain =
        Chain::new(vec![Link::new(Arc::clone(&only) as Arc<dyn Provider>, Some(RateLimit::new(10.0)))]);
    let begun = Instant::now();
    for _ in 0..21 {
        chain.wait_for_rate_limit().await;
        assert_eq!(send(&chain).await.0, SENT);
    }
    let took = begun.elapsed();
    assert!((Duration::from_millis(1_900)..Duration::from_millis(2_200)).contains(&took), "{took:?}");
    let all =
        futures_util::future::join_all((0..100).map(|_| send_within(&chain, Duration::from_secs(7)))).await;
    let let_go = all.iter().filter(|(outcome, _)| matches!(outcome, Outcome::NotAttempted { .. })).count();
    // An attempt may take 5.5 s, so 1.5 s are left for waiting.
    assert!((80..90).contains(&let_go), "{let_go} of 100");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_send_for_long_enough_asks_nobody() {
    let only = ScriptedProvider::well();
    let chain = chain(&[&only]);
    assert_eq!(send_within(&chain, chain.deadline()).await.0, Outcome::RELEASED);
    assert_eq!(only.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_dead_stops_no_other() {
    let hosts = Arc::new(Hosts::default());
    let chain = Chain::new(vec![Link::new(Arc::clone(&hosts) as Arc<dyn Provider>, None)]);
    for _ in 0..20 {
        send_to(&chain, "dead.example", LEASE).await;
        assert_eq!(send_to(&chain, "hooks.example", LEASE).await.0, SENT);
    }
    assert_eq!(chain.availability(), Availability::Available, "what is for others is claimed");
    assert_eq!(chain.first().down(), ["hosts at dead.example"]);
    let dead = hosts.asked.lock().unwrap().iter().filter(|host| *host == "dead.example").count();
    assert_eq!(dead, 5, "then it is left alone");
    let Outcome::NotAttempted { after } = send_to(&chain, "dead.example", LEASE).await.0 else {
        panic!("it is left alone");
    };
    sleep(after).await;
    assert!(matches!(send_to(&chain, "dead.example", LEASE).await.0, Outcome::Down { .. }), "one finds out");
}

#[tokio::test(start_paused = true)]
async fn of_very_many_hosts_the_last_share_a_breaker_and_no_more_is_remembered() {
    let hosts = Arc::new(Hosts::default());
    let chain = Chain::new(vec![Link::new(Arc::clone(&hosts) as Arc<dyn Provider>, None)]);
    for number in 0..1_000 {
        send_to(&chain, &format!("dead{number}.example"), LEASE).await;
    }
    assert_eq!(hosts.asked.lock().unwrap().len(), 105, "100 by themselves, and five of all others");
    assert_eq!(chain.availability(), Availability::Available);
    assert_eq!(chain.first().down(), ["hosts at other hosts"]);
}

fn refusal() -> Answer {
    Answer::from(down(None)).with_cause(Cause::refusal("535 5.7.8"))
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_when_it_begins_once_a_minute_and_when_it_ends() {
    let only = ScriptedProvider::down();
    let (chain, log) = (chain(&[&only]), Log::listen());
    send(&chain).await;
    assert_eq!(
        log.take(),
        [r#"WARN message=a provider is failing provider="scripted" code=unknown failures=1 seconds=0"#]
    );
    let begun = Instant::now();
    let mut lines = Vec::new();
    while begun.elapsed() < Duration::from_mins(10) {
        send(&chain).await;
        lines.extend(log.take());
        sleep(Duration::from_millis(500)).await;
    }
    assert!((5..=10).contains(&lines.len()), "{lines:#?}");
    assert!(lines.iter().all(|line| line.starts_with("WARN message=a provider is failing")), "{lines:#?}");
    only.recover();
    sleep(Duration::from_mins(2)).await;
    send(&chain).await;
    send(&chain).await;
    let lines = log.take();
    assert!(
        matches!(&lines[..], [line] if line.starts_with("INFO message=a provider has recovered")),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_now_and_then_does_not_fill_the_log() {
    let only = ScriptedProvider::well();
    let (chain, log) = (chain(&[&only]), Log::listen());
    for _ in 0..1_000 {
        only.answers_with(down(None));
        send(&chain).await;
        send(&chain).await;
        sleep(Duration::from_millis(10)).await;
    }
    let lines = log.take();
    assert_eq!(lines.len(), 6, "three failures with their ends: {lines:#?}");
    assert!(lines[5].starts_with("INFO"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_our_credentials_is_named_until_something_is_taken() {
    let only = ScriptedProvider::well();
    let (chain, log) = (chain(&[&only]), Log::listen());
    only.answers_with(down(None));
    send(&chain).await;
    only.answers_with(refusal());
    send(&chain).await;
    assert_eq!(chain.first().refusals(), ["scripted (535 5.7.8)"]);
    assert!(!chain.first().is_down(), "at the first one already");
    only.answers_with(down(None));
    send(&chain).await;
    only.answers_with(Outcome::RELEASED);
    send(&chain).await;
    assert_eq!(chain.first().refusals(), ["scripted (535 5.7.8)"]);
    let lines = log.take();
    assert_eq!(lines.len(), 2, "that it rejects us is news: {lines:#?}");
    assert!(
        lines[1].contains("rejects our credentials") && lines[1].contains("code=535 5.7.8"),
        "{lines:#?}"
    );
    assert_eq!(send(&chain).await.0, SENT);
    assert_eq!(chain.first().refusals(), Vec::<String>::new());
}
