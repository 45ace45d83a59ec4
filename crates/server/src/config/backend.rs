//! The database and the broker: one URL each, from the file, a variable, a flag, or a file that contains only the URL.

use campanile_domain::queue::Queue;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use campanile_broker::RabbitMqConfig;
use campanile_store::postgres::PostgresConfig;
use serde::{Deserialize, Serialize, Serializer};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    pub url: SecretUrl,
    pub url_file: PathBuf,
    pub direct_url: SecretUrl,
    pub ca_file: PathBuf,
    pub max_connections: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    pub url: SecretUrl,
    pub url_file: PathBuf,
    pub ca_file: PathBuf,
    pub prefix: String,
}

#[derive(Debug, Clone)]
pub enum DatabaseChoice {
    Sqlite { path: PathBuf },
    Postgres(PostgresConfig),
}

#[derive(Debug, Clone)]
pub enum BrokerChoice {
    InProcess,
    RabbitMq(RabbitMqConfig),
}

/// The limit of a broker queue: "few" undelivered messages. More messages wait in the database, where their order can
/// still change.
pub const MAX_UNDELIVERED: usize = 5_000;

impl Database {
    pub fn choice(&self, data_dir: &Path) -> anyhow::Result<DatabaseChoice> {
        let url = self.url.or_file("database", &self.url_file)?;
        if url.is_empty() {
            return Ok(DatabaseChoice::Sqlite { path: data_dir.join("campanile.db") });
        }
        if let Some(path) = url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            let path = Path::new(path.strip_prefix("//").unwrap_or(path)).to_owned();
            return Ok(DatabaseChoice::Sqlite { path });
        }
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            bail!(
                "database.url: `{}` is not supported; use postgres://user:password@host:5432/database, \
                 or sqlite: and a path",
                scheme(&url)
            );
        }
        if self.max_connections < 4 || self.max_connections > 1_000 {
            bail!("database.max_connections: must lie between 4 and 1000, is {}", self.max_connections);
        }
        Ok(DatabaseChoice::Postgres(PostgresConfig {
            url,
            direct_url: self.direct_url.0.clone(),
            ca_file: given(&self.ca_file),
            max_connections: self.max_connections,
        }))
    }
}

impl Broker {
    pub fn choice(&self, queues: Vec<Queue>) -> anyhow::Result<BrokerChoice> {
        let url = self.url.or_file("broker", &self.url_file)?;
        if url.is_empty() || url == "in-process:" {
            return Ok(BrokerChoice::InProcess);
        }
        if !["amqp://", "amqps://"].iter().any(|scheme| url.starts_with(scheme)) {
            bail!(
                "broker.url: `{}` is not supported; use amqp://user:password@host:5672/vhost, or in-process:",
                scheme(&url)
            );
        }
        Ok(BrokerChoice::RabbitMq(RabbitMqConfig {
            url,
            ca_file: given(&self.ca_file),
            prefix: self.prefix.clone(),
            queues,
            limit: MAX_UNDELIVERED,
        }))
    }
}

const REDACTED: &str = "(redacted)";

/// A URL that may contain a password, which is never printed or logged.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(pub String);

impl SecretUrl {
    pub(super) fn or_file(&self, section: &str, file: &Path) -> anyhow::Result<String> {
        if file.as_os_str().is_empty() {
            return Ok(self.0.clone());
        }
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {section}.url_file {}", file.display()))?;
        Ok(text.trim().to_owned())
    }

    /// The URL without its password, which may stand before the host or, as in libpq, among the options. A text that is
    /// no URL, or is ambiguous, is not shown at all: part of a password may not be encoded.
    fn redacted(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let Some((scheme, rest)) = self.0.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            return REDACTED.to_owned();
        };
        if ["sqlite", "in-process"].contains(&scheme) {
            return self.0.clone();
        }
        let shown = rest.strip_prefix("//").and_then(without_password);
        shown.map_or_else(|| format!("{scheme}:{REDACTED}"), |rest| format!("{scheme}://{rest}"))
    }
}

