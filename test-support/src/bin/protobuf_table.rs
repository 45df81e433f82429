//! Writes `kubelet/src/protobuf/pod_table.rs`: which field of `v1.Pod` has which number in protobuf.
//!
//! For a new version of Kubernetes, run it on the folder that holds the published modules `api` and `apimachinery`, which
//! is `staging/src/k8s.io` in the repository of Kubernetes:
//! ```sh
//! cargo run -p pod-index-test-support --bin protobuf_table -- 1.36.2 kubernetes/staging/src/k8s.io > kubelet/src/protobuf/pod_table.rs
//! ```
//! `generated.proto` has the numbers and kinds. It does not say which fields are pointers in Go, whose zero counts as a value,
//! nor which messages are inlined in JSON. Both are in `types.go` beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// The packages that `v1.Pod` is made of: their folder, and their name in other packages' protos.
const PACKAGES: [(&str, &str); 2] = [
    ("api/core/v1", "k8s.io.api.core.v1"),
    ("apimachinery/pkg/apis/meta/v1", "k8s.io.apimachinery.pkg.apis.meta.v1"),
];

/// The messages whose JSON is not a mapping of their fields.
const SPECIAL: [(&str, &str); 4] =
    [("Time", "Time"), ("Quantity", "Quantity"), ("IntOrString", "IntOrString"), ("FieldsV1", "Json")];

/// A field as `generated.proto` declares it.
struct ProtoField {
    number: u32,
    name: String,
    /// The type of the value, without its package.
    kind: String,
    is_repeated: bool,
    is_map: bool,
}

/// What `types.go` says about a field.
struct GoField {
    json_name: String,
    is_inlined: bool,
    /// Whether JSON has the field even if its value is zero.
    keeps_zero: bool,
}

#[derive(Default)]
struct Schema {
    messages: BTreeMap<String, Vec<ProtoField>>,
    /// By the name of the struct and the number of the field.
    structs: BTreeMap<String, BTreeMap<u32, GoField>>,
}

fn main() -> Result<(), String> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [version, folder] = arguments.as_slice() else {
        return Err("usage: protobuf_table VERSION FOLDER".to_owned());
    };
    let mut schema = Schema::default();
    for (package, _) in PACKAGES {
        let read = |file: &str| {
            let path = Path::new(folder).join(package).join(file);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        schema.read_proto(&read("generated.proto")?)?;
        schema.read_go(&read("types.go")?);
    }
    print!("{}", schema.table(version)?);
    Ok(())
}

