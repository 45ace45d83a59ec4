//! E-mail over SMTP: to a scripted server, and to real ones, Python's aiosmtpd and Postfix's smtp-sink.

use std::sync::Arc;
use std::time::Duration;

use campanile_channels::email::{Credentials, DomainLimits, Security, Smtp, SmtpConfig};
use campanile_channels::{Answer, Chain, Link, Message, Provider};
use campanile_domain::channel::Channel;
use campanile_domain::finding::Level;
use campanile_domain::send::{AddressOutcome, Outcome};
use campanile_testkit::FullListener;
use campanile_testkit::certificate::Certificate;
use campanile_testkit::provider::real_smtp::{Python, Sink};
use campanile_testkit::provider::smtpd::{Act, Smtpd};
use tokio::net::TcpListener;
use tokio::time::Instant;

pub const PIPELINING: &[&str] = &["PIPELINING", "SIZE 100000", "8BITMIME"];
const PLAIN: &[&str] = &["8BITMIME"];

pub fn config(port: u16) -> SmtpConfig {
    SmtpConfig {
        host: "localhost".to_owned(),
        port,
        security: Security::None,
        credentials: None,
        hello: "campanile.test".to_owned(),
        from: "Trattoria è buona <noreply@example.org>".parse().unwrap(),
        envelope_from: None,
        reply_to: Some("Sala <sala@example.org>".parse().unwrap()),
        headers: Vec::new(),
        connections: 4,
        messages_per_connection: 100,
        max_idle: Duration::from_secs(30),
        domains: DomainLimits { concurrency: None, per_second: None },
        deadline: Duration::from_secs(20),
        answer_timeout: Duration::from_secs(2),
    }
}

fn smtp(port: u16) -> Smtp {
    Smtp::new(config(port), None).unwrap()
}

pub fn message<'a>(address: &'a str, title: &'a str, body: &'a str) -> Message<'a> {
    Message {
        event_type: "RESERVATION_REQUESTED",
        name: Some("Zoë d'Ávila 🍕"),
        html: Some("<p>Perché no? São Paulo 🎉</p>"),
        ..crate::message::message(Channel::Email, address, title, body)
    }
}

pub async fn mail(smtp: &Smtp, address: &str) -> Answer {
    smtp.send(&message(address, "Ciao", "Testo\r\n.\r\nfine")).await
}

/// The outcome of an e-mail when the server does this once.
async fn outcome_of(extensions: &'static [&'static str], verb: &'static str, act: Act) -> (Outcome, Smtpd) {
    let server = Smtpd::start(extensions, vec![(verb, act)]).await;
    let impatient = SmtpConfig { deadline: Duration::from_secs(2), ..config(server.port) };
    let smtp = Smtp::new(impatient, None).unwrap();
    let answer = mail(&smtp, "anna@example.com").await;
    // The connection goes on, or another one replaces it: the next message arrives.
    let next = mail(&smtp, "next@example.com").await;
    assert_eq!(next.outcome, Outcome::Sent { external_id: Some("Q1".to_owned()) }, "after {verb}");
    let to: Vec<_> = server.emails().into_iter().flat_map(|email| email.to).collect();
    let sent = matches!(answer.outcome, Outcome::Sent { .. });
    let expected: &[&str] =
        if sent { &["anna@example.com", "next@example.com"] } else { &["next@example.com"] };
    assert_eq!(to, expected, "after {verb}");
    (answer.outcome, server)
}

pub fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Sent { .. } => "sent",
        Outcome::Retry { .. } => "retry",
        Outcome::Down { .. } => "down",
        Outcome::Rejected { .. } => "rejected",
        Outcome::TemplateFailed { .. } | Outcome::Expired { .. } | Outcome::Unclear { .. } => "odd",
        Outcome::Deferred { .. } => "deferred",
        Outcome::Unknown { .. } => "unknown",
        Outcome::Unanswered { .. } => "unanswered",
        Outcome::RateLimited { .. } | Outcome::NotAttempted { .. } => "not attempted",
    }
}

#[tokio::test]
async fn an_email_arrives_as_it_was_written_with_and_without_pipelining() {
    for extensions in [PIPELINING, PLAIN] {
        let server = Smtpd::start(extensions, vec![]).await;
        let answer = mail(&smtp(server.port), "anna@example.com").await;
        assert_eq!(answer.outcome, Outcome::Sent { external_id: Some("Q1".to_owned()) });
        let [email] = &server.emails()[..] else { panic!("one message") };
        assert_eq!(
            (email.from.as_str(), &email.to[..]),
            ("noreply@example.org", &["anna@example.com".to_owned()][..])
        );
        assert!(email.text.contains("\r\n.\r\n"), "a line with a dot is no end: {}", email.text);
    }
}

