//! Callbacks of handlers to the core: file contents, parameters, facts and discovered resources.
//! Other methods are rejected.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use orrery_model::ResourceId;
use serde_json::{Map, Value, json};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::file_contents::{ContentError, FileContents};

/// Maximum size of a content in one line.
const CONTENT_BYTES_MAX: usize = 11 << 20;

/// A parameter of the environment, or a fact of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerParameter {
    /// `None` for a parameter of the environment.
    pub resource: Option<String>,
    pub name: String,
    pub value: String,
    /// Source: `fact`, `user`, `plugin`.
    pub source: String,
    pub expires: bool,
    /// Metadata given by the source.
    pub metadata: Map<String, Value>,
}

/// A resource that a handler found, managed or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovered {
    /// Its id as a resource.
    pub id: ResourceId,
    /// An object.
    pub values: Value,
    /// Resource of the handler that found it.
    pub by: ResourceId,
}

/// Storage of parameters, facts and discovered resources. Errors are texts for display.
pub trait Parameters: Send + Sync {
    /// Returns the parameters of a resource, or of the environment itself.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    fn list(&self, resource: Option<&str>) -> Result<Vec<HandlerParameter>, String>;

    /// Stores a parameter, replacing one of the same name. With `recompile`, a changed value
    /// requests a compile.
    ///
    /// # Errors
    /// Fails if it cannot be stored.
    fn set(&self, parameter: &HandlerParameter, recompile: bool) -> Result<(), String>;

    /// Stores discovered resources, all or none.
    ///
    /// # Errors
    /// Fails if it cannot be stored.
    fn store_discovered(&self, found: &[Discovered]) -> Result<(), String>;
}

/// Empty, read-only parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoParameters;

impl Parameters for NoParameters {
    fn list(&self, _: Option<&str>) -> Result<Vec<HandlerParameter>, String> {
        Ok(Vec::new())
    }

    fn set(&self, _: &HandlerParameter, _: bool) -> Result<(), String> {
        Err("parameters cannot be stored here".to_owned())
    }

    fn store_discovered(&self, _: &[Discovered]) -> Result<(), String> {
        Err("discovered resources cannot be stored here".to_owned())
    }
}

/// Implementation of the handlers' callbacks.
#[derive(Clone)]
pub struct HandlerCallbacks {
    pub files: FileContents,
    /// A UUID.
    pub environment: Option<String>,
    pub parameters: Arc<dyn Parameters>,
}

impl fmt::Debug for HandlerCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Reply to a call: an HTTP-like status, and a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub code: u16,
    pub result: Value,
}

impl Reply {
    pub(super) fn ok(result: Value) -> Self {
        Reply { code: 200, result }
    }

    pub(super) fn refused(code: u16, message: &str) -> Self {
        Reply { code, result: json!({ "message": message }) }
    }

    pub(super) fn message(&self, q: u64) -> Value {
        json!({ "k": "reply", "q": q, "code": self.code, "result": self.result })
    }
}

type Answer = Result<Reply, Reply>;

impl HandlerCallbacks {
    /// Answers one call. `changed` is true if a requirement of the operation's resource has
    /// changed.
    pub fn call(&self, method: &str, arguments: &Map<String, Value>, changed: bool) -> Reply {
        let answer = match method {
            "fetch_file" => self.fetch_file(arguments),
            "get_file" => self.get_file(arguments),
            "stat_file" => self.stat_file(arguments),
            "stat_files" => self.stat_files(arguments),
            "upload_file" => self.upload_file(arguments),
            "get_param" => self.get_param(arguments),
            "list_params" => self.list_params(arguments),
            "set_param" => self.set_param(arguments),
            "get_facts" => self.get_facts(arguments),
            "discovered_resource_create_batch" => self.store_discovered(arguments),
            "get_environment" => self.get_environment(),
            "resource_did_dependency_change" => Ok(Reply::ok(json!({ "data": changed }))),
            other => Err(Reply::refused(501, &format!("{other} is not offered to handlers"))),
        };
        answer.unwrap_or_else(|refused| refused)
    }

    /// Returns the path of a content, fetched if missing.
    fn fetched(&self, arguments: &Map<String, Value>) -> Result<String, Reply> {
        let id = text(arguments, "id")?;
        let found = self.files.fetch(id).map_err(|error| refused(&error))?;
        found.ok_or_else(|| Reply::refused(404, "there is no such content"))
    }

