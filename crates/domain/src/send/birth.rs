//! The status that a send is born with, when its message is received.

use crate::channel::Delivery;
use crate::status::SendStatus;

/// The provider of sends that are sent by being received.
pub const ON_RECEIPT_PROVIDER: &str = "realtime";

/// `claimed` says whether the receiving instance has a permit for an attempt. Without one the send is due and waits.
pub fn birth(delivery: Delivery, claimed: bool) -> SendStatus {
    match (delivery, claimed) {
        (Delivery::OnReceipt, _) => SendStatus::Sent,
        (Delivery::Retried | Delivery::BestEffort, true) => SendStatus::Sending,
        (Delivery::Retried | Delivery::BestEffort, false) => SendStatus::Due,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_makes_an_attempt_and_no_provider_makes_none() {
        for delivery in [Delivery::Retried, Delivery::BestEffort] {
            assert_eq!(birth(delivery, true), SendStatus::Sending);
            assert_eq!(birth(delivery, false), SendStatus::Due);
        }
        for claimed in [true, false] {
            assert_eq!(birth(Delivery::OnReceipt, claimed), SendStatus::Sent);
        }
    }
}