fn without_password(rest: &str) -> Option<String> {
    let (rest, options) = rest.split_once('?').map_or((rest, None), |(rest, options)| (rest, Some(options)));
    if options.is_some_and(|options| options.contains('@')) {
        return None;
    }
    // The last @ counts, because a password may contain an unencoded slash.
    let place = match rest.rsplit_once('@') {
        None => is_place(rest).then(|| rest.to_owned())?,
        Some((user, host)) => match user.split_once(':') {
            None => rest.to_owned(),
            Some((user, _)) => format!("{user}:{REDACTED}@{host}"),
        },
    };
    let option = |option: &str| match option.split_once('=') {
        Some((name, _)) if name.contains("password") => format!("{name}={REDACTED}"),
        _ => option.to_owned(),
    };
    let options = options.map(|o| o.split('&').map(option).collect::<Vec<_>>().join("&"));
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    Some(format!("{place}{options}"))
}

/// Whether each colon is followed by a port, and not by a password whose @ is missing. There may be several hosts.
fn is_place(rest: &str) -> bool {
    let hosts = rest.split('/').next().unwrap_or_default();
    hosts.split(',').all(|host| {
        let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
        behind.split_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redacted().fmt(f)
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.redacted())
    }
}

/// Several secret URLs, separated by white space.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretUrls(SecretUrl);

impl SecretUrls {
    pub(super) fn or_file(&self, section: &str, file: &Path) -> anyhow::Result<Vec<String>> {
        Ok(self.0.or_file(section, file)?.split_whitespace().map(str::to_owned).collect())
    }

    fn redacted(&self) -> String {
        let urls = self.0.0.split_whitespace().map(|url| SecretUrl(url.to_owned()).redacted());
        urls.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Debug for SecretUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redacted().fmt(f)
    }
}

impl Serialize for SecretUrls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.redacted())
    }
}

/// A URL's scheme, which is never secret.
fn scheme(url: &str) -> String {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
    scheme.map_or_else(|| "the value".to_owned(), |scheme| format!("{scheme}:…"))
}

fn is_scheme(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+' || c == '-')
}

pub(super) fn given(file: &Path) -> Option<PathBuf> {
    (!file.as_os_str().is_empty()).then(|| file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_printed() {
        let redacted = |url: &str| SecretUrl(url.to_owned()).redacted();
        assert_eq!(redacted("postgres://anna:p/w@d@db:5432/shop"), "postgres://anna:(redacted)@db:5432/shop");
        assert_eq!(redacted("amqp://anna@broker"), "amqp://anna@broker");
        assert_eq!(redacted("sqlite:/data/campanile.db"), "sqlite:/data/campanile.db");
        assert_eq!(
            redacted("postgres://h/d?user=a&password=p&sslmode=require"),
            "postgres://h/d?user=a&password=(redacted)&sslmode=require"
        );
        assert_eq!(redacted("host=db password=p"), "(redacted)");
        assert_eq!(redacted(""), "");
        let several = SecretUrls(SecretUrl("smtp://a:s1@one smtp://b:s2@two?tls=none".to_owned()));
        assert_eq!(several.redacted(), "smtp://a:(redacted)@one smtp://b:(redacted)@two?tls=none");
        assert_eq!(redacted("postgres://one:5432,[::1]:5433/shop"), "postgres://one:5432,[::1]:5433/shop");
        assert_eq!(scheme("host=db password=secret:x"), "the value");
        assert_eq!(scheme("mysql://anna:secret@db"), "mysql:…");
    }

    #[test]
    fn what_may_be_a_password_that_was_not_encoded_is_not_printed() {
        for (url, shown) in [
            ("smtp://user:se?cret@host", "smtp:(redacted)"),
            ("smtp://user:se@?cret@host?tls=none", "smtp:(redacted)"),
            ("smtp://user:se#cret@host", "smtp://user:(redacted)@host"),
            ("smtp://user:secret%40host", "smtp:(redacted)"),
            ("smtp:user:secret@host", "smtp:(redacted)"),
            ("smtp:/user:secret@host", "smtp:(redacted)"),
            ("user:secret@host", "user:(redacted)"),
            ("postgres://db:5432/shop?password=se@cret", "postgres:(redacted)"),
            ("host=db password=secret:cret", "(redacted)"),
        ] {
            assert_eq!(SecretUrl(url.to_owned()).redacted(), shown, "{url}");
        }
    }
}
