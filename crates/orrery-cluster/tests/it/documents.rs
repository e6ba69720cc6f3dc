//! Documents: accepted ones, and the problems of others with their locations.

use orrery_cluster::document::{
    Catalog, CatalogProblem, DefaultService, DocumentKind, LeaseTime, ProblemSeverity,
    ServiceAction, line_column,
};

use crate::webstack;

/// Problems in one line each: location, path, id and message.
fn problem_lines(catalog: &Catalog) -> Vec<String> {
    catalog.check().iter().map(|problem| line(catalog, problem)).collect()
}

fn line(catalog: &Catalog, problem: &CatalogProblem) -> String {
    let severity = match problem.severity {
        ProblemSeverity::Error => "error",
        ProblemSeverity::Warning => "warning",
    };
    let place = catalog.locate(&problem.location);
    let path = &problem.location.path;
    format!("{place} {path} {severity}[{}]: {}", problem.kind.diagnostic_id(), problem.message)
}

fn with_template(name: &str, text: &str) -> Catalog {
    let mut catalog = webstack::catalog();
    let file = format!("clustertemplates/{name}");
    catalog.add(DocumentKind::ClusterTemplate, &file, text.to_owned());
    catalog
}

#[test]
fn the_published_json_is_accepted_as_it_is() {
    let catalog = with_template("webstack.json", webstack::TEMPLATE);
    assert_eq!(problem_lines(&catalog), [""; 0]);
    let template = &catalog.templates["webstack"].body;
    assert_eq!(template.constraints.services["nginx"].quantities.max, Some(2));
    assert_eq!(template.administration.leaseduration.initial, LeaseTime(7 * 86_400_000));
    let app = &catalog.services["app"].body;
    assert_eq!(app.dependencies.runtime.names().collect::<Vec<_>>(), ["postgresql", "redis"]);
    let base = &catalog.services["base"].body;
    let install = base.action(ServiceAction::Install).expect("base can be installed");
    assert_eq!((install.automator.as_str(), install.fields["args"].as_str()), ("shell", "install"));
    assert_eq!(catalog.hardware_types["large"].body.cost("local"), Some(4.5));
    assert_eq!(catalog.image_types["debian12"].body.ssh_user("local"), "admin");
}

#[test]
fn yaml_reads_like_json() {
    let yaml = "\
name: webstack
label: Web stack
defaults:
  services: [base, nginx, app, postgresql, redis]
  provider: local
  imagetype: debian12
  dnsSuffix: example.org
  config:
    nginx:
      upstream: \"%join(map(ip.service.app,'$:8080'),' ')%\"
compatibility:
  hardwaretypes: [small, large]
  imagetypes: []
  services: []
constraints:
  size: {min: 4, max: 50}
  layout:
    mustcoexist:
      - [postgresql, redis]
    cantcoexist:
      - [nginx, app]
      - [nginx, postgresql]
      - [app, postgresql]
  services:
    nginx:
      hardwaretypes: [small]
      quantities: {min: 1, max: 2}
    app:
      hardwaretypes: [small]
      quantities: {min: 2}
    postgresql:
      hardwaretypes: [large]
      quantities: {min: 1, max: 1}
    redis:
      quantities: {max: 1}
administration:
  leaseduration: {initial: 7d, max: 30d, step: 86400000}
";
    let from_yaml = with_template("webstack.yml", yaml);
    assert_eq!(problem_lines(&from_yaml), [""; 0]);
    let from_json = with_template("webstack.json", webstack::TEMPLATE);
    let template = &from_json.templates["webstack"].body;
    assert_eq!(&from_yaml.templates["webstack"].body, template);
    let written = serde_json::to_string(template).expect("documents can be written");
    let again = with_template("webstack.json", &written);
    assert_eq!((problem_lines(&again), &again.templates["webstack"].body), (Vec::new(), template));
}

