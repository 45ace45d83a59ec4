//! The channels, and what differs between them: one row per channel. Other code asks for a fact and names no channel,
//! so that a new channel is a variant and a row here.

/// A new channel stands at the end, since the order is that of listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    Email,
    Push,
    Sms,
    Websocket,
    Slack,
}

/// What the rest of the system has to know of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, read one at a time")]
pub struct ChannelFacts {
    pub channel: Channel,
    /// The name in tables, JSON and configured lists.
    pub name: &'static str,
    pub address: AddressSource,
    pub addresses: AddressCount,
    /// Whether the address is a secret, such as a webhook. Listings mask it.
    pub secret_address: bool,
    /// Whether recipients may share an address. Each event is then sent to it once.
    pub once_per_address: bool,
    /// Whether quiet hours apply. They concern channels that ring or buzz.
    pub heeds_quiet_hours: bool,
    pub delivery: Delivery,
    /// What may put a send off without counting as an attempt.
    pub postponement: Postponement,
    /// Whether a message has the HTML of its template.
    pub html: bool,
    /// Whether a message has the link of its template.
    pub link: bool,
    /// Whether a message contains the recipient's name.
    pub recipient_name: bool,
    /// The shipped user types that support the channel.
    pub user_types: &'static [&'static str],
}

/// Where the addresses of a recipient come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSource {
    /// A column of `recipient`.
    Column(RecipientColumn),
    /// The channel's entry in the column `recipient.addresses`.
    Entry,
    /// The channel needs no address: it reaches whoever is connected.
    None,
}

/// The columns of `recipient` that contain addresses of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecipientColumn {
    Email,
    Phone,
    PushTokens,
    /// Recipients without a webhook get the default of their user type, if there is one.
    SlackWebhook,
}

impl RecipientColumn {
    pub fn as_str(self) -> &'static str {
        match self {
            RecipientColumn::Email => "email",
            RecipientColumn::Phone => "phone",
            RecipientColumn::PushTokens => "push_tokens",
            RecipientColumn::SlackWebhook => "slack_webhook",
        }
    }
}

/// How many addresses a send has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressCount {
    One,
    /// All devices of a recipient are one send. Its address contains theirs, separated by spaces.
    Many,
}

/// How a message gets from its queue to the recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Failed attempts are repeated. A final failure makes a dead letter.
    Retried,
    /// One attempt, and never a dead letter.
    BestEffort,
    /// No provider: the send is sent by being received.
    OnReceipt,
}

/// What may put a send off without counting as an attempt, for a configured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Postponement {
    /// The recipient's server asks for a later attempt (`Outcome::Deferred`), for at most `defer_for`.
    Deferred,
    /// The address is busy (`Outcome::RateLimited`), for at most `wait_for`.
    RateLimited,
    Never,
}

pub(super) const FACTS: &[ChannelFacts] = &[
    ChannelFacts {
        channel: Channel::Email,
        name: "EMAIL",
        address: AddressSource::Column(RecipientColumn::Email),
        addresses: AddressCount::One,
        secret_address: false,
        once_per_address: false,
        heeds_quiet_hours: true,
        delivery: Delivery::Retried,
        postponement: Postponement::Deferred,
        html: true,
        link: false,
        recipient_name: true,
        user_types: &["ADMIN_USER", "AGENCY_USER", "CUSTOMER", "RESTAURANT_USER"],
    },
    ChannelFacts {
        channel: Channel::Push,
        name: "PUSH",
        address: AddressSource::Column(RecipientColumn::PushTokens),
        addresses: AddressCount::Many,
        secret_address: false,
        once_per_address: false,
        heeds_quiet_hours: true,
        delivery: Delivery::Retried,
        postponement: Postponement::Never,
        html: false,
        link: true,
        recipient_name: false,
        user_types: &["AGENCY_USER", "CUSTOMER", "RESTAURANT_USER"],
    },
    ChannelFacts {
        channel: Channel::Sms,
        name: "SMS",
        address: AddressSource::Column(RecipientColumn::Phone),
        addresses: AddressCount::One,
        secret_address: false,
        once_per_address: false,
        heeds_quiet_hours: true,
        delivery: Delivery::Retried,
        postponement: Postponement::Never,
        html: false,
        link: false,
        recipient_name: false,
        user_types: &["AGENCY_USER", "CUSTOMER", "RESTAURANT_USER"],
    },
    ChannelFacts {
        channel: Channel::Websocket,
        name: "WEBSOCKET",
        address: AddressSource::None,
        addresses: AddressCount::One,
        secret_address: false,
        once_per_address: false,
        heeds_quiet_hours: false,
        delivery: Delivery::OnReceipt,
        postponement: Postponement::Never,
        html: false,
        link: false,
        recipient_name: false,
        user_types: &["ADMIN_USER", "AGENCY_USER", "CUSTOMER", "GUEST", "RESTAURANT_USER"],
    },
    ChannelFacts {
        channel: Channel::Slack,
        name: "SLACK",
        address: AddressSource::Column(RecipientColumn::SlackWebhook),
        addresses: AddressCount::One,
        secret_address: true,
        once_per_address: true,
        heeds_quiet_hours: false,
        delivery: Delivery::BestEffort,
        postponement: Postponement::RateLimited,
        html: false,
        link: false,
        recipient_name: false,
        user_types: &["ADMIN_USER", "RESTAURANT_USER"],
    },
];

// A row is found by the number of its channel.
const _: () = {
    let mut row = 0;
    while row < FACTS.len() {
        let facts = &FACTS[row];
        assert!(facts.channel as usize == row, "the rows are in the order of the variants");
        let many = matches!(facts.addresses, AddressCount::Many);
        assert!(!(many && facts.once_per_address), "a send of several addresses can't share one of them");
        let on_receipt = matches!(facts.delivery, Delivery::OnReceipt);
        assert!(
            on_receipt == matches!(facts.address, AddressSource::None),
            "only a provider needs an address"
        );
        row += 1;
    }
};
