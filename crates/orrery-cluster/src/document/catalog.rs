//! A set of related documents: the files of one directory, or a tenant's documents in the store.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::machine::{HardwareType, ImageType, Provider};
use super::problem::{
    CatalogProblem, DocumentFileId, DocumentLocation, ProblemKind, ValueSpans, line_column,
};
use super::schema::{self, Reader, Shape};
use super::service::Service;
use super::template::{ClusterTemplate, PartialTemplate};
use super::tenant::Tenant;
use super::tree::{self, Content};

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKind {
    Provider,
    HardwareType,
    ImageType,
    Service,
    PartialTemplate,
    ClusterTemplate,
    Tenant,
}

impl DocumentKind {
    pub const ALL: [DocumentKind; 7] = [
        DocumentKind::Provider,
        DocumentKind::HardwareType,
        DocumentKind::ImageType,
        DocumentKind::Service,
        DocumentKind::PartialTemplate,
        DocumentKind::ClusterTemplate,
        DocumentKind::Tenant,
    ];

    /// The directory for documents of this kind in published repositories.
    pub fn directory(&self) -> &'static str {
        match self {
            DocumentKind::Provider => "providers",
            DocumentKind::HardwareType => "hardwaretypes",
            DocumentKind::ImageType => "imagetypes",
            DocumentKind::Service => "services",
            DocumentKind::PartialTemplate => "partialtemplates",
            DocumentKind::ClusterTemplate => "clustertemplates",
            DocumentKind::Tenant => "tenants",
        }
    }

    pub fn noun(&self) -> &'static str {
        match self {
            DocumentKind::Provider => "provider",
            DocumentKind::HardwareType => "hardware type",
            DocumentKind::ImageType => "image type",
            DocumentKind::Service => "service",
            DocumentKind::PartialTemplate => "partial template",
            DocumentKind::ClusterTemplate => "template",
            DocumentKind::Tenant => "tenant",
        }
    }

    /// The name of this kind in URLs and commands.
    pub fn id(&self) -> &'static str {
        match self {
            DocumentKind::Provider => "provider",
            DocumentKind::HardwareType => "hardware",
            DocumentKind::ImageType => "image",
            DocumentKind::Service => "service",
            DocumentKind::PartialTemplate => "partial",
            DocumentKind::ClusterTemplate => "template",
            DocumentKind::Tenant => "tenant",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        DocumentKind::ALL.into_iter().find(|kind| kind.id() == id)
    }

    fn shape(self) -> &'static Shape {
        match self {
            DocumentKind::Provider => &schema::PROVIDER,
            DocumentKind::HardwareType => &schema::HARDWARE,
            DocumentKind::ImageType => &schema::IMAGE,
            DocumentKind::Service => &schema::SERVICE,
            DocumentKind::PartialTemplate => &schema::PARTIAL,
            DocumentKind::ClusterTemplate => &schema::TEMPLATE,
            DocumentKind::Tenant => &schema::TENANT,
        }
    }
}

/// A source file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    pub name: String,
    pub text: String,
    /// True if it comes from a store: users do not see lines and columns of its text.
    pub is_stored: bool,
}

/// A document with the locations of its values.
#[derive(Clone, Debug)]
pub struct Document<T> {
    pub body: T,
    pub file: DocumentFileId,
    pub locations: ValueSpans,
}

impl<T> Document<T> {
    /// The location of a value by its JSON pointer, or of the nearest enclosing value.
    pub fn location(&self, path: &str) -> DocumentLocation {
        DocumentLocation { file: self.file, span: self.locations.find(path), path: path.to_owned() }
    }
}

/// Documents of one kind, by name.
pub type DocumentMap<T> = BTreeMap<String, Document<T>>;

/// A set of documents.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub files: Vec<SourceFile>,
    pub providers: DocumentMap<Provider>,
    pub hardware_types: DocumentMap<HardwareType>,
    pub image_types: DocumentMap<ImageType>,
    pub services: DocumentMap<Service>,
    pub partial_templates: DocumentMap<PartialTemplate>,
    pub templates: DocumentMap<ClusterTemplate>,
    pub tenants: DocumentMap<Tenant>,
    /// First location of each name of a kind, even of unusable documents.
    seen: BTreeMap<(DocumentKind, String), DocumentLocation>,
    problems: Vec<CatalogProblem>,
    /// Files with documents that have no readable name.
    unnamed: Vec<(DocumentKind, DocumentFileId)>,
}

