//! Rows in the form in which COPY takes them. They are gathered and sent in large pieces: each piece is a way through the
//! runtime of the connection and wakes the database up, which for single rows would cost more than the rows.

use std::io::Write as _;

use bytes::{BufMut as _, BytesMut};
use postgres::CopyInWriter;
use postgres::types::{IsNull, Type};

use super::connection::Parameter;

/// What a piece has at least, but for the last one.
const PIECE: usize = 64 * 1024;

/// What a binary copy begins with: a signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Instead of the number of columns, after the last row.
const END: i16 = -1;

/// Instead of the size of a value that is not there.
const NULL: i32 = -1;

pub(super) struct CopyRows<'a> {
    writer: CopyInWriter<'a>,
    types: &'a [Type],
    gathered: BytesMut,
}

/// Why rows could not be sent.
#[derive(Debug)]
pub(super) enum NotCopied {
    Database(postgres::Error),
    /// A value that has no place in its column.
    Value(Box<dyn std::error::Error + Send + Sync>),
}

impl From<std::io::Error> for NotCopied {
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<postgres::Error>() {
            Ok(error) => NotCopied::Database(error),
            Err(error) => NotCopied::Value(error.into()),
        }
    }
}

impl<'a> CopyRows<'a> {
    pub(super) fn new(writer: CopyInWriter<'a>, types: &'a [Type]) -> Self {
        let mut gathered = BytesMut::with_capacity(PIECE + PIECE / 4);
        gathered.put_slice(HEADER);
        CopyRows { writer, types, gathered }
    }

    /// Adds a row, which has a value for each type.
    pub(super) fn write(&mut self, values: &[Parameter<'_>]) -> Result<(), NotCopied> {
        debug_assert_eq!(values.len(), self.types.len());
        let out = &mut self.gathered;
        out.put_i16(i16::try_from(values.len()).map_err(|error| NotCopied::Value(error.into()))?);
        for (value, kind) in values.iter().zip(self.types) {
            let at = out.len();
            out.put_i32(NULL);
            if let IsNull::No = value.to_sql_checked(kind, out).map_err(NotCopied::Value)? {
                let size = i32::try_from(out.len() - at - size_of::<i32>());
                let size = size.map_err(|error| NotCopied::Value(error.into()))?;
                out[at..at + size_of::<i32>()].copy_from_slice(&size.to_be_bytes());
            }
        }
        if out.len() < PIECE {
            return Ok(());
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), NotCopied> {
        self.writer.write_all(&self.gathered)?;
        self.writer.flush()?;
        self.gathered.clear();
        Ok(())
    }

    /// Sends what is left; without it, nothing is copied.
    pub(super) fn finish(mut self) -> Result<(), NotCopied> {
        self.gathered.put_i16(END);
        self.send()?;
        self.writer.finish().map(drop).map_err(NotCopied::Database)
    }
}
