//! `campanile api-key` and `campanile signing-key`: the keys of services, and the key that signs tokens.

use campanile_domain::time::{self, Timestamp};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{Client, encoded};
use super::dead_letters::{age, text};
use super::listing::{Row, listing, or_dash};
use super::output::{self, columns, say};
use super::{CommandError, CommandResult};

const PAGE: usize = 1_000;

#[derive(Debug, Subcommand)]
pub enum ApiKeys {
    /// Create an API key, and show it once
    Create(Create),
    /// List API keys, the newest first
    List,
    /// Revoke an API key; every server refuses it within five seconds
    Revoke {
        /// The key's id, as shown by `api-key list`, or its prefix
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct Create {
    /// Who uses the key, such as the name of a service
    #[arg(long, value_name = "NAME")]
    name: String,
    /// emit, read, payload, rules, operate, mailings, tickets or admin; repeat it for several
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<String>,
    /// When it expires: a duration such as 720h, or a time such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "WHEN")]
    expires: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum SigningKey {
    /// Sign tickets and other tokens with a new key from now on
    Rotate {
        /// End all tokens of older keys at once
        #[arg(long)]
        revoke_old: bool,
    },
}

impl ApiKeys {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        match self {
            ApiKeys::Create(create) => create.run(client, as_json).await,
            ApiKeys::List => list(client, as_json).await,
            ApiKeys::Revoke { id } => {
                // A person may copy the prefix from a list.
                let id = id.strip_prefix("cpk_").unwrap_or(id);
                client.delete(&format!("/v1/api-keys/{}", encoded(id))).await?;
                if as_json {
                    say!("{}", json!({ "revoked": id }))?;
                } else {
                    say!("revoked {id}")?;
                }
                Ok(())
            }
        }
    }
}

impl Create {
    async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let expires_at = self.expires.as_deref().map(|when| expiry(when, Timestamp::now())).transpose()?;
        let body = json!({ "name": self.name, "scopes": self.scopes, "expires_at": expires_at });
        let created = client.post("/v1/api-keys", &body).await?;
        if as_json {
            say!("{created}")?;
            return Ok(());
        }
        say!("API key of {} (shown once):\n\n    {}\n", text(&created, "name"), text(&created, "key"))?;
        Ok(())
    }
}

/// A time, or the end of a duration that begins now.
fn expiry(when: &str, now: Timestamp) -> Result<String, CommandError> {
    let at = time::from_text(when)
        .or_else(|| time::parse_duration(when).ok().map(|duration| time::later(now, duration)));
    at.map(time::to_text).ok_or_else(|| {
        CommandError::Usage(format!(
            "--expires: `{when}` is neither a duration such as 720h nor a time such as 2027-01-01T00:00:00Z"
        ))
    })
}

async fn list(client: &Client, as_json: bool) -> CommandResult {
    let (mut keys, mut cursor) = (Vec::new(), None);
    loop {
        let after = cursor.map(|cursor: String| format!("&cursor={}", encoded(&cursor))).unwrap_or_default();
        let page = client.get(&format!("/v1/api-keys?limit={PAGE}{after}")).await?;
        keys.extend(page["items"].as_array().cloned().unwrap_or_default());
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if as_json {
        say!("{}", json!({ "items": keys, "next": null }))?;
    } else if keys.is_empty() {
        say!("there are no API keys")?;
    } else {
        output::write(&table(&keys, Timestamp::now(), columns()))?;
    }
    Ok(())
}

fn table(keys: &[Value], now: Timestamp, columns: usize) -> String {
    let rows: Vec<Row> = keys.iter().map(|key| row(key, now)).collect();
    listing(&["ID", "NAME", "SCOPES", "CREATED", "LAST USED", "STATE"], "", &rows, columns)
}

fn row(key: &Value, now: Timestamp) -> Row {
    let scopes = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let expires_at = key["expires_at"].as_str().and_then(time::from_text);
    let state = match expires_at {
        _ if !key["revoked_at"].is_null() => "revoked".to_owned(),
        Some(at) if at <= now => "expired".to_owned(),
        Some(at) => format!("until {}", time::to_text(at)),
        None => "valid".to_owned(),
    };
    let cells = vec![
        text(key, "id").to_owned(),
        or_dash(text(key, "name")),
        scopes.collect::<Vec<_>>().join(","),
        age(key, "created_at", now),
        age(key, "last_used_at", now),
        state,
    ];
    Row { cells, ..Row::default() }
}

impl SigningKey {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let SigningKey::Rotate { revoke_old } = self;
        let rotated = client.post("/v1/signing-key/rotate", &json!({ "revoke_old": revoke_old })).await?;
        if as_json {
            say!("{rotated}")?;
        } else if *revoke_old {
            say!("key {} signs from now on; tokens of older keys are refused", rotated["id"])?;
        } else {
            say!(
                "key {} signs from now on; tokens of older keys stay valid until they expire",
                rotated["id"]
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_table() {
        let now = time::from_text("2026-01-21T12:00:00Z").unwrap();
        let key = |name: &str, expires_at: Value, revoked_at: Value| {
            json!({
                "id": "9f86d081884c7d65", "name": name, "scopes": ["emit", "read"], "expires_at": expires_at,
                "created_at": "2026-01-21T11:00:00.000Z", "last_used_at": null, "revoked_at": revoked_at,
            })
        };
        let keys = [
            key("shop", Value::Null, Value::Null),
            key("old", json!("2026-01-21T11:30:00.000Z"), Value::Null),
            key("gone", Value::Null, json!("2026-01-21T11:30:00.000Z")),
        ];
        let expected = "\
            ID                NAME  SCOPES     CREATED  LAST USED  STATE\n\
            9f86d081884c7d65  shop  emit,read  60 min   -          valid\n\
            9f86d081884c7d65  old   emit,read  60 min   -          expired\n\
            9f86d081884c7d65  gone  emit,read  60 min   -          revoked\n";
        assert_eq!(table(&keys, now, 100), expected.replace("60 min", "1 h   "));
    }

    #[test]
    fn a_key_expires_after_a_duration_or_at_a_time() {
        let now = time::from_text("2026-01-21T12:00:00Z").unwrap();
        assert_eq!(expiry("24h", now).unwrap(), "2026-01-22T12:00:00.000Z");
        assert_eq!(expiry("2027-01-01T00:00:00Z", now).unwrap(), "2027-01-01T00:00:00.000Z");
        assert!(matches!(expiry("soon", now), Err(CommandError::Usage(_))));
    }
}
