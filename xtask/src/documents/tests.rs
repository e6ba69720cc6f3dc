//! Each check of the Markdown finds what it is there to find.

use super::*;

fn page(path: &str, text: &str) -> TextFile {
    TextFile::new(path, text)
}

#[test]
fn models_carry_their_files_output_and_error() {
    let text = "\
Intro.

```inmanta,file=libs/m/model/_init.cf
x = 1
```

```inmanta
import m
```

```output
1
```

* In a list:

  ```inmanta,fails
  y
  ```

  ```error
  variable y not found
  ```

```sh
ls
```
";
    let models = models(&page("docs/a.md", text)).unwrap();
    assert_eq!(models.len(), 2);
    assert_eq!(models[0].files, [("libs/m/model/_init.cf".to_owned(), "x = 1\n".to_owned())]);
    assert_eq!(models[0].output.as_deref(), Some("1\n"));
    assert!(!models[0].fails);
    assert_eq!((models[1].main.as_str(), models[1].line), ("y\n", 17));
    assert!(models[1].fails && models[1].files.is_empty());
    assert_eq!(models[1].error.as_deref(), Some("variable y not found\n"));
}

#[test]
fn fences_that_belong_to_nothing_are_reported() {
    let bad = [
        "```output\n1\n```\n",
        "```inmanta\nx = 1\n```\n```error\nno\n```\n",
        "```inmanta,file=a.cf\nx = 1\n```\n",
        "```inmanta,often\nx = 1\n```\n",
        "```inmanta\nx = 1\n",
    ];
    for text in bad {
        assert!(models(&page("a.md", text)).is_err(), "{text}");
    }
}

#[test]
fn broken_links_and_anchors_are_found_outside_of_code() {
    let other = page("docs/other.md", "# A title, with *words*\n");
    let check_line = |line: &str| check(&[page("docs/a.md", line), other.clone()]).len();
    assert_eq!(check_line("[x](other.md) [y](other.md#a-title-with-words) [z](../docs/)\n"), 0);
    assert_eq!(check_line("[x](nothing.md)\n"), 1);
    assert_eq!(check_line("[x](other.md#missing)\n"), 1);
    assert_eq!(check_line("[x](#missing)\n"), 1);
    assert_eq!(check_line("[x](https://example.org/nothing.md) `[x](nothing.md)`\n"), 0);
    assert_eq!(check_line("```text\n[x](nothing.md)\n```\n"), 0);
    assert_eq!(check_line("```text\nnever closed\n"), 2);
}

#[test]
fn pages_outside_of_the_table_of_contents_are_found() {
    let summary = page("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n  - [B](b/c.md)\n");
    let pages = [summary.clone(), page("docs/a.md", ""), page("docs/b/c.md", "")];
    assert!(check_summary(&pages).is_empty());
    assert_eq!(check_summary(&[summary, page("docs/lost.md", "")]).len(), 1);
    assert_eq!(check_summary(&[]).len(), 1);
}

const GOOD_PAGE: &str = "# some-id\n\n## What\n\n## Why\n\n## Example\n\n## Remedy\n";

#[test]
fn diagnostic_pages_have_their_parts_and_are_listed() {
    let list = page("docs/diagnostics/README.md", "| [`some-id`](some-id.md) | X |\n");
    let good = page("docs/diagnostics/some-id.md", GOOD_PAGE);
    assert!(check_diagnostics(&[list.clone(), good.clone()]).is_empty());
    assert_eq!(check_diagnostics(std::slice::from_ref(&good)).len(), 1, "not listed");
    for (part, problems) in [("## Why\n", 1), ("# some-id\n", 1)] {
        let text = GOOD_PAGE.replace(part, "\n");
        let bad = page("docs/diagnostics/some-id.md", &text);
        assert_eq!(check_diagnostics(&[list.clone(), bad]).len(), problems, "{part}");
    }
}

#[test]
fn diagnostic_ids_in_code_need_a_page() {
    let source = "\
const LIMIT: usize = 3;
let id = DiagnosticId::new(\"some-id\"); // not \"this-one\"
impl Error {
    fn diagnostic_id(&self) -> &'static str {
        match self {
            Self::A => \"first-id\",
            Self::B(text) if text == \"No kebab\" => \"second\",
        }
    }
    fn other() -> &'static str {
        \"not-an-id\"
    }
}
pub const DIAGNOSTIC_IDS: [&str; 1] = [
    \"third-id\",
];
fn diagnostic_id() -> &'static str { \"fourth-id\" }
const NAME: &str = \"not-an-id\";
";
    let found: Vec<(usize, String)> = diagnostic_ids(source);
    let expected =
        [(2, "some-id"), (6, "first-id"), (7, "second"), (15, "third-id"), (17, "fourth-id")];
    assert_eq!(found, expected.map(|(line, id)| (line, id.to_owned())));

    let list = page("docs/diagnostics/README.md", "[`some-id`](some-id.md)\n");
    let files = [list, page("docs/diagnostics/some-id.md", GOOD_PAGE), page("a.rs", source)];
    assert_eq!(check_diagnostics(&files).len(), 4);
}
