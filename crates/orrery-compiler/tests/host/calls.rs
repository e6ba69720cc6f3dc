//! Outcomes of plugin calls.

use orrery_compiler::plugins::{CellId, Failure};
use orrery_compiler::value::Value;

use crate::test_host::{TestHost, message, read};

const THING: &str = "
entity Thing:
    int late
    int later
end
Thing.other [0:1] -- Thing
implement Thing using std::none
";

fn sum_of_late(host: TestHost) -> TestHost {
    host.with("m::sum", &["thing: Thing"], "int", |context, call| {
        let late = read(context, call, "late")?;
        let later = read(context, call, "later")?;
        match (late, later) {
            (Value::Int(late), Value::Int(later)) => Ok(Value::Int(late + later)),
            _ => Err(Failure::Plugin("not numbers".into())),
        }
    })
}

#[test]
fn a_call_that_reads_too_early_is_repeated_for_each_value() {
    let mut host =
        sum_of_late(TestHost::default()).with("m::three", &[], "int", |_, _| Ok(Value::Int(3)));
    let main = "import m
thing = m::Thing()
std::print(m::sum(thing))
thing.late = m::three() + 1
thing.later = thing.late + 1
";
    let compiled = host.compile(THING, main);
    assert_eq!(message(&compiled), "");
    assert_eq!(compiled.output, "9\n");
    let called = host.called.borrow();
    let sums = called.iter().filter(|name| *name == "m::sum").count();
    // The first call ran before any value was set, the last one after all were set.
    assert!((2..=3).contains(&sums), "{called:?}");
    assert_eq!(called.last().map(String::as_str), Some("m::sum"));
    assert!(called.iter().any(|name| name == "m::three"));
}

#[test]
fn a_call_that_waits_for_ever_is_reported_as_the_value_that_is_missing() {
    let compiled = sum_of_late(TestHost::default())
        .compile(THING, "import m\nthing = m::Thing(later=1)\nx = m::sum(thing)\n");
    let message = message(&compiled);
    assert!(message.contains("is not complete: attribute late"), "{message}");
}

#[test]
fn a_call_that_waits_for_nothing_is_an_error() {
    let waits: [crate::test_host::Run; 2] =
        [|_, _| Err(Failure::Unset(vec![])), |_, _| Err(Failure::Unset(vec![CellId(u32::MAX)]))];
    for run in waits {
        let compiled = TestHost::default()
            .with("m::wait", &[], "any", run)
            .compile("", "import m\nm::wait()\n");
        assert_eq!(
            message(&compiled),
            "Exception in plugin m::wait (reported in m::wait() (./main.cf:2:1))\ncaused by:\n  \
             it waits, but for no value (reported in m::wait() (./main.cf:2:1))"
        );
    }
}

#[test]
fn an_exception_is_reported_with_its_text() {
    let raise = |explicit: bool| {
        let run: crate::test_host::Run = if explicit {
            |_, _| {
                let class = "inmanta_plugins.m.Own".into();
                Err(Failure::Exception { class, message: "mine".into(), explicit: true })
            }
        } else {
            |_, _| {
                let (class, message) = ("ValueError".into(), "bad value".into());
                Err(Failure::Exception { class, message, explicit: false })
            }
        };
        let compiled =
            TestHost::default().with("m::f", &[], "any", run).compile("", "import m\nx = m::f()\n");
        let class = compiled.outcome.as_ref().err().map(|error| error.class);
        (class, message(&compiled))
    };
    assert_eq!(
        raise(false),
        (
            Some("ExternalException"),
            "Exception in plugin m::f (reported in m::f() (./main.cf:2:5))\ncaused by:\n  \
             ValueError: bad value"
                .to_owned()
        )
    );
    assert_eq!(
        raise(true),
        (
            Some("ExplicitPluginException"),
            "PluginException in plugin m::f\nmine (reported in m::f() (./main.cf:2:5))\n\
             caused by:\n  inmanta_plugins.m.Own: mine"
                .to_owned()
        )
    );
}

