//! Emits events to Campanile in the transaction that writes your own data.
//!
//! An event is a business fact: *order 7 was created*. It is written in the same transaction as the order. So there is
//! no event without its order, and no order without its event. Campanile finds the recipients and notifies each of them
//! once.
//!
//! Enable the feature of your driver; none is on by default.
//!
//! | feature | database | functions |
//! |---|---|---|
//! | `tokio-postgres` | PostgreSQL | [`tokio_postgres::emit`] |
//! | `sqlx` | PostgreSQL | [`sqlx::emit`] |
//! | `rusqlite` | SQLite | [`rusqlite::emit`] |
//!
//! Each driver has three functions: `emit` for one event, `emit_all` for a batch, and `cancel` for an event that should
//! not be sent after all. The first two return whether the event is new. An id that Campanile knows already, from an
//! hour or from years ago, is not sent twice. So a retry of your whole transaction is harmless, as long as it uses the
//! same id. Derive the id from the fact (`order-7-created`) instead of generating a random one.
//!
//! An [`Event`] is checked when it is created, so that an invalid one fails in your code and not in your transaction.
//!
//! # tokio-postgres
//!
//! ```no_run
//! use campanile_client::{Event, Priority, tokio_postgres::emit};
//!
//! # async fn order(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = client.transaction().await?;
//! transaction.execute("INSERT INTO shop.orders (id, total) VALUES (7, 12)", &[]).await?;
//! let event = Event::new("order-7-created", "ORDER_CREATED", "ORDER", "7")?
//!     .payload(&serde_json::json!({ "restaurantId": 5, "total": 12 }))?
//!     .priority(Priority::High);
//! let is_new = emit(&transaction, &event).await?;
//! transaction.commit().await?;
//! # let _ = is_new;
//! # Ok(())
//! # }
//! ```
//!
//! # sqlx
//!
//! ```no_run
//! use campanile_client::{Event, sqlx::emit};
//!
//! # async fn order(pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = pool.begin().await?;
//! sqlx::query("INSERT INTO shop.orders (id, total) VALUES (7, 12)").execute(&mut *transaction).await?;
//! let event = Event::new("order-7-created", "ORDER_CREATED", "ORDER", "7")?
//!     .payload(&serde_json::json!({ "restaurantId": 5, "total": 12 }))?;
//! emit(&mut *transaction, &event).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # rusqlite
//!
//! ```no_run
//! use campanile_client::{Event, rusqlite::emit};
//!
//! # fn order() -> Result<(), Box<dyn std::error::Error>> {
//! // Your tables must be in Campanile's file to share a transaction.
//! let mut connection = rusqlite::Connection::open("campanile-data/campanile.db")?;
//! let transaction = connection.transaction()?;
//! transaction.execute("INSERT INTO orders (id, total) VALUES (7, 12)", [])?;
//! let event = Event::new("order-7-created", "ORDER_CREATED", "ORDER", "7")?
//!     .payload(&serde_json::json!({ "restaurantId": 5, "total": 12 }))?;
//! emit(&transaction, &event)?;
//! transaction.commit()?;
//! # Ok(())
//! # }
//! ```

mod error;
mod event;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod postgres;
#[cfg(feature = "rusqlite")]
pub mod rusqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;
mod time;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;

pub use error::Error;
pub use event::{Event, MAX_ID_CHARS, MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, Priority};
