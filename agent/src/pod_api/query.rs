//! Request parameters: `metav1.ListOptions`, parsed like the API server.

use super::resource::Resource;
use super::selection::Selection;
use super::status;
use crate::api::refusal::Refusal;
use crate::api::request::{parameter, truth};
use crate::api::selectors::Selector;
use crate::api::view::View;

/// The options of a list or watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) watch: bool,
    pub(super) selection: Selection,
    /// `None`: the latest.
    pub(super) version: Option<u64>,
    /// Whether a list must be of exactly this version.
    pub(super) is_exact: bool,
    pub(super) send_initial_events: Option<bool>,
    pub(super) bookmarks: bool,
    /// In seconds. Zero counts as absent; a negative value ends at once.
    pub(super) timeout: Option<i64>,
    /// `includeObject`, which matters only for a `Table`.
    pub(super) include: String,
}

impl Options {
    /// Parses a query, of the API server's view. Uses the first of repeated parameters. Ignores unknown ones, and those that contradict others.
    pub(super) fn read(
        of: &Resource,
        query: Option<&str>,
        namespace: Option<String>,
    ) -> Result<Self, Refusal> {
        let given = |name| parameter(query, name);
        let is_given = |name| given(name).map(|text| truth(&text));
        if given("continue").is_some_and(|token| !token.is_empty()) {
            return Err(status::expired("the continue token is not this server's: its lists are whole"));
        }
        let labels = Selector::labels(&given("labelSelector").unwrap_or_default())
            .map_err(|why| status::bad_request(format!("labelSelector: {why}")))?;
        let fields =
            Selector::fields(&given("fieldSelector").unwrap_or_default(), |field| of.fields.contains(&field))
                .map_err(|why| status::bad_request(format!("fieldSelector: {why}")))?;
        let seconds = given("timeoutSeconds").map(|text| {
            let why = |_| status::bad_request(format!("timeoutSeconds: {text:?} is not an integer"));
            text.parse().map_err(why)
        });
        Ok(Self {
            watch: is_given("watch").unwrap_or_default(),
            selection: Selection { namespace, labels, fields, view: View::ApiServer },
            version: version_of(given("resourceVersion").as_deref())?,
            is_exact: given("resourceVersionMatch").as_deref() == Some("Exact"),
            send_initial_events: is_given("sendInitialEvents"),
            bookmarks: is_given("allowWatchBookmarks").unwrap_or_default(),
            timeout: seconds.transpose()?,
            include: given("includeObject").unwrap_or_default(),
        })
    }
}

/// Parses `resourceVersion`. `None`: absent or 0, any version.
pub(super) fn version_of(text: Option<&str>) -> Result<Option<u64>, Refusal> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("0");
    // `parse` alone accepts a sign.
    let version = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let why = || status::bad_request(format!("resourceVersion: {text:?} is not a decimal number of 64 bits"));
    Ok(Some(version.ok_or_else(why)?).filter(|version| *version > 0))
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
        assert_eq!(options.selection.labels, Selector::labels("app=web").unwrap());
        assert!(!read("watch=0&watch=1").unwrap().watch);
        assert!(read("watch").unwrap().watch);
        assert_eq!(read("limit=5"), read(""));
        assert!(read("resourceVersion=5&resourceVersionMatch=Exact").unwrap().is_exact);
        assert!(!read("resourceVersion=5&resourceVersionMatch=NotOlderThan").unwrap().is_exact);
        assert_eq!(read("resourceVersion=0").unwrap().version, None);
        assert_eq!(read("resourceVersion=").unwrap().version, None);
        assert_eq!(read("resourceVersion=17").unwrap().version, Some(17));
        let many: String = (0..1000).map(|n| format!("p{n}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(read(&many), read(""));
    }
}
