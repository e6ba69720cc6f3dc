//! The description of the API: what the code says of each operation, and what holds for all of them.

use serde_json::{Map, Value, json};

use crate::access::{Access, access_of};
use crate::conventions::{KEYLESS_ROUTES, SECRET_ROUTES};
use crate::routes;

/// What has a revision, told as `ETag`, so that it can be changed with `If-Match`.
const REVISED: [&str; 9] = [
    "/api/v1/projects/{project}",
    "/api/v1/users/{user}",
    "/api/v1/environments/{environment}",
    "/api/v1/environments/{environment}/settings/{name}",
    "/api/v1/environments/{environment}/parameters/{name}",
    "/api/v1/environments/{environment}/secrets/{name}",
    "/api/v1/secrets/{name}",
    "/api/v1/cluster-documents/{kind}/{name}",
    "/api/v1/projects/{project}/cluster-documents/{kind}/{name}",
];

/// The complete description.
pub fn document() -> Value {
    complete(routes::all().into_openapi())
}

/// Adds what no operation says by itself: problems, the key of repetitions, the media type of problems.
pub(crate) fn complete(described: utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(described).unwrap_or_default();
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                complete_operation(path, method, operation);
            }
        }
    }
    document["components"]["securitySchemes"] = json!({
        "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "A session, an API token, or a token of a trusted issuer.",
        },
    });
    document
}

fn add_parameter(operation: &mut Value, parameter: Value) {
    let parameters = operation
        .as_object_mut()
        .map(|operation| operation.entry("parameters").or_insert_with(|| json!([])));
    if let Some(Value::Array(parameters)) = parameters {
        parameters.push(parameter);
    }
}

fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    let has_body = operation.get("requestBody").is_some();
    let access = method.to_ascii_uppercase().parse().ok();
    let access = access.and_then(|method| access_of(&method, path));
    operation["security"] = match access {
        Some(Access::Public) | None => json!([]),
        Some(_) => json!([{"bearer": []}]),
    };
    if method == "post" && !KEYLESS_ROUTES.contains(&path) {
        let repeated = if SECRET_ROUTES.contains(&path) {
            "is carried out once; whoever repeats it gets 409 with the code already-carried-out, as secrets are told once."
        } else {
            "is carried out once and answered alike each time."
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
    let is_revised = matches!(method, "patch" | "put" | "delete") && REVISED.contains(&path);
    if is_revised {
        let header = json!({
            "name": "If-Match", "in": "header", "required": false,
            "description": "The ETag that the change is based on: it is made only to that revision.",
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
            "201" => "Made",
            "202" => "Begun",
            "204" => "Done",
            _ => "What was asked for",
        };
        if let Some(response) = response.as_object_mut() {
            response.entry("description").or_insert_with(|| json!(text));
        }
    }
    let mut add = |status: &str, text: &str| add_problem(responses, status, text);
    if path.starts_with("/health") {
        return;
    }
    add("400", "The request is not understood, or breaks a rule");
    add("401", "Who calls is not known");
    add("403", "The caller may not do this, or nobody may");
    add("404", "It does not exist");
    add("503", "Not available now; try again later");
    if method != "get" {
        add("409", "Not possible in the current state");
    }
    add("422", "A value is not valid, or an Idempotency-Key was used for another request");
    if has_body {
        add("413", "The body is too large, as it was sent or when it is unpacked");
        add("415", "The body is no JSON, or packed in an unknown way");
    }
    if is_revised {
        add("412", "It was changed meanwhile: the ETag in If-Match is not the current one");
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