impl Catalog {
    /// Reads a document. Errors are added to the problems; the usable part is kept.
    pub fn add(&mut self, kind: DocumentKind, file_name: &str, text: String) {
        let file = DocumentFileId(self.files.len());
        match kind {
            DocumentKind::Provider => {
                let document = self.read(kind, file, file_name, &text);
                insert_document(&mut self.providers, document);
            }
            DocumentKind::HardwareType => {
                let document = self.read(kind, file, file_name, &text);
                insert_document(&mut self.hardware_types, document);
            }
            DocumentKind::ImageType => {
                let document = self.read(kind, file, file_name, &text);
                insert_document(&mut self.image_types, document);
            }
            DocumentKind::Service => {
                let document = self.read(kind, file, file_name, &text);
                insert_document(&mut self.services, document);
            }
            DocumentKind::PartialTemplate => {
                let document = self.read(kind, file, file_name, &text);
                insert_document(&mut self.partial_templates, document);
            }
            DocumentKind::ClusterTemplate => {
                let document = self.read(kind, file, file_name, &text);
                insert_document(&mut self.templates, document);
            }
            DocumentKind::Tenant => {
                let document = self.read(kind, file, file_name, &text);
                insert_document(&mut self.tenants, document);
            }
        }
        self.files.push(SourceFile { name: file_name.to_owned(), text, is_stored: false });
    }

    /// Reads a document of a store, as canonical JSON.
    pub fn add_stored(&mut self, kind: DocumentKind, name: &str, text: String) {
        self.add(kind, &format!("{}/{name}.json", kind.directory()), text);
        if let Some(file) = self.files.last_mut() {
            file.is_stored = true;
        }
    }

    /// The file of a document, even of an unusable one.
    pub fn file_of(&self, kind: DocumentKind, name: &str) -> Option<DocumentFileId> {
        self.seen.get(&(kind, name.to_owned())).map(|location| location.file)
    }

    /// The byte range of a value in a file by its JSON pointer, or of the nearest enclosing value.
    pub fn span_of(&self, file: DocumentFileId, path: &str) -> Option<std::ops::Range<usize>> {
        fn find<T>(
            shelf: &DocumentMap<T>,
            file: DocumentFileId,
            path: &str,
        ) -> Option<std::ops::Range<usize>> {
            let mut documents = shelf.values();
            documents.find(|one| one.file == file).map(|one| one.locations.find(path))
        }
        find(&self.providers, file, path)
            .or_else(|| find(&self.hardware_types, file, path))
            .or_else(|| find(&self.image_types, file, path))
            .or_else(|| find(&self.services, file, path))
            .or_else(|| find(&self.partial_templates, file, path))
            .or_else(|| find(&self.templates, file, path))
            .or_else(|| find(&self.tenants, file, path))
    }

    /// The content of a document in canonical form: JSON with keys in the order of the text, a
    /// tenant without its wrapper, and no `version`, which the store assigns.
    pub fn canonical(&self, kind: DocumentKind, name: &str) -> Option<serde_json::Value> {
        let file = self.file(self.file_of(kind, name)?);
        let node = tree::parse(&file.name, &file.text).ok()?;
        let inner = match node.get("tenant") {
            Some(inner) if kind == DocumentKind::Tenant => inner,
            _ => &node,
        };
        let mut value = inner.to_value();
        if let Some(fields) = value.as_object_mut() {
            fields.shift_remove("version");
        }
        Some(value)
    }

    /// References to a document from others, as the problems that its absence would cause.
    pub fn referrers(&self, kind: DocumentKind, name: &str) -> Vec<CatalogProblem> {
        let known = super::check::check(self, None);
        let mut found = super::check::check(self, Some((kind, name)));
        let own = self.file_of(kind, name);
        found.retain(|problem| {
            problem.kind == ProblemKind::DocumentNotFound
                && Some(problem.location.file) != own
                && !known.contains(problem)
        });
        found.sort_by_key(|problem| (problem.location.file, problem.location.span.start));
        found
    }

