//! Reads an audience: recipients with the rules that concern them, and the groups that they belong to. The back ends
//! share how a recipient is read, and how rules are attached to recipients.

use std::collections::HashMap;
use std::fmt::Debug;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::fan_out::Page;
use campanile_domain::id::{EntityId, EntityRef, EntityType, UserId, UserTypeName};
use campanile_domain::people::address::Addresses;
use campanile_domain::people::recipient::{Candidate, DeadAddress, Group, Recipient};
use campanile_domain::rules::row::{Preference, Selector, Setting};
use campanile_domain::time::Timestamp;

use crate::StoreError;
use crate::columns::{Columns, bad};

#[async_trait]
pub trait AudienceStore {
    /// Begins to read the recipients as they are now. This reader can't commit a decision.
    async fn read_audience(&self) -> Result<Box<dyn AudienceReader>, StoreError>;
}

#[async_trait]
pub trait AudienceReader: Debug + Send + Sync {
    /// The database's time when the read began. Rules use it to decide.
    fn now(&self) -> Timestamp;

    /// The recipients of each page, in the order (entity, rank, user id).
    async fn candidates(&mut self, pages: Vec<Page>) -> Result<Vec<Vec<Candidate>>, StoreError>;

    async fn groups(&mut self, entities: Vec<EntityRef>) -> Result<HashMap<EntityRef, Group>, StoreError>;
}

/// Reads a recipient leniently: an invalid value in one row must not fail an event for all recipients. No row is
/// skipped either, because a page with a gap would look like the last page.
pub(crate) fn recipient(row: &impl Columns) -> Result<Recipient, StoreError> {
    let (user_type, user_id) = (row.lossy("user_type")?, row.lossy("user_id")?);
    let entity_type = row.maybe_lossy("entity_type")?.map(EntityType::stored);
    let entity_id = row.maybe_lossy("entity_id")?.map(EntityId::stored);
    // The value is not logged: it may be an address.
    let unusable = |column: &str| {
        tracing::error!(
            table = "recipient",
            %user_type,
            %user_id,
            column,
            "invalid value in recipient column; treated as empty"
        );
    };
    let text = |column: &str| row.maybe_text(column).inspect_err(|_| unusable(column)).unwrap_or_default();
    let time_zone = row.maybe_parsed("time_zone").inspect_err(|_| unusable("time_zone")).unwrap_or_default();
    let push_tokens = row.maybe_list("push_tokens").inspect_err(|_| unusable("push_tokens"));
    let addresses = addresses_by_channel(row).inspect_err(|_| unusable("addresses"));
    Ok(Recipient {
        entity_type,
        entity_id,
        role: text("role"),
        name: text("name"),
        email: text("email"),
        phone: text("phone"),
        push_tokens: push_tokens.unwrap_or_default().unwrap_or_default(),
        slack_webhook: text("slack_webhook"),
        addresses: addresses.unwrap_or_default(),
        locale: text("locale"),
        time_zone,
        // The queries select only active recipients.
        active: true,
        user_type: UserTypeName::stored(user_type),
        user_id: UserId::stored(user_id),
    })
}

/// The addresses by channel. Nearly all recipients have none.
fn addresses_by_channel(row: &impl Columns) -> Result<Addresses, StoreError> {
    match row.maybe_json_text("addresses")?.as_deref() {
        None | Some("{}") => Ok(Addresses::default()),
        Some(text) => serde_json::from_str(text).map_err(|error| bad("addresses", error)),
    }
}

/// The users on the pages, without duplicates, in order.
pub fn users(found: &[Vec<Recipient>]) -> Vec<(&UserTypeName, &UserId)> {
    let mut users: Vec<_> = found.iter().flatten().map(|r| (&r.user_type, &r.user_id)).collect();
    users.sort_unstable();
    users.dedup();
    users
}

/// The addresses of these recipients for each page's channels, without duplicates, in order.
pub fn addresses<'a>(pages: &'a [Page], found: &'a [Vec<Recipient>]) -> Vec<(Channel, &'a str)> {
    let on_page = |(page, found): (&'a Page, &'a Vec<Recipient>)| {
        found.iter().flat_map(move |recipient| addresses_of(recipient, page))
    };
    let mut addresses: Vec<_> = pages.iter().zip(found).flat_map(on_page).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn addresses_of<'a>(recipient: &'a Recipient, page: &'a Page) -> impl Iterator<Item = (Channel, &'a str)> {
    let channels = Channel::ALL.into_iter().filter(|channel| *page.channels.get(*channel));
    let default_webhook = page.default_webhook.as_ref();
    channels.flat_map(move |c| recipient.addresses_of(c, default_webhook).into_iter().map(move |a| (c, a)))
}

/// Adds to each recipient their preferences and their dead addresses.
pub fn candidates(
    pages: &[Page],
    found: Vec<Vec<Recipient>>,
    preferences: &[Preference],
    dead: &[DeadAddress],
) -> Vec<Vec<Candidate>> {
    let mut of_user: HashMap<(&UserTypeName, &UserId), Vec<Preference>> = HashMap::new();
    for preference in preferences {
        let user = (&preference.user_type, &preference.user_id);
        of_user.entry(user).or_default().push(preference.clone());
    }
    let dead: HashMap<_, _> = dead.iter().map(|d| ((d.channel, d.address.as_str()), d)).collect();
    let candidate = |page: &Page, recipient: Recipient| Candidate {
        preferences: of_user.get(&(&recipient.user_type, &recipient.user_id)).cloned().unwrap_or_default(),
        dead_addresses: addresses_of(&recipient, page)
            .filter_map(|address| dead.get(&address).copied().cloned())
            .collect(),
        recipient,
    };
    let on_page = |(page, found): (&Page, Vec<Recipient>)| {
        found.into_iter().map(|recipient| candidate(page, recipient)).collect()
    };
    pages.iter().zip(found).map(on_page).collect()
}

/// Each group with its kind and its own settings.
pub fn groups(
    kinds: impl IntoIterator<Item = (EntityRef, Option<String>)>,
    settings: Vec<Setting>,
) -> HashMap<EntityRef, Group> {
    let mut groups: HashMap<EntityRef, Group> = HashMap::new();
    for (entity, kind) in kinds {
        groups.entry(entity).or_default().kind = kind;
    }
    for setting in settings {
        if let Selector::Only(entity_id) = &setting.entity_id {
            let entity = EntityRef { entity_type: setting.entity_type.clone(), entity_id: entity_id.clone() };
            groups.entry(entity).or_default().settings.push(setting);
        }
    }
    groups
}
