//! Framing of the protocol: lines, limits and the kind of a message. Input of a host is untrusted.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Maximum bytes of a line, without its terminator.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Maximum nesting depth of a line's values.
pub const DEPTH_MAX: usize = 256;

/// Size of one read.
const CHUNK: usize = 64 << 10;
/// Size of one read of raw bytes.
const PIECE: usize = 1 << 20;
/// Maximum raw bytes sent together with their line.
const BYTES_WITH_LINE_MAX: usize = 64 << 10;
/// Maximum size of an idle buffer; one that grew for a long line shrinks.
const BUFFER_KEPT_MAX: usize = 1 << 20;

/// Error of reading or writing a line. All but `TimedOut` end the connection.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the connection was closed")]
    Closed,
    #[error("the connection was closed in the middle of a message")]
    Truncated,
    #[error("a message is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("a message is nested more than {DEPTH_MAX} deep")]
    TooDeep,
    #[error("a message is not valid UTF-8")]
    NotUtf8,
    #[error("a message violates the protocol: {0}")]
    Malformed(#[source] serde_json::Error),
    #[error("a message of an unknown or unexpected kind: {0:?}")]
    UnexpectedKind(String),
    #[error("reading or writing timed out")]
    TimedOut,
    #[error("no message and no processor use for {} seconds", .0.as_secs_f32())]
    Silent(std::time::Duration),
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => WireError::TimedOut,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => WireError::Closed,
            _ => WireError::Io(error),
        }
    }
}

impl WireError {
    /// Error for an unexpected kind, truncated for the message.
    pub fn unexpected(kind: &str) -> Self {
        const SHOWN_MAX: usize = 60;
        WireError::UnexpectedKind(kind.chars().take(SHOWN_MAX).collect())
    }
}

/// Reads lines.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    buffer: Vec<u8>,
    /// Start of the current line, end of the searched and of the filled part.
    start: usize,
    searched: usize,
    filled: usize,
}

impl<R: Read> Reader<R> {
    pub fn new(from: R) -> Self {
        Reader { from, buffer: Vec::new(), start: 0, searched: 0, filled: 0 }
    }

    /// Returns the next line without its terminator: valid UTF-8 within the limits. After
    /// `TimedOut` a further call resumes.
    ///
    /// # Errors
    /// Fails if the stream ends, fails, or contains an invalid message.
    pub fn read_line(&mut self) -> Result<&[u8], WireError> {
        loop {
            let fresh = &self.buffer[self.searched..self.filled];
            if let Some(found) = fresh.iter().position(|byte| *byte == b'\n') {
                let (start, end) = (self.start, self.searched + found);
                self.start = end + 1;
                self.searched = self.start;
                if end - start > LINE_BYTES_MAX {
                    return Err(WireError::TooLong);
                }
                let line = &self.buffer[start..end];
                check(line)?;
                return Ok(line);
            }
            self.searched = self.filled;
            if self.filled - self.start > LINE_BYTES_MAX {
                return Err(WireError::TooLong);
            }
            self.fill()?;
        }
    }

    /// Returns true if a further line is buffered.
    pub fn has_line(&self) -> bool {
        self.buffer[self.start..self.filled].contains(&b'\n')
    }