#[test]
fn every_invalid_field_is_reported_with_its_location() {
    let text = r#"{
  "name": "web stack",
  "defaults": {"services": "base", "provder": "local"},
  "constraints": {
    "size": {"min": 0},
    "services": {"app": {"quantities": {"min": "two", "max": -1}}, "app": {}}
  },
  "administration": {"leaseduration": {"initial": "7 weeks"}},
  "links": [{"label": "no url"}],
  "extends": {}
}"#;
    let catalog = with_template("bad.json", text);
    let file = "clustertemplates/bad.json";
    assert_eq!(
        problem_lines(&catalog),
        [
            format!("{file}:2:11 /name error[invalid-field]: `web stack` is not a valid name"),
            format!(
                "{file}:3:28 /defaults/services error[invalid-field]: expected a list, but this is a text"
            ),
            format!(
                "{file}:3:36 /defaults/provder error[unknown-field]: there is no field `provder` here"
            ),
            format!(
                "{file}:5:21 /constraints/size/min error[invalid-field]: 0 is not a whole number of at least 1"
            ),
            format!(
                "{file}:6:68 /constraints/services/app error[duplicate-field]: `app` is given twice"
            ),
            format!(
                "{file}:8:51 /administration/leaseduration/initial error[invalid-field]: `7 weeks` is not a duration: expected milliseconds, or a number with s, m, h or d"
            ),
            format!("{file}:9:13 /links/0 error[missing-field]: the field `url` is missing"),
            format!("{file}:10:3 /extends error[missing-field]: the field `name` is missing"),
        ]
    );
    let problems = catalog.check();
    assert_eq!(problems[2].help.as_deref(), Some("did you mean `provider`?"));
    let first = &problems[4].related[0];
    assert_eq!(
        (line_column(text, first.0.span.start), first.1.as_str()),
        ((6, 18), "first given here")
    );
}

#[test]
fn yaml_problems_have_locations_too() {
    let text = "name: shop\ndefaults:\n  provider: local\n  services:\n    - base\n    - ngnix\n\
                constraints:\n  services:\n    base:\n      quantity: {min: 1}\n";
    let catalog = with_template("shop.yaml", text);
    assert_eq!(
        problem_lines(&catalog),
        [
            "clustertemplates/shop.yaml:6:7 /defaults/services/1 error[document-not-found]: there is no service with the name ngnix",
            "clustertemplates/shop.yaml:10:7 /constraints/services/base/quantity error[unknown-field]: there is no field `quantity` here",
        ]
    );
    assert_eq!(catalog.check()[0].help.as_deref(), Some("did you mean `nginx`?"));
}

#[test]
fn a_list_is_marked_with_its_brackets() {
    let text = "name: t\ndefaults: {provider: local, services: [base]}\nconstraints:\n  layout:\n    \
                cantcoexist:\n      - [base, app]\n      - - base\n        - redis\nlabel: x\n";
    let catalog = with_template("t.yaml", text);
    let document = &catalog.templates["t"];
    let marked = |path: &str| &text[document.locations.find(path)];
    assert_eq!(marked("/constraints/layout/cantcoexist/0"), "[base, app]");
    assert_eq!(marked("/constraints/layout/cantcoexist/1"), "- base\n        - redis");
    assert_eq!(marked("/constraints/layout/cantcoexist"), "cantcoexist");
    assert_eq!(marked("/defaults/services/0"), "base");
}

#[test]
fn syntax_errors_of_documents_have_a_location() {
    let mut catalog = Catalog::default();
    let add = |catalog: &mut Catalog, name: &str, text: &str| {
        catalog.add(DocumentKind::Service, name, text.to_owned());
    };
    add(&mut catalog, "a.json", "{\n  \"name\": \"a\",\n}");
    add(&mut catalog, "b.yaml", "name: b\nlinks: [\n");
    add(&mut catalog, "c.json", "[1]");
    add(&mut catalog, "d.json", "");
    add(&mut catalog, "e.json", &"[".repeat(100_000));
    let deep = format!("{{\"name\": \"f\", \"links\": {}{}}}", "[".repeat(500), "]".repeat(500));
    add(&mut catalog, "f.json", &deep);
    add(&mut catalog, "g.yaml", "name: g\n---\nname: h\n");
    let problem_lines = problem_lines(&catalog);
    assert!(
        problem_lines[0].starts_with("a.json:3:1  error[document-syntax]: this cannot be read: "),
        "{problem_lines:#?}"
    );
    assert!(
        problem_lines[1].starts_with("b.yaml:2:8  error[document-syntax]"),
        "{problem_lines:#?}"
    );
    assert!(
        problem_lines[2]
            .starts_with("c.json:1:1  error[invalid-field]: expected the fields of a service")
    );
    assert!(
        problem_lines[3].starts_with("d.json:1:1  error[invalid-field]: expected the fields"),
        "{problem_lines:#?}"
    );
    assert!(problem_lines[4].starts_with("e.json:1:"), "{problem_lines:#?}");
    assert!(
        problem_lines[5].contains("this is nested deeper than 64 levels"),
        "{problem_lines:#?}"
    );
    assert!(
        problem_lines[6].starts_with(
            "g.yaml:2:1  error[document-syntax]: this cannot be read: a second document"
        )
    );
    assert_eq!(problem_lines.len(), 7);
}

