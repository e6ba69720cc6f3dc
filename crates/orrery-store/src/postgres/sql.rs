//! Records in PostgreSQL: the shared dialect on a transaction.

use bytes::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::PostgresStore;
use super::connection::Parameter;
use super::transaction::Tx;
use crate::idempotency;
use crate::names::NameCache;
use crate::sql::{
    AsyncVisit, AsyncVisitor, ColumnType, Database, Row, RowsStatement, Sql, SqlValue, Work,
};
use crate::{EnvironmentKey, Lease, NewChange, Result, StoreError};

type Boxed = Box<dyn std::error::Error + Sync + Send>;

/// Values are sent as the type that PostgreSQL inferred for the parameter.
impl ToSql for SqlValue<'_> {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Boxed> {
        match *self {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Integer(number) => match *of {
                Type::INT4 => i32::try_from(number)?.to_sql(of, out),
                Type::INT2 => i16::try_from(number)?.to_sql(of, out),
                Type::BOOL => (number != 0).to_sql(of, out),
                Type::INT8 => number.to_sql(of, out),
                _ => Err(format!("an integer for a parameter of type {of}").into()),
            },
            SqlValue::Text(text) if <&str as ToSql>::accepts(of) => text.to_sql(of, out),
            SqlValue::Blob(bytes) if *of == Type::BYTEA => bytes.to_sql(of, out),
            SqlValue::Id(bytes) if *of == Type::BYTEA => (&bytes[..]).to_sql(of, out),
            SqlValue::Integers(list) => list.to_sql(of, out),
            SqlValue::Blobs(list) => list.to_sql(of, out),
            SqlValue::Text(_) => Err(format!("a text for a parameter of type {of}").into()),
            SqlValue::Blob(_) | SqlValue::Id(_) => {
                Err(format!("bytes for a parameter of type {of}").into())
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// An integer of any type that integer expressions return.
struct AnyInteger(i64);

impl<'a> FromSql<'a> for AnyInteger {
    fn from_sql(of: &Type, raw: &'a [u8]) -> std::result::Result<Self, Boxed> {
        Ok(AnyInteger(match *of {
            Type::INT8 => i64::from_sql(of, raw)?,
            Type::INT4 => i32::from_sql(of, raw)?.into(),
            Type::INT2 => i16::from_sql(of, raw)?.into(),
            Type::BOOL => bool::from_sql(of, raw)?.into(),
            _ => integer_from_numeric(raw).ok_or("not a whole number of 64 bits")?,
        }))
    }

    fn accepts(of: &Type) -> bool {
        matches!(*of, Type::INT8 | Type::INT4 | Type::INT2 | Type::BOOL | Type::NUMERIC)
    }
}

/// Decodes a `numeric`, the type of a sum of integers: digits to the base 10,000, after their
/// number, the weight of the first, and the sign.
fn integer_from_numeric(raw: &[u8]) -> Option<i64> {
    let word = |at: usize| Some(i16::from_be_bytes(raw.get(at * 2..at * 2 + 2)?.try_into().ok()?));
    let (count, weight, sign) = (word(0)?, word(1)?, word(2)?);
    let mut number: i128 = 0;
    for position in 0..=weight {
        let digit = if position < count { word(4 + usize::try_from(position).ok()?)? } else { 0 };
        number = number.checked_mul(10_000)?.checked_add(digit.into())?;
    }
    if count > weight + 1 {
        return None;
    }
    match sign {
        0 => i64::try_from(number).ok(),
        0x4000 => i64::try_from(-number).ok(),
        _ => None,
    }
}

fn mismatch(error: postgres::Error) -> StoreError {
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    StoreError::Unreadable(format!("{error}: {}", cause.unwrap_or_default()))
}

impl Row for postgres::Row {
    fn integer(&self, column: usize) -> Result<Option<i64>> {
        let found: Option<AnyInteger> = self.try_get(column).map_err(mismatch)?;
        Ok(found.map(|whole| whole.0))
    }

    fn text(&self, column: usize) -> Result<Option<&str>> {
        self.try_get(column).map_err(mismatch)
    }

    fn blob(&self, column: usize) -> Result<Option<&[u8]>> {
        self.try_get(column).map_err(mismatch)
    }
}

/// Rows of a [`RowsStatement`] that are sent at a time.
const ROWS_MAX: usize = 5_000;

/// Text of a statement for many rows, as one array per column.
fn array_text(statement: &RowsStatement<'_>, values: usize) -> String {
    let (mut arrays, mut names) = (Vec::new(), Vec::new());
    for ((name, of), place) in statement.columns.iter().zip(values + 1..) {
        let of = match of {
            ColumnType::Integer => "bigint",
            ColumnType::Text => "text",
            ColumnType::Blob => "bytea",
        };
        arrays.push(format!("?{place}::{of}[]"));
        names.push(*name);
    }
    statement.with_rows(&format!("unnest({}) AS new ({})", arrays.join(", "), names.join(", ")))
}

/// Calls `run` with the parameters of each batch of rows.
fn for_each_batch(
    statement: &RowsStatement<'_>,
    values: &[SqlValue<'_>],
    cells: &[SqlValue<'_>],
    mut run: impl FnMut(&[Parameter<'_>]) -> Result<()>,
) -> Result<()> {
    let width = statement.columns.len();
    for cells in cells.chunks(ROWS_MAX * width) {
        let columns: Vec<Vec<SqlValue<'_>>> = (0..width)
            .map(|column| cells.iter().skip(column).step_by(width).copied().collect())
            .collect();
        let values = values.iter().map(|value| value as Parameter<'_>);
        let parameters: Vec<Parameter<'_>> =
            values.chain(columns.iter().map(|column| column as _)).collect();
        run(&parameters)?;
    }
    Ok(())
}

impl Sql for Tx<'_> {
    fn run(&mut self, sql: &str, values: &[SqlValue<'_>]) -> Result<u64> {
        let parameters: Vec<Parameter<'_>> = values.iter().map(|value| value as _).collect();
        self.execute(sql, &parameters)
    }

    fn visit(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let parameters: Vec<Parameter<'_>> = values.iter().map(|value| value as _).collect();
        for row in self.query(sql, &parameters)? {
            each(&row)?;
        }
        Ok(())
    }

    fn run_rows(
        &mut self,
        statement: &RowsStatement<'_>,
        values: &[SqlValue<'_>],
        cells: &[SqlValue<'_>],
    ) -> Result<u64> {
        let text = array_text(statement, values.len());
        let mut affected = 0;
        for_each_batch(statement, values, cells, |parameters| {
            affected += self.execute(&text, parameters)?;
            Ok(())
        })?;
        Ok(affected)
    }

    fn visit_rows(
        &mut self,
        statement: &RowsStatement<'_>,
        values: &[SqlValue<'_>],
        cells: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let text = array_text(statement, values.len());
        for_each_batch(statement, values, cells, |parameters| {
            self.query(&text, parameters)?.iter().try_for_each(|row| each(row))
        })
    }

    fn in_integers(&self, parameter: &str) -> String {
        format!("= ANY({parameter})")
    }

    fn in_blobs(&self, parameter: &str) -> String {
        format!("= ANY({parameter})")
    }

    fn row_lock(&self) -> &'static str {
        " FOR NO KEY UPDATE"
    }

    fn absent_resources(&self) -> &'static str {
        "resource WHERE absent"
    }

    fn set_absent(&self, absent: bool) -> &'static str {
        if absent { ", absent = true" } else { ", absent = false" }
    }

    fn delete_unclaimed(&mut self, environment: EnvironmentKey) -> Result<()> {
        super::revisions::delete_unclaimed(self, environment)
    }

    fn prefer_index_scans(&mut self) -> Result<()> {
        Tx::prefer_index_scans(self)
    }

    fn allocate_numbers(&mut self, counter: &'static str, count: usize) -> Result<i64> {
        Tx::allocate_numbers(self, counter, count)
    }

    fn position_function(&self) -> &'static str {
        // Quoted, it is an ordinary function. It also takes bytes, which `strpos` does not.
        "pg_catalog.\"position\""
    }

    fn now_expression(&self) -> &'static str {
        "clock()"
    }

    fn newest_change(&self) -> &'static str {
        "last_change()"
    }

    fn lock_name(&mut self, name: &str) -> Result<()> {
        Tx::lock_name(self, name)
    }

    fn check_lease(&mut self, lease: &Lease) -> Result<()> {
        super::leases::check_lease(self, lease)
    }

    fn allocate_id(&mut self, table: &'static str) -> Result<i64> {
        let sql = "SELECT nextval(pg_get_serial_sequence($1, 'id'))";
        Ok(self.query_one(sql, &[&table])?.get(0))
    }

    fn record_change(&mut self, note: &NewChange<'_>) -> Result<()> {
        self.add_change(note);
        Ok(())
    }
}

impl Database for PostgresStore {
    fn names(&self) -> &NameCache {
        &self.names
    }

    fn read_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.read_optimistic(|tx| work(tx))
    }

    fn visit_async<'a>(
        &'a self,
        sql: &'a str,
        values: &'a [SqlValue<'a>],
        each: &'a mut AsyncVisitor<'a>,
    ) -> AsyncVisit<'a> {
        Box::pin(async move {
            let Some(rows) = self.pool().read_async(sql, values).await? else { return Ok(false) };
            for row in &rows {
                each(row)?;
            }
            Ok(true)
        })
    }

    fn scan_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.read(|tx| work(tx))
    }

    fn settled_change(&self) -> Result<i64> {
        self.read_once(|tx| Ok(tx.query_one("SELECT settled_change()", &[])?.get(0)))
    }

    fn write_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        idempotency::with_current_request(|attempt| {
            self.write_repeatable(|tx| {
                idempotency::mark_executed(tx, attempt)?;
                work(tx)
            })
        })
    }

    fn locked_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.transact(|tx| work(tx))
    }

    fn unmarked_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.write(|tx| work(tx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_any_size_are_read() {
        let raw = |words: &[i16]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        };
        assert_eq!(integer_from_numeric(&raw(&[0, 0, 0, 0])), Some(0));
        assert_eq!(integer_from_numeric(&raw(&[1, 0, 0, 0, 42])), Some(42));
        assert_eq!(integer_from_numeric(&raw(&[1, 1, 0x4000, 0, 3])), Some(-30_000));
        assert_eq!(integer_from_numeric(&raw(&[2, 1, 0, 0, 1, 5])), Some(10_005));
        assert_eq!(integer_from_numeric(&raw(&[2, 0, 0, 2, 1, 5000])), None);
        assert_eq!(integer_from_numeric(&raw(&[1, 9, 0, 0, 9])), None);
    }
}
