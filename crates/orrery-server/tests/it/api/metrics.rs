//! Metrics.

use orrery_model::Timestamp;
use orrery_store::MetricRecord;
use serde_json::json;

use super::{World, on_both, refused};

on_both!(metrics_have_equal_intervals);

fn metrics_have_equal_intervals(world: World) {
    const MINUTE: i64 = 60_000_000;
    let start = 1_700_000_000_000_000_i64.div_euclid(60 * MINUTE) * 60 * MINUTE;
    let metric = |minute: i64, category: &str, count: i64, value: i64, name: &str| MetricRecord {
        name: name.to_owned(),
        category: category.to_owned(),
        at: Timestamp(start + minute * MINUTE),
        count,
        value,
    };
    let given = [
        metric(0, "deployed", 1, 2_000, "resource.resource_count"),
        metric(15, "deployed", 1, 4_000, "resource.resource_count"),
        metric(15, "failed", 1, 1_000, "resource.resource_count"),
        metric(40, "", 2, 6_000, "orchestrator.compile_time"),
        metric(10, "deployed", 4, 2_000, "resource.run_time"),
        metric(20, "deployed", 4, 4_000, "resource.run_time"),
        metric(50, "failed", 1, 9_000, "resource.run_time"),
        metric(20, "deployed", 3, 0, "resource.run_changes"),
    ];
    world.store().metrics().add(world.key(), &given).unwrap();
    let (from, to) = (Timestamp(start), Timestamp(start + 60 * MINUTE));
    let found = world.get(&format!("/metrics?start={from}&end={to}&spans=2")).good();
    assert_eq!(found["timestamps"].as_array().unwrap().len(), 2);
    let series = |name: &str| {
        let all = found["metrics"].as_array().unwrap();
        all.iter().find(|series| series["name"] == name).unwrap()["values"].clone()
    };
    // An unchanged value was not sampled again, and stays.
    assert_eq!(
        series("resource.resource_count"),
        json!({"deployed": [3.0, 4.0], "failed": [1.0, 1.0]})
    );
    assert_eq!(series("orchestrator.compile_time"), json!({"": [null, 3.0]}));
    assert_eq!(series("orchestrator.compile_rate"), json!({"": [0.0, 4.0]}));
    let runs = series("resource.run_time");
    assert_eq!(runs, json!({"deployed": [0.75, null], "failed": [null, 9.0]}));
    // Half an hour each.
    let rates = series("resource.run_rate");
    assert_eq!(rates, json!({"deployed": [16.0, 0.0], "failed": [0.0, 2.0]}));
    assert_eq!(series("resource.change_rate"), json!({"deployed": [6.0, 0.0]}));
    let (far, end) = (Timestamp(start + 120 * MINUTE), Timestamp(start + 180 * MINUTE));
    let far = world.get(&format!("/metrics?start={far}&end={end}&spans=1")).good();
    let counts = &far["metrics"].as_array().unwrap()[0];
    assert_eq!(counts["values"], json!({}), "no server was running: {counts}");
    let some = world
        .get(&format!("/metrics?start={from}&end={to}&round=true&metrics=resource.agent_count"))
        .good();
    assert_eq!(some["timestamps"], json!([to.to_string()]));
    refused(&world.get("/metrics?metrics=odd"), 400, "bad-filter");
    refused(&world.get("/metrics?spans=0"), 400, "bad-filter");
    refused(&world.get(&format!("/metrics?start={to}&end={from}")), 400, "bad-filter");
    assert_eq!(world.get("/metrics").status, 200);
}