#[test]
fn undefined_names_are_errors_where_they_matter() {
    let text = r#"{"name": "t",
 "defaults": {"services": ["base", "nothing"], "provider": "amazon", "hardwaretype": "huge", "imagetype": "debian"},
 "compatibility": {"services": ["base", "nothing", "bse"]},
 "constraints": {"layout": {"cantcoexist": [["base", "zzz"]]},
                 "services": {"base": {"hardwaretypes": ["tiny"], "quantities": {"ratio": {"apple": 2}}}}},
 "extends": {"name": "parent"}, "includes": [{"name": "part"}]}"#;
    let mut catalog = with_template("t.json", text);
    let service = r#"{"name": "s", "dependencies": {
        "runtime": {"requires": ["gone"], "uses": ["perhaps"]}, "conflicts": ["never"]}}"#;
    catalog.add(DocumentKind::Service, "services/s.json", service.to_owned());
    let found: Vec<String> = problem_lines(&catalog)
        .iter()
        .map(|line| line.split_once(' ').map_or("", |(_, rest)| rest).to_owned())
        .collect();
    let not_found = |path: &str, kind: &str, name: &str, severity: &str| {
        format!("{path} {severity}[document-not-found]: there is no {kind} with the name {name}")
    };
    assert_eq!(
        found,
        [
            not_found("/defaults/services/1", "service", "nothing", "error"),
            not_found("/defaults/provider", "provider", "amazon", "error"),
            not_found("/defaults/hardwaretype", "hardware type", "huge", "error"),
            not_found("/defaults/imagetype", "image type", "debian", "error"),
            not_found("/compatibility/services/1", "service", "nothing", "error"),
            not_found("/compatibility/services/2", "service", "bse", "error"),
            not_found("/constraints/layout/cantcoexist/0/1", "service", "zzz", "error"),
            not_found(
                "/constraints/services/base/hardwaretypes/0",
                "hardware type",
                "tiny",
                "error"
            ),
            not_found(
                "/constraints/services/base/quantities/ratio/apple",
                "service",
                "apple",
                "error"
            ),
            not_found("/extends/name", "template", "parent", "error"),
            not_found("/includes/0/name", "partial template", "part", "error"),
            not_found("/dependencies/runtime/requires/0", "service", "gone", "error"),
            not_found("/dependencies/runtime/uses/0", "service", "perhaps", "warning"),
            not_found("/dependencies/conflicts/0", "service", "never", "warning"),
        ]
    );
}

#[test]
fn services_that_wait_for_each_other_are_errors() {
    let mut catalog = Catalog::default();
    let services = [
        r#"{"name": "a", "dependencies": {"runtime": {"requires": ["b"]}}}"#,
        r#"{"name": "b", "dependencies": {"runtime": {"uses": ["store"]}}}"#,
        r#"{"name": "c", "dependencies": {"provides": ["store"], "runtime": {"requires": ["a"]}}}"#,
        // An installation cycle differs from a start cycle.
        r#"{"name": "d", "dependencies": {"install": {"requires": ["e"]}}}"#,
        r#"{"name": "e", "dependencies": {"runtime": {"requires": ["d"]}}}"#,
        // These two are never on the same cluster.
        r#"{"name": "x", "dependencies": {"install": {"uses": ["y"]}, "conflicts": ["y"]}}"#,
        r#"{"name": "y", "dependencies": {"install": {"uses": ["x"]}}}"#,
    ];
    for (number, text) in services.iter().enumerate() {
        catalog.add(DocumentKind::Service, &format!("{number}.json"), (*text).to_owned());
    }
    assert_eq!(
        problem_lines(&catalog),
        [
            "0.json:1:57 /dependencies/runtime/requires/0 error[dependency-cycle]: services wait for each other to be started: a → b → c → a"
        ]
    );
    let related: Vec<String> = catalog.check()[0]
        .related
        .iter()
        .map(|(place, label)| format!("{} {label}", catalog.locate(place)))
        .collect();
    assert_eq!(related, ["1.json:1:53 b waits for c", "2.json:1:80 c waits for a"]);
}