impl Schema {
    fn read_proto(&mut self, text: &str) -> Result<(), String> {
        let mut message = None;
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            if let Some(name) = line.strip_prefix("message ") {
                message = Some(name.trim_end_matches(" {").to_owned());
                self.messages.insert(name.trim_end_matches(" {").to_owned(), Vec::new());
            } else if let Some(message) = &message
                && line.ends_with(';')
            {
                let field = proto_field(line).ok_or_else(|| format!("cannot read {line:?} of {message}"))?;
                self.messages.entry(message.clone()).or_default().extend(field);
            }
        }
        Ok(())
    }

    fn read_go(&mut self, text: &str) {
        let mut current = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("type ") {
                current = rest.strip_suffix(" struct {").map(str::to_owned);
            } else if line == "}" {
                current = None;
            } else if let Some(name) = &current
                && let Some((number, field)) = go_field(line)
            {
                self.structs.entry(name.clone()).or_default().insert(number, field);
            }
        }
    }

    /// The file: each message after those that it uses.
    fn table(&self, version: &str) -> Result<String, String> {
        let mut order = Vec::new();
        self.visit("Pod", &mut Vec::new(), &mut order)?;
        let mut text = format!(
            "//! The fields of `v1.Pod` in the protobuf of Kubernetes {version}.\n//!\n//! Written by \
             `protobuf_table` of the package `pod-index-test-support`, which says how. Do not edit.\n\n\
             use super::schema::Kind::{{Bool, Int32, Int64, IntOrString, Json, Message as Object, Quantity, Text, Time}};\n\
             use super::schema::{{Message, inlined, kept, list, map, value}};\n"
        );
        for name in order {
            let fields = self.fields(&name)?;
            let is_pod = name == "Pod";
            let visibility = if is_pod { "pub(super) " } else { "" };
            let constant = constant(&name);
            write!(text, "\n{visibility}static {constant}: Message = Message(&[\n{fields}]);\n")
                .map_err(|error| error.to_string())?;
        }
        Ok(text)
    }

    /// Appends the message after those that it uses. A message that contains itself is refused: the decoder's depth is
    /// bounded only because there is none.
    fn visit(&self, name: &str, path: &mut Vec<String>, order: &mut Vec<String>) -> Result<(), String> {
        if path.iter().any(|above| above == name) {
            return Err(format!("{name} contains itself: {}", path.join(" > ")));
        }
        if order.iter().any(|done| done == name) {
            return Ok(());
        }
        path.push(name.to_owned());
        let fields = self.messages.get(name).ok_or_else(|| format!("there is no message {name}"))?;
        let used: BTreeSet<_> = fields.iter().filter(|field| is_message(&field.kind)).collect_kinds();
        for kind in used {
            self.visit(&kind, path, order)?;
        }
        path.pop();
        order.push(name.to_owned());
        Ok(())
    }

    fn fields(&self, message: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut fields: Vec<_> = self.messages[message].iter().collect();
        fields.sort_by_key(|field| field.number);
        for ProtoField { number, name, kind, is_repeated, is_map } in fields {
            let go = self.structs.get(message).and_then(|fields| fields.get(number));
            let go = go.ok_or_else(|| format!("types.go has no field {number} ({name}) of {message}"))?;
            let kind = match &**kind {
                "string" => "Text".to_owned(),
                "bool" => "Bool".to_owned(),
                "int32" => "Int32".to_owned(),
                "int64" => "Int64".to_owned(),
                kind => match SPECIAL.iter().find(|(special, _)| *special == kind) {
                    Some((_, special)) => (*special).to_owned(),
                    None if is_message(kind) => format!("Object(&{})", constant(kind)),
                    None => return Err(format!("{message}.{name} has the unknown kind {kind}")),
                },
            };
            let name = &go.json_name;
            let field = if go.is_inlined {
                format!("inlined({number}, {kind})")
            } else if *is_map {
                format!("map({number}, {name:?}, {kind})")
            } else if *is_repeated {
                format!("list({number}, {name:?}, {kind})")
            } else if go.keeps_zero {
                format!("kept({number}, {name:?}, {kind})")
            } else {
                format!("value({number}, {name:?}, {kind})")
            };
            writeln!(text, "    {field},").map_err(|error| error.to_string())?;
        }
        Ok(text)
    }
}

trait CollectKinds {
    fn collect_kinds(self) -> BTreeSet<String>;
}

impl<'a, I: Iterator<Item = &'a ProtoField>> CollectKinds for I {
    fn collect_kinds(self) -> BTreeSet<String> {
        self.map(|field| field.kind.clone()).collect()
    }
}

/// Whether this kind is a message with a table of its own.
fn is_message(kind: &str) -> bool {
    kind.starts_with(|first: char| first.is_ascii_uppercase())
        && SPECIAL.iter().all(|(special, _)| *special != kind)
}

/// The field that a line declares. The inner `None` is for a line that declares none.
#[expect(
    clippy::option_option,
    reason = "one is a line that cannot be read, the other a line without a field"
)]
fn proto_field(line: &str) -> Option<Option<ProtoField>> {
    let line = line.trim_end_matches(';');
    if line.starts_with("reserved ") || line.starts_with("option ") {
        return Some(None);
    }
    let (declared, number) = line.rsplit_once(" = ")?;
    let number = number.split_whitespace().next()?.parse().ok()?;
    let (kind, name) = declared.rsplit_once(' ')?;
    let (kind, is_repeated, is_map) = if let Some(kind) = kind.strip_prefix("repeated ") {
        (kind, true, false)
    } else if let Some(kind) = kind.strip_prefix("map<string, ") {
        (kind.trim_end_matches('>'), false, true)
    } else {
        (kind.strip_prefix("optional ")?, false, false)
    };
    let kind = kind.rsplit('.').next()?.to_owned();
    Some(Some(ProtoField { number, name: name.to_owned(), kind, is_repeated, is_map }))
}

