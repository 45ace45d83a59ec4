//! Named leases. The lock on the file keeps other engines away, so these only separate parts of one engine.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::time;
use rusqlite::named_params;

use super::outbox::lease_until;
use super::session::Session;
use super::{Sqlite, statement};
use crate::{Acquisition, LeaseStore, StoreError};

#[async_trait]
impl LeaseStore for Sqlite {
    async fn acquire(&self, name: &str, holder: &str, lease: Duration) -> Result<Acquisition, StoreError> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.write(move |session, now| acquire(session, now, &name, &holder, lease)).await
    }

    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.write(move |session, _| {
            let params = named_params! { ":name": name, ":holder": holder };
            session.change(statement::RELEASE_LEASE, params).map(drop)
        })
        .await
    }
}

fn acquire(
    session: &Session,
    now: &str,
    name: &str,
    holder: &str,
    lease: Duration,
) -> Result<Acquisition, StoreError> {
    let params = named_params! {
        ":name": name, ":holder": holder, ":lease_until": lease_until(now, lease), ":now": now,
    };
    if session.change(statement::ACQUIRE_LEASE, params)? > 0 {
        return Ok(Acquisition::Acquired);
    }
    let held = session.first(statement::LEASE_HOLDER, named_params! { ":name": name }, |row| {
        let until: String = row.get("lease_until")?;
        let remaining =
            time::from_text(now).zip(time::from_text(&until)).map(|(now, until)| time::between(now, until));
        Ok(Acquisition::HeldBy { holder: row.get("holder")?, remaining: remaining.unwrap_or_default() })
    })?;
    held.ok_or_else(|| StoreError::Unavailable(format!("could not take or read the lease {name}").into()))
}
