//! Sandboxes as root with a user for each sandbox, and as an ordinary user with and without
//! bubblewrap.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod limits;
mod support;
mod survivors;
mod view;

/// Benchmark of a sandboxed spawn against a plain one. Run by hand: `cargo test -p orrery-sandbox
/// --test it -- --ignored --nocapture`.
#[test]
#[ignore = "it measures"]
fn the_cost_of_a_sandbox() {
    use std::time::Instant;
    const RUNS: u32 = 200;
    let plain = || assert!(std::process::Command::new("/bin/true").status().unwrap().success());
    let time = |run: &dyn Fn()| {
        let started = Instant::now();
        (0..RUNS).for_each(|_| run());
        started.elapsed().as_secs_f64() * 1000.0 / f64::from(RUNS)
    };
    println!("plain: {:.2} ms", time(&plain));
    for user in support::users() {
        let policy = user.policy();
        let run = || assert_eq!(user.run(&policy, "exit 0").code, Some(0));
        println!("{user:?}: {:.2} ms", time(&run));
    }
}
