//! A request to FCM's `messages:send`, as in its reference. `content.rs` decides the values of the fields.

use serde::Serialize;

#[derive(Serialize)]
pub struct Request<'a> {
    pub message: Target<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub validate_only: bool,
}

#[derive(Serialize)]
pub struct Target<'a> {
    pub token: &'a str,
    pub notification: Notification<'a>,
    pub data: Data<'a>,
    pub android: Android<'a>,
    pub apns: Apns<'a>,
    pub webpush: Webpush<'a>,
}

#[derive(Serialize)]
pub struct Notification<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub title: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub body: &'a str,
}

/// Data for the app, which may open the related page. On Android and Apple devices the app must follow a link. FCM
/// requires texts as values.
#[derive(Serialize)]
pub struct Data<'a> {
    pub event_id: &'a str,
    pub event_type: &'a str,
    pub notification_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<&'a str>,
}

#[derive(Serialize)]
pub struct Android<'a> {
    pub priority: &'a str,
    pub ttl: &'a str,
    pub notification: AndroidNotification<'a>,
}

#[derive(Serialize)]
pub struct AndroidNotification<'a> {
    pub tag: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub sound: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub channel_id: &'a str,
}

#[derive(Serialize)]
pub struct Apns<'a> {
    pub headers: ApnsHeaders<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<ApnsPayload<'a>>,
}

/// FCM adds title and body to it.
#[derive(Serialize)]
pub struct ApnsPayload<'a> {
    pub aps: Aps<'a>,
}

#[derive(Serialize)]
pub struct Aps<'a> {
    pub sound: &'a str,
}

#[derive(Serialize)]
pub struct ApnsHeaders<'a> {
    #[serde(rename = "apns-priority")]
    pub priority: &'a str,
    #[serde(rename = "apns-expiration")]
    pub expiration: &'a str,
    #[serde(rename = "apns-collapse-id")]
    pub collapse_id: &'a str,
}

#[derive(Serialize)]
pub struct Webpush<'a> {
    pub headers: WebpushHeaders<'a>,
    pub notification: Tagged<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fcm_options: Option<WebpushOptions<'a>>,
}

#[derive(Serialize)]
pub struct Tagged<'a> {
    pub tag: &'a str,
}

#[derive(Serialize)]
pub struct WebpushOptions<'a> {
    pub link: &'a str,
}

#[derive(Serialize)]
pub struct WebpushHeaders<'a> {
    #[serde(rename = "Urgency")]
    pub urgency: &'a str,
    #[serde(rename = "TTL")]
    pub ttl: &'a str,
}
