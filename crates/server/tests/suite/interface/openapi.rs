//! The document that describes the API: its examples work, and tools that read it do, too.

use std::collections::BTreeSet;

use campanile_testkit::on_both;
use campanile_testkit::token::{Algorithm, Issuer};
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh, encoded};
use crate::interface::permissions::{claims, start, trusting};
use crate::support::{Backend, KEY};

/// Calls whose example names what does not exist in a new installation.
const NOT_FOUND: [(&str, &str); 4] = [
    ("post", "/v1/sends/{id}/resend"),
    ("post", "/v1/sends/{id}/settle"),
    ("delete", "/v1/api-keys/{id}"),
    ("post", "/v1/callbacks/twilio"),
];
/// Rows are written before they are read, and deleted last.
const ORDER: [&str; 4] = ["put", "post", "get", "delete"];

/// The calls of the document, in the order in which they can be tried.
fn calls(document: &Value) -> Vec<(&'static str, String, Value)> {
    let paths = document["paths"].as_object().expect("there are paths");
    let of_method = |method: &'static str| {
        let found = paths.iter().filter(move |(_, item)| !item[method].is_null());
        found.map(move |(path, item)| (method, path.clone(), item[method].clone()))
    };
    ORDER.into_iter().flat_map(of_method).collect()
}

/// Follows a reference inside the document.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => {
            document.pointer(reference.trim_start_matches('#')).expect("what is referred to is there")
        }
        None => schema,
    }
}

/// The example of a schema: its own, or that of the schema which it refers to or consists of.
fn example(document: &Value, schema: &Value) -> Option<Value> {
    let schema = resolved(document, schema);
    let own = schema.get("example").or_else(|| schema["examples"].get(0)).or_else(|| schema["enum"].get(0));
    if let Some(own) = own {
        return Some(own.clone());
    }
    if let Some(items) = schema.get("items") {
        return Some(json!([example(document, items)?]));
    }
    schema["oneOf"].as_array()?.iter().find_map(|choice| example(document, choice))
}

/// The examples of parameters in this part of a request.
fn parameters(document: &Value, operation: &Value, part: &str) -> Vec<(String, String)> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    all.filter(|parameter| parameter["in"] == part)
        .filter_map(|parameter| {
            let example =
                parameter.get("example").cloned().or_else(|| example(document, &parameter["schema"]))?;
            let text = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
            Some((parameter["name"].as_str()?.to_owned(), text))
        })
        .collect()
}

async fn every_example_of_the_document_gets_the_documented_answer(backend: Backend) {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let server = start(backend, &trusting(&issuer, folder.path()));
    // The user of the examples.
    let token = issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "10"));
    let document = server.get("/openapi.json").await;
    for (method, path, operation) in calls(&document) {
        let mut target = path.clone();
        for (name, value) in parameters(&document, &operation, "path") {
            target = target.replace(&format!("{{{name}}}"), &encoded(&value));
        }
        assert!(!target.contains('{'), "{method} {path}: a parameter has no example");
        let query = parameters(&document, &operation, "query");
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let content = &operation["requestBody"]["content"];
        let mut request = server
            .request(
                Method::from_bytes(method.to_uppercase().as_bytes()).expect("it is a method"),
                &format!("{target}?{}", query.join("&")),
            )
            .bearer_auth(if operation["security"] == json!([{ "userToken": [] }]) { &token } else { KEY });
        if let Some((media_type, body)) = content.as_object().and_then(|content| content.iter().next()) {
            let body = body.get("example").cloned().or_else(|| example(&document, &body["schema"]));
            let body = body.unwrap_or_else(|| panic!("{method} {path}: the body has no example"));
            let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
            request = request.header("content-type", media_type).body(text);
        }
        let answer = Answer::to(request).await;
        let told = format!("{method} {target}?{}: {} {}", query.join("&"), answer.status, answer.body);
        let documented = &operation["responses"][answer.status.to_string()];
        assert!(documented.is_object(), "the status is not documented: {told}");
        assert_eq!(answer.status == 404, NOT_FOUND.contains(&(method, path.as_str())), "{told}");
        assert!(answer.status == 404 || answer.status < 300, "{told}");
        let content = &documented["content"];
        let media_type = answer.header("content-type").split(';').next().unwrap_or_default();
        assert!(answer.status == 204 || content.get(media_type).is_some(), "{media_type:?}: {told}");
        // What an answer's example says is what the call with the request's example answers.
        if let Some(expected) = example(&document, &content[media_type]["schema"])
            && method != "get"
            && answer.status < 300
            && let Value::Object(fields) = &expected
        {
            let named: BTreeSet<&String> = fields.keys().collect();
            let given: BTreeSet<&String> = answer.body.as_object().expect("it is an object").keys().collect();
            assert_eq!(named, given, "{told}");
        }
    }
}

on_both! {
    every_example_of_the_document_gets_the_documented_answer;
}

#[tokio::test]
async fn every_call_has_a_name_of_its_own_and_describes_itself() {
    let server = Fresh::start(Backend::Embedded);
    let document = server.get("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut names = BTreeSet::new();
    for (method, path, operation) in calls(&document) {
        let name = operation["operationId"].as_str().expect("a call has a name").to_owned();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert!(names.insert(name.clone()), "{name} is the name of two calls");
        assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 5), "{method} {path}");
        assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{method} {path}");
        for (status, response) in operation["responses"].as_object().expect("a call has answers") {
            let is_problem = status.starts_with('4') || matches!(status.as_str(), "500" | "501");
            assert_eq!(
                response["content"].get("application/problem+json").is_some(),
                is_problem || (status == "503" && path != "/readyz"),
                "{method} {path} {status}"
            );
        }
    }
}