    /// Fetches a content into the directory of files, for the host to read.
    fn fetch_file(&self, arguments: &Map<String, Value>) -> Answer {
        let file = self.fetched(arguments)?;
        Ok(Reply::ok(json!({ "file": file })))
    }

    /// Returns a content; with `offset` and `bytes` a part of it.
    fn get_file(&self, arguments: &Map<String, Value>) -> Answer {
        let path = self.files.directory().join(self.fetched(arguments)?);
        let number = |name: &str| arguments.get(name).and_then(Value::as_u64);
        let failed = |error: std::io::Error| read_error_reply(&path, &error);
        let mut file = File::open(&path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let offset = number("offset").unwrap_or(0).min(size);
        let bytes = number("bytes").unwrap_or(u64::MAX).min(size - offset);
        if bytes > CONTENT_BYTES_MAX as u64 {
            return Err(Reply::refused(
                413,
                "the content is too large; read it from the directory of files",
            ));
        }
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        file.take(bytes).read_to_end(&mut content).map_err(failed)?;
        Ok(Reply::ok(json!({ "content": BASE64.encode(content), "size": size })))
    }

    fn stat_file(&self, arguments: &Map<String, Value>) -> Answer {
        match self.files.has(text(arguments, "id")?).map_err(|error| refused(&error))? {
            true => Ok(Reply::ok(Value::Null)),
            false => Err(Reply::refused(404, "there is no such content")),
        }
    }

    /// Returns the missing ones of these contents.
    fn stat_files(&self, arguments: &Map<String, Value>) -> Answer {
        let names = arguments.get("files").and_then(Value::as_array);
        let names = names.ok_or_else(|| Reply::refused(400, "`files` must be a list"))?;
        let mut missing = Vec::new();
        for name in names {
            match self.files.has(name.as_str().unwrap_or_default()) {
                Ok(true) => {}
                Ok(false) | Err(ContentError::Id(_)) => missing.push(name),
                Err(error) => return Err(refused(&error)),
            }
        }
        Ok(Reply::ok(json!({ "files": missing })))
    }

    fn upload_file(&self, arguments: &Map<String, Value>) -> Answer {
        let id = text(arguments, "id")?;
        let content = BASE64.decode(text(arguments, "content")?);
        let content = content.map_err(|_| Reply::refused(400, "`content` is not base64"))?;
        self.files.put(id, &content).map_err(|error| refused(&error))?;
        Ok(Reply::ok(Value::Null))
    }

    fn get_param(&self, arguments: &Map<String, Value>) -> Answer {
        let name = text(arguments, "id")?;
        let resource = resource(arguments, "resource_id");
        let found = self.parameters.list(resource).map_err(unreadable)?;
        match found.into_iter().find(|parameter| parameter.name == name) {
            Some(parameter) => {
                Ok(Reply::ok(json!({ "parameter": self.parameter_json(&parameter) })))
            }
            None => Err(Reply::refused(404, &format!("there is no parameter {name}"))),
        }
    }

    fn list_params(&self, arguments: &Map<String, Value>) -> Answer {
        let query = arguments.get("query").and_then(Value::as_object);
        let resource = query.and_then(|query| resource(query, "resource_id"));
        let found = self.parameters.list(resource).map_err(unreadable)?;
        let found: Vec<Value> =
            found.iter().map(|parameter| self.parameter_json(parameter)).collect();
        Ok(Reply::ok(json!({ "parameters": found })))
    }

    fn get_facts(&self, arguments: &Map<String, Value>) -> Answer {
        let resource = text(arguments, "rid")?;
        let found = self.parameters.list(Some(resource)).map_err(unreadable)?;
        let found: Vec<Value> =
            found.iter().map(|parameter| self.parameter_json(parameter)).collect();
        Ok(Reply::ok(json!({ "data": found })))
    }

    fn set_param(&self, arguments: &Map<String, Value>) -> Answer {
        let optional = |name: &str| arguments.get(name).and_then(Value::as_str);
        let flag = |name: &str| arguments.get(name).and_then(Value::as_bool);
        let resource = resource(arguments, "resource_id").map(str::to_owned);
        let expires = flag("expires").unwrap_or(resource.is_some());
        if expires && resource.is_none() {
            return Err(Reply::refused(400, "a parameter does not expire, only a fact does"));
        }
        let metadata = arguments.get("metadata").and_then(Value::as_object);
        let parameter = HandlerParameter {
            resource,
            name: text(arguments, "id")?.to_owned(),
            value: text(arguments, "value")?.to_owned(),
            source: optional("source").unwrap_or("fact").to_owned(),
            expires,
            metadata: metadata.cloned().unwrap_or_default(),
        };
        let kept = self.parameters.set(&parameter, flag("recompile").unwrap_or(false));
        kept.map_err(|error| Reply::refused(500, &error))?;
        Ok(Reply::ok(json!({ "parameter": self.parameter_json(&parameter) })))
    }

    fn store_discovered(&self, arguments: &Map<String, Value>) -> Answer {
        let list = arguments.get("discovered_resources").and_then(Value::as_array);
        let list =
            list.ok_or_else(|| Reply::refused(400, "`discovered_resources` must be a list"))?;
        let mut found = Vec::with_capacity(list.len());
        for one in list {
            let one = one
                .as_object()
                .ok_or_else(|| Reply::refused(400, "a discovered resource must be an object"))?;
            let id_of = |name: &str| {
                let id = resource(one, name).unwrap_or_default();
                let id: Result<ResourceId, _> = id.parse();
                id.map_err(|error| Reply::refused(400, &format!("`{name}`: {error}")))
            };
            let id = id_of("discovered_resource_id")?;
            let values = one.get("values").filter(|values| values.is_object()).cloned();
            let values = values.ok_or_else(|| {
                Reply::refused(400, &format!("the values of {id} must be an object"))
            })?;
            found.push(Discovered { id, values, by: id_of("discovery_resource_id")? });
        }
        self.parameters.store_discovered(&found).map_err(|error| Reply::refused(500, &error))?;
        Ok(Reply::ok(Value::Null))
    }

    fn get_environment(&self) -> Answer {
        let environment = json!({ "id": self.environment, "name": "default" });
        Ok(Reply::ok(json!({ "environment": environment, "data": environment })))
    }

    fn parameter_json(&self, parameter: &HandlerParameter) -> Value {
        let HandlerParameter { resource, name, value, source, expires, metadata } = parameter;
        json!({
            "environment": self.environment, "resource_id": resource.as_deref().unwrap_or(""),
            "name": name, "value": value, "source": source, "expires": expires, "metadata": metadata,
        })
    }
}

fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, Reply> {
    let found = arguments.get(name).and_then(Value::as_str);
    found.ok_or_else(|| Reply::refused(400, &format!("`{name}` must be a string")))
}

/// Returns the resource id without a version.
fn resource<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let id = arguments.get(name)?.as_str().filter(|id| !id.is_empty())?;
    Some(id.rsplit_once(",v=").map_or(id, |(id, _)| id))
}