/// The server of these tests reports a lone CR, which some servers take for the end of a line.
#[tokio::test]
async fn a_text_with_lone_line_breaks_and_controls_is_one_email() {
    let server = Smtpd::start(PIPELINING, vec![]).await;
    let evil = "a\r.\rb\0\n.\nMAIL FROM:<eve@example.com>\r\n.\r\n";
    let message = Message { html: Some(evil), ..message("anna@example.com", "Ciao", evil) };
    assert_eq!(kind(&smtp(server.port).send(&message).await.outcome), "sent");
    let [email] = &server.emails()[..] else { panic!("one message") };
    assert_eq!(email.text.matches("\r\na\r\n.\r\nb\r\n.\r\nMAIL").count(), 2, "{}", email.text);
}

#[tokio::test]
async fn pipelining_takes_two_round_trips_and_connections_stay_warm() {
    let server = Smtpd::start(PIPELINING, vec![]).await;
    let smtp = smtp(server.port);
    mail(&smtp, "a@example.com").await;
    let before = server.reads();
    for _ in 0..10 {
        mail(&smtp, "a@example.com").await;
    }
    assert_eq!(server.connections(), 1);
    assert!(server.reads() - before <= 2 * 10, "{} reads", server.reads() - before);
}

#[tokio::test]
async fn every_refusal_is_understood_and_the_connection_goes_on() {
    let cases = [
        ("MAIL", "451 4.7.1 greylisted", "retry"),
        ("MAIL", "550 5.7.1 not your address", "down"),
        ("RCPT", "450 4.2.0 greylisted", "deferred"),
        ("RCPT", "550 5.1.1 no such user", "rejected"),
        ("RCPT", "421 4.7.0 go away", "down"),
        ("DATA", "451 4.3.0 later", "down"),
        (".", "451 4.7.1 later", "deferred"),
        (".", "554 5.7.1 spam", "rejected"),
        (".", "421 4.3.0 shutting down", "down"),
        (".", "250 2.0.0 Ok: queued as X", "sent"),
        ("HI", "554 no service", "down"),
        ("HI", "SSH-2.0-OpenSSH_9.2", "down"),
    ];
    for (verb, said, expected) in cases {
        for extensions in [PIPELINING, PLAIN] {
            let (outcome, server) = outcome_of(extensions, verb, Act::Say(said)).await;
            assert_eq!(kind(&outcome), expected, "{verb}: {said}: {outcome:?}");
            let hangs_up = said.starts_with("421") || verb == "HI";
            assert_eq!(server.connections(), if hangs_up { 2 } else { 1 }, "{verb}: {said}");
        }
    }
}

/// The lone dot of RFC 2920: a server that refuses the recipient and accepts DATA waits for a message.
#[tokio::test]
async fn a_recipient_that_is_refused_while_data_is_agreed_to_sends_nothing_to_anybody() {
    let (outcome, server) = outcome_of(PIPELINING, "RCPT", Act::Say("550 5.1.1 no such user")).await;
    assert_eq!(kind(&outcome), "rejected");
    assert!(server.commands().contains(&"RSET".to_owned()), "{:?}", server.commands());
}

#[tokio::test]
async fn a_server_that_accepts_a_recipient_without_a_sender_gets_no_empty_email() {
    let acts = vec![("MAIL", Act::Say("451 4.7.1 later")), ("RCPT", Act::Say("250 2.1.5 Ok"))];
    let server = Smtpd::start(PIPELINING, acts).await;
    assert_eq!(kind(&mail(&smtp(server.port), "anna@example.com").await.outcome), "retry");
    assert_eq!(server.emails(), []);
}

#[tokio::test]
async fn a_connection_that_breaks_is_a_doubt_only_after_the_email() {
    let cases = [
        ("HI", "down"),
        ("EHLO", "down"),
        ("MAIL", "down"),
        ("RCPT", "down"),
        ("DATA", "down"),
        (".", "unanswered"),
    ];
    for act in [Act::Close, Act::Hang] {
        for extensions in [PIPELINING, PLAIN] {
            // All at the same time, because those that hang take long.
            futures_util::future::join_all(cases.map(async |(verb, expected)| {
                let (outcome, _) = outcome_of(extensions, verb, act.clone()).await;
                assert_eq!(kind(&outcome), expected, "{verb} {act:?}: {outcome:?}");
            }))
            .await;
        }
    }
}

