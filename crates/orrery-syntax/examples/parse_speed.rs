//! Benchmark of parsing, lowering and formatting a large model.
//!
//! `cargo run --release -p orrery-syntax --example parse_speed -- [LINES]`

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]
#![expect(clippy::print_stdout, reason = "the report of a measurement goes to the terminal")]

use std::fmt::Write;
use std::time::Instant;

use orrery_syntax::ast::FileId;
use orrery_syntax::{Interner, lexer, parse, parse_file};

/// Returns a model of about this many lines with all constructs.
fn model(lines: usize) -> String {
    let mut text = String::from("import std\n\n");
    let mut written = 2;
    let mut number = 0;
    while written < lines {
        number += 1;
        let _ = write!(
            text,
            "# Service number {number}.\n\
             entity Service{number} extends std::Resource:\n    \
                 \"\"\" A service with a few attributes. \"\"\"\n    \
                 string name\n    \
                 int port = {number}\n    \
                 string[] tags = [\"a\", \"b\"]\n\
             end\n\n\
             Service{number}.host [1] -- std::Host.service{number} [0:]\n\
             index Service{number}(host, name)\n\n\
             implementation service{number} for Service{number}:\n    \
                 for tag in self.tags:\n        \
                     self.requires += std::File(path=f\"/etc/{{self.name}}/{{tag}}\", content=\"{{{{tag}}}} of {{{{self.name}}}}\", mode=644)\n    \
                 end\n    \
                 if self.port > 1024 and self.name != null:\n        \
                     limit = self.port * 2 + {number}\n    \
                 end\n\
             end\n\
             implement Service{number} using service{number} when std::count(self.tags) > 1\n\n\
             service_{number} = Service{number}(name=\"service{number}\", host=main_host, **defaults)\n\
             names_{number} = [s.name for s in main_host.service{number} if s.port in [1, 2, {number}]]\n\n",
        );
        written += 24;
    }
    text
}

fn measure<T>(what: &str, bytes: usize, work: impl Fn() -> T) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let started = Instant::now();
        let result = work();
        best = best.min(started.elapsed().as_secs_f64());
        drop(result);
    }
    let rate = bytes as f64 / best / 1e6;
    println!("{what:<12} {:8.1} ms {rate:8.1} MB/s", best * 1e3);
}

fn main() {
    let lines = std::env::args().nth(1).and_then(|lines| lines.parse().ok()).unwrap_or(100_000);
    let text = model(lines);
    println!("{} lines, {:.1} MB", text.lines().count(), text.len() as f64 / 1e6);
    measure("lex", text.len(), || lexer::lex(&text));
    measure("parse", text.len(), || parse(&text));
    measure("parse_file", text.len(), || parse_file(&text, FileId(0), &mut Interner::default()));
    measure("format", text.len(), || orrery_syntax::format(&text));
}
