//! Which of a channel's providers is asked, when one is down and when all are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use campanile_channels::{Answer, Chain, Link, Message, Pace, Provider, Room};
use campanile_domain::channel::Channel;
use campanile_domain::id::{NotificationId, SendKey};
use campanile_domain::priority::Priority;
use campanile_domain::send::Outcome;
use campanile_domain::time::Timestamp;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_mins(1);

/// Gives these outcomes one after the other, then is down or well as told.
#[derive(Debug, Default)]
struct Told {
    outcomes: Mutex<VecDeque<Outcome>>,
    is_down: Mutex<bool>,
    asked: Mutex<usize>,
    hangs: bool,
}

impl Told {
    fn down() -> Arc<Self> {
        Arc::new(Told { is_down: Mutex::new(true), ..Told::default() })
    }

    fn well() -> Arc<Self> {
        Arc::default()
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    fn recovers(&self) {
        *self.is_down.lock().unwrap() = false;
    }
}

#[async_trait]
impl Provider for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn send(&self, _: &Message<'_>) -> Answer {
        *self.asked.lock().unwrap() += 1;
        if self.hangs {
            return std::future::pending().await;
        }
        let told = self.outcomes.lock().unwrap().pop_front();
        let is_down = *self.is_down.lock().unwrap();
        let usual = if is_down { down(None) } else { Outcome::Sent { external_id: None } };
        told.unwrap_or(usual).into()
    }
}

fn down(after: Option<Duration>) -> Outcome {
    Outcome::Down { after, error: "away".to_owned() }
}

fn chain(providers: &[&Arc<Told>]) -> Chain {
    Chain::new(providers.iter().map(|told| Link::new(Arc::clone(told) as Arc<dyn Provider>, None)).collect())
}

async fn send(chain: &Chain) -> (Outcome, String) {
    send_within(chain, LEASE).await
}

async fn send_within(chain: &Chain, lease: Duration) -> (Outcome, String) {
    let begun = Instant::now();
    let message = Message {
        key: SendKey { notification_id: NotificationId::generate(), channel: Channel::Email },
        event_id: "evt-1",
        event_type: "T",
        address: "a@example.com",
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
    let (first, second) = (Told::down(), Told::well());
    let chain = chain(&[&first, &second]);
    assert_eq!(send(&chain).await, (SENT, "told-2".to_owned()));
    assert_eq!((first.asked(), second.asked()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_being_down_is_failed_over_and_then_the_first_is_asked_again() {
    let (first, second) = (Told::down(), Told::well());
    let chain = chain(&[&first, &second]);
    for _ in 0..3_600 {
        assert_eq!(send(&chain).await.1, "told-2");
        sleep(Duration::from_secs(1)).await;
    }
    assert!((5..100).contains(&first.asked()), "asked {} times in an hour", first.asked());
    first.recovers();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(send(&chain).await.1, "told");
    assert_eq!(send(&chain).await.1, "told", "the circuit is closed again");
}

#[tokio::test(start_paused = true)]
async fn while_all_are_down_nothing_is_claimed_and_then_one_finds_out() {
    let only = Told::down();
    let chain = chain(&[&only]);
    for _ in 0..5 {
        assert_eq!(chain.room(), Room::Open);
        assert!(matches!(send(&chain).await.0, Outcome::Down { .. }));
    }
    let Room::None(wait) = chain.room() else { panic!("{:?}", chain.room()) };
    assert!(matches!(send(&chain).await.0, Outcome::NotAttempted { after } if after <= wait));
    assert_eq!(only.asked(), 5, "nobody is asked while the circuit is open");
    sleep(wait).await;
    assert_eq!(chain.room(), Room::One);
    send(&chain).await;
    let Room::None(longer) = chain.room() else { panic!("{:?}", chain.room()) };
    assert!(longer > wait, "it is left alone for longer each time");
    only.recovers();
    sleep(longer).await;
    assert_eq!(send(&chain).await.0, SENT);
    assert_eq!(chain.room(), Room::Open);
}

#[tokio::test(start_paused = true)]
async fn only_one_at_a_time_finds_out() {
    let only = Arc::new(Told { hangs: true, ..Told::default() });
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
    let (first, second) = (Told::well(), Told::well());
    first.outcomes.lock().unwrap().push_back(down(Some(Duration::from_mins(2))));
    let chain = chain(&[&first, &second]);
    assert_eq!(send(&chain).await.1, "told-2");
    sleep(Duration::from_secs(119)).await;
    assert_eq!(send(&chain).await.1, "told-2");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(send(&chain).await.1, "told");
}

#[tokio::test(start_paused = true)]
async fn what_is_about_the_message_does_not_open_the_circuit() {
    let only = Told::well();
    let chain = chain(&[&only]);
    for _ in 0..20 {
        let outcome = Outcome::Retry { after: None, error: "greylisted".to_owned() };
        only.outcomes.lock().unwrap().push_back(outcome.clone());
        assert_eq!(send(&chain).await.0, outcome);
    }
    assert_eq!(chain.room(), Room::Open);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_accepted_goes_to_nobody_else() {
    let (first, second) = (Told::well(), Told::well());
    first.outcomes.lock().unwrap().push_back(Outcome::Unknown { error: "cut off".to_owned() });
    assert!(matches!(send(&chain(&[&first, &second])).await.0, Outcome::Unknown { .. }));
    assert_eq!(second.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_that_are_down_are_both_named() {
    let (first, second) = (Told::down(), Told::down());
    let (outcome, provider) = send(&chain(&[&first, &second])).await;
    assert_eq!(outcome.error(), Some("away; told-2: away"));
    assert_eq!(provider, "told-2");
}

#[tokio::test(start_paused = true)]
async fn a_pace_is_kept_and_who_can_not_wait_is_let_go() {
    let only = Told::well();
    let chain =
        Chain::new(vec![Link::new(Arc::clone(&only) as Arc<dyn Provider>, Some(Pace::per_second_of(10.0)))]);
    let begun = Instant::now();
    for _ in 0..21 {
        chain.paced().await;
        assert_eq!(send(&chain).await.0, SENT);
    }
    let took = begun.elapsed();
    assert!((Duration::from_millis(1_900)..Duration::from_millis(2_200)).contains(&took), "{took:?}");
    let all =
        futures_util::future::join_all((0..100).map(|_| send_within(&chain, Duration::from_secs(7)))).await;
    let let_go = all.iter().filter(|(outcome, _)| matches!(outcome, Outcome::NotAttempted { .. })).count();
    // An attempt may take five and a half seconds, so that a second and a half is left for waiting.
    assert!((80..90).contains(&let_go), "{let_go} of 100");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_send_for_long_enough_asks_nobody() {
    let only = Told::well();
    let chain = chain(&[&only]);
    assert_eq!(send_within(&chain, chain.deadline()).await.0, Outcome::LET_GO);
    assert_eq!(only.asked(), 0);
}
