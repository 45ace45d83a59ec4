//! JSON schemas of types that read and write themselves, for the description of the API. Schemas of plain structs and
//! enums are derived.

use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};

use crate::id::MAX_ID_CHARS;

/// Text without control characters.
const PRINTABLE: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// An id or a name: text of bounded length, or a whole number, which is kept as text.
pub fn id(description: &str, example: &str) -> RefOr<Schema> {
    let number = if description.is_empty() { String::new() } else { format!("{description} ") };
    ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![Type::String, Type::Integer]))
        .min_length(Some(1))
        .max_length(Some(MAX_ID_CHARS))
        .pattern(Some(PRINTABLE))
        .description(Some(format!("{number}Numbers are accepted and kept as text.")))
        .examples([example])
        .into()
}

/// Text of this format.
pub fn text(description: &str, pattern: Option<&str>, example: &str) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .pattern(pattern)
        .examples([example])
        .into()
}

/// One of a few words.
pub fn word(description: &str, words: &[&str]) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .enum_values(Some(words.iter().copied()))
        .into()
}

/// Implements the schema of a type without parameters by an expression.
macro_rules! schema {
    ($name:ty, $schema:expr) => {
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $schema
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}

pub(crate) use schema;

/// The schema of a JSON object with any fields.
#[derive(Debug)]
pub struct JsonObject;

schema!(
    JsonObject,
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .into()
);