/// The number of the field that a line of a Go struct declares, and the field.
fn go_field(line: &str) -> Option<(u32, GoField)> {
    let (declared, tags) = line.trim().split_once('`')?;
    let tag = |name: &str| Some(tags.split_once(&format!("{name}:\""))?.1.split_once('"')?.0);
    let number = tag("protobuf")?.split(',').nth(1)?.parse().ok()?;
    let mut json = tag("json")?.split(',');
    let json_name = json.next()?.to_owned();
    let options: Vec<_> = json.collect();
    let is_pointer = declared.split_whitespace().last()?.starts_with('*');
    // An embedded struct without a name in JSON. The option `inline` is older, and means nothing to Go.
    let is_inlined = json_name.is_empty();
    let keeps_zero = is_pointer || !options.contains(&"omitempty");
    Some((number, GoField { json_name, is_inlined, keeps_zero }))
}

/// `PodSpec` as the name of a constant.
fn constant(name: &str) -> String {
    let mut text = String::new();
    let letters: Vec<_> = name.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        let follows_lower = at > 0 && !letters[at - 1].is_ascii_uppercase();
        let precedes_lower = letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && at > 0 && (follows_lower || precedes_lower) {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_and_inlined_messages_come_from_go_and_numbers_from_the_proto() {
        let mut schema = Schema::default();
        let proto = "message Pod {\n  // A comment = 7;\n  optional string name = 2;\n\n  optional int64 user = 1;\n  \
                     optional k8s.io.api.core.v1.Source source = 3;\n  reserved 5;\n}\n\
                     message Source {\n  map<string, .k8s.io.apimachinery.pkg.api.resource.Quantity> limits = 1;\n  repeated string args = 4;\n}\n";
        schema.read_proto(proto).unwrap();
        schema.read_go(
            "type Pod struct {\n\t// A comment\n\tName string `json:\"name,omitempty\" protobuf:\"bytes,2,opt,name=name\"`\n\
             \tUser *int64 `json:\"user,omitempty\" protobuf:\"varint,1,opt,name=user\"`\n\
             \tSource `json:\"\" protobuf:\"bytes,3,opt,name=source\"`\n}\n\
             type Source struct {\n\tLimits ResourceList `json:\"limits,omitempty\" protobuf:\"bytes,1,rep,name=limits\"`\n\
             \tArgs []string `json:\"args,omitempty\" protobuf:\"bytes,4,rep,name=args\"`\n}\n",
        );
        let table = schema.table("1.0").unwrap();
        let wanted = "static SOURCE: Message = Message(&[\n    map(1, \"limits\", Quantity),\n    list(4, \"args\", Text),\n]);\n\n\
                      pub(super) static POD: Message = Message(&[\n    kept(1, \"user\", Int64),\n    value(2, \"name\", Text),\n    \
                      inlined(3, Object(&SOURCE)),\n]);\n";
        assert!(table.ends_with(wanted), "{table}");
    }

    #[test]
    fn a_message_that_contains_itself_is_refused() {
        let mut schema = Schema::default();
        schema.read_proto("message Pod {\n  optional Pod pod = 1;\n}\n").unwrap();
        assert_eq!(schema.table("1.0").unwrap_err(), "Pod contains itself: Pod");
    }

    #[test]
    fn names_become_constants() {
        for (name, wanted) in [
            ("PodSpec", "POD_SPEC"),
            ("AWSElasticBlockStoreVolumeSource", "AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE"),
            ("HTTPGetAction", "HTTP_GET_ACTION"),
        ] {
            assert_eq!(constant(name), wanted);
        }
    }
}
