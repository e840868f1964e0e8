//! `/v1/openapi.json`: the routes as programs read them, made from the router's own table.
//!
//! Nothing is written down twice: method, path, role and body types come from the row that serves the route.

use axum::http::Method;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json as value};

use crate::access::Access;
use crate::routes::{NO_BODY, RouteRow, RowFace, json};

/// The schema of a body, such as `SchemaGenerator::subschema_for::<PushBody>`.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What one route says of itself.
#[derive(Debug, Clone)]
struct DescribedRoute {
    /// `GET`.
    pub method: String,
    /// `/v1/hosts/{host}`.
    pub path: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Who may call it: `viewer`, `agent`; none for everybody.
    pub role: Option<&'static str>,
    /// The parameters behind the question mark.
    pub query: &'static [&'static str],
    /// What is sent.
    pub body: Option<SchemaOf>,
    /// What is answered; none for no body.
    pub answer: Option<SchemaOf>,
}

/// The whole description.
fn document(version: &str, routes: &[DescribedRoute]) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let described = operation(route, &mut schemas);
        let path = paths.entry(route.path.to_owned()).or_insert_with(|| value!({}));
        if let Value::Object(methods) = path {
            methods.insert(route.method.to_ascii_lowercase(), described);
        }
    }
    let definitions = schemas.take_definitions(true);
    value!({
        "openapi": "3.1.0",
        "info": {
            "title": "evenkeel hub",
            "version": version,
            "description": "One place for many hosts that nobody has to trust.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "evenkeel"},
                "credential": {"type": "http", "scheme": "bearer"},
            },
        },
    })
}

fn operation(route: &DescribedRoute, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = value!({ "summary": route.summary });
    let in_path = path_names(route.path).map(|name| parameter(name, "path"));
    let in_query = route.query.iter().map(|name| parameter(name, "query"));
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    match route.role {
        None => {}
        Some("agent") => operation["security"] = value!([{"credential": []}]),
        Some(role) => {
            operation["security"] = value!([{"token": []}, {"session": []}]);
            operation["x-role"] = value!(role);
        }
    }
    if let Some(body) = route.body {
        let schema = body(schemas);
        operation["requestBody"] =
            value!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    let answer = match route.answer {
        Some(answer) => {
            let schema = answer(schemas);
            value!({"200": {"description": "Done.", "content": {"application/json": {"schema": schema}}}})
        }
        None => value!({"204": {"description": "Done."}}),
    };
    operation["responses"] = answer;
    operation["responses"]["default"] = value!({
        "description": "Refused, as RFC 9457 says it.",
        "content": {"application/problem+json": {}},
    });
    operation
}

fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn parameter(name: &str, place: &str) -> Value {
    value!({
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": {"type": "string"},
    })
}

/// The row that describes all rows.
pub(crate) fn rows() -> Vec<RouteRow> {
    vec![RouteRow::new(
        (Method::GET, "/v1/openapi.json"),
        Access::Anyone,
        NO_BODY,
        "this description",
        |_, _| async { json(&described()) },
    )]
}

/// The description of the router's own table.
pub fn described() -> Value {
    let route = |row: RouteRow| DescribedRoute {
        method: row.method.to_string(),
        path: row.path,
        summary: row.summary,
        role: match row.access {
            Access::Anyone => None,
            Access::Host => Some("agent"),
            Access::Person(role, _) => Some(role.as_str()),
        },
        query: row.query,
        body: row.body,
        answer: row.answer,
    };
    // Pages are for people; their forms do what these rows do.
    let rows = crate::routes::table().into_iter().filter(|row| row.face == RowFace::Program);
    let routes: Vec<DescribedRoute> = rows.map(route).collect();
    document(env!("CARGO_PKG_VERSION"), &routes)
}
