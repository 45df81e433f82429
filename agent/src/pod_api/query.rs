//! Request parameters: `metav1.ListOptions`, parsed and validated like the API server.

use super::resource::Resource;
use super::selection::Selection;
use super::status::Refusal;
use crate::api::fields::Fields;
use crate::api::labels::Labels;
use crate::api::request::{parameter, truth};

/// The requested version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Absent: the latest.
    Latest,
    /// `0`: any.
    Any,
    At(u64),
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matching {
    Exact,
    NotOlderThan,
}

/// The options of a list or watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) watch: bool,
    pub(super) selection: Selection,
    pub(super) version: Version,
    pub(super) matching: Option<Matching>,
    /// Whether there is a `continue` token. A list is whole, so it is another server's.
    continues: bool,
    pub(super) send_initial_events: Option<bool>,
    pub(super) bookmarks: bool,
    /// In seconds. Zero counts as absent; a negative value ends at once.
    pub(super) timeout: Option<i64>,
    /// `includeObject`, which matters only for a `Table`.
    pub(super) include: String,
}

impl Options {
    /// Parses a query. Uses the first of repeated parameters and ignores unknown ones.
    pub(super) fn read(of: &Resource, query: Option<&str>, namespace: Option<&str>) -> Result<Self, Refusal> {
        let given = |name| parameter(query, name);
        let is_given = |name| given(name).map(|text| truth(&text));
        let labels = Labels::parse(&given("labelSelector").unwrap_or_default())
            .map_err(|why| Refusal::bad_request(format!("labelSelector: {why}")))?;
        let fields = Fields::parse(&given("fieldSelector").unwrap_or_default(), |field| of.index(field))
            .map_err(|why| Refusal::bad_request(format!("fieldSelector: {why}")))?;
        // A server need not page.
        integer("limit", given("limit"))?;
        let options = Self {
            watch: is_given("watch").unwrap_or_default(),
            selection: Selection {
                namespace: namespace.map(str::to_owned),
                labels,
                fields,
                only_listed: false,
            },
            version: version_of(given("resourceVersion").as_deref())?,
            matching: matching_of(given("resourceVersionMatch").as_deref())?,
            continues: given("continue").is_some_and(|token| !token.is_empty()),
            send_initial_events: is_given("sendInitialEvents"),
            bookmarks: is_given("allowWatchBookmarks").unwrap_or_default(),
            timeout: integer("timeoutSeconds", given("timeoutSeconds"))?,
            include: given("includeObject").unwrap_or_default(),
        };
        options.check()?;
        Ok(options)
    }

    /// Follows the API server's `ValidateListOptions`.
    fn check(&self) -> Result<(), Refusal> {
        let forbidden = |field, why: &str| Err(Refusal::invalid(field, &format!("Forbidden: {why}")));
        let match_is = |why| {
            forbidden("resourceVersionMatch", &format!("resourceVersionMatch is forbidden {why} provided"))
        };
        if self.watch {
            // Without a version, the API server sets the match itself.
            let has_match = self.matching.is_some()
                || self.send_initial_events.is_none() && !matches!(self.version, Version::At(_));
            return match (self.send_initial_events, self.matching) {
                _ if has_match && self.continues => match_is("when continue is"),
                (None, None) | (Some(_), Some(Matching::NotOlderThan)) => Ok(()),
                (None, Some(_)) => match_is("for watch unless sendInitialEvents is"),
                (Some(_), None) => forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ),
                (Some(_), Some(Matching::Exact)) => Err(Refusal::invalid(
                    "resourceVersionMatch",
                    "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"",
                )),
            };
        }
        if self.send_initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        match (self.matching, self.version) {
            (None, _) if !self.continues => Ok(()),
            (None, Version::At(_)) => {
                Err(Refusal::bad_request("specifying resource version is not allowed when using continue"))
            }
            (None, _) => {
                Err(Refusal::expired("the continue token is not this server's: its lists are whole"))
            }
            _ if self.continues => match_is("when continue is"),
            (_, Version::Latest) => match_is("unless resourceVersion is"),
            (Some(Matching::Exact), Version::Any) => forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            _ => Ok(()),
        }
    }
}