/// Larger than socket buffers, so the end of the message cannot be out.
fn large() -> String {
    "A line of a message that has many lines, each as long as this one.\r\n".repeat(250_000)
}

#[tokio::test]
async fn a_server_that_closes_in_the_middle_of_an_email_does_not_have_it() {
    let body = large();
    for (last_words, expected) in
        [("", "down"), ("421 4.3.2 shutting down", "down"), ("552 5.3.4 too large", "rejected")]
    {
        let server = Smtpd::start(PLAIN, vec![("DATA", Act::CutOff(last_words))]).await;
        let answer = smtp(server.port).send(&message("anna@example.com", "Ciao", &body)).await;
        assert_eq!(kind(&answer.outcome), expected, "{last_words}: {answer:?}");
        assert!(answer.outcome.error().unwrap().contains(last_words), "{answer:?}");
        assert_eq!(server.emails(), []);
    }
}

#[tokio::test]
async fn the_same_is_known_over_tls() {
    let certificate = Certificate::localhost();
    let server = Smtpd::start(PLAIN, vec![("DATA", Act::CutOff(""))]).await;
    let encrypted = SmtpConfig {
        security: Security::Implicit,
        ..config(certificate.wrapped(format!("127.0.0.1:{}", server.port)).await)
    };
    let smtp = Smtp::new(encrypted, Some(certificate.files().0.as_ref())).unwrap();
    let answer = smtp.send(&message("anna@example.com", "Ciao", &large())).await;
    assert_eq!(kind(&answer.outcome), "down", "{answer:?}");
    assert_eq!(kind(&mail(&smtp, "next@example.com").await.outcome), "sent");
}

#[tokio::test]
async fn a_connection_on_which_a_word_too_many_was_said_is_not_used_again() {
    let twice = Act::Say("250 2.0.0 Ok: queued as Q1\r\n250 2.0.0 Ok: queued as Q1");
    let server = Smtpd::start(PIPELINING, vec![(".", twice)]).await;
    let smtp = smtp(server.port);
    for _ in 0..2 {
        assert_eq!(kind(&mail(&smtp, "a@example.com").await.outcome), "sent");
    }
    assert_eq!((server.connections(), server.emails().len()), (2, 2));
}

#[tokio::test]
async fn an_email_that_was_kept_without_a_word_is_a_doubt_and_not_sent_twice_by_the_same_attempt() {
    let server = Smtpd::start(PIPELINING, vec![(".", Act::KeepAndHang)]).await;
    let impatient = SmtpConfig { answer_timeout: Duration::from_millis(400), ..config(server.port) };
    let answer = mail(&Smtp::new(impatient, None).unwrap(), "anna@example.com").await;
    assert_eq!((kind(&answer.outcome), server.emails().len()), ("unanswered", 1));
}

#[tokio::test]
async fn an_answer_that_comes_after_the_deadline_is_awaited() {
    let server = Smtpd::start(PIPELINING, vec![(".", Act::Wait(Duration::from_secs(2)))]).await;
    let short = SmtpConfig {
        deadline: Duration::from_millis(800),
        answer_timeout: Duration::from_secs(20),
        ..config(server.port)
    };
    let chain = Chain::of(Arc::new(Smtp::new(short, None).unwrap()));
    assert!(chain.deadline() < Duration::from_secs(2), "only the deadline has to fit into the lease");
    let asked = chain.send(&message("a@example.com", "Ciao", "Testo"), || Duration::from_secs(5)).await;
    assert_eq!((kind(&asked.answer.outcome), server.emails().len()), ("sent", 1));
}

