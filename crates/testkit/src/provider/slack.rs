//! The rules of Slack's incoming webhooks and blocks.

use serde_json::{Map, Value};

use super::http::Request;

pub const PATH: &str = "/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX";

/// Checks a request and returns its body.
pub fn check(request: &Request) -> Result<Option<Value>, String> {
    if request.line != format!("POST {PATH} HTTP/1.1") {
        return Err(format!("{}: not the webhook", request.line));
    }
    if request.values("content-type") != ["application/json"] {
        return Err(format!("the content type is {:?}", request.values("content-type")));
    }
    for unwanted in ["authorization", "cookie", "referer"] {
        if !request.values(unwanted).is_empty() {
            return Err(format!("there is a header `{unwanted}`"));
        }
    }
    let posted: Value = serde_json::from_str(&request.body).map_err(|error| error.to_string())?;
    let fields = object(&posted, &["text", "blocks"])?;
    mrkdwn(&fields["text"], 4_000)?;
    let blocks = fields["blocks"].as_array().ok_or("the blocks are no array")?;
    if blocks.is_empty() || blocks.len() > 50 {
        return Err("there are 1 to 50 blocks".to_owned());
    }
    blocks.iter().try_for_each(block)?;
    Ok(Some(posted))
}

fn block(block: &Value) -> Result<(), String> {
    match block["type"].as_str() {
        Some("header") => {
            let text = &object(block, &["type", "text"])?["text"];
            if text["type"] != "plain_text" {
                return Err("a header is plain text".to_owned());
            }
            text_object(text, 150)
        }
        Some("section") => text_object(&object(block, &["type", "text"])?["text"], 3_000),
        Some("context") => {
            let elements = &object(block, &["type", "elements"])?["elements"];
            let elements = elements.as_array().ok_or("the elements are no array")?;
            if elements.is_empty() || elements.len() > 10 {
                return Err("there are 1 to 10 elements".to_owned());
            }
            elements.iter().try_for_each(|element| text_object(element, 2_000))
        }
        other => Err(format!("{other:?} is no block that is used here")),
    }
}

fn text_object(text: &Value, max: usize) -> Result<(), String> {
    match text["type"].as_str() {
        Some("plain_text") => {
            let fields = object(text, &["type", "text", "emoji"])?;
            if !fields["emoji"].is_boolean() {
                return Err("`emoji` is true or false".to_owned());
            }
            length(&fields["text"], max).map(|_| ())
        }
        Some("mrkdwn") => {
            let fields = object(text, &["type", "text", "verbatim"])?;
            if !fields["verbatim"].is_boolean() {
                return Err("`verbatim` is true or false".to_owned());
            }
            mrkdwn(&fields["text"], max)
        }
        other => Err(format!("{other:?} is no text")),
    }
}

/// Checks that a text contains no mention, no link with a label, and no incomplete entity.
fn mrkdwn(text: &Value, max: usize) -> Result<(), String> {
    let text = length(text, max)?;
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>']) {
        rest = &rest[at..];
        if let Some(entity) = ["&amp;", "&lt;", "&gt;"].into_iter().find(|entity| rest.starts_with(entity)) {
            rest = &rest[entity.len()..];
            continue;
        }
        let link = rest.split_once('>').map(|(link, _)| link).unwrap_or_default();
        if !(link.starts_with("<https://") || link.starts_with("<http://")) || link[1..].contains(['|', '<'])
        {
            return Err(format!("there is something special in `{text}`"));
        }
        rest = &rest[link.len() + 1..];
    }
    Ok(())
}

fn length(text: &Value, max: usize) -> Result<&str, String> {
    let text = text.as_str().ok_or("a text is no string")?;
    let length = text.encode_utf16().count();
    if length == 0 || length > max { Err(format!("a text has 1 to {max} characters")) } else { Ok(text) }
}

/// Checks that an object has exactly these fields.
fn object<'a>(value: &'a Value, names: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let fields = value.as_object().ok_or_else(|| format!("{value} is no object"))?;
    let is_right = fields.len() == names.len() && names.iter().all(|name| fields.contains_key(*name));
    if is_right { Ok(fields) } else { Err(format!("{value} does not have the fields {names:?}")) }
}
