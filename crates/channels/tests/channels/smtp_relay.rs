//! How a mail server is found and trusted, what every message contains, and servers that refuse our credentials or
//! sender.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use campanile_channels::email::{ExtraHeader, Security, Smtp, SmtpConfig};
use campanile_channels::{Chain, Link, Message, Provider};
use campanile_domain::channel::Channel;
use campanile_domain::send::Outcome;
use campanile_testkit::certificate::Certificate;
use campanile_testkit::log::Log;
use campanile_testkit::provider::real_smtp::Python;
use campanile_testkit::provider::smtpd::{Act, Smtpd};

use crate::smtp::{PIPELINING, config, kind, mail, message};

#[tokio::test]
async fn a_name_that_does_not_resolve_is_told() {
    let nowhere = SmtpConfig { host: "mail.nowhere.invalid".to_owned(), ..config(25) };
    let smtp = Smtp::new(nowhere, None).unwrap();
    let answer = mail(&smtp, "a@example.com").await;
    let Outcome::Down { error, .. } = answer.outcome else { panic!("{answer:?}") };
    assert!(error.contains("host name mail.nowhere.invalid does not resolve"), "{error}");
    let finding = smtp.examine(Channel::Email).await;
    assert!(finding.what.contains("host name mail.nowhere.invalid does not resolve"), "{finding:?}");
}

/// The outcome over a TLS server with this certificate, for a client that trusts these files.
async fn over_tls(certificate: &Certificate, ca_file: Option<&str>) -> (Outcome, String) {
    let server = Smtpd::start(PIPELINING, vec![]).await;
    let encrypted = SmtpConfig {
        security: Security::Implicit,
        ..config(certificate.wrapped(format!("127.0.0.1:{}", server.port)).await)
    };
    let smtp = Smtp::new(encrypted, ca_file.map(Path::new)).unwrap();
    (mail(&smtp, "a@example.com").await.outcome, smtp.examine(Channel::Email).await.what)
}