/// All connections to the first server wait for an answer.
#[tokio::test]
async fn a_server_that_answers_slowly_leaves_the_others_to_the_next() {
    let slow = Smtpd::start(PIPELINING, vec![(".", Act::Wait(Duration::from_secs(4)))]).await;
    let next = Smtpd::start(PIPELINING, vec![]).await;
    let link = |port| {
        let config = SmtpConfig {
            connections: 1,
            deadline: Duration::from_secs(2),
            answer_timeout: Duration::from_mins(5),
            ..config(port)
        };
        Link::new(Arc::new(Smtp::new(config, None).unwrap()), None)
    };
    let chain = Chain::new(vec![link(slow.port), link(next.port)]);
    let email = message("a@example.com", "Ciao", "Testo");
    let first = chain.send(&email, || Duration::from_mins(1));
    let others = async {
        while !slow.commands().contains(&"DATA".to_owned()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        futures_util::future::join_all((0..3).map(|_| chain.send(&email, || Duration::from_mins(1)))).await
    };
    let (first, others) = tokio::join!(first, others);
    assert_eq!((kind(&first.answer.outcome), first.provider), ("sent", "smtp"));
    for other in others {
        assert_eq!((kind(&other.answer.outcome), other.provider), ("sent", "smtp-2"));
    }
    assert_eq!((slow.emails().len(), next.emails().len()), (1, 3));
}

#[tokio::test]
async fn a_server_that_hung_up_on_a_silent_connection_gets_a_new_one_and_the_email_once() {
    for act in [Act::Close, Act::Say("421 4.4.2 timeout")] {
        let usual = ("MAIL", Act::Wait(Duration::ZERO));
        let server = Smtpd::start(PIPELINING, vec![usual, ("MAIL", act)]).await;
        let smtp = smtp(server.port);
        assert_eq!(kind(&mail(&smtp, "a@example.com").await.outcome), "sent");
        assert_eq!(kind(&mail(&smtp, "b@example.com").await.outcome), "sent", "on a new connection");
        assert_eq!((server.connections(), server.emails().len()), (2, 2));
    }
}

#[tokio::test]
async fn a_mailbox_that_is_not_there_is_dead() {
    let server =
        Smtpd::start(PIPELINING, vec![("RCPT", Act::Say("550 5.1.1 <anna@example.com>: unknown"))]).await;
    let answer = mail(&smtp(server.port), "anna@example.com").await;
    let [done] = &answer.done[..] else { panic!("{answer:?}") };
    assert_eq!(done.address, "anna@example.com");
    assert!(matches!(&done.end, AddressOutcome::Dead { reason } if !reason.contains("anna")), "{done:?}");
}

#[tokio::test]
async fn a_connection_is_used_for_so_many_messages_and_closed_when_idle() {
    let server = Smtpd::start(PIPELINING, vec![]).await;
    let limited = SmtpConfig {
        messages_per_connection: 3,
        max_idle: Duration::from_millis(200),
        ..config(server.port)
    };
    let smtp = Smtp::new(limited, None).unwrap();
    for _ in 0..4 {
        mail(&smtp, "a@example.com").await;
    }
    assert_eq!(server.connections(), 2);
    let both_quit = async {
        while server.commands().iter().filter(|command| *command == "QUIT").count() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), both_quit).await.unwrap();
}