fn refused(error: &ContentError) -> Reply {
    let code = match error {
        ContentError::Id(_) | ContentError::NotItsHash { .. } => 400,
        ContentError::Source(_) => 503,
        ContentError::Io { .. } => 500,
    };
    Reply::refused(code, &error.to_string())
}

fn read_error_reply(path: &Path, error: &std::io::Error) -> Reply {
    match error.kind() {
        std::io::ErrorKind::NotFound => Reply::refused(404, "there is no such content"),
        _ => Reply::refused(500, &format!("{} cannot be read: {error}", path.display())),
    }
}

fn unreadable(error: String) -> Reply {
    Reply::refused(500, &error)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct MemoryStore(Mutex<Vec<HandlerParameter>>, Mutex<Vec<Discovered>>);

    impl Parameters for MemoryStore {
        fn list(&self, resource: Option<&str>) -> Result<Vec<HandlerParameter>, String> {
            let kept = self.0.lock().unwrap();
            Ok(kept.iter().filter(|one| one.resource.as_deref() == resource).cloned().collect())
        }

        fn set(&self, parameter: &HandlerParameter, _: bool) -> Result<(), String> {
            self.0.lock().unwrap().push(parameter.clone());
            Ok(())
        }

        fn store_discovered(&self, found: &[Discovered]) -> Result<(), String> {
            self.1.lock().unwrap().extend_from_slice(found);
            Ok(())
        }
    }

    fn services(dir: &Path) -> HandlerCallbacks {
        let files = FileContents::complete(dir.join("files"));
        HandlerCallbacks { files, environment: None, parameters: Arc::new(MemoryStore::default()) }
    }

    fn call(services: &HandlerCallbacks, method: &str, arguments: Value) -> (u16, Value) {
        let reply = services.call(method, arguments.as_object().unwrap(), false);
        (reply.code, reply.result)
    }

    #[test]
    fn contents_are_stored_and_returned() {
        let dir = tempfile::tempdir().unwrap();
        let services = services(dir.path());
        assert_eq!(call(&services, "get_file", json!({"id": "ab12"})).0, 404);
        assert_eq!(call(&services, "stat_file", json!({"id": "ab12"})).0, 404);
        let upload = json!({"id": "ab12", "content": BASE64.encode("hi")});
        assert_eq!(call(&services, "upload_file", upload).0, 200);
        assert_eq!(call(&services, "stat_file", json!({"id": "ab12"})).0, 200);
        let (code, result) = call(&services, "get_file", json!({"id": "ab12"}));
        assert_eq!((code, result["content"].as_str()), (200, Some("aGk=")));
        let asked = json!({"files": ["ab12", "cd34"]});
        assert_eq!(call(&services, "stat_files", asked).1["files"], json!(["cd34"]));
        assert_eq!(std::fs::read_dir(dir.path().join("files")).unwrap().count(), 1);
    }

    #[test]
    fn names_do_not_leave_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let services = services(dir.path());
        for name in ["", ".", "..", "../x", "a/b", "/etc/passwd", ".new-1", "a\0b"] {
            assert_eq!(call(&services, "get_file", json!({"id": name})).0, 400, "{name:?}");
            let upload = json!({"id": name, "content": ""});
            assert_eq!(call(&services, "upload_file", upload).0, 400, "{name:?}");
        }
    }

    #[test]
    fn facts_are_found_by_resource_whatever_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let services = services(dir.path());
        let id = "m::R[a,n=x]";
        let set =
            json!({"id": "ip", "value": "1", "source": "fact", "resource_id": format!("{id},v=3")});
        assert_eq!(call(&services, "set_param", set).0, 200);
        let get = json!({"id": "ip", "resource_id": id});
        assert_eq!(call(&services, "get_param", get).1["parameter"]["value"], "1");
        assert_eq!(call(&services, "get_param", json!({"id": "ip"})).0, 404);
        let facts = call(&services, "get_facts", json!({"rid": id})).1;
        assert_eq!(facts["data"].as_array().unwrap().len(), 1);
        let listed = call(&services, "list_params", json!({"query": {"resource_id": id}})).1;
        assert_eq!(listed["parameters"][0]["name"], "ip");
    }

    #[test]
    fn parameters_do_not_expire_and_facts_do() {
        let dir = tempfile::tempdir().unwrap();
        let services = services(dir.path());
        let set = |arguments| call(&services, "set_param", arguments);
        let (code, parameter_json) =
            set(json!({"id": "zone", "value": "b", "metadata": {"by": "me"}}));
        assert_eq!((code, &parameter_json["parameter"]["expires"]), (200, &json!(false)));
        assert_eq!(parameter_json["parameter"]["metadata"], json!({"by": "me"}));
        let (_, parameter_json) =
            set(json!({"id": "ip", "value": "1", "resource_id": "m::R[a,n=x]"}));
        assert_eq!(parameter_json["parameter"]["expires"], json!(true));
        assert_eq!(set(json!({"id": "zone", "value": "b", "expires": true})).0, 400);
    }

    #[test]
    fn discovered_resources_are_checked_before_any_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Arc::new(MemoryStore::default());
        let files = FileContents::complete(dir.path().join("files"));
        let parameters = Arc::clone(&kept) as Arc<dyn Parameters>;
        let services = HandlerCallbacks { files, environment: None, parameters };
        let one = |id: &str, values: Value| json!({"discovered_resource_id": id, "values": values, "discovery_resource_id": "m::D[a,n=d]"});
        let tell = |found: Value| {
            let arguments = json!({"tid": "x", "discovered_resources": found});
            call(&services, "discovered_resource_create_batch", arguments).0
        };
        let good = one("m::R[a,n=x]", json!({"size": 1}));
        for bad in [one("m::R", json!({})), one("m::R[a,n=y]", json!(1)), json!("x")] {
            assert_eq!(tell(json!([good, bad])), 400);
        }
        assert_eq!(tell(json!({})), 400);
        assert!(kept.1.lock().unwrap().is_empty());
        assert_eq!(tell(json!([good])), 200);
        let found = kept.1.lock().unwrap();
        assert_eq!((found[0].id.as_str(), found[0].by.as_str()), ("m::R[a,n=x]", "m::D[a,n=d]"));
    }

    #[test]
    fn unknown_callbacks_are_rejected_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (code, result) = call(&services(dir.path()), "create_token", json!({}));
        assert_eq!(code, 501);
        assert_eq!(result["message"], "create_token is not offered to handlers");
    }
}