#[test]
fn an_unknown_result_is_a_value_that_others_take_over() {
    let mut host = TestHost::default()
        .with("m::unknown", &[], "int", |context, _| Ok(context.heap_mut().unknown(None)))
        .with("m::next", &["x: int"], "int", |_, call| Ok(call.args[0]));
    let main = "import m
x = m::unknown()
y = m::next(x)
if std::is_unknown(y):
    std::print(\"unknown\")
end
";
    let compiled = host.compile("", main);
    assert_eq!(message(&compiled), "");
    assert_eq!(compiled.output, "unknown\n");
    // An unknown argument is the result: the plugin is not called.
    assert_eq!(*host.called.borrow(), ["m::unknown"]);
}

#[test]
fn reading_an_unknown_makes_the_result_unknown() {
    let mut host = sum_of_late(TestHost::default())
        .with("m::unknown", &[], "int", |context, _| Ok(context.heap_mut().unknown(None)));
    let main = "import m
thing = m::Thing(late=m::unknown(), later=2)
std::print(std::is_unknown(m::sum(thing)))
";
    let compiled = host.compile(THING, main);
    assert_eq!(compiled.output, "True\n", "{}", message(&compiled));
}

#[test]
fn an_optional_relation_without_a_value_fails_the_call() {
    let compiled = TestHost::default()
        .with("m::other", &["thing: Thing"], "any", |context, call| read(context, call, "other"))
        .compile(THING, "import m\nthing = m::Thing(late=1, later=1)\nx = m::other(thing)\n");
    let message = message(&compiled);
    assert!(message.starts_with("Exception in plugin m::other (reported in"), "{message}");
    assert!(message.contains("Optional variable accessed that has no value"), "{message}");
}

#[test]
fn templates_use_the_plugins_of_hosts_as_filters() {
    let mut host =
        TestHost::default().with("m::twice", &["x: string"], "string", |context, call| {
            let Value::Str(text) = call.args[0] else {
                return Err(Failure::python("TypeError", "no text"));
            };
            let text = context.heap().text(text).repeat(2);
            Ok(context.heap_mut().str(&text))
        });
    let main = "import m\nstd::print(std::template(\"m/t\", word=\"ab\"))\n";
    let compiled = host.compile_with_template("{{ word | m.twice }}", main);
    assert_eq!(compiled.output, "abab\n", "{}", message(&compiled));
    assert_eq!(*host.called.borrow(), ["m::twice"]);
}

/// A plugin that prints and returns its argument.
fn with_say(host: TestHost) -> TestHost {
    host.with("m::say", &["text: string"], "string", |context, call| {
        let Value::Str(text) = call.args[0] else { return Err(Failure::Plugin("no text".into())) };
        let text = context.heap().text(text).to_owned();
        context.print(&text);
        if text == "bad" { Err(Failure::Plugin("bad".into())) } else { Ok(call.args[0]) }
    })
}

#[test]
fn calls_that_come_together_have_the_effects_of_calls_one_by_one() {
    let models = [
        // Many calls without observable effects between them.
        "for i in std::sequence(700):\n  x = m::say(\"{{i}}\")\n  m::Thing(late=std::count([x]), later=i)\nend\n",
        // Output of the program itself keeps its position among them.
        "a = m::say(\"a\")\nb = m::say(\"b\")\nstd::print(\"between\")\nc = m::say(\"c\")\nd = m::say(a)\n",
        // The first error is the first in the order of the queue.
        "a = m::say(\"a\")\nb = m::say(\"bad\")\nc = m::say(\"c\")\nd = m::say(d2)\nd2 = 3\n",
    ];
    let mut largest = 0;
    for model in models {
        let main = format!("import m\n{model}");
        let mut alone = with_say(TestHost::default());
        let mut batching = with_say(TestHost::default());
        batching.batches = true;
        let (one, other) = (alone.compile(THING, &main), batching.compile(THING, &main));
        assert_eq!(message(&one), message(&other));
        if one.outcome.is_ok() {
            assert_eq!(one.output, other.output, "{model}");
            assert_eq!(*alone.called.borrow(), *batching.called.borrow());
        }
        largest = largest.max(batching.together.borrow().iter().copied().max().unwrap_or(0));
    }
    assert_eq!(largest, 256);
}
