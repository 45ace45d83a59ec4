//! A scripted SMTP server that records violations of RFC 5321 and 2920.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What it does instead of the usual.
#[derive(Debug, Clone)]
pub enum Act {
    Say(&'static str),
    Close,
    Hang,
    /// Waits this long, then does the usual.
    Wait(Duration),
    /// For a message: accepts it without an answer.
    KeepAndHang,
    /// For DATA: reads the beginning of the message, sends this if it is not empty, and closes.
    CutOff(&'static str),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceivedEmail {
    pub from: String,
    pub to: Vec<String>,
    pub text: String,
}

#[derive(Debug, Default)]
struct ServerState {
    acts: HashMap<&'static str, VecDeque<Act>>,
    emails: Vec<ReceivedEmail>,
    commands: Vec<String>,
    violations: Vec<String>,
    connections: usize,
    /// Reads from the socket. Each round trip is at least one.
    reads: usize,
}

#[derive(Debug)]
pub struct Smtpd {
    pub port: u16,
    state: Arc<Mutex<ServerState>>,
}

impl Smtpd {
    /// `extensions` are the lines of its answer to EHLO. Each act is for the next use of its verb. The verb for the end
    /// of a message is `.`, and for a new connection `HI`.
    pub async fn start(extensions: &'static [&'static str], acts: Vec<(&'static str, Act)>) -> Self {
        Self::start_at("127.0.0.1:0", extensions, acts).await
    }

    pub async fn start_at(
        address: &str,
        extensions: &'static [&'static str],
        acts: Vec<(&'static str, Act)>,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(ServerState::default()));
        for (verb, act) in acts {
            state.lock().unwrap().acts.entry(verb).or_default().push_back(act);
        }
        let smtpd = Smtpd { port, state: Arc::clone(&state) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                state.lock().unwrap().connections += 1;
                stream.set_nodelay(true).unwrap();
                let session = Session { stream, read: Vec::new(), state: Arc::clone(&state), extensions };
                tokio::spawn(session.run());
            }
        });
        smtpd
    }

    pub fn emails(&self) -> Vec<ReceivedEmail> {
        let state = self.state.lock().unwrap();
        assert!(state.violations.is_empty(), "{:?}", state.violations);
        state.emails.clone()
    }

    pub fn commands(&self) -> Vec<String> {
        self.state.lock().unwrap().commands.clone()
    }

    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    pub fn reads(&self) -> usize {
        self.state.lock().unwrap().reads
    }
}

struct Session {
    stream: TcpStream,
    read: Vec<u8>,
    state: Arc<Mutex<ServerState>>,
    extensions: &'static [&'static str],
}

impl Session {
    async fn run(mut self) -> Option<()> {
        self.act("HI", "220 test ESMTP").await?;
        let mut email = ReceivedEmail::default();
        loop {
            let line = self.line().await?;
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            self.check(&line, &verb, &email);
            let pipelining = self.extensions.contains(&"PIPELINING");
            if !self.read.is_empty() && (!pipelining || ["DATA", "EHLO", "QUIT"].contains(&verb.as_str())) {
                self.violation(format!("{verb} was not waited for"));
            }
            let said = match verb.as_str() {
                "EHLO" => {
                    let lines: Vec<&str> =
                        std::iter::once("test").chain(self.extensions.iter().copied()).collect();
                    let answer = format!("250-{}", lines.join("\r\n250-"));
                    let last = answer.rfind("250-").unwrap_or_default();
                    let answer = format!("{}250 {}", &answer[..last], &answer[last + 4..]);
                    self.act("EHLO", &answer).await?
                }
                "MAIL" => {
                    let said = self.act("MAIL", "250 2.1.0 Ok").await?;
                    let from = if said.starts_with('2') { path(&line) } else { String::new() };
                    email = ReceivedEmail { from, ..ReceivedEmail::default() };
                    said
                }
                "RCPT" => {
                    let usual = if email.from.is_empty() { "503 5.5.1 MAIL first" } else { "250 2.1.5 Ok" };
                    let said = self.act("RCPT", usual).await?;
                    if said.starts_with('2') {
                        email.to.push(path(&line));
                    }
                    said
                }
                "DATA" => self.act("DATA", "354 go on").await?,
                "RSET" => {
                    email = ReceivedEmail::default();
                    self.act("RSET", "250 2.0.0 Ok").await?
                }
                "QUIT" => {
                    self.act("QUIT", "221 2.0.0 Bye").await?;
                    return None;
                }
                _ => self.act("?", "500 5.5.2 what?").await?,
            };
            if said.starts_with("354") {
                email.text = self.email().await?;
                let usual = if email.to.is_empty() {
                    "554 5.5.1 nobody to send it to"
                } else {
                    "250 2.0.0 Ok: queued as Q1"
                };
                let act = self.next_act(".");
                if matches!(act, Some(Act::KeepAndHang)) {
                    self.state.lock().unwrap().emails.push(std::mem::take(&mut email));
                }
                let said = self.act_by(act, usual).await?;
                // The end of a message ends its transaction, whatever the answer.
                let email = std::mem::take(&mut email);
                if said.starts_with('2') {
                    self.state.lock().unwrap().emails.push(email);
                }
            }
        }
    }

