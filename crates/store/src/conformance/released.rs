//! What released programs say to the database, read from the file in which it was frozen. Every database has such a file per
//! release, and a test that a later schema still takes all of it.

/// The statements of a file by their names. Each is introduced by a line `-- name: …`; other comments before the first are
/// about the file.
pub fn parse(text: &str) -> Vec<(String, String)> {
    text.split("-- name: ")
        .skip(1)
        .map(|part| {
            let (name, sql) = part.split_once('\n').unwrap_or((part, ""));
            (name.trim().to_owned(), sql.trim().to_owned())
        })
        .collect()
}

/// Each table that a statement inserts into, with the columns that it names.
pub fn insertions(sql: &str) -> Vec<(String, Vec<String>)> {
    let unquoted = |name: &str| name.trim().trim_matches('"').to_owned();
    sql.split("INSERT INTO ")
        .skip(1)
        .map(|part| {
            let (table, rest) = part.split_once('(').unwrap_or((part, ""));
            let (columns, _) = rest.split_once(')').unwrap_or((rest, ""));
            (unquoted(table), columns.split(',').map(unquoted).collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart_by_their_names() {
        let text = "-- About the file.\n\n-- name: one\nSELECT 1\nFROM t\n\n-- name: two words\nSELECT 2\n";
        let one = ("one".to_owned(), "SELECT 1\nFROM t".to_owned());
        assert_eq!(parse(text), [one, ("two words".to_owned(), "SELECT 2".to_owned())]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn insertions_name_their_columns() {
        let columns =
            |columns: &[&str]| columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>();
        let plain = "INSERT INTO a (id, \"when\",\n    b) VALUES (1, 2, 3) ON CONFLICT (id) DO NOTHING";
        assert_eq!(insertions(plain), [("a".to_owned(), columns(&["id", "when", "b"]))]);
        let two =
            "WITH x AS (INSERT INTO s.a (id) SELECT 1 RETURNING id) INSERT INTO b (c, d) SELECT id, 2 FROM x";
        assert_eq!(
            insertions(two),
            [("s.a".to_owned(), columns(&["id"])), ("b".to_owned(), columns(&["c", "d"]))]
        );
        assert!(insertions("UPDATE a SET b = 1").is_empty());
    }
}
