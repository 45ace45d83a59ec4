//! One SMTP session, from the greeting to `QUIT`. With PIPELINING a message takes two round trips: envelope and
//! content. If another message waits, its envelope goes along with this content, and it takes only one.

use std::fmt;
use std::io;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use campanile_domain::people::address::Mailbox;
use futures_util::FutureExt;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::email::budget::Budget;
use crate::email::extensions::Extensions;
use crate::email::message::dot_stuffed;
use crate::email::pool::{Announcement, Waiter};
use crate::email::reply::{MalformedReply, Reply};
use crate::email::server::{Credentials, Security, Server};
use crate::email::tls;
use crate::{Cause, SendLease};

/// Sender and recipient, as the server gets them.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    pub from: &'a Mailbox,
    pub to: &'a Mailbox,
}

/// How far a transaction came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    From,
    To,
    Data,
    /// The content is written: from now on the server may have accepted it.
    EndOfData,
}

#[derive(Debug)]
pub enum Delivery {
    Accepted(Reply),
    Refused {
        at: Step,
        reply: Reply,
        /// Whether the connection is unusable.
        ends: bool,
    },
    /// There was no answer, with the reason in words.
    Broken {
        at: Step,
        why: String,
    },
}

impl Delivery {
    /// Whether the transaction ended before the server could have accepted anything after `step`.
    pub fn is_before(&self, step: Step) -> bool {
        match self {
            Delivery::Accepted(_) => false,
            Delivery::Refused { at, .. } | Delivery::Broken { at, .. } => *at <= step,
        }
    }
}

/// Why no session could be opened.
#[derive(Debug)]
pub struct OpenError {
    /// Continues after the server's name, as in "host is unreachable".
    pub why: String,
    pub cause: Cause,
}

impl OpenError {
    /// There is no usable way to log in.
    fn refused(why: &str) -> Self {
        OpenError { why: why.to_owned(), cause: Cause::refusal("no way to log in") }
    }
}

impl From<String> for OpenError {
    fn from(why: String) -> Self {
        OpenError { why, cause: Cause::new("unreachable") }
    }
}