    /// Appends raw bytes that follow a line until there are `count`. After `TimedOut` a further
    /// call resumes.
    ///
    /// # Errors
    /// Fails if the stream ends early, or fails.
    pub fn read_bytes(&mut self, bytes: &mut Vec<u8>, count: usize) -> Result<(), WireError> {
        while bytes.len() < count {
            let missing = count - bytes.len();
            let buffered = (self.filled - self.start).min(missing);
            if buffered > 0 {
                bytes.extend_from_slice(&self.buffer[self.start..self.start + buffered]);
                self.start += buffered;
                self.searched = self.start;
                continue;
            }
            // The count is untrusted: memory grows with received bytes, not with the announced
            // count.
            let (have, piece) = (bytes.len(), missing.min(PIECE));
            bytes.resize(have + piece, 0);
            let read = self.from.read(&mut bytes[have..]);
            bytes.truncate(have + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => return Err(WireError::Truncated),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), WireError> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.searched -= self.start;
            self.start = 0;
        }
        if self.buffer.len() > BUFFER_KEPT_MAX && self.filled <= CHUNK {
            self.buffer.truncate(2 * CHUNK);
            self.buffer.shrink_to_fit();
        }
        if self.buffer.len() < self.filled + CHUNK {
            self.buffer
                .resize((self.filled + CHUNK).next_multiple_of(CHUNK).max(2 * self.filled), 0);
        }
        loop {
            match self.from.read(&mut self.buffer[self.filled..]) {
                Ok(0) if self.filled == 0 => return Err(WireError::Closed),
                Ok(0) => return Err(WireError::Truncated),
                Ok(count) => {
                    self.filled += count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Checks the limits of a line, without recursion.
fn check(line: &[u8]) -> Result<(), WireError> {
    std::str::from_utf8(line).map_err(|_| WireError::NotUtf8)?;
    let opens = |byte: &&u8| matches!(byte, b'[' | b'{');
    // Fast path: too few brackets to be too deep.
    if line.iter().filter(opens).count() <= DEPTH_MAX {
        return Ok(());
    }
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for byte in line {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(WireError::TooDeep);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the kind of a message.
///
/// # Errors
/// Fails if the line is not an object with a string `k`.
pub fn kind(line: &[u8]) -> Result<Cow<'_, str>, WireError> {
    if let Some(kind) = first_member(line) {
        return Ok(Cow::Borrowed(kind));
    }
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        k: Cow<'a, str>,
    }
    if line.trim_ascii_start().first() != Some(&b'{') {
        // A struct could also be deserialized from a list.
        return Err(WireError::Malformed(serde::de::Error::custom("it is not an object")));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    deserializer.disable_recursion_limit();
    let kind = Kind::deserialize(&mut deserializer).map_err(WireError::Malformed)?;
    Ok(kind.k)
}

/// Returns the kind if it is the first member, as in all known implementations.
fn first_member(line: &[u8]) -> Option<&str> {
    let rest = line.strip_prefix(b"{\"k\":")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"")?;
    let word = rest.iter().position(|byte| !byte.is_ascii_lowercase() && *byte != b'_')?;
    (rest[word] == b'"').then(|| std::str::from_utf8(&rest[..word]).ok())?
}

/// Deserializes a checked line.
///
/// # Errors
/// Fails if it has another type.
pub fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, WireError> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer).map_err(WireError::Malformed)?;
    deserializer.end().map_err(WireError::Malformed)?;
    Ok(value)
}

/// Writes lines.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(to: W) -> Self {
        Writer { to, buffer: Vec::new() }
    }

    /// Writes one message that `fill` appends to the buffer as JSON.
    ///
    /// # Errors
    ///
    /// Fails if it is too long, or the stream fails. After `TimedOut` a part of the message may be
    /// written: the connection is unusable.
    pub fn write(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), WireError> {
        self.buffer.clear();
        fill(&mut self.buffer);
        self.flush()
    }

    /// Serializes and writes one message.
    ///
    /// # Errors
    /// As `write`, and if it cannot be JSON; then nothing is written.
    pub fn send(&mut self, message: &impl serde::Serialize) -> Result<(), WireError> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, message).map_err(WireError::Malformed)?;
        self.flush()
    }

    /// Writes a message followed by raw bytes. The message must contain their number.
    ///
    /// # Errors
    /// As `send`.
    pub fn send_with_bytes(
        &mut self,
        message: &impl serde::Serialize,
        bytes: &[u8],
    ) -> Result<(), WireError> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, message).map_err(WireError::Malformed)?;
        self.flush_with(bytes)
    }

    fn flush(&mut self) -> Result<(), WireError> {
        self.flush_with(&[])
    }

    fn flush_with(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        debug_assert!(!self.buffer.contains(&b'\n'), "a message is one line");
        if self.buffer.len() > LINE_BYTES_MAX {
            self.buffer = Vec::new();
            return Err(WireError::TooLong);
        }
        self.buffer.push(b'\n');
        let rest = if bytes.len() <= BYTES_WITH_LINE_MAX {
            self.buffer.extend_from_slice(bytes);
            &[]
        } else {
            bytes
        };
        let written = self.to.write_all(&self.buffer).and_then(|()| self.to.write_all(rest));
        if self.buffer.len() > BUFFER_KEPT_MAX {
            self.buffer = Vec::new();
        }
        Ok(written?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> (Vec<String>, WireError) {
        let mut reader = Reader::new(input);
        let mut lines = Vec::new();
        loop {
            match reader.read_line() {
                Ok(line) => lines.push(String::from_utf8(line.to_vec()).unwrap()),
                Err(error) => return (lines, error),
            }
        }
    }

    #[test]
    fn lines_are_split_and_the_end_is_detected() {
        let (found, end) = lines(b"{}\n{\"k\":\"a\"}\n");
        assert_eq!(found, ["{}", "{\"k\":\"a\"}"]);
        assert!(matches!(end, WireError::Closed));
        let (found, end) = lines(b"{}\n{\"k\":");
        assert_eq!(found.len(), 1);
        assert!(matches!(end, WireError::Truncated));
        assert!(matches!(lines(b"\xff\xfe\n").1, WireError::NotUtf8));
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
        let mut longest = vec![b' '; LINE_BYTES_MAX];
        longest.push(b'\n');
        assert_eq!(lines(&longest).0.len(), 1);
        longest.insert(0, b' ');
        assert!(matches!(lines(&longest).1, WireError::TooLong));
        // A line without an end is not read forever.
        assert!(matches!(lines(&vec![b' '; LINE_BYTES_MAX + 2 * CHUNK]).1, WireError::TooLong));
    }

    #[test]
    fn depth_counts_outside_of_texts_only() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth], vec![b'\n']].concat();
        assert_eq!(lines(&nested(DEPTH_MAX)).0.len(), 1);
        assert!(matches!(lines(&nested(DEPTH_MAX + 1)).1, WireError::TooDeep));
        assert!(matches!(lines(&nested(1_000_000)).1, WireError::TooDeep));
        let text = format!("\"\\\"{}\"\n", "[".repeat(1000));
        assert_eq!(lines(text.as_bytes()).0.len(), 1);
        let flat = "[],".repeat(1000) + "\n";
        assert_eq!(lines(flat.as_bytes()).0.len(), 1);
    }

    #[test]
    fn deep_lines_within_the_limit_are_parsed() {
        let line = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(parse::<serde_json::Value>(line.as_bytes()).is_ok());
        assert!(matches!(parse::<Vec<u8>>(b"[1] 2"), Err(WireError::Malformed(_))));
    }

    #[test]
    fn the_kind_is_found_wherever_it_stands() {
        assert_eq!(kind(br#"{"k":"hello","x":1}"#).unwrap(), "hello");
        assert_eq!(kind(br#"{"k": "is_type"}"#).unwrap(), "is_type");
        assert_eq!(kind(br#"{"x":{"k":"no"},"k":"log"}"#).unwrap(), "log");
        assert_eq!(kind(br#" {"k":"l\u006fg"}"#).unwrap(), "log");
        for bad in
            [&b"[]"[..], b"[\"log\"]", b"{}", b"", b"{\"k\":1}", b"nonsense", b"{\"k\":\"abc"]
        {
            assert!(matches!(kind(bad), Err(WireError::Malformed(_))), "{bad:?}");
        }
    }

    #[test]
    fn written_messages_are_read_back() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.send(&serde_json::json!({"k": "ping", "n": 7, "text": "a\nb"})).unwrap();
        writer.write(|buffer| buffer.extend_from_slice(br#"{"k":"shutdown"}"#)).unwrap();
        let long = |buffer: &mut Vec<u8>| buffer.resize(LINE_BYTES_MAX + 1, b' ');
        assert!(matches!(writer.write(long), Err(WireError::TooLong)));
        let (found, _) = lines(&bytes);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], r#"{"k":"shutdown"}"#);
    }

    #[test]
    fn raw_bytes_follow_a_line() {
        for size in [0, 1, BYTES_WITH_LINE_MAX, BYTES_WITH_LINE_MAX + 1, 3 * PIECE] {
            let raw: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            writer.send_with_bytes(&serde_json::json!({"k": "a"}), &raw).unwrap();
            writer.send(&serde_json::json!({"k": "b"})).unwrap();
            let mut reader = Reader::new(&bytes[..]);
            assert_eq!(reader.read_line().unwrap(), br#"{"k":"a"}"#);
            let mut found = Vec::new();
            reader.read_bytes(&mut found, size).unwrap();
            assert!(found == raw, "{size}");
            assert_eq!(reader.read_line().unwrap(), br#"{"k":"b"}"#);
            assert!(matches!(reader.read_bytes(&mut found, size + 1), Err(WireError::Truncated)));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_within_the_limits(bytes in "(\\PC|[\\[\\]{}\\\\\"k:, \n]){0,60}", garbage in proptest::collection::vec(0u8.., 0..40)) {
            for input in [bytes.as_bytes(), &garbage, &[bytes.as_bytes(), &garbage].concat()] {
                for line in lines(input).0 {
                    proptest::prop_assert!(!line.contains('\n'));
                    // Fast and slow search agree.
                    if let Some(fast) = first_member(line.as_bytes())
                        && let Ok(serde_json::Value::Object(object)) = parse(line.as_bytes())
                        && line.matches("\"k").count() == 1
                    {
                        proptest::prop_assert_eq!(object["k"].as_str(), Some(fast));
                    }
                    let _ = kind(line.as_bytes());
                }
            }
        }

        #[test]
        fn the_depth_is_counted_exactly(depth in 1usize..600, text in "[\\[{\\\\\"]{0,300}") {
            let text = serde_json::Value::from(text).to_string();
            let line = format!("{}{text}{}\n", "[".repeat(depth), "]".repeat(depth));
            let read = lines(line.as_bytes());
            proptest::prop_assert_eq!(read.0.len() == 1, depth <= DEPTH_MAX);
        }
    }

    #[test]
    fn reading_resumes_after_a_timeout() {
        struct Slow(Vec<io::Result<&'static [u8]>>);
        impl Read for Slow {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let bytes = self.0.remove(0)?;
                buffer[..bytes.len()].copy_from_slice(bytes);
                Ok(bytes.len())
            }
        }
        let pause = || Err(io::Error::from(io::ErrorKind::WouldBlock));
        let mut reader = Reader::new(Slow(vec![Ok(b"{\"a\""), pause(), Ok(b":1}\n{}\n")]));
        assert!(matches!(reader.read_line(), Err(WireError::TimedOut)));
        assert_eq!(reader.read_line().unwrap(), b"{\"a\":1}");
        assert!(reader.has_line());
        assert_eq!(reader.read_line().unwrap(), b"{}");
        assert!(!reader.has_line());
    }
}
