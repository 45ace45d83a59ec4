//! Who sends to an address that several recipients of one event share: the first send that asks. The others learn what
//! became of it.

use crate::id::NotificationId;
use crate::status::SendStatus;

/// The answer to a send that asks to send an event to a shared address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClaim {
    /// The send that asks holds the claim.
    Held,
    /// The send of this notification has sent it.
    Sent(NotificationId),
    /// Another send holds the claim and is not finished; or the send that asks is no longer being sent.
    Pending,
    /// The send that holds the claim may have sent it or not: nobody can know.
    Unknown(NotificationId),
}

impl AddressClaim {
    /// The answer for `applicant`, where `holder` has asked first and its send has this status. A send that failed for
    /// certain has released its claim and is no holder any more.
    pub fn of(holder: NotificationId, status: Option<SendStatus>, applicant: NotificationId) -> Self {
        if holder == applicant {
            return AddressClaim::Held;
        }
        match status {
            Some(SendStatus::Sent) => AddressClaim::Sent(holder),
            Some(SendStatus::Due | SendStatus::Sending) => AddressClaim::Pending,
            Some(SendStatus::Failed | SendStatus::InDoubt | SendStatus::Cancelled) | None => {
                AddressClaim::Unknown(holder)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_learn_what_became_of_the_first_send() {
        let (holder, other) = (NotificationId::generate(), NotificationId::generate());
        for status in SendStatus::ALL {
            assert_eq!(AddressClaim::of(holder, Some(*status), holder), AddressClaim::Held);
        }
        let answer = |status| AddressClaim::of(holder, status, other);
        assert_eq!(answer(Some(SendStatus::Sent)), AddressClaim::Sent(holder));
        for status in [SendStatus::Due, SendStatus::Sending] {
            assert_eq!(answer(Some(status)), AddressClaim::Pending);
        }
        for status in [Some(SendStatus::Failed), Some(SendStatus::InDoubt), None] {
            assert_eq!(answer(status), AddressClaim::Unknown(holder));
        }
    }
}
