//! OpenAPI document: descriptions from the code, and common parts of all operations.

use serde_json::{Map, Value, json};

use crate::access::{Access, AccessTable};
use crate::routes;

/// Objects with a revision: returned as `ETag`, and checked with `If-Match`.
const REVISED: [&str; 10] = [
    "/api/v1/projects/{project}",
    "/api/v1/users/{user}",
    "/api/v1/environments/{environment}",
    "/api/v1/environments/{environment}/settings/{name}",
    "/api/v1/environments/{environment}/parameters/{name}",
    "/api/v1/environments/{environment}/secrets/{name}",
    "/api/v1/secrets/{name}",
    "/api/v1/cluster-documents/{kind}/{name}",
    "/api/v1/clusters/{cluster}",
    "/api/v1/projects/{project}/cluster-documents/{kind}/{name}",
];

/// Operations that check the revision of their object.
const REVISED_OPERATIONS: &str = "/api/v1/clusters/{cluster}/operations";

/// Returns the complete OpenAPI document.
pub fn document() -> Value {
    complete(routes::all().into_openapi())
}

/// Component of times. References to it are replaced by its content, as generated clients expect.
const TIME: &str = "Time";

/// Adds the common parts of operations: names, problems, idempotency keys, media types.
pub(crate) fn complete(described: utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(described).unwrap_or_default();
    let table = AccessTable::new([]);
    inline_times(&mut document);
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.shift_remove(TIME);
    }
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                complete_operation(&table, (path, method), operation);
            }
        }
    }
    document["components"]["securitySchemes"] = json!({
        "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "A session, an API token, or a JWT of a trusted issuer.",
        },
    });
    document
}

/// Replaces references to times by their type and format.
fn inline_times(value: &mut Value) {
    let is_time = |reference: Option<&Value>| {
        let path = reference.and_then(Value::as_str);
        path.and_then(|path| path.rsplit('/').next()) == Some(TIME)
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(inline_times),
        Value::Object(fields) => {
            let choices = fields.get("oneOf").and_then(Value::as_array);
            if choices.is_some_and(|choices| choices.iter().any(|one| is_time(one.get("$ref")))) {
                fields.shift_remove("oneOf");
                fields.insert("type".to_owned(), json!(["string", "null"]));
                fields.insert("format".to_owned(), json!("date-time"));
            } else if is_time(fields.get("$ref")) {
                fields.shift_remove("$ref");
                fields.insert("type".to_owned(), json!("string"));
                fields.insert("format".to_owned(), json!("date-time"));
            }
            fields.values_mut().for_each(inline_times);
        }
        _ => {}
    }
}

/// Returns the name of an operation: its group and its function, `dry_runs_list`.
fn operation_name(operation: &Value) -> Option<String> {
    let group = operation["tags"].get(0)?.as_str()?.replace([' ', '-'], "_");
    let function = operation["operationId"].as_str()?;
    Some(format!("{group}_{function}"))
}

fn add_parameter(operation: &mut Value, parameter: Value) {
    let parameters = operation
        .as_object_mut()
        .map(|operation| operation.entry("parameters").or_insert_with(|| json!([])));
    if let Some(Value::Array(parameters)) = parameters {
        parameters.push(parameter);
    }
}

fn complete_operation(table: &AccessTable, (path, method): (&str, &str), operation: &mut Value) {
    let has_body = operation.get("requestBody").is_some();
    if let Some(name) = operation_name(operation) {
        operation["operationId"] = json!(name);
    }
    let access = method.to_ascii_uppercase().parse().ok();
    let access = access.and_then(|method| table.required_access(&method, path));
    operation["security"] = match access {
        Some(Access::Public) | None => json!([]),
        Some(_) => json!([{"bearer": []}]),
    };
    if method == "post" && !table.is_keyless(path) {
        let repeated = if table.gives_secrets(path) {
            "is executed once; a repetition gets 409 with the code already-carried-out, since secrets are returned only once."
        } else {
            "is executed once and gets the same response each time."
        };
        let description = format!(
            "A text of your choice, up to 255 characters. The same request with the same key within 24 hours {repeated}"
        );
        let header = json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": description,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        });
        add_parameter(operation, header);
    }
    let is_revised = matches!(method, "patch" | "put" | "delete") && REVISED.contains(&path)
        || (method, path) == ("post", REVISED_OPERATIONS);
    if is_revised {
        let header = json!({
            "name": "If-Match", "in": "header", "required": false,
            "description": "ETag of the revision that the change is based on. Another current revision is a conflict.",
            "schema": {"type": "string"},
        });
        add_parameter(operation, header);
    }
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else {
        return;
    };
    responses.remove("default");
    for (status, response) in responses.iter_mut() {
        let text = match status.as_str() {
            "201" => "Created",
            "202" => "Started",
            "204" => "Done",
            _ => "Success",
        };
        if let Some(response) = response.as_object_mut() {
            response.entry("description").or_insert_with(|| json!(text));
        }
    }
    let mut add = |status: &str, text: &str| add_problem(responses, status, text);
    if path.starts_with("/health") {
        return;
    }
    add("400", "Invalid request, or violated rule");
    add("401", "Authentication required");
    add("403", "Not permitted for the caller, or for any caller");
    add("404", "Not found");
    add("503", "Unavailable; try again later");
    if method != "get" {
        add("409", "Not possible in the current state");
    }
    add("422", "Invalid value, or Idempotency-Key of another request");
    if has_body {
        add("413", "The body is too large, compressed or decompressed");
        add("415", "The body is not JSON, or has an unsupported Content-Encoding");
    }
    if is_revised {
        add("412", "Changed concurrently: the ETag in If-Match is not the current one");
    }
    if method != "get" {
        add("429", "Too many requests; try again later");
    }
}

fn add_problem(responses: &mut Map<String, Value>, status: &str, text: &str) {
    responses.entry(status).or_insert_with(|| {
        json!({
            "description": text,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        })
    });
}
