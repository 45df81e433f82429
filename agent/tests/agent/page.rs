//! The page at `/` without a browser: its files, and what its policy forbids.

use crate::support::{Agent, Directory, manifest};

/// Functions that would parse text as markup or code.
const FORBIDDEN: &str =
    "innerHTML,outerHTML,insertAdjacentHTML,document.write,DOMParser,eval(,new Function,javascript:,http://";

#[test]
fn the_page_may_run_only_its_own_scripts() {
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    let agent = Agent::on(&directory.0);
    let page = agent.send("GET /", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n", "");
    assert_eq!((page.code, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.body.starts_with("<!doctype html>"));
    let policy = page.header("content-security-policy").unwrap();
    let expected = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
    for directive in expected.split("; ") {
        assert!(policy.split("; ").any(|part| part == directive), "{directive} is not in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    // The page contains nothing that the policy forbids.
    assert!(page.body.contains("<script type=\"module\" src=") && page.body.matches("<script").count() == 1);
    assert!(!page.body.contains("style=") && !page.body.contains(" on"));
}

#[test]
fn the_pages_files_are_served_with_their_types_and_do_not_parse_text_as_markup() {
    let directory = Directory::new();
    let agent = Agent::on(&directory.0);
    let page = agent.get("/").body;
    let mut files: Vec<_> = page.split(['"']).filter(|part| part.starts_with("ui/")).collect();
    files.extend(["ui/agent.js", "ui/changes.js", "ui/rows.js", "ui/pod.js"]);
    assert!(files.len() > 5);
    for file in files {
        let answer = agent.get(&format!("/{file}"));
        let kind = match file.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!((answer.code, answer.header("content-type")), (200, Some(kind)), "{file}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{file}");
        if file != "ui/icon.svg" {
            for forbidden in FORBIDDEN.split(',') {
                assert!(!answer.body.contains(forbidden), "{forbidden} in {file}");
            }
        }
        // Imported scripts exist, too.
        for imported in answer.body.lines().filter_map(|line| line.split(" from \"./").nth(1)) {
            let imported = imported.trim_end_matches("\";");
            assert_eq!(agent.get(&format!("/ui/{imported}")).code, 200, "{imported}");
        }
    }
}
