//! A connection during one transaction, with the statements that it has used so far. A batch runs the same few
//! statements for each row. Looking statements and parameters up by their text took a tenth of the writing time.
//! Without these lookups, 3 × 3 rose from 49 to 62% of SQLite's limit (decision 0024).

use std::cell::RefCell;
use std::ops::Deref;

use rusqlite::{CachedStatement, Connection, Row, ToSql};

use crate::StoreError;

/// Every parameter of a statement, with its name.
pub type Named<'a> = &'a [(&'a str, &'a dyn ToSql)];

pub struct Session<'c> {
    connection: &'c Connection,
    used: RefCell<Vec<Prepared<'c>>>,
}

struct Prepared<'c> {
    sql: String,
    statement: CachedStatement<'c>,
    /// The names in the order of the last call, with their positions in the statement.
    indexes: Vec<(String, usize)>,
}

impl<'c> Session<'c> {
    pub fn new(connection: &'c Connection) -> Self {
        Self { connection, used: RefCell::default() }
    }

    /// Runs a statement, and returns the number of rows that it changed.
    pub fn change(&self, sql: &str, params: Named) -> Result<usize, StoreError> {
        self.with(sql, |prepared| {
            prepared.bind(params)?;
            Ok(prepared.statement.raw_execute()?)
        })
    }

    /// Reads every row of a statement.
    pub fn all<T>(
        &self,
        sql: &str,
        params: Named,
        mut read: impl FnMut(&Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.with(sql, |prepared| {
            prepared.bind(params)?;
            let mut rows = prepared.statement.raw_query();
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(read(row)?);
            }
            Ok(found)
        })
    }

    /// Reads the first row of a statement, if any. The statement runs to its end.
    pub fn first<T>(
        &self,
        sql: &str,
        params: Named,
        read: impl FnMut(&Row) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.all(sql, params, read)?.into_iter().next())
    }

    /// Takes the statement out of the cache while it runs. `run` may use other statements, and even the same one.
    fn with<T>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Prepared<'c>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let index = self.used.borrow().iter().position(|prepared| prepared.sql == sql);
        let known = index.map(|index| self.used.borrow_mut().swap_remove(index));
        let mut prepared = match known {
            Some(prepared) => prepared,
            None => Prepared {
                sql: sql.to_owned(),
                statement: self.connection.prepare_cached(sql)?,
                indexes: Vec::new(),
            },
        };
        let result = run(&mut prepared);
        self.used.borrow_mut().push(prepared);
        result
    }
}

impl Prepared<'_> {
    /// Every parameter must be given, because a missing one would keep its value from the previous row.
    fn bind(&mut self, params: Named) -> Result<(), rusqlite::Error> {
        let wanted = self.statement.parameter_count();
        if params.len() != wanted {
            return Err(rusqlite::Error::InvalidParameterCount(params.len(), wanted));
        }
        let known = self.indexes.iter().map(|(name, _)| name.as_str());
        if !known.eq(params.iter().map(|(name, _)| *name)) {
            self.indexes = params.iter().map(|(name, _)| self.index(name)).collect::<Result<_, _>>()?;
        }
        for (&(_, index), &(_, value)) in self.indexes.iter().zip(params) {
            self.statement.raw_bind_parameter(index, value)?;
        }
        Ok(())
    }

    fn index(&self, name: &str) -> Result<(String, usize), rusqlite::Error> {
        let index = self.statement.parameter_index(name)?;
        let index = index.ok_or_else(|| rusqlite::Error::InvalidParameterName(name.to_owned()))?;
        Ok((name.to_owned(), index))
    }
}

impl Deref for Session<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::named_params;

    use super::*;

    const PAIR: &str = "SELECT :a, :b";

    fn pair(session: &Session, params: Named) -> Result<(i64, i64), StoreError> {
        let pair = session.first(PAIR, params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(pair.expect("there is one row"))
    }

    #[test]
    fn a_statement_that_was_used_before_gets_its_own_values_in_whatever_order_they_come() {
        let connection = Connection::open_in_memory().unwrap();
        let session = Session::new(&connection);
        assert_eq!(pair(&session, named_params! { ":a": 1, ":b": 2 }).unwrap(), (1, 2));
        assert_eq!(pair(&session, named_params! { ":b": 3, ":a": 4 }).unwrap(), (4, 3));
        assert_eq!(pair(&session, named_params! { ":a": 5, ":b": 6 }).unwrap(), (5, 6));
        assert_eq!(session.used.borrow().len(), 1);
    }

    #[test]
    fn a_value_that_is_not_given_is_an_error_and_not_the_one_before() {
        let connection = Connection::open_in_memory().unwrap();
        let session = Session::new(&connection);
        pair(&session, named_params! { ":a": 1, ":b": 2 }).unwrap();
        assert!(pair(&session, named_params! { ":a": 3 }).is_err());
        assert!(pair(&session, named_params! { ":a": 3, ":c": 4 }).is_err());
        assert_eq!(pair(&session, named_params! { ":a": 5, ":b": 6 }).unwrap(), (5, 6));
    }

    #[test]
    fn a_statement_can_be_used_while_its_rows_are_read() {
        let connection = Connection::open_in_memory().unwrap();
        let session = Session::new(&connection);
        let inner = session.all(PAIR, named_params! { ":a": 1, ":b": 2 }, |row| {
            let inner = pair(&session, named_params! { ":a": 3, ":b": 4 })?;
            Ok((row.get::<_, i64>(0)?, inner))
        });
        assert_eq!(inner.unwrap(), [(1, (3, 4))]);
    }
}