    fn read<T: DeserializeOwned>(
        &mut self,
        kind: DocumentKind,
        file: DocumentFileId,
        file_name: &str,
        text: &str,
    ) -> Option<(String, Document<T>)> {
        self.unnamed.push((kind, file));
        let root = |span| DocumentLocation { file, span, path: String::new() };
        let node = match tree::parse(file_name, text) {
            Ok(node) => node,
            Err(error) => {
                let at = text.floor_char_boundary(error.offset);
                let problem = CatalogProblem::error(
                    ProblemKind::DocumentSyntax,
                    root(at..at),
                    format!("this cannot be read: {}", error.message),
                );
                self.problems.push(problem);
                return None;
            }
        };
        // A tenant may be wrapped as in the request that creates it.
        let inner = match node.get("tenant") {
            Some(inner) if kind == DocumentKind::Tenant => (inner, "/tenant"),
            _ => (&node, ""),
        };
        if !matches!(inner.0.content, Content::Map(_)) {
            let message =
                format!("expected the fields of a {}, but this is {}", kind.noun(), node.noun());
            self.problems.push(CatalogProblem::error(
                ProblemKind::InvalidField,
                root(node.span.clone()),
                message,
            ));
            return None;
        }
        let mut reader =
            Reader { file, locations: ValueSpans::default(), problems: &mut self.problems };
        let value = reader.read(inner.0, kind.shape(), inner.1)?;
        let locations = reader.locations;
        let name = value.get("name")?.as_str()?.to_owned();
        self.unnamed.pop();
        let name_path = format!("{}/name", inner.1);
        let location = DocumentLocation { file, span: locations.find(&name_path), path: name_path };
        if let Some(first) = self.seen.get(&(kind, name.clone())) {
            let message = format!("there are two {}s with the name {name}", kind.noun());
            let problem = CatalogProblem::error(ProblemKind::DuplicateDocument, location, message);
            self.problems.push(problem.related(first.clone(), "first used here"));
            return None;
        }
        self.seen.insert((kind, name.clone()), location);
        // Fails only if a required field is missing or invalid, which is already a problem.
        let body = serde_json::from_value(value).ok()?;
        Some((name, Document { body, file, locations }))
    }

    /// True if there is a document of that name, even an unusable one.
    pub fn has(&self, kind: DocumentKind, name: &str) -> bool {
        self.seen.contains_key(&(kind, name.to_owned()))
    }

    /// Files with documents of a kind that have no readable name. The reasons are among the
    /// problems.
    pub fn unnamed(&self, kind: DocumentKind) -> impl Iterator<Item = DocumentFileId> {
        self.unnamed.iter().filter(move |(of, _)| *of == kind).map(|(_, file)| *file)
    }

    pub fn names(&self, kind: DocumentKind) -> impl Iterator<Item = &str> {
        let first = (kind, String::new());
        let of_kind = self.seen.range(first..).take_while(move |((of, _), _)| *of == kind);
        of_kind.map(|((_, name), _)| name.as_str())
    }

    /// Services that a name refers to: those that provide it, or else the one that has it.
    pub fn providers_of<'c>(&'c self, name: &str) -> Vec<&'c str> {
        let provides = |service: &Service| service.dependencies.provides.iter().any(|n| n == name);
        let providers = self.services.iter().filter(|(_, service)| provides(&service.body));
        let providers: Vec<&str> = providers.map(|(name, _)| name.as_str()).collect();
        if !providers.is_empty() {
            return providers;
        }
        self.services.get_key_value(name).map(|(name, _)| vec![name.as_str()]).unwrap_or_default()
    }

    /// All problems, ordered by file and location.
    pub fn check(&self) -> Vec<CatalogProblem> {
        let mut problems = self.problems.clone();
        problems.extend(super::check::check(self, None));
        problems.sort_by_key(|problem| (problem.location.file, problem.location.span.start));
        let mut seen = BTreeSet::new();
        problems.retain(|problem| {
            let CatalogProblem { kind, location, message, .. } = problem;
            seen.insert((*kind, location.file, location.span.start, message.clone()))
        });
        problems
    }

    pub fn file(&self, id: DocumentFileId) -> &SourceFile {
        &self.files[id.0]
    }

    /// `services/nginx.json:12:5`
    pub fn locate(&self, location: &DocumentLocation) -> String {
        let file = self.file(location.file);
        let (line, column) = line_column(&file.text, location.span.start);
        format!("{}:{line}:{column}", file.name)
    }
}

fn insert_document<T>(shelf: &mut DocumentMap<T>, document: Option<(String, Document<T>)>) {
    shelf.extend(document);
}