#[test]
fn a_cycle_that_depends_on_the_choice_of_services_is_a_warning() {
    let mut catalog = Catalog::default();
    let services = [
        r#"{"name": "client-1", "dependencies": {"provides": ["client"]}}"#,
        r#"{"name": "client-2", "dependencies": {"provides": ["client"], "runtime": {"requires": ["server"]}}}"#,
        r#"{"name": "server", "dependencies": {"runtime": {"uses": ["client"]}}}"#,
    ];
    for (number, text) in services.iter().enumerate() {
        catalog.add(DocumentKind::Service, &format!("{number}.json"), (*text).to_owned());
    }
    assert_eq!(
        problem_lines(&catalog),
        [
            "1.json:1:88 /dependencies/runtime/requires/0 warning[dependency-cycle]: on one cluster, services would wait for each other to be started: client-2 → server → client-2"
        ]
    );
}

#[test]
fn bounds_leases_and_defaults_that_contradict_are_errors() {
    let text = r#"{"name": "t",
 "defaults": {"services": ["base", "app"], "provider": "local", "imagetype": "debian12", "hardwaretype": "small", "dnsSuffix": "-x"},
 "compatibility": {"services": ["base"], "hardwaretypes": ["large"]},
 "constraints": {"size": {"min": 5, "max": 3}, "services": {"base": {"quantities": {"min": 2, "max": 1}}}},
 "administration": {"leaseduration": {"initial": 0, "max": "2d"}}}"#;
    let problem_lines: Vec<String> = problem_lines(&with_template("t.json", text))
        .iter()
        .map(|line| line.split_once(' ').map_or("", |(_, rest)| rest).to_owned())
        .collect();
    assert_eq!(
        problem_lines,
        [
            "/defaults/services/1 error[incompatible-default]: app is a default, but not among the compatible services",
            "/defaults/hardwaretype error[incompatible-default]: small is a default, but not among the compatible hardwaretypes",
            "/defaults/dnsSuffix error[invalid-field]: `-x` is not a valid DNS suffix",
            "/constraints/size/min error[invalid-field]: the minimum 5 is more than the maximum 3",
            "/constraints/services/base/quantities/min error[invalid-field]: the minimum 2 is more than the maximum 1",
            "/administration/leaseduration/initial error[invalid-field]: the initial lease is longer than the maximum",
        ]
    );
}

#[test]
fn two_documents_of_one_name_and_incomplete_templates_are_errors() {
    let mut catalog = with_template("a.json", r#"{"name": "t"}"#);
    let again = r#"{"name": "t", "defaults": {"provider": "local", "services": ["base"]}}"#;
    catalog.add(DocumentKind::ClusterTemplate, "b.json", again.to_owned());
    assert_eq!(
        problem_lines(&catalog),
        [
            "clustertemplates/a.json:1:1 /defaults error[incomplete-template]: template t has no default services and no default provider",
            "b.json:1:10 /name error[duplicate-document]: there are two templates with the name t",
        ]
    );
}

const PARENT: &str = r#"{"name": "parent",
 "includes": [{"name": "network"}],
 "defaults": {"services": ["base", {"name": "app", "config": {"workers": 4}}], "provider": "local",
              "config": {"java": {"heap": 1, "opts": ""}, "tz": "UTC"}},
 "compatibility": {"services": ["base", "app"], "hardwaretypes": ["small"]},
 "constraints": {"size": {"min": 2, "max": 9},
                 "layout": {"cantcoexist": [["app", "redis"]]},
                 "services": {"app": {"quantities": {"min": 1}}, "base": {"quantities": {"min": 2}}}},
 "links": [{"label": "x", "url": "http://x"}],
 "administration": {"leaseduration": {"initial": "1d", "max": "2d"}}}"#;