pub struct Connection {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
    extensions: Extensions,
    is_encrypted: bool,
    state: State,
    pub messages: u32,
    pub idle_since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// The last message was refused, and the server's transaction is still open.
    MidTransaction,
    /// The server has got the envelope of the next message and waits for its content.
    Announced,
    Lost,
}

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("extensions", &self.extensions)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, starts TLS and logs in. Errors contain no secrets.
    pub async fn open(server: &Server, until: Instant) -> Result<Self, OpenError> {
        let socket = server.connect(until).await?;
        // Small writes that each wait for an answer must not be delayed.
        let _ = socket.set_nodelay(true);
        let mut connection = Connection::over(socket);
        if server.security == Security::Implicit {
            connection = connection.encrypted(server, until).await?;
        }
        connection.expect(220, "greets", until).await?;
        connection.hello(server, until).await?;
        let wants_tls = matches!(server.security, Security::Required | Security::IfOffered);
        if wants_tls && connection.extensions.starttls {
            connection.send("STARTTLS\r\n", until).await?;
            connection.expect(220, "answers STARTTLS", until).await?;
            if !connection.read.is_empty() {
                return Err("sent data before TLS started; the connection may be intercepted"
                    .to_owned()
                    .into());
            }
            connection = connection.encrypted(server, until).await?;
            connection.hello(server, until).await?;
        } else if server.security == Security::Required {
            return Err("does not offer STARTTLS, and tls=required".to_owned().into());
        }
        if let Some(credentials) = &server.credentials {
            connection.log_in(credentials, until).await?;
        }
        Ok(connection)
    }

    fn over(stream: impl Stream + 'static) -> Self {
        Connection {
            stream: Box::new(stream),
            read: Vec::new(),
            extensions: Extensions::default(),
            is_encrypted: false,
            state: State::Ready,
            messages: 0,
            idle_since: Instant::now(),
        }
    }

    async fn encrypted(self, server: &Server, until: Instant) -> Result<Self, String> {
        let name = ServerName::try_from(server.host.clone())
            .map_err(|_| "has a host name that no certificate can be issued for".to_owned())?;
        let stream = timeout_at(until, server.tls.connect(name, self.stream))
            .await
            .map_err(|_| "did not finish the TLS handshake in time".to_owned())?
            .map_err(|error| tls::failed(&error))?;
        Ok(Connection { is_encrypted: true, ..Connection::over(stream) })
    }

    async fn hello(&mut self, server: &Server, until: Instant) -> Result<(), OpenError> {
        self.send(&format!("EHLO {}\r\n", server.hello), until).await?;
        let reply = self.reply(until).await?;
        if reply.is_positive() {
            self.extensions = Extensions::read(&reply);
            return Ok(());
        }
        self.send(&format!("HELO {}\r\n", server.hello), until).await?;
        self.expect(250, "answers HELO", until).await
    }

    async fn log_in(&mut self, credentials: &Credentials, until: Instant) -> Result<(), OpenError> {
        let Credentials { user, password } = credentials;
        if self.extensions.auth_plain {
            let secret = BASE64_STANDARD.encode(format!("\0{user}\0{password}"));
            self.send(&format!("AUTH PLAIN {secret}\r\n"), until).await?;
        } else if self.extensions.auth_login {
            self.send("AUTH LOGIN\r\n", until).await?;
            self.expect_login_step(334, until).await?;
            self.send(&format!("{}\r\n", BASE64_STANDARD.encode(user)), until).await?;
            self.expect_login_step(334, until).await?;
            self.send(&format!("{}\r\n", BASE64_STANDARD.encode(password)), until).await?;
        } else if self.is_encrypted {
            return Err(OpenError::refused(
                "offers neither AUTH PLAIN nor AUTH LOGIN; remove user and password from channels.email.url",
            ));
        } else {
            return Err(OpenError::refused(
                "offers no login without encryption; set tls=required in channels.email.url",
            ));
        }
        self.expect_login_step(235, until).await
    }

    /// One step of logging in. A 4xx is temporary.
    async fn expect_login_step(&mut self, code: u16, until: Instant) -> Result<(), OpenError> {
        let reply = self.reply(until).await?;
        if reply.code == code {
            return Ok(());
        }
        let refuses_us = reply.code >= 500;
        let why = format!("does not accept user and password: {}", reply.redacted_text());
        Err(OpenError { why, cause: Cause { code: reply.codes().into(), refuses_us } })
    }

    /// Whether the server has sent nothing since the last message. A server that wants to end the session says so, or
    /// closes the connection.
    pub fn is_quiet(&mut self) -> bool {
        self.is_usable()
            && self.read.is_empty()
            && self.stream.read_buf(&mut self.read).now_or_never().is_none()
    }

    /// Whether another message may be sent.
    pub fn is_usable(&self) -> bool {
        self.state != State::Lost
    }

    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Whether the envelope of the next message was sent.
    pub fn is_announced(&self) -> bool {
        self.state == State::Announced
    }

    /// Sends one message to one mailbox. When the server has accepted the envelope, `next_waiter` may return the next
    /// message, whose envelope goes along with this content. It is returned with the outcome, unless the answer took
    /// too long. The answer is awaited under `lease`.
    pub async fn deliver(
        &mut self,
        envelope: Envelope<'_>,
        email: &[u8],
        budget: Budget,
        lease: &dyn SendLease,
        next_waiter: impl FnOnce(&Self) -> Option<Waiter>,
    ) -> (Delivery, Option<Waiter>) {
        self.messages += 1;
        // If this future is dropped half-way, the state of the session is unknown.
        let previous = std::mem::replace(&mut self.state, State::Lost);
        let (mut next, mut announces) = (None, false);
        let agreed = self.envelope(envelope, email.len(), previous, budget.envelope_deadline()).await;
        let delivery = if let Err(refused) = agreed {
            refused
        } else {
            next = next_waiter(self);
            announces = next.is_some();
            self.transfer(envelope.from, email, &mut next, budget, lease).await
        };
        self.state = match &delivery {
            Delivery::Accepted(_) if next.is_some() => State::Announced,
            Delivery::Accepted(_) if !announces => State::Ready,
            Delivery::Refused { ends: false, .. } if !announces => State::MidTransaction,
            // The server's transaction will not be finished, or it may have refused the announced message because of
            // the previous one.
            _ => State::Lost,
        };
        self.idle_since = Instant::now();
        (delivery, next)
    }

    async fn transfer(
        &mut self,
        from: &Mailbox,
        email: &[u8],
        next: &mut Option<Waiter>,
        budget: Budget,
        lease: &dyn SendLease,
    ) -> Delivery {
        let mut bytes = dot_stuffed(email);
        let end = bytes.len();
        if let Some(Announcement { to, bytes: size }) =
            next.as_ref().and_then(|next| next.announcement.as_ref())
        {
            let commands = self.commands(Envelope { from, to }, *size);
            bytes.extend(commands.iter().flat_map(|(_, command)| command.bytes()));
        }
        let mut written = 0;
        if let Err(why) = self.write(&bytes, &mut written, budget.content_deadline()).await {
            // The last bytes were not written: those of the announcement, or the end of the content. A server that
            // stops reading may have sent the reason.
            let is_out = written >= end && bytes.len() > end;
            return match self.buffered_reply() {
                Some(reply) if reply.code >= 400 => Delivery::Refused { at: Step::Data, reply, ends: true },
                _ => Delivery::Broken { at: if is_out { Step::EndOfData } else { Step::Data }, why },
            };
        }
        let reply = tokio::select! {
            biased;
            reply = self.answer(next, budget.answer_deadline()) => reply,
            () = lease.await_answer() => Err("had not answered before shutdown".to_owned()),
        };
        match reply {
            Err(why) => Delivery::Broken { at: Step::EndOfData, why },
            Ok(reply) if reply.is_positive() => Delivery::Accepted(reply),
            Ok(reply) => Delivery::Refused { at: Step::EndOfData, ends: reply.code == 421, reply },
        }
    }

    /// Awaits the answer to a message. After a while the announced message is let go.
    async fn answer(&mut self, next: &mut Option<Waiter>, until: Instant) -> Result<Reply, String> {
        if let Ok(reply) = timeout(ANNOUNCED_WAIT, self.reply(until)).await {
            return reply;
        }
        *next = None;
        self.reply(until).await
    }

    async fn envelope(
        &mut self,
        envelope: Envelope<'_>,
        size: usize,
        previous: State,
        until: Instant,
    ) -> Result<(), Delivery> {
        let commands = self.commands(envelope, size);
        let reset = previous == State::MidTransaction;
        let begin = if reset { "RSET\r\n" } else { "" };
        let broken = |at| move |why| Delivery::Broken { at, why };
        if self.extensions.pipelining && previous != State::Announced {
            let all: String =
                std::iter::once(begin).chain(commands.iter().map(|(_, c)| c.as_str())).collect();
            self.send(&all, until).await.map_err(broken(Step::From))?;
        }
        if reset {
            if !self.extensions.pipelining {
                self.send(begin, until).await.map_err(broken(Step::From))?;
            }
            self.reply(until).await.map_err(broken(Step::From))?;
        }
        let (mut refused, mut has_recipient) = (None, false);
        for (at, command) in commands {
            if !self.extensions.pipelining {
                self.send(&command, until).await.map_err(broken(at))?;
            }
            let reply = self.reply(until).await.map_err(broken(at))?;
            let agreed = if at == Step::Data { reply.code == 354 } else { reply.is_positive() };
            has_recipient |= at == Step::To && agreed;
            match refused {
                None if agreed => {}
                // Completing the transaction would deliver an empty message.
                Some(Delivery::Refused { ref mut ends, .. })
                    if agreed && at == Step::Data && has_recipient =>
                {
                    *ends = true;
                }
                // The server accepted DATA before it refused the recipient. An empty content ends that.
                Some(_) if agreed && at == Step::Data => {
                    self.send(".\r\n", until).await.map_err(broken(at))?;
                    self.reply(until).await.map_err(broken(at))?;
                }
                Some(_) => {}
                None => {
                    let ends = reply.code == 421;
                    refused = Some(Delivery::Refused { at, reply, ends });
                    if ends || !self.extensions.pipelining {
                        break;
                    }
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    fn commands(&self, envelope: Envelope<'_>, size: usize) -> [(Step, String); 3] {
        let Envelope { from, to } = envelope;
        let size = if self.extensions.size { format!(" SIZE={size}") } else { String::new() };
        let utf8 = if from.needs_utf8() || to.needs_utf8() { " SMTPUTF8" } else { "" };
        [
            (Step::From, format!("MAIL FROM:<{from}>{size}{utf8}\r\n")),
            (Step::To, format!("RCPT TO:<{to}>\r\n")),
            (Step::Data, "DATA\r\n".to_owned()),
        ]
    }

    /// Sends `QUIT`, if that is possible at once.
    pub async fn quit(mut self) {
        const QUIT_TIMEOUT: Duration = Duration::from_secs(1);
        let _ = timeout(QUIT_TIMEOUT, async {
            self.stream.write_all(b"QUIT\r\n").await?;
            self.stream.flush().await?;
            self.stream.read_buf(&mut self.read).await
        })
        .await;
    }

    async fn expect(&mut self, code: u16, what: &str, until: Instant) -> Result<(), OpenError> {
        let reply = self.reply(until).await?;
        if reply.code == code {
            return Ok(());
        }
        Err(OpenError { why: format!("{what}: {}", reply.redacted_text()), cause: Cause::new(reply.codes()) })
    }

    async fn send(&mut self, text: &str, until: Instant) -> Result<(), String> {
        self.write(text.as_bytes(), &mut 0, until).await
    }

    /// Writes bytes and counts those that were written.
    async fn write(&mut self, bytes: &[u8], written: &mut usize, until: Instant) -> Result<(), String> {
        let all = timeout_at(until, async {
            while *written < bytes.len() {
                match self.stream.write(&bytes[*written..]).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    some => *written += some,
                }
            }
            self.stream.flush().await
        });
        all.await.map_err(|_| TIMED_OUT.to_owned())?.map_err(|error| connection_error(&error))
    }

    /// A reply that has arrived already.
    fn buffered_reply(&mut self) -> Option<Reply> {
        self.read.reserve(READ_BUFFER_BYTES);
        let _ = self.stream.read_buf(&mut self.read).now_or_never();
        Reply::take(&mut self.read).ok().flatten()
    }

    async fn reply(&mut self, until: Instant) -> Result<Reply, String> {
        loop {
            match Reply::take(&mut self.read) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(MalformedReply) => return Err("does not speak SMTP".to_owned()),
            }
            self.read.reserve(READ_BUFFER_BYTES);
            let read = timeout_at(until, self.stream.read_buf(&mut self.read)).await;
            match read.map_err(|_| TIMED_OUT.to_owned())? {
                Ok(0) => return Err("closed the connection without a response".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(connection_error(&error)),
            }
        }
    }
}

/// Enough for the answers to a whole envelope in one read.
const READ_BUFFER_BYTES: usize = 1024;
/// After this time without an answer, the announced message is let go.
const ANNOUNCED_WAIT: Duration = Duration::from_secs(1);
const TIMED_OUT: &str = "did not answer in time";

fn connection_error(error: &io::Error) -> String {
    format!("broke the connection: {}", error.kind())
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The announcement is written last. So the content may be out even if not everything could be written.
    #[tokio::test]
    async fn an_email_whose_end_was_written_is_out_although_the_announcement_behind_it_was_not() {
        let mailbox: Mailbox = "a@example.com".parse().unwrap();
        let announcement = Announcement { to: mailbox.clone(), bytes: 7 };
        let end = dot_stuffed(b"message").len();
        for (taken, step) in [(end - 1, Step::Data), (end, Step::EndOfData), (end + 1, Step::EndOfData)] {
            let (here, there) = duplex(taken);
            let mut connection = Connection::over(here);
            let mut next = Some(Waiter::detached(announcement.clone()));
            let budget = Budget::starting_now(Duration::from_secs(5), Duration::from_secs(5));
            let hangs_up = async {
                // By then the buffer is full.
                tokio::task::yield_now().await;
                drop(there);
            };
            let (delivery, ()) = tokio::join!(
                connection.transfer(&mailbox, b"message", &mut next, budget, &|| Duration::MAX),
                hangs_up
            );
            assert!(matches!(delivery, Delivery::Broken { at, .. } if at == step), "{taken}: {delivery:?}");
        }
    }
}
