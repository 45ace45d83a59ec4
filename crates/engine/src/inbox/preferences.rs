//! The preferences of one user, and what the rules make of them.

use campanile_domain::fan_out::Page;
use campanile_domain::id::UserRef;
use campanile_domain::inbox::preferences::{Choice, EffectiveChoice, effective_choices};
use campanile_store::{StoreError, Table, TableRow};

use crate::Engine;

impl Engine {
    /// What the user may choose, what was chosen, and what is decided now. `None` if there is no such recipient.
    pub async fn preferences_of(&self, user: &UserRef) -> Result<Option<Vec<EffectiveChoice>>, StoreError> {
        let mut audience = self.store.read_audience().await?;
        let (rules, now) = (self.rules.current(), audience.now());
        let page = Page::of_user(user.clone()).asking_for_every_dead_address(&rules);
        let Some(candidate) = audience.candidates(vec![page]).await?.into_iter().flatten().next() else {
            return Ok(None);
        };
        let groups = audience.groups(candidate.recipient.entity().into_iter().collect()).await?;
        let group = groups.get(&candidate.recipient.group()).cloned().unwrap_or_default();
        Ok(Some(effective_choices(&rules, &candidate, &group, now)))
    }

    /// Replaces the user's choices for these event types and channels, all or none. Returns how many were written.
    pub async fn choose(&self, user: &UserRef, choices: Vec<Choice>) -> Result<u64, StoreError> {
        let rows = choices.into_iter().map(|choice| TableRow::from(choice.of(user.clone()))).collect();
        let written = self.store.put_rows(Table::Preferences, rows, None).await?;
        self.rules.refresh(self.store.as_ref()).await?;
        Ok(written)
    }
}