const NETWORK: &str = r#"{"name": "network", "immutable": true,
 "defaults": {"services": ["base"], "dnsSuffix": "example.org", "config": {"dns": {"server": "10.0.0.1"}}},
 "compatibility": {"imagetypes": ["debian12"]},
 "constraints": {"size": {"min": 40, "max": 50}}}"#;
const CHILD: &str = r#"{"name": "child", "extends": {"name": "parent"},
 "defaults": {"services": ["redis"], "imagetype": "debian12", "config": {"java": {"heap": 2}}},
 "compatibility": {"services": ["redis", "app"]},
 "constraints": {"layout": {"cantcoexist": [["base", "nginx"], ["app", "redis"]]},
                 "services": {"app": {"quantities": {"max": 3}}}}}"#;

fn family(child: &str) -> Catalog {
    let mut catalog = with_template("parent.json", PARENT);
    catalog.add(DocumentKind::PartialTemplate, "partialtemplates/network.json", NETWORK.to_owned());
    catalog.add(DocumentKind::ClusterTemplate, "clustertemplates/child.json", child.to_owned());
    catalog
}

#[test]
fn templates_complete_what_they_extend_and_include() {
    let catalog = family(CHILD);
    assert_eq!(problem_lines(&catalog), [""; 0]);
    let resolved = catalog.resolve("child").expect("no problems").expect("it exists");
    let template = &resolved.template;
    assert_eq!(template.name(), "child");
    let services: Vec<&str> = template.defaults.service_names().collect();
    assert_eq!(services, ["base", "app", "redis"]);
    assert!(template.defaults.services.iter().all(|one| matches!(one, DefaultService::Name(_))));
    assert_eq!(template.defaults.provider.as_deref(), Some("local"));
    assert_eq!(template.defaults.dns_suffix.as_deref(), Some("example.org"));
    assert_eq!(
        serde_json::Value::Object(template.defaults.config.clone()),
        serde_json::json!({
            "dns": {"server": "10.0.0.1"}, "java": {"heap": 2}, "tz": "UTC", "app": {"workers": 4},
        })
    );
    assert_eq!(template.compatibility.services, ["base", "app", "redis"]);
    assert_eq!(template.compatibility.imagetypes, ["debian12"]);
    // Constraints of partial templates have no effect.
    assert_eq!((template.constraints.size.min, template.constraints.size.max), (Some(2), Some(9)));
    let app = &template.constraints.services["app"].quantities;
    assert_eq!((app.min, app.max), (None, Some(3)));
    assert_eq!(template.constraints.layout.cantcoexist.len(), 2);
    assert_eq!(template.administration.leaseduration.max, LeaseTime(2 * 86_400_000));
    assert_eq!(template.links.len(), 1);
    let located = |path: &str| {
        let place = resolved.location(path).expect("every value has a place");
        format!("{} {}", catalog.locate(place), place.path)
    };
    assert_eq!(
        located("/constraints/services/app/quantities/max"),
        "clustertemplates/child.json:5:61 /constraints/services/app/quantities/max"
    );
    assert_eq!(
        located("/constraints/layout/cantcoexist/1"),
        "clustertemplates/child.json:4:45 /constraints/layout/cantcoexist/0"
    );
    assert_eq!(
        located("/constraints/size/min"),
        "clustertemplates/parent.json:6:34 /constraints/size/min"
    );
    assert_eq!(
        located("/defaults/dnsSuffix"),
        "partialtemplates/network.json:2:50 /defaults/dnsSuffix"
    );
}