fn integer(name: &str, text: Option<String>) -> Result<Option<i64>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let number =
        text.parse().map_err(|_| Refusal::bad_request(format!("{name}: {text:?} is not an integer")))?;
    Ok(Some(number))
}

/// Parses `resourceVersion`.
pub(super) fn version_of(text: Option<&str>) -> Result<Version, Refusal> {
    match text.unwrap_or_default() {
        "" => Ok(Version::Latest),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => match text.parse() {
            Ok(0) => Ok(Version::Any),
            Ok(version) => Ok(Version::At(version)),
            Err(_) => Err(Refusal::bad_request(format!("resourceVersion: {text:?} is out of range"))),
        },
        text => Err(Refusal::bad_request(format!("resourceVersion: {text:?} is not a decimal number"))),
    }
}

fn matching_of(text: Option<&str>) -> Result<Option<Matching>, Refusal> {
    match text.unwrap_or_default() {
        "" => Ok(None),
        "Exact" => Ok(Some(Matching::Exact)),
        "NotOlderThan" => Ok(Some(Matching::NotOlderThan)),
        other => {
            let why =
                format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"");
            Err(Refusal::invalid("resourceVersionMatch", &why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod::PODS;
    use super::*;

    fn read(query: &str) -> Result<Options, i32> {
        Options::read(&PODS, Some(query), None).map_err(|refusal| refusal.status().code.unwrap())
    }

    #[test]
    fn parameters_are_parsed_as_clients_write_them() {
        let options =
            read("watch=True&labelSelector=app%3Dweb&timeoutSeconds=5&allowWatchBookmarks=true&a=b").unwrap();
        assert!(options.watch && options.bookmarks);
        assert_eq!(options.timeout, Some(5));
        assert_eq!(options.selection.labels, Labels::parse("app=web").unwrap());
        assert!(!read("watch=0&watch=1").unwrap().watch);
        assert!(read("watch").unwrap().watch);
        assert_eq!(read("limit=5"), read("limit=-1"));
        assert_eq!(read("resourceVersion=0").unwrap().version, Version::Any);
        assert_eq!(read("resourceVersion=").unwrap().version, Version::Latest);
        assert_eq!(read("resourceVersion=17").unwrap().version, Version::At(17));
        let many: String = (0..1000).map(|n| format!("p{n}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(read(&many), read(""));
    }

    #[test]
    fn conflicting_parameters_are_invalid() {
        let token = "continue=abc";
        for (query, code) in [
            ("limit=x", 400),
            ("limit=99999999999999999999", 400),
            ("timeoutSeconds=1.5", 400),
            ("resourceVersion=abc", 400),
            ("resourceVersion=-1", 400),
            ("resourceVersion=%2B1", 400),
            ("resourceVersion=99999999999999999999", 400),
            ("labelSelector=a%20b", 400),
            ("fieldSelector=spec.image%3Dx", 400),
            ("continue=x", 410),
            ("continue=x&resourceVersion=5", 400),
            ("limit=", 400),
            ("timeoutSeconds=&watch=1", 400),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=Exact&resourceVersion=0", 422),
            ("resourceVersionMatch=Newest&resourceVersion=5", 422),
            ("sendInitialEvents=true", 422),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=5", 422),
            ("watch=1&resourceVersionMatch=NotOlderThan", 422),
            ("watch=1&sendInitialEvents=true", 422),
            ("watch=1&sendInitialEvents=false", 422),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", 422),
            (&format!("watch=1&{token}"), 422),
            (&format!("watch=1&resourceVersion=0&{token}"), 422),
        ] {
            assert_eq!(read(query), Err(code), "{query}");
        }
        for query in [
            "resourceVersionMatch=NotOlderThan&resourceVersion=0",
            "resourceVersionMatch=Exact&resourceVersion=5",
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=5",
            &format!("watch=1&resourceVersion=5&{token}"),
        ] {
            assert!(read(query).is_ok(), "{query}");
        }
    }
}