    /// Its answer; `None` if it closes the connection.
    async fn act(&mut self, verb: &str, usual: &str) -> Option<String> {
        let act = self.next_act(verb);
        self.act_by(act, usual).await
    }

    async fn act_by(&mut self, act: Option<Act>, usual: &str) -> Option<String> {
        let text = match act {
            None => usual.to_owned(),
            Some(Act::Say(text)) => text.to_owned(),
            Some(Act::Wait(time)) => {
                tokio::time::sleep(time).await;
                usual.to_owned()
            }
            Some(Act::Close) => return None,
            Some(Act::CutOff(last_words)) => return self.cut_off(last_words).await,
            Some(Act::Hang | Act::KeepAndHang) => return std::future::pending().await,
        };
        self.stream.write_all(format!("{text}\r\n").as_bytes()).await.ok()?;
        if text.starts_with("421") {
            return None;
        }
        Some(text)
    }

    async fn cut_off(&mut self, last_words: &str) -> Option<String> {
        self.stream.write_all(b"354 go on\r\n").await.ok()?;
        self.more().await?;
        if !last_words.is_empty() {
            self.stream.write_all(format!("{last_words}\r\n").as_bytes()).await.ok()?;
        }
        None
    }

    fn next_act(&self, verb: &str) -> Option<Act> {
        self.state.lock().unwrap().acts.get_mut(verb).and_then(VecDeque::pop_front)
    }

    fn check(&self, line: &str, verb: &str, email: &ReceivedEmail) {
        self.state.lock().unwrap().commands.push(line.to_owned());
        if line.len() > 510 {
            self.violation(format!("{verb} is longer than 512 bytes"));
        }
        if !line.is_ascii() && !line.contains(" SMTPUTF8") && verb != "RCPT" {
            self.violation(format!("{verb} is not ASCII"));
        }
        if verb == "MAIL" && !email.from.is_empty() {
            self.violation("a second MAIL without RSET".to_owned());
        }
        if verb == "MAIL" && line.contains(" SIZE=") && !self.extensions.iter().any(|o| o.starts_with("SIZE"))
        {
            self.violation("SIZE was not offered".to_owned());
        }
    }

    fn violation(&self, what: String) {
        self.state.lock().unwrap().violations.push(what);
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let line = String::from_utf8(line).unwrap();
                let Some(line) = line.strip_suffix("\r\n").filter(|line| !line.contains('\r')) else {
                    self.violation(format!("a bare line break: {line:?}"));
                    return None;
                };
                return Some(line.to_owned());
            }
            self.more().await?;
        }
    }

    /// The message without dot stuffing.
    async fn email(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            let line = self.line().await?;
            if line.len() > 998 {
                self.violation("a line of more than 998 bytes".to_owned());
            }
            match line.strip_prefix('.') {
                Some("") => return Some(text),
                Some(rest) => text += rest,
                None => text += &line,
            }
            text += "\r\n";
        }
    }

    async fn more(&mut self) -> Option<()> {
        self.read.reserve(1024 * 1024);
        let read = self.stream.read_buf(&mut self.read).await.ok()?;
        self.state.lock().unwrap().reads += 1;
        (read > 0).then_some(())
    }
}

/// `MAIL FROM:<a@b> SIZE=1` → `a@b`.
fn path(line: &str) -> String {
    let (_, rest) = line.split_once('<').unwrap();
    rest.rsplit_once('>').unwrap().0.to_owned()
}