#[test]
fn immutable_settings_cannot_be_changed() {
    let child = CHILD.replace(r#""java": {"heap": 2}"#, r#""dns": {"server": "10.9.9.9"}"#);
    let catalog = family(&child);
    assert_eq!(
        problem_lines(&catalog),
        [
            "clustertemplates/child.json:2:74 /defaults/config/dns error[immutable-setting]: `dns` cannot be set here: network includes it as immutable"
        ]
    );
    let related = &catalog.check()[0].related[0];
    assert_eq!(catalog.locate(&related.0), "partialtemplates/network.json:2:76");
}

#[test]
fn templates_that_extend_each_other_are_one_error() {
    let mut catalog = with_template("a.json", r#"{"name": "a", "extends": {"name": "b"}}"#);
    let b = r#"{"name": "b", "extends": {"name": "a"}}"#;
    catalog.add(DocumentKind::ClusterTemplate, "clustertemplates/b.json", b.to_owned());
    assert_eq!(
        problem_lines(&catalog),
        [
            "clustertemplates/b.json:1:35 /extends/name error[template-cycle]: templates extend each other: a → b → a"
        ]
    );
}

#[test]
fn tenants_are_read_with_and_without_the_request_around_them() {
    let mut catalog = Catalog::default();
    let plain = r#"{"name": "shop", "workers": 10, "maxClusters": 20}"#;
    catalog.add(DocumentKind::Tenant, "a.json", plain.to_owned());
    let wrapped = r#"{"tenant": {"name": "lab", "maxNodes": 5, "wrkers": 1}, "bootstrap": true}"#;
    catalog.add(DocumentKind::Tenant, "b.json", wrapped.to_owned());
    assert_eq!(catalog.tenants["shop"].body.max_clusters, Some(20));
    assert_eq!(
        (catalog.tenants["lab"].body.workers, catalog.tenants["lab"].body.max_nodes),
        (0, Some(5))
    );
    assert_eq!(
        problem_lines(&catalog),
        ["b.json:1:43 /tenant/wrkers error[unknown-field]: there is no field `wrkers` here"]
    );
}

#[test]
fn macros_are_checked_before_a_cluster_needs_them() {
    let text = r#"{"name": "t", "defaults": {"services": [{"name": "base", "config": {"a": "50% of 100%"}}],
 "provider": "local", "config": {"app": {"url": ["http://%ip.self%/", "%hots.self%"]}, "rate": "100%"}},
 "links": [{"url": "http://%host.service.app[x]%/"}]}"#;
    assert_eq!(
        problem_lines(&with_template("t.json", text)),
        [
            "clustertemplates/t.json:1:74 /defaults/services/0/config/a error[invalid-macro]: invalid macro: A macro name must not be empty.",
            "clustertemplates/t.json:2:71 /defaults/config/app/url/1 error[invalid-macro]: invalid macro: 'hots.self' is not a valid macro name",
            "clustertemplates/t.json:3:20 /links/0/url error[invalid-macro]: invalid macro: A service number must consists of digits only.",
        ]
    );
}

#[test]
fn services_that_macros_name_have_to_exist() {
    let text = r#"{"name": "t", "defaults": {"services": ["base"], "provider": "local",
 "config": {"a": "%ip.service.ap% %join(host.service.nginx,',')%", "b": ["%num.service.sql%"]}}}"#;
    let catalog = with_template("t.json", text);
    assert_eq!(
        problem_lines(&catalog),
        [
            "clustertemplates/t.json:2:18 /defaults/config/a error[document-not-found]: there is no service with the name ap",
            "clustertemplates/t.json:2:74 /defaults/config/b/0 error[document-not-found]: there is no service with the name sql",
        ]
    );
    assert_eq!(catalog.check()[0].help.as_deref(), Some("did you mean `app`?"));
}

#[test]
fn a_service_that_requires_itself_is_an_error() {
    let mut catalog = Catalog::default();
    let services = [
        r#"{"name": "a", "dependencies": {"runtime": {"requires": ["a"]}}}"#,
        // It provides its own requirement.
        r#"{"name": "b", "dependencies": {"provides": ["store"], "install": {"requires": ["store"]}}}"#,
    ];
    for (number, text) in services.iter().enumerate() {
        catalog.add(DocumentKind::Service, &format!("{number}.json"), (*text).to_owned());
    }
    assert_eq!(
        problem_lines(&catalog),
        [
            "0.json:1:57 /dependencies/runtime/requires/0 error[dependency-cycle]: a service waits for itself to be started: a → a"
        ]
    );
}

