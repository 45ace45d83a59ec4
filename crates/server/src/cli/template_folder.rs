//! Templates as files, kept next to the code that emits their events.
//!
//! `EVENT_TYPE/CHANNEL.LOCALE.txt` has the title in its first line and, after an empty line, the body. A file `….mjml`
//! or `….html` next to it has the HTML, and `….url` the link. `any` stands for `*`; a missing locale is `*`. Any other
//! file name is an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use campanile_domain::rules::row::Template;
use campanile_domain::template;
use serde_json::{Map, Value, json};

/// The key of a row: event type, channel, locale.
type Key = (String, String, String);

/// Reads and checks the rows of a folder.
pub fn read(folder: &Path) -> anyhow::Result<Vec<Value>> {
    let mut rows: BTreeMap<Key, (PathBuf, Map<String, Value>)> = BTreeMap::new();
    for event_type in entries(folder)? {
        if !event_type.is_dir() {
            bail!(
                "{} is not a folder; put templates in folders named after their event type",
                event_type.display()
            );
        }
        for file in entries(&event_type)? {
            let (key, extension) = named(&file, &name(&event_type)?)?;
            let fields = fields(&file, &extension)?;
            let row = &mut rows.entry(key).or_insert_with(|| (file.clone(), Map::new())).1;
            for (field, value) in fields {
                if row.insert(field.to_owned(), value).is_some() {
                    bail!("{}: duplicate {field} for this template; remove one", file.display());
                }
            }
        }
    }
    if rows.is_empty() {
        bail!(
            "{} contains no templates; expected files such as ORDER_CREATED/EMAIL.it.txt",
            folder.display()
        );
    }
    rows.into_iter().map(|(key, (file, row))| checked(key, &file, row)).collect()
}

/// The entries in order, without hidden files and README files.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read {}", folder.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let name = name(&path)?;
        if !name.starts_with('.') && name != "README.md" {
            entries.push(path);
        }
    }
    entries.sort();
    Ok(entries)
}

fn name(path: &Path) -> anyhow::Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| anyhow!("{} has a name that is not UTF-8", path.display()))
}

/// The key and the extension of a file: `EMAIL.it.txt` → its key and `txt`.
fn named(file: &Path, event_type: &str) -> anyhow::Result<(Key, String)> {
    let name = name(file)?;
    let star = |part: &str| if part == "any" { "*".to_owned() } else { part.to_owned() };
    let (channel, locale, extension) = match name.split('.').collect::<Vec<_>>()[..] {
        [channel, extension] => (channel, "any", extension),
        [channel, locale, extension] => (channel, locale, extension),
        _ => ("", "", ""),
    };
    if channel.is_empty() || locale.is_empty() || !["txt", "mjml", "html", "url"].contains(&extension) {
        bail!(
            "{} is not named CHANNEL.LOCALE.txt, .mjml, .html or .url, such as EMAIL.it.txt or any.txt",
            file.display()
        );
    }
    Ok(((star(event_type), star(channel), star(locale)), extension.to_owned()))
}

fn fields(file: &Path, extension: &str) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let length = fs::metadata(file).map(|metadata| metadata.len());
    let length = length.with_context(|| format!("cannot read {}", file.display()))?;
    if length > template::MAX_SOURCE_BYTES as u64 {
        bail!("{} has more than {} bytes", file.display(), template::MAX_SOURCE_BYTES);
    }
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // Some editors start a file with an invisible byte order mark, which would break a subject or `<mjml`.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if extension == "mjml" && !text.trim_start().starts_with("<mjml") {
        bail!("{} does not start with <mjml and would be sent unchanged; rename it to .html", file.display());
    }
    if extension == "url" {
        return Ok(vec![("url", json!(text.trim()))]);
    }
    if extension != "txt" {
        return Ok(vec![("html", json!(text))]);
    }
    let text = text.replace("\r\n", "\n");
    let (title, body) = text.split_once('\n').unwrap_or((&text, ""));
    if !body.is_empty() && !body.starts_with('\n') {
        bail!("{}: put an empty line between the title (first line) and the body", file.display());
    }
    Ok(vec![("title", json!(title.trim())), ("body", json!(body.trim()))])
}

fn checked(
    (event_type, channel, locale): Key,
    file: &Path,
    mut row: Map<String, Value>,
) -> anyhow::Result<Value> {
    for (field, value) in [("event_type", event_type), ("channel", channel), ("locale", locale)] {
        row.insert(field.to_owned(), json!(value));
    }
    row.entry("title").or_insert_with(|| json!(""));
    let row = Value::Object(row);
    let template: Template =
        serde_json::from_value(row.clone()).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    template::check(&template).map_err(|error| {
        let stem = file.with_extension("");
        anyhow!("{}, its {}: {}", stem.display(), error.field, error.detail)
    })?;
    Ok(row)
}
