//! Being the only one. The file's lock says so already, so here a lease only tells the parts of one engine apart.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::time;
use rusqlite::named_params;

use super::outbox::lease_until;
use super::session::Session;
use super::{Sqlite, statement};
use crate::{Held, LeaseStore, StoreError};

#[async_trait]
impl LeaseStore for Sqlite {
    async fn hold(&self, name: &str, holder: &str, lease: Duration) -> Result<Held, StoreError> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.write(move |session, now| hold(session, now, &name, &holder, lease)).await
    }

    async fn let_go(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.write(move |session, _| {
            let params = named_params! { ":name": name, ":holder": holder };
            session.change(statement::LET_LEASE_GO, params).map(drop)
        })
        .await
    }
}

fn hold(session: &Session, now: &str, name: &str, holder: &str, lease: Duration) -> Result<Held, StoreError> {
    let params = named_params! {
        ":name": name, ":holder": holder, ":lease_until": lease_until(now, lease), ":now": now,
    };
    if session.change(statement::HOLD_LEASE, params)? > 0 {
        return Ok(Held::Ours);
    }
    let held = session.first(statement::LEASE_HOLDER, named_params! { ":name": name }, |row| {
        let until: String = row.get("lease_until")?;
        let rest =
            time::from_text(now).zip(time::from_text(&until)).map(|(now, until)| time::between(now, until));
        Ok(Held::By { holder: row.get("holder")?, rest: rest.unwrap_or_default() })
    })?;
    held.ok_or_else(|| StoreError::Unavailable(format!("could not take or read the lease {name}")))
}
