//! Messages that wait for a connection. The envelope of the next one is sent with the message before it, without harm
//! to either.

use std::time::Duration;

use campanile_channels::email::{Smtp, SmtpConfig};
use campanile_testkit::provider::smtpd::{Act, Smtpd};
use tokio::time::Instant;

use crate::smtp::{self, PIPELINING, config, kind, mail};

/// Sends messages at the same time over one connection, and returns the result of each.
async fn over_one_connection<const N: usize>(
    acts: Vec<(&'static str, Act)>,
    config: impl FnOnce(SmtpConfig) -> SmtpConfig,
    addresses: [&str; N],
) -> (Smtpd, [&'static str; N]) {
    let server = Smtpd::start(PIPELINING, acts).await;
    let smtp = Smtp::new(config(SmtpConfig { connections: 1, ..smtp::config(server.port) }), None).unwrap();
    let answers = futures_util::future::join_all(addresses.iter().map(|address| mail(&smtp, address))).await;
    let mut kinds = answers.iter().map(|answer| kind(&answer.outcome));
    (server, std::array::from_fn(|_| kinds.next().unwrap()))
}

fn recipients(server: &Smtpd) -> Vec<String> {
    server.emails().into_iter().flat_map(|email| email.to).collect()
}

const THREE: [&str; 3] = ["a@example.com", "b@example.com", "c@example.com"];

#[tokio::test]
async fn who_is_next_in_the_queue_is_announced_with_the_email_before() {
    let many: [&str; 12] = std::array::from_fn(|_| "a@example.com");
    let (server, kinds) = over_one_connection(vec![], |config| config, many).await;
    assert_eq!(kinds, ["sent"; 12]);
    assert_eq!((server.emails().len(), server.connections()), (12, 1));
    assert!(
        server.reads() <= 1 + 1 + 12,
        "the greeting, the first envelope, and one for each message: {}",
        server.reads()
    );
}

#[tokio::test]
async fn who_was_announced_is_refused_alone() {
    let accepted = Act::Wait(Duration::ZERO);
    let acts = vec![("RCPT", accepted), ("RCPT", Act::Say("550 5.1.1 no such user"))];
    let (server, kinds) = over_one_connection(acts, |config| config, THREE).await;
    assert_eq!(kinds, ["sent", "rejected", "sent"]);
    assert_eq!(recipients(&server), ["a@example.com", "c@example.com"]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn who_was_announced_on_a_connection_that_ends_goes_by_another() {
    for (act, first) in [
        (Act::Close, "unanswered"),
        (Act::Say("421 4.3.2 shutting down"), "down"),
        (Act::Say("554 5.7.1 spam"), "rejected"),
        (Act::Say("451 4.7.1 greylisted"), "deferred"),
    ] {
        let said = format!("{act:?}");
        let (server, kinds) = over_one_connection(vec![(".", act)], |config| config, THREE).await;
        assert_eq!(kinds, [first, "sent", "sent"], "after {said}");
        assert_eq!(recipients(&server), ["b@example.com", "c@example.com"], "after {said}");
        assert_eq!(server.connections(), 2, "after {said}");
    }
}

#[tokio::test]
async fn who_was_announced_does_not_wait_for_an_email_that_is_not_answered() {
    // The third is announced on the first connection before the second connection gets a greeting.
    let acts = vec![
        ("HI", Act::Wait(Duration::ZERO)),
        ("HI", Act::Wait(Duration::from_millis(800))),
        (".", Act::Hang),
    ];
    let server = Smtpd::start(PIPELINING, acts).await;
    let two = SmtpConfig { connections: 2, answer_timeout: Duration::from_secs(6), ..config(server.port) };
    let smtp = Smtp::new(two, None).unwrap();
    let begun = Instant::now();
    let (a, b, (c, took)) = tokio::join!(mail(&smtp, "a@example.com"), mail(&smtp, "b@example.com"), async {
        (mail(&smtp, "c@example.com").await, begun.elapsed())
    });
    let mut of_two = [kind(&a.outcome), kind(&b.outcome)];
    of_two.sort_unstable();
    assert_eq!((of_two, kind(&c.outcome)), (["sent", "unanswered"], "sent"));
    assert!(Duration::from_millis(900) < took && took < Duration::from_secs(3), "{took:?}");
    assert_eq!(server.emails().len(), 2);
}

#[tokio::test]
async fn nobody_is_announced_whom_the_connection_will_not_take() {
    let (server, kinds) =
        over_one_connection(vec![], |config| SmtpConfig { messages_per_connection: 1, ..config }, THREE)
            .await;
    assert_eq!((kinds, server.connections()), (["sent"; 3], 3));
    assert_eq!(recipients(&server), THREE);
    let (server, kinds) =
        over_one_connection(vec![], |config| config, ["a@example.com", "zoë@example.com", "c@example.com"])
            .await;
    assert_eq!((kinds, server.connections()), (["sent", "rejected", "sent"], 1));
    assert_eq!(recipients(&server), ["a@example.com", "c@example.com"]);
}

#[tokio::test]
async fn who_is_given_up_passes_its_permit_on() {
    let server = Smtpd::start(PIPELINING, vec![(".", Act::Hang)]).await;
    let smtp = Smtp::new(SmtpConfig { connections: 1, ..config(server.port) }, None).unwrap();
    let given_up = tokio::time::timeout(Duration::from_millis(300), mail(&smtp, "a@example.com"));
    let (given_up, next) = tokio::join!(given_up, mail(&smtp, "b@example.com"));
    assert!(given_up.is_err());
    assert_eq!(kind(&next.outcome), "sent");
    assert_eq!(recipients(&server), ["b@example.com"]);
}
