//! Refines the document for generators of clients. Types serve requests and answers alike. But a request may leave
//! fields out, and give ids as numbers; an answer has every field, and ids as text.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Fields that an answer leaves out if there is nothing to say.
const OPTIONAL_IN_ANSWERS: [(&str, &str); 2] = [("Decision", "details"), ("Problem", "errors")];
/// Schemas whose names are known in the code only.
const RENAMED: [(&str, &str); 6] = [
    ("OutboxView", "OutboxRow"),
    ("TraceBody", "Trace"),
    ("ExplanationBody", "Explanation"),
    ("SendKey", "SendId"),
    ("ShownSend_TracedSend", "TracedSend"),
    ("Page_ShownSend_ListedSend", "Page_ListedSend"),
];
const SCHEMAS: &str = "#/components/schemas/";

pub fn refine(mut document: Value) -> Value {
    let mut schemas = match document["components"]["schemas"].take() {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    };
    name_items_of_pages(&mut schemas);
    simplify_parameters(&mut document["paths"], &schemas);
    for (old, new) in RENAMED {
        if let Some(schema) = schemas.remove(old) {
            schemas.insert(new.to_owned(), schema);
        }
    }
    let renamed = |name: &str| RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| (*new).to_owned());
    rename(&mut document["paths"], &renamed);
    schemas.values_mut().for_each(|schema| rename(schema, &renamed));

    let requests = reachable(of_bodies(&document, "requestBody"), &schemas);
    let answers = reachable(of_bodies(&document, "responses"), &schemas);
    let as_input = |name: &str| {
        let is_both = requests.contains(name) && answers.contains(name);
        (is_both && differs(name, &schemas)).then(|| format!("{name}Input"))
    };
    let mut inputs = Map::new();
    for name in &requests {
        let Some(input) = as_input(name) else { continue };
        let mut schema = schemas[name].clone();
        rename(&mut schema, &as_input);
        inputs.insert(input, schema);
    }
    let mut of_requests_only: Vec<(String, Value)> = Vec::new();
    for name in requests.difference(&answers) {
        let mut schema = schemas[name].clone();
        rename(&mut schema, &as_input);
        of_requests_only.push((name.clone(), schema));
    }
    each_operation(&mut document["paths"], |operation| {
        operation.get_mut("requestBody").into_iter().for_each(|body| rename(body, &as_input));
    });
    schemas.extend(of_requests_only);
    for name in &answers {
        schemas.get_mut(name).into_iter().for_each(|schema| describe_answer(name, schema));
    }
    schemas.extend(inputs);
    let used = reachable(references(&document["paths"]), &schemas);
    schemas.retain(|name, _| used.contains(name));
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

/// Replaces the schema inside a page by a reference to it. Generators name a type after it.
fn name_items_of_pages(schemas: &mut Map<String, Value>) {
    let pages: Vec<String> = schemas.keys().filter(|name| name.starts_with("Page_")).cloned().collect();
    for page in pages {
        let item = page.rsplit('_').next().unwrap_or_default().to_owned();
        let Some(items) = schemas[&page].pointer_mut("/properties/items/items") else { continue };
        let schema = std::mem::replace(items, json!({ "$ref": format!("{SCHEMAS}{item}") }));
        // What a list shows may be more than the row of the same name.
        schemas.insert(item, schema);
    }
}

/// A parameter is text in a URL, whatever else its type accepts.
fn simplify_parameters(paths: &mut Value, schemas: &Map<String, Value>) {
    each_operation(paths, |operation| {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for schema in parameters.into_iter().flatten().filter_map(|parameter| parameter.get_mut("schema")) {
            let present =
                schema["oneOf"].as_array().and_then(|all| all.iter().find(|one| one["type"] != "null"));
            if let Some(present) = present.cloned() {
                *schema = present;
            }
            let described = name_of(schema).and_then(|name| schemas.get(name)).filter(|schema| is_id(schema));
            if let Some(examples) = described.map(|described| described["examples"].clone()) {
                *schema = json!({ "type": "string", "examples": examples });
            }
        }
    });
}

/// Whether requests and answers differ in this schema, or in one that it refers to.
fn differs(name: &str, schemas: &Map<String, Value>) -> bool {
    let reached = reachable(BTreeSet::from([name.to_owned()]), schemas);
    reached.iter().filter_map(|name| schemas.get(name)).any(|schema| {
        let fields = schema["properties"].as_object().map_or(0, Map::len);
        let required = schema["required"].as_array().map_or(0, Vec::len);
        is_id(schema) || fields > required
    })
}

/// Text or a number.
fn is_id(schema: &Value) -> bool {
    schema["type"] == json!(["string", "integer"])
}

/// Says what an answer always has.
fn describe_answer(name: &str, schema: &mut Value) {
    if is_id(schema) {
        *schema = json!({ "type": "string", "examples": schema["examples"] });
    }
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::Object(properties)) = fields.get("properties") {
        let is_required = |field: &&String| !OPTIONAL_IN_ANSWERS.contains(&(name, field.as_str()));
        let required: Vec<&String> = properties.keys().filter(is_required).collect();
        let required = json!(required);
        fields.insert("required".to_owned(), required);
    }
    // A later version may add fields.
    if fields.get("additionalProperties") == Some(&json!(false)) {
        fields.remove("additionalProperties");
    }
    for part in parts(fields) {
        describe_answer(name, part);
    }
}

/// The schemas that a schema consists of.
fn parts(schema: &mut Map<String, Value>) -> Vec<&mut Value> {
    let mut parts = Vec::new();
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("items" | "additionalProperties", value) => parts.push(value),
            ("properties", Value::Object(fields)) => parts.extend(fields.values_mut()),
            ("allOf" | "oneOf" | "anyOf", Value::Array(choices)) => parts.extend(choices),
            _ => {}
        }
    }
    parts
}

fn each_operation(paths: &mut Value, mut change: impl FnMut(&mut Value)) {
    for item in paths.as_object_mut().into_iter().flat_map(Map::values_mut) {
        item.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(&mut change);
    }
}

/// The schemas that this part of any operation refers to.
fn of_bodies(document: &Value, part: &str) -> BTreeSet<String> {
    let items = document["paths"].as_object().into_iter().flat_map(Map::values);
    let operations = items.flat_map(|item| item.as_object().into_iter().flat_map(Map::values));
    operations.flat_map(|operation| references(&operation[part])).collect()
}

/// These schemas, and those that they refer to.
fn reachable(roots: BTreeSet<String>, schemas: &Map<String, Value>) -> BTreeSet<String> {
    let (mut reached, mut open) = (BTreeSet::new(), Vec::from_iter(roots));
    while let Some(name) = open.pop() {
        if let Some(schema) = schemas.get(&name)
            && reached.insert(name)
        {
            open.extend(references(schema));
        }
    }
    reached
}

fn references(value: &Value) -> BTreeSet<String> {
    let own = name_of(value).map(str::to_owned);
    let inner: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(values) => values.iter().collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(inner.into_iter().flat_map(references)).collect()
}

/// Changes the names in references.
fn rename(value: &mut Value, new_name: &impl Fn(&str) -> Option<String>) {
    if let Some(new) = name_of(value).and_then(new_name) {
        value["$ref"] = json!(format!("{SCHEMAS}{new}"));
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| rename(value, new_name)),
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, new_name)),
        _ => {}
    }
}

/// The name of the schema that this is a reference to.
fn name_of(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.strip_prefix(SCHEMAS)
}