#[tokio::test]
async fn a_busy_domain_holds_up_no_other() {
    let server = Smtpd::start(PIPELINING, vec![("RCPT", Act::Wait(Duration::from_secs(2)))]).await;
    let limited = SmtpConfig {
        connections: 50,
        domains: DomainLimits { concurrency: Some(1), per_second: None },
        ..config(server.port)
    };
    let smtp = Smtp::new(limited, None).unwrap();
    let busy = futures_util::future::join_all((0..20).map(|_| mail(&smtp, "a@busy.example")));
    let others = async {
        // The act is for the first command, so wait for it.
        while !server.commands().iter().any(|command| command.contains("@busy.example")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let begun = Instant::now();
        for _ in 0..5 {
            assert_eq!(kind(&mail(&smtp, "a@other.example").await.outcome), "sent");
        }
        begun.elapsed()
    };
    let (busy, took) = tokio::join!(busy, others);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let let_go = busy.iter().filter(|answer| kind(&answer.outcome) == "not attempted").count();
    assert_eq!(let_go, 19, "{busy:?}");
}

#[tokio::test]
async fn a_server_may_be_an_ipv6_address() {
    let server = Smtpd::start_at("[::1]:0", PIPELINING, vec![]).await;
    let at = SmtpConfig { host: "[::1]".to_owned(), ..config(server.port) };
    let smtp = Smtp::new(at, None).unwrap();
    assert_eq!(kind(&mail(&smtp, "a@example.com").await.outcome), "sent");
    let finding = smtp.examine(Channel::Email).await;
    assert!(finding.what.contains(&format!("[::1]:{}", server.port)), "{finding:?}");
}

#[tokio::test]
async fn no_more_connections_than_allowed_are_open() {
    let slow = (0..6).map(|_| (".", Act::Wait(Duration::from_millis(50)))).collect();
    let server = Smtpd::start(PIPELINING, slow).await;
    let smtp = Smtp::new(SmtpConfig { connections: 2, ..config(server.port) }, None).unwrap();
    let all = (0..6).map(|_| mail(&smtp, "a@example.com"));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().all(|answer| kind(&answer.outcome) == "sent"));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn waiting_for_each_other_makes_no_doubt() {
    let slow = (0..30).map(|_| (".", Act::Wait(Duration::from_millis(150)))).collect();
    let server = Smtpd::start(PIPELINING, slow).await;
    let one = SmtpConfig { connections: 1, deadline: Duration::from_secs(2), ..config(server.port) };
    let smtp = Smtp::new(one, None).unwrap();
    let answers = futures_util::future::join_all((0..30).map(|_| mail(&smtp, "a@example.com"))).await;
    let count = |what: &str| answers.iter().filter(|answer| kind(&answer.outcome) == what).count();
    assert_eq!(count("sent") + count("not attempted"), 30, "{answers:?}");
    assert!(count("not attempted") > 0, "some waited in vain");
    assert_eq!(server.emails().len(), count("sent"));
}

/// The first server accepts no connections, or sends no greeting.
#[tokio::test]
async fn a_server_that_is_silent_from_the_start_leaves_time_for_the_next_in_the_same_attempt() {
    let full = FullListener::start().await;
    let silent = Smtpd::start(PIPELINING, vec![("HI", Act::Hang)]).await;
    for port in [full.address.port(), silent.port] {
        let second = Smtpd::start(PIPELINING, vec![]).await;
        let deadline = Duration::from_secs(2);
        let link = |port| {
            let config = SmtpConfig { host: "127.0.0.1".to_owned(), deadline, ..config(port) };
            Link::new(Arc::new(Smtp::new(config, None).unwrap()), None)
        };
        let chain = Chain::new(vec![link(port), link(second.port)]);
        // Not twice as long as one of them may take.
        let (begun, lease) = (Instant::now(), Duration::from_millis(3_500));
        let message = message("anna@example.com", "Ciao", "Testo");
        let asked = chain.send(&message, || lease.saturating_sub(begun.elapsed())).await;
        assert_eq!((kind(&asked.answer.outcome), asked.provider), ("sent", "smtp-2"), "{asked:?}");
        assert_eq!(second.emails().len(), 1);
    }
}

#[tokio::test]
async fn what_the_server_can_not_take_is_refused_before_it_is_sent() {
    let server = Smtpd::start(&["PIPELINING", "SIZE 500"], vec![]).await;
    let smtp = smtp(server.port);
    let large = smtp.send(&message("a@example.com", "t", &"x".repeat(1_000))).await;
    let Outcome::Rejected { error } = large.outcome else { panic!("{large:?}") };
    assert!(error.contains("at most 500"), "{error}");
    let non_ascii = mail(&smtp, "é@example.com").await;
    let Outcome::Rejected { error } = non_ascii.outcome else { panic!("{non_ascii:?}") };
    assert!(error.contains("SMTPUTF8"), "{error}");
    assert!(!server.commands().iter().any(|command| command.starts_with("MAIL")));
}

#[tokio::test]
async fn an_address_that_is_none_reaches_no_server() {
    let server = Smtpd::start(PIPELINING, vec![]).await;
    let smtp = smtp(server.port);
    for address in
        ["anna", "a@example.com\r\nRCPT TO:<eve@example.com>", "a@b>@example.com", "a b@example.com", ""]
    {
        let answer = mail(&smtp, address).await;
        assert_eq!(kind(&answer.outcome), "rejected", "{address:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn nobody_listening_is_down_and_the_doctor_says_so() {
    let server = Smtpd::start(PIPELINING, vec![]).await;
    let finding = smtp(server.port).examine(Channel::Email).await;
    assert_eq!(finding.level, Level::Ok, "{finding:?}");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let smtp = smtp(nobody);
    assert_eq!(kind(&mail(&smtp, "a@example.com").await.outcome), "down");
    let finding = smtp.examine(Channel::Email).await;
    assert_eq!(finding.level, Level::Wrong);
    assert!(finding.remedy.unwrap().contains("channels.email.url"));
}

#[tokio::test]
async fn python_reads_italian_portuguese_and_emoji_as_they_were_written() {
    let python = Python::start(&[]);
    let title =
        "Prenotazione confermata: perché no? São João 🎉 — tavolo n° 4, più tardi alle 19:30, con Zoë";
    let body = "Città, perché, più.\nCoração, não, pão.\n🍕 e basta.\n";
    let message = message("info@caffè.it", title, body);
    let answer = smtp(python.port).send(&message).await;
    assert_eq!(answer.outcome, Outcome::Sent { external_id: Some("PY1".to_owned()) });
    let read = python.message();
    assert_eq!(read["headers"]["Subject"], title);
    assert_eq!(read["headers"]["To"], "Zoë d'Ávila 🍕 <info@xn--caff-8oa.it>");
    assert_eq!(read["headers"]["From"], "Trattoria è buona <noreply@example.org>");
    assert_eq!(read["headers"]["Reply-To"], "Sala <sala@example.org>");
    let id = format!("<{}.email@example.org>", message.key.notification_id);
    assert_eq!(read["headers"]["Message-ID"], id.as_str());
    assert!(read["headers"]["Date"].as_str().unwrap().ends_with(" +0000"));
    assert_eq!(read["text"].as_str().unwrap().trim_end(), body.trim_end());
    assert!(read["html"].as_str().unwrap().contains("<p>Perché no? São Paulo 🎉</p>"));
    assert_eq!(read["defects"], serde_json::json!([]));
}

#[tokio::test]
async fn an_address_in_non_ascii_goes_by_smtputf8() {
    let python = Python::start(&[]);
    let answer = mail(&smtp(python.port), "zoë@example.com").await;
    assert_eq!(kind(&answer.outcome), "sent", "{answer:?}");
    let read = python.message();
    assert_eq!((&read["to"][0], &read["smtputf8"]), (&"zoë@example.com".into(), &true.into()));
}

#[tokio::test]
async fn mail_is_encrypted_and_logs_in() {
    let certificate = Certificate::localhost();
    for (tls, security, more) in [
        ("starttls", Security::Required, &[][..]),
        ("starttls", Security::IfOffered, &["--login-only"][..]),
        ("implicit", Security::Implicit, &[][..]),
    ] {
        let (cert, key) = certificate.files();
        let mut arguments =
            vec!["--tls", tls, "--cert", cert, "--key", key, "--user", "anna", "--password", "s3cret è"];
        arguments.extend(more);
        let python = Python::start(&arguments);
        let credentials =
            |password: &str| Some(Credentials { user: "anna".to_owned(), password: password.to_owned() });
        let right = SmtpConfig { security, credentials: credentials("s3cret è"), ..config(python.port) };
        let answer = mail(&Smtp::new(right, Some(cert.as_ref())).unwrap(), "a@example.com").await;
        assert_eq!(kind(&answer.outcome), "sent", "{tls}: {answer:?}");
        let read = python.message();
        assert_eq!((&read["encrypted"], &read["authenticated"]), (&true.into(), &true.into()), "{tls}");

        let wrong = SmtpConfig { security, credentials: credentials("wr0ng"), ..config(python.port) };
        let answer = mail(&Smtp::new(wrong, Some(cert.as_ref())).unwrap(), "a@example.com").await;
        let Outcome::Down { error, .. } = answer.outcome else { panic!("{answer:?}") };
        assert!(error.contains("does not accept user and password") && !error.contains("wr0ng"), "{error}");

        let unknown_authority = SmtpConfig { security, ..config(python.port) };
        let answer = mail(&Smtp::new(unknown_authority, None).unwrap(), "a@example.com").await;
        let Outcome::Down { error, .. } = answer.outcome else { panic!("{answer:?}") };
        assert!(error.contains("TLS"), "{error}");
    }
}

#[tokio::test]
async fn who_requires_encryption_sends_nothing_without_it() {
    let server = Smtpd::start(PIPELINING, vec![]).await;
    let required = SmtpConfig { security: Security::Required, ..config(server.port) };
    let answer = mail(&Smtp::new(required, None).unwrap(), "a@example.com").await;
    let Outcome::Down { error, .. } = answer.outcome else { panic!("{answer:?}") };
    assert!(error.contains("STARTTLS"), "{error}");
    assert_eq!(server.emails().len(), 0);
}

#[tokio::test]
async fn postfix_takes_a_thousand_over_a_few_connections() {
    let sink = Sink::start().await;
    let smtp = Smtp::new(SmtpConfig { connections: 8, ..config(sink.port) }, None).unwrap();
    for _ in 0..10 {
        let answers = futures_util::future::join_all((0..100).map(|_| mail(&smtp, "a@example.com"))).await;
        assert!(answers.iter().all(|answer| kind(&answer.outcome) == "sent"), "{answers:?}");
    }
    assert_eq!(sink.messages(), 1_000);
}
