//! Binary COPY encoding of rows. Rows are buffered and sent in large chunks: each send passes
//! through the connection's runtime and wakes the database, which for single rows would cost more
//! than the rows.

use std::io::Write as _;

use bytes::{BufMut as _, BytesMut};
use postgres::CopyInWriter;
use postgres::types::{IsNull, Type};

use super::connection::Parameter;

/// Minimum size of a chunk, except the last one.
const BUFFER_SIZE: usize = 64 * 1024;

/// Header of a binary copy: a signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Trailer, in place of a number of columns.
const END: i16 = -1;

/// Size of a missing value.
const NULL: i32 = -1;

pub(super) struct CopyRows<'a> {
    writer: CopyInWriter<'a>,
    types: &'a [Type],
    gathered: BytesMut,
}

/// Error of sending rows.
#[derive(Debug)]
pub(super) enum CopyError {
    Database(postgres::Error),
    /// A value that does not fit its column.
    Value(Box<dyn std::error::Error + Send + Sync>),
}

impl From<std::io::Error> for CopyError {
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<postgres::Error>() {
            Ok(error) => CopyError::Database(error),
            Err(error) => CopyError::Value(error.into()),
        }
    }
}

impl<'a> CopyRows<'a> {
    pub(super) fn new(writer: CopyInWriter<'a>, types: &'a [Type]) -> Self {
        let mut gathered = BytesMut::with_capacity(BUFFER_SIZE + BUFFER_SIZE / 4);
        gathered.put_slice(HEADER);
        CopyRows { writer, types, gathered }
    }

    /// Adds a row, which has a value for each type.
    pub(super) fn write(&mut self, values: &[Parameter<'_>]) -> Result<(), CopyError> {
        debug_assert_eq!(values.len(), self.types.len());
        let out = &mut self.gathered;
        out.put_i16(i16::try_from(values.len()).map_err(|error| CopyError::Value(error.into()))?);
        for (value, kind) in values.iter().zip(self.types) {
            let at = out.len();
            out.put_i32(NULL);
            if let IsNull::No = value.to_sql_checked(kind, out).map_err(CopyError::Value)? {
                let size = i32::try_from(out.len() - at - size_of::<i32>());
                let size = size.map_err(|error| CopyError::Value(error.into()))?;
                out[at..at + size_of::<i32>()].copy_from_slice(&size.to_be_bytes());
            }
        }
        if out.len() < BUFFER_SIZE {
            return Ok(());
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), CopyError> {
        self.writer.write_all(&self.gathered)?;
        self.writer.flush()?;
        self.gathered.clear();
        Ok(())
    }

    /// Sends the rest; without it, nothing is copied.
    pub(super) fn finish(mut self) -> Result<(), CopyError> {
        self.gathered.put_i16(END);
        self.send()?;
        self.writer.finish().map(drop).map_err(CopyError::Database)
    }
}
