//! Checks that the engine's user has the privileges that an engine needs.

use std::collections::BTreeMap;

use campanile_domain::finding::Finding;

use super::Session;
use crate::examine::not_checked;
use crate::postgres::migrate::MIGRATIONS;

const SUBJECT: &str = "grants";

/// The missing privileges, one per row. Views are read, and so are tables that only migrations and triggers change. Ids
/// come from identity columns, which need no grant, except the one sequence that is used by name. Trigger functions
/// need no grant either, and `emit` is for producers.
const MISSING: &str = "
    WITH campanile AS (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'campanile')
    SELECT 'SCHEMA' AS kind, 'campanile' AS name, 'USAGE' AS privilege
    FROM campanile WHERE NOT has_schema_privilege(oid, 'USAGE')
    UNION ALL
    SELECT 'TABLE', 'campanile.' || c.relname, p.privilege
    FROM campanile JOIN pg_class c ON c.relnamespace = campanile.oid,
         unnest(CASE WHEN c.relkind IN ('v', 'm', 'f') OR c.relname IN ('rule_version',
             'schema_history') THEN ARRAY['SELECT']
                     ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END) WITH ORDINALITY p (privilege, ordinal)
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY ($1) AND NOT has_table_privilege(c.oid,
        p.privilege)
    UNION ALL
    SELECT 'SEQUENCE', 'campanile.' || c.relname, 'USAGE'
    FROM campanile JOIN pg_class c ON c.relnamespace = campanile.oid
    WHERE c.relname = 'event_outbox_id_seq' AND NOT has_sequence_privilege(c.oid, 'USAGE')
    UNION ALL
    SELECT 'FUNCTION', 'campanile.now()', 'EXECUTE'
    FROM campanile JOIN pg_proc f ON f.pronamespace = campanile.oid
    WHERE f.proname = 'now' AND NOT has_function_privilege(f.oid, 'EXECUTE')";

impl Session {
    pub(super) async fn grants(&mut self) -> Finding {
        let names: Vec<&str> = relations();
        let missing = match self.ask(MISSING, &[&names]).await {
            Ok(rows) => rows,
            Err(why) => return not_checked(SUBJECT, &why),
        };
        let role = match self.ask("SELECT quote_ident(current_user)", &[]).await {
            Ok(rows) => rows.first().map(|row| row.get::<_, String>(0)).unwrap_or_default(),
            Err(why) => return not_checked(SUBJECT, &why),
        };
        let missing: Vec<Missing> = missing
            .iter()
            .map(|row| Missing { kind: row.get(0), name: row.get(1), privilege: row.get(2) })
            .collect();
        grants(&role, &missing, names.len())
    }
}

/// The tables and views of this release.
fn relations() -> Vec<&'static str> {
    let named = |(_, sql): &(&'static str, &'static str)| {
        let tables = sql.split("CREATE TABLE campanile.").skip(1);
        tables.chain(sql.split("CREATE VIEW campanile.").skip(1)).filter_map(|rest| rest.split(' ').next())
    };
    MIGRATIONS.iter().flat_map(named).chain(["schema_history"]).collect()
}

#[derive(Debug)]
struct Missing {
    kind: String,
    name: String,
    privilege: String,
}

fn grants(role: &str, missing: &[Missing], relations: usize) -> Finding {
    if missing.is_empty() {
        return Finding::ok(SUBJECT, format!("{role} has every required privilege"));
    }
    let mut by_object: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for Missing { kind, name, privilege } in missing {
        by_object.entry((kind, name)).or_default().push(privilege);
    }
    let tables = by_object.keys().filter(|(kind, _)| *kind == "TABLE").count();
    let what = match by_object.iter().next() {
        Some(((_, name), privileges)) if by_object.len() == 1 => {
            format!("{role} lacks {} on {name}", privileges.join(", "))
        }
        _ if tables == relations => format!("{role} has no privileges on the tables"),
        _ => {
            let names: Vec<&str> = by_object.keys().map(|(_, name)| *name).collect();
            format!("{role} lacks privileges on {}", names.join(", "))
        }
    };
    let mut by_privileges: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for ((kind, name), privileges) in by_object {
        by_privileges.entry((kind, privileges.join(", "))).or_default().push(name);
    }
    let mut remedy = vec!["as the owner of the tables:".to_owned()];
    if tables == relations {
        by_privileges.retain(|(kind, _), _| *kind != "TABLE");
        remedy.push(format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA campanile TO {role};"
        ));
    }
    for ((kind, privileges), names) in by_privileges {
        remedy.push(format!("GRANT {privileges} ON {kind} {} TO {role};", names.join(", ")));
    }
    Finding::wrong(SUBJECT, what, remedy.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(kind: &str, name: &str, privilege: &str) -> Missing {
        Missing { kind: kind.to_owned(), name: name.to_owned(), privilege: privilege.to_owned() }
    }

    #[test]
    fn every_table_and_view_is_asked_for() {
        let relations = relations();
        for name in ["event_outbox", "recipient", "lease", "notification_outbox", "schema_history"] {
            assert!(relations.contains(&name), "{name}: {relations:?}");
        }
    }

    #[test]
    fn one_missing_grant_is_named_with_its_statement() {
        let both =
            [missing("TABLE", "campanile.send", "INSERT"), missing("TABLE", "campanile.send", "UPDATE")];
        let found = grants("shop", &both, 20);
        assert_eq!(found.what, "shop lacks INSERT, UPDATE on campanile.send");
        let remedy = found.remedy.unwrap_or_default();
        assert!(remedy.ends_with("GRANT INSERT, UPDATE ON TABLE campanile.send TO shop;"), "{remedy}");
    }

    #[test]
    fn grants_that_are_missing_together_are_given_together() {
        let three = [
            missing("FUNCTION", "campanile.now()", "EXECUTE"),
            missing("TABLE", "campanile.outbox", "DELETE"),
            missing("TABLE", "campanile.send", "DELETE"),
        ];
        let remedy = grants("shop", &three, 20).remedy.unwrap_or_default();
        assert!(
            remedy.ends_with(
                "GRANT EXECUTE ON FUNCTION campanile.now() TO shop;\nGRANT DELETE ON TABLE campanile.outbox, \
                 campanile.send TO shop;"
            ),
            "{remedy}"
        );
        let all = grants("shop", &three[1..], 2);
        assert_eq!(all.what, "shop has no privileges on the tables");
        assert!(all.remedy.unwrap_or_default().contains("ALL TABLES IN SCHEMA campanile"));
    }
}
