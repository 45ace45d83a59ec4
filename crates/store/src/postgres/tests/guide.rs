//! Tests the SQL of the guides, so that the documented SQL is the tested SQL.

pub const PRODUCERS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/producers.md"));
pub const POSTGRESQL: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/postgresql.md"));

/// The block of SQL that opens with this comment.
pub fn block(guide: &'static str, comment: &str) -> &'static str {
    let mut blocks = guide.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let opens = |block: &&str| block.strip_prefix("-- ").is_some_and(|rest| rest.starts_with(comment));
    blocks.find(opens).unwrap_or_else(|| panic!("the guide has no SQL that opens with `-- {comment}`"))
}