#[tokio::test]
async fn a_self_signed_certificate_given_as_ca_file_is_trusted() {
    for certificate in [Certificate::localhost(), Certificate::authority("localhost")] {
        let (outcome, said) = over_tls(&certificate, Some(certificate.files().0)).await;
        assert_eq!(kind(&outcome), "sent", "{outcome:?}");
        assert!(said.contains("login at") && said.contains("succeeded"), "{said}");
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_and_the_remedy_named() {
    let (other, server) = (Certificate::authority("localhost"), Certificate::authority("localhost"));
    for ca_file in [None, Some(other.files().0)] {
        let (outcome, said) = over_tls(&server, ca_file).await;
        assert_eq!(kind(&outcome), "down", "{outcome:?}");
        for words in [outcome.error().unwrap(), &said] {
            assert!(words.contains("channels.email.ca_file"), "{words}");
        }
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_although_it_is_given() {
    let certificate = Certificate::authority("mail.example.com");
    let (outcome, _) = over_tls(&certificate, Some(certificate.files().0)).await;
    assert_eq!(kind(&outcome), "down", "{outcome:?}");
    assert!(outcome.error().unwrap().contains("name"), "{outcome:?}");
}

#[test]
fn a_ca_file_without_a_certificate_is_refused() {
    let certificate = Certificate::localhost();
    let key = certificate.files().1;
    let refused = Smtp::new(config(1), Some(Path::new(key))).unwrap_err();
    assert!(refused.contains("holds no certificate") && refused.contains(key), "{refused}");
}

#[tokio::test]
async fn bounces_go_to_the_envelope_sender_and_further_headers_are_in_the_email() {
    let python = Python::start(&[]);
    let header = |name, value| ExtraHeader::parse(name, value).unwrap();
    let long = format!("<https://example.org/unsubscribe?token={}>", "a".repeat(120));
    let more = SmtpConfig {
        envelope_from: Some("bounces@example.org".parse().unwrap()),
        headers: vec![header("List-Unsubscribe", &long), header("X-Sala", "Perché no?")],
        ..config(python.port)
    };
    let smtp = Smtp::new(more, None).unwrap();
    assert_eq!(kind(&mail(&smtp, "a@example.com").await.outcome), "sent");
    let read = python.message();
    assert_eq!(read["from"], "bounces@example.org");
    assert_eq!(read["headers"]["From"], "Trattoria è buona <noreply@example.org>");
    assert_eq!(read["headers"]["List-Unsubscribe"].as_str().unwrap().trim(), long);
    assert_eq!(read["headers"]["X-Sala"], "Perché no?");
}

#[tokio::test]
async fn what_looks_like_an_encoded_word_is_read_as_it_was_written() {
    let python = Python::start(&[]);
    let evil = "=?utf-8?B?RnJlZSBtb25leQ==?= =?utf-8?Q?=46ree?= Zoë";
    for text in [evil, &evil.replace('ë', "e"), "=?", &evil.replace('ë', "e").repeat(4)] {
        let from = format!("{text} <noreply@example.org>").parse().unwrap();
        let smtp = Smtp::new(SmtpConfig { from, reply_to: None, ..config(python.port) }, None).unwrap();
        let email = Message { name: Some(text), ..message("anna@example.com", text, "b") };
        assert_eq!(kind(&smtp.send(&email).await.outcome), "sent");
        let read = python.message();
        let shown = |header: &str| read["headers"][header].as_str().unwrap().to_owned();
        assert_eq!(shown("Subject"), text);
        // Python shows a blank between the encoded words of a name, where there should be none.
        let without_blanks = |text: &str| text.split_whitespace().collect::<String>();
        let name = without_blanks(&text.chars().take(90).collect::<String>());
        for header in ["To", "From"] {
            assert!(without_blanks(&shown(header)).contains(&name), "{header}: {}", shown(header));
        }
    }
}

fn relays(first: &Smtpd, second: &Smtpd) -> Chain {
    let link = |port| Link::new(Arc::new(Smtp::new(config(port), None).unwrap()), None);
    Chain::new(vec![link(first.port), link(second.port)])
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_refuses_us() {
    for (verb, said) in [
        ("MAIL", "553 5.7.1 <noreply@example.org>: Sender address rejected: not owned by user"),
        ("RCPT", "554 5.7.1 <anna@example.com>: Relay access denied"),
    ] {
        let first = Smtpd::start(PIPELINING, vec![(verb, Act::Say(said))]).await;
        let second = Smtpd::start(PIPELINING, vec![]).await;
        let (chain, log) = (relays(&first, &second), Log::listen());
        let email = message("anna@example.com", "Ciao", "Testo");
        let asked = chain.send(&email, || Duration::from_mins(1)).await;
        assert_eq!((kind(&asked.answer.outcome), asked.provider), ("sent", "smtp-2"), "{said}");
        let lines = log.take();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(
            lines[0].starts_with("WARN") && lines[0].contains(&format!("code={}", &said[..9])),
            "{lines:#?}"
        );
        assert!(!lines[0].contains('@'), "{lines:#?}");
        let refuses_us = verb == "MAIL";
        assert_eq!(
            chain.first().refusals().len(),
            usize::from(refuses_us),
            "one domain says nothing of others"
        );
        assert_eq!((first.emails().len(), second.emails().len()), (0, 1));
    }
}

/// A server may relay only to some domains. One that refuses two of them refuses every message.
#[tokio::test]
async fn two_domains_that_are_not_relayed_to_open_the_breaker_and_one_does_not() {
    let denied = || ("RCPT", Act::Say("554 5.7.1 Relay access denied"));
    let first = Smtpd::start(PIPELINING, (0..20).map(|_| denied()).collect()).await;
    let second = Smtpd::start(PIPELINING, vec![]).await;
    let chain = relays(&first, &second);
    let send = async |address: &str| {
        let asked = chain.send(&message(address, "Ciao", "Testo"), || Duration::from_mins(1)).await;
        assert_eq!((kind(&asked.answer.outcome), asked.provider), ("sent", "smtp-2"));
        chain.first().is_down()
    };
    for _ in 0..8 {
        assert!(!send("anna@one.example").await, "one domain says nothing of others");
    }
    assert!(send("anna@two.example").await);
}
