//! E-mail over SMTP: a pool of open connections to one relay, and one recipient per message.
//!
//! Failures are classified precisely. Until the whole content is written, the server cannot have accepted the message.
//! After that only its answer can tell.

mod budget;
mod connection;
mod domains;
mod extensions;
mod header;
mod message;
mod named_mailbox;
mod outcome;
mod pool;
mod relaying;
mod reply;
mod server;
mod tls;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::finding::Finding;
use campanile_domain::id::SendKey;
use campanile_domain::people::address::Mailbox;
use campanile_domain::send::Outcome;

use crate::{Answer, Message, Provider, SendLease};
use budget::Budget;
use connection::{Connection, Envelope, OpenError, Step};
use domains::Domains;
use message::Head;
use pool::{AcquireError, Announcement, Limits, Pool};
use relaying::Relaying;
use server::Server;

pub use domains::DomainLimits;
pub use header::{ExtraHeader, InvalidHeader};
pub use named_mailbox::NamedMailbox;
pub use server::{Credentials, Security};

#[derive(Debug)]
pub struct SmtpConfig {
    /// As in a URL: an IPv6 address has brackets.
    pub host: String,
    pub port: u16,
    pub security: Security,
    pub credentials: Option<Credentials>,
    /// The name in EHLO.
    pub hello: String,
    pub from: NamedMailbox,
    /// Where bounces go; `from` by default.
    pub envelope_from: Option<Mailbox>,
    pub reply_to: Option<NamedMailbox>,
    pub headers: Vec<ExtraHeader>,
    pub connections: usize,
    pub messages_per_connection: u32,
    pub max_idle: Duration,
    pub domains: DomainLimits,
    /// The longest time of an attempt until the content is written.
    pub deadline: Duration,
    /// How long the answer to the content is awaited.
    pub answer_timeout: Duration,
}

#[derive(Debug)]
pub struct Smtp {
    pool: Pool,
    domains: Domains,
    relaying: Relaying,
    head: Head,
    envelope_from: Mailbox,
    deadline: Duration,
    answer_timeout: Duration,
}

impl Smtp {
    /// Does not connect. The server's certificate is checked against the system's authorities and `ca_file`.
    pub fn new(config: SmtpConfig, ca_file: Option<&Path>) -> Result<Self, String> {
        let SmtpConfig { host, port, security, credentials, hello, from, deadline, answer_timeout, .. } =
            config;
        let limits = Limits {
            connections: config.connections,
            messages_per_connection: config.messages_per_connection,
            max_idle: config.max_idle,
        };
        // URLs write IPv6 addresses in brackets; sockets and certificates do not.
        let host = host.trim_matches(['[', ']']).to_owned();
        let server = Server { host, port, security, credentials, hello, tls: tls::connector(ca_file)? };
        let domains = Domains::new(config.domains);
        let relaying = Relaying::default();
        let envelope_from = config.envelope_from.unwrap_or_else(|| from.mailbox.clone());
        let head = Head { from, reply_to: config.reply_to, extra: config.headers };
        Ok(Smtp {
            pool: Pool::new(server, limits),
            domains,
            relaying,
            head,
            envelope_from,
            deadline,
            answer_timeout,
        })
    }

    async fn mail(&self, message: &Message<'_>, lease: &dyn SendLease) -> Answer {
        let budget = Budget::starting_now(self.deadline, self.answer_timeout);
        let to: Mailbox = match message.address.parse() {
            Ok(to) => to,
            Err(error) => return rejected(format!("the e-mail address can't be used: {error}")),
        };
        let _permit = match self.domains.acquire(to.domain(), budget.permit_deadline()).await {
            Ok(permit) => permit,
            Err(after) => return Outcome::NotAttempted { after }.into(),
        };
        // Built only now, because messages may be released before this point.
        let email = message::build(message, &to, &self.head);
        let announcement = Announcement { to: to.clone(), bytes: email.len() };
        let mut pooled = match self.pool.acquire(Some(announcement), budget).await {
            Ok(pooled) => pooled,
            Err(acquire_error) => return self.acquire_error(acquire_error),
        };
        loop {
            if let Some(why) = pooled.connection.extensions().refuse(&to, email.len()) {
                self.pool.release(pooled, None);
                return rejected(why);
            }
            let envelope = Envelope { from: &self.envelope_from, to: &to };
            let next_waiter = |connection: &Connection| self.pool.next_waiter(connection);
            let (delivery, next) =
                pooled.connection.deliver(envelope, &email, budget, lease, next_waiter).await;
            // A server may close an idle connection. It has accepted nothing yet, so a new connection may try again.
            let was_closed =
                pooled.is_used && !pooled.connection.is_usable() && delivery.is_before(Step::Data);
            if was_closed && budget.has_time_for_another() {
                pooled = match self.pool.replace(pooled, budget).await {
                    Ok(replacement) => replacement,
                    Err(acquire_error) => return self.acquire_error(acquire_error),
                };
                continue;
            }
            self.pool.release(pooled, next);
            return self.relaying.update_health(outcome::answer(delivery, message.address), to.domain());
        }
    }

    fn acquire_error(&self, why: AcquireError) -> Answer {
        match why {
            AcquireError::Busy => Outcome::RELEASED.into(),
            AcquireError::Down(OpenError { why, cause }) => {
                let error = format!("the mail server {} {why}", self.pool.server().host_port());
                Answer::from(Outcome::Down { after: None, error }).with_cause(cause)
            }
        }
    }
}

fn rejected(error: String) -> Answer {
    Outcome::Rejected { error }.into()
}

#[async_trait]
impl Provider for Smtp {
    fn name(&self) -> &'static str {
        "smtp"
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    fn message_id(&self, key: SendKey) -> Option<String> {
        Some(message::message_id(key, &self.head.from))
    }

    async fn send(&self, message: &Message<'_>) -> Answer {
        self.mail(message, &|| Duration::MAX).await
    }

    async fn send_with_lease(&self, message: &Message<'_>, lease: &dyn SendLease) -> Answer {
        self.mail(message, lease).await
    }

    async fn examine(&self, channel: Channel) -> Finding {
        let host_port = self.pool.server().host_port();
        let is_sent = format!("{channel} is sent by smtp");
        match self.pool.acquire(None, Budget::starting_now(self.deadline, self.answer_timeout)).await {
            Ok(pooled) => {
                self.pool.release(pooled, None);
                Finding::ok("channels", format!("{is_sent}: login at {host_port} succeeded"))
            }
            Err(AcquireError::Busy) => {
                Finding::note("channels", format!("{is_sent}: all connections are in use"))
            }
            Err(AcquireError::Down(OpenError { why, .. })) => Finding::wrong(
                "channels",
                format!("{is_sent}, but {host_port} {why}"),
                "mails are retried meanwhile; check host, port, tls, user and password in channels.email.url, \
                 and channels.email.ca_file if the server uses a private CA",
            ),
        }
    }
}
