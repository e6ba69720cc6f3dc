//! The files of a compile: their display names, their texts, and lines on demand.

use std::cell::OnceCell;

use orrery_syntax::LineIndex;
use orrery_syntax::ast::{FileId, Loc};

#[derive(Debug)]
pub struct SourceFile {
    /// `./main.cf`, `./libs/m/model/_init.cf`, or the absolute path outside the project.
    pub name: String,
    pub text: String,
    lines: OnceCell<LineIndex>,
}

#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Adds a file and returns the location of one of its lines, counted from 1.
    pub fn add_line(&mut self, name: String, text: String, line: u32) -> Loc {
        let before = line.saturating_sub(1) as usize;
        let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
        let length = text[start..].lines().next().map_or(0, str::len);
        let file = self.add(name, text);
        Loc { file, start: start as u32, end: (start + length) as u32, column: false }
    }

    pub fn add(&mut self, name: String, text: String) -> FileId {
        let id = u32::try_from(self.files.len()).expect("invariant: fewer than 2^32 files");
        self.files.push(SourceFile { name, text, lines: OnceCell::new() });
        FileId(id)
    }

    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    fn lines(&self, id: FileId) -> &LineIndex {
        let file = self.file(id);
        file.lines.get_or_init(|| LineIndex::new(&file.text))
    }

    /// Line and column of the start, both from 1.
    pub fn line_col(&self, loc: Loc) -> (u32, u32) {
        self.lines(loc.file).line_col(loc.start)
    }

    /// `file:line` or `file:line:col`.
    pub fn location(&self, loc: Loc) -> String {
        if self.file(loc.file).name == "internal" {
            return "internal:1:0".into();
        }
        let (line, column) = self.line_col(loc);
        let name = &self.file(loc.file).name;
        if loc.column { format!("{name}:{line}:{column}") } else { format!("{name}:{line}") }
    }

    /// `file:line`, even if the location has a column.
    pub fn line_location(&self, loc: Loc) -> String {
        format!("{}:{}", self.file(loc.file).name, self.line_col(loc).0)
    }
}
