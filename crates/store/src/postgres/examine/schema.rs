//! Checks that the tables match this release. It also finds out whether the recipients are Campanile's own table or a
//! view of the business.

use campanile_domain::finding::Finding;

use super::Session;
use crate::examine::{Schema, not_checked};
use crate::postgres::migrate::MIGRATIONS;
use crate::postgres::row::listing;
use crate::{RowFilter, Table};

const SUBJECT: &str = "tables";

/// Reads the catalogue, which every user may read. Naming a table without a privilege on it is an error.
const FACTS: &str = "
    SELECT c.oid IS NOT NULL AS there,
           coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), false) AS readable,
           CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
                ELSE pg_has_role(n.nspowner, 'USAGE') END AS may_migrate,
           quote_ident(current_database()) AS database, quote_ident(current_user) AS role,
           quote_ident(pg_get_userbyid(n.nspowner)) AS owner
    FROM (SELECT 1) one
    LEFT JOIN pg_namespace n ON n.nspname = 'campanile'
    LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'schema_history'";

impl Session {
    /// Returns the finding, and whether there are tables to examine.
    pub(super) async fn schema(&mut self) -> (Finding, bool) {
        let rows = match self.ask(FACTS, &[]).await {
            Ok(rows) => rows,
            Err(why) => return (not_checked(SUBJECT, &why), false),
        };
        let Some(facts) = rows.first() else { return (not_checked(SUBJECT, "no answer"), false) };
        let (there, readable): (bool, bool) = (facts.get("there"), facts.get("readable"));
        let text = |column: &str| facts.get::<_, Option<String>>(column).unwrap_or_default();
        let may_migrate = match (facts.get::<_, bool>("may_migrate"), text("owner").as_str()) {
            (true, _) => Ok(()),
            (false, "") => Err(format!(
                "GRANT CREATE ON DATABASE {} TO {}; or run `campanile migrate` as a user with that privilege",
                text("database"),
                text("role")
            )),
            (false, owner) => Err(format!(
                "run `campanile migrate` as {owner}, the owner of the schema campanile, \
                 or set database.direct_url to that user"
            )),
        };
        if there && !readable {
            return (not_checked(SUBJECT, "no SELECT privilege on campanile.schema_history"), true);
        }
        let applied: Result<Vec<i64>, String> = if there {
            let history = self.ask("SELECT version::bigint FROM campanile.schema_history", &[]).await;
            history.map(|rows| rows.iter().map(|row| row.get(0)).collect())
        } else {
            Ok(Vec::new())
        };
        match applied {
            Ok(applied) => {
                let schema = Schema::of(&applied, &MIGRATIONS.map(|(name, _)| name));
                (schema.finding(may_migrate), schema != Schema::Missing)
            }
            Err(why) => (not_checked(SUBJECT, &why), true),
        }
    }

    pub(super) async fn recipients(&mut self) -> Finding {
        const SUBJECT: &str = "recipients";
        let kind = "SELECT c.relkind IN ('r', 'p'),
                           array(SELECT a.attname::text FROM pg_attribute a
                               WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
                    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = 'campanile' AND c.relname = 'recipient'";
        let rows = match self.ask(kind, &[]).await {
            Ok(rows) => rows,
            Err(why) => return not_checked(SUBJECT, &why),
        };
        let columns: Vec<&str> =
            Table::Recipients.description().columns.iter().map(|(name, _)| *name).collect();
        let remedy = || format!("create a view campanile.recipient with the columns {}", columns.join(", "));
        let Some(row) = rows.first() else {
            return Finding::wrong(SUBJECT, "campanile.recipient is missing", remedy());
        };
        let (table, found): (bool, Vec<String>) = (row.get(0), row.get(1));
        let missing: Vec<&str> =
            columns.iter().filter(|name| !found.iter().any(|found| found == *name)).copied().collect();
        if !missing.is_empty() {
            let what = format!("campanile.recipient lacks {}", missing.join(", "));
            return Finding::wrong(SUBJECT, what, remedy());
        }
        if table {
            return Finding::ok(SUBJECT, "stored in the table campanile.recipient");
        }
        // A wrong column type, or a missing table behind the view, causes an error only when the view is read.
        let (sql, _) = listing(Table::Recipients.description(), &RowFilter::default());
        match self.ask(&sql, &[&1_i64]).await {
            Ok(_) => Finding::ok(
                SUBJECT,
                "read from the view campanile.recipient; change its rows in the tables behind it",
            ),
            Err(why) => Finding::wrong(
                SUBJECT,
                format!("the view campanile.recipient can't be used: {why}"),
                remedy(),
            ),
        }
    }
}