#[test]
fn amounts_of_hardware_and_images_are_numbers() {
    let mut catalog = Catalog::default();
    let hardware = "\
name: small
providermap:
  one: {flavor: s, cost: cheap, vcpu: two, ram: 2GB}
  two: {flavor: s, cost: -1, vcpu: -2, ram: 2048}
  three: {flavor: s, cost: \"4,5 EUR\", vcpu: 0.5, ram: \"2048\"}
";
    catalog.add(DocumentKind::HardwareType, "small.yaml", hardware.to_owned());
    let image = "name: debian\nprovidermap:\n  one: {image: d, cost: free}\n";
    catalog.add(DocumentKind::ImageType, "debian.yaml", image.to_owned());
    let wrong = |location: &str, provider: &str, name: &str, text: &str| {
        format!(
            "{location} /providermap/{provider}/{name} error[invalid-field]: `{name}` must be a number of at least zero, but this is `{text}`"
        )
    };
    assert_eq!(
        problem_lines(&catalog),
        [
            wrong("small.yaml:3:26", "one", "cost", "cheap"),
            wrong("small.yaml:3:39", "one", "vcpu", "two"),
            wrong("small.yaml:3:49", "one", "ram", "2GB"),
            wrong("small.yaml:4:26", "two", "cost", "-1"),
            wrong("small.yaml:4:36", "two", "vcpu", "-2"),
            wrong("small.yaml:5:28", "three", "cost", "4,5 EUR"),
            wrong("debian.yaml:3:25", "one", "cost", "free"),
        ]
    );
}

#[test]
fn the_canonical_form_is_the_same_for_json_and_yaml() {
    let mut catalog = Catalog::default();
    let json = r#"{"providertype": "proc", "version": 3, "name": "a", "provisioner": {"b": 1.50, "a": [true, null]}}"#;
    catalog.add(DocumentKind::Provider, "a.json", json.to_owned());
    let yaml = "providertype: proc\nname: b\nprovisioner:\n  b: 1.5\n  a: [true, ~]\n";
    catalog.add(DocumentKind::Provider, "b.yaml", yaml.to_owned());
    let text = |name: &str| catalog.canonical(DocumentKind::Provider, name).unwrap().to_string();
    let expected = r#"{"providertype":"proc","name":"a","provisioner":{"b":1.5,"a":[true,null]}}"#;
    assert_eq!(text("a"), expected);
    assert_eq!(text("b"), expected.replace(r#""name":"a""#, r#""name":"b""#));
    let tenant = r#"{"tenant": {"name": "t", "maxNodes": 5}, "bootstrap": true}"#;
    let mut catalog = Catalog::default();
    catalog.add(DocumentKind::Tenant, "t.json", tenant.to_owned());
    let canonical = catalog.canonical(DocumentKind::Tenant, "t").unwrap().to_string();
    assert_eq!(canonical, r#"{"name":"t","maxNodes":5}"#);
}

#[test]
fn references_to_a_document_are_found() {
    let catalog = with_template("webstack.json", webstack::TEMPLATE);
    let referrers = |kind: DocumentKind, name: &str| -> Vec<String> {
        let found = catalog.referrers(kind, name);
        let mut files: Vec<String> =
            found.iter().map(|one| catalog.file(one.location.file).name.clone()).collect();
        files.dedup();
        files
    };
    let of_provider = referrers(DocumentKind::Provider, "local");
    assert!(
        of_provider.iter().any(|file| file.contains("webstack")),
        "the only provider, too: {of_provider:?}"
    );
    assert!(of_provider.len() >= 3, "{of_provider:?}");
    let of_redis = referrers(DocumentKind::Service, "redis");
    assert!(of_redis.iter().any(|file| file.contains("app")), "{of_redis:?}");
    assert!(!of_redis.iter().any(|file| file.contains("redis")), "not itself: {of_redis:?}");
    assert_eq!(referrers(DocumentKind::ClusterTemplate, "webstack"), [""; 0]);
    assert_eq!(referrers(DocumentKind::Service, "nowhere"), [""; 0]);
}

/// A name that several services provide exists as long as one of them does.
#[test]
fn the_last_provider_of_a_name_is_referred_to() {
    let mut catalog = Catalog::default();
    let mut add = |name: &str, text: &str| {
        catalog.add(DocumentKind::Service, &format!("{name}.json"), text.to_owned());
    };
    add("mysql", r#"{"name": "mysql", "dependencies": {"provides": ["database"]}}"#);
    add("app", r#"{"name": "app", "dependencies": {"runtime": {"requires": ["database"]}}}"#);
    assert_eq!(catalog.referrers(DocumentKind::Service, "mysql").len(), 1);
    let second = r#"{"name": "maria", "dependencies": {"provides": ["database"]}}"#;
    catalog.add(DocumentKind::Service, "maria.json", second.to_owned());
    assert_eq!(catalog.referrers(DocumentKind::Service, "mysql").len(), 0);
}
