//! Offsets to lines and columns.

/// Line starts of a text. A line ends with `\n`, `\r\n` or `\r`.
#[derive(Clone, Debug)]
pub struct LineIndex {
    starts: Vec<u32>,
    /// For each character of more than one byte: its end, and the total excess bytes up to there.
    wide: Vec<(u32, u32)>,
    length: u32,
}

impl LineIndex {
    pub fn new(text: &str) -> LineIndex {
        let bytes = text.as_bytes();
        let mut starts = vec![0];
        let mut wide = Vec::new();
        let mut excess = 0;
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' => starts.push(index as u32 + 1),
                b'\r' if bytes.get(index + 1) != Some(&b'\n') => starts.push(index as u32 + 1),
                // A leading byte: 110xxxxx, 1110xxxx or 11110xxx.
                0xc0.. => {
                    let more = byte.leading_ones() - 1;
                    excess += more;
                    wide.push((index as u32 + more + 1, excess));
                }
                _ => {}
            }
        }
        LineIndex { starts, wide, length: bytes.len() as u32 }
    }

    /// The 1-based line and column of a byte offset. Columns count characters, a tab being one.
    ///
    /// An offset beyond the text is where an unexpected end of file is reported: the second column
    /// of the line after the last, as if a newline had been added to the text.
    pub fn line_col(&self, offset: u32) -> (u32, u32) {
        if offset > self.length {
            return (self.starts.len() as u32 + 1, 2);
        }
        let line = self.line(offset);
        let start = self.starts[line as usize - 1];
        let column = (offset - self.excess(offset)) - (start - self.excess(start));
        (line, column + 1)
    }

    pub fn line(&self, offset: u32) -> u32 {
        if offset > self.length {
            return self.starts.len() as u32 + 1;
        }
        self.starts.partition_point(|start| *start <= offset) as u32
    }

    /// The bytes of a 1-based line, its newline included.
    pub fn line_range(&self, line: u32) -> std::ops::Range<u32> {
        let index = (line as usize).saturating_sub(1);
        let at = |i: usize| self.starts.get(i).copied().unwrap_or(self.length);
        at(index)..at(index + 1)
    }

    fn excess(&self, offset: u32) -> u32 {
        match self.wide.partition_point(|(end, _)| *end <= offset) {
            0 => 0,
            count => self.wide[count - 1].1,
        }
    }
}
