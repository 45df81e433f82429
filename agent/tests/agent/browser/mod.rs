//! The page at `/` in a real browser. Needs Debian's `chromium` and `chromium-driver`, so it is ignored by
//! default:
//!
//! ```text
//! .ci/run browser
//! ```

mod pictures;
mod webdriver;

use std::fs;

use serde_json::{Value, json};

use self::webdriver::Browser;
use crate::api::{kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::metrics::value;
use crate::support::{Agent, Answer, Directory, PATIENCE, manifest, shipped};

const WINDOW: (u32, u32) = (1280, 720);

/// The rows of the visible table.
const ROWS: &str = "[...document.querySelectorAll('main > section:not([hidden]) tbody tr[aria-rowindex]')]";

fn open(agent: &Agent) -> Browser {
    let browser = Browser::open(&format!("http://{}/", agent.address), WINDOW);
    browser.until("document.querySelector('#state').dataset.state === 'ready'");
    browser
}

/// A writable copy of the directory of shipped manifests.
fn copied() -> Directory {
    let directory = Directory::new();
    for file in fs::read_dir(shipped()).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, directory.0.join(path.file_name().unwrap())).unwrap();
    }
    directory
}

/// There were no errors, and the page attempted nothing forbidden.
fn assert_quiet(browser: &Browser) {
    assert_eq!(browser.log(), [""; 0]);
}

#[test]
#[ignore = "needs chromedriver: .ci/run browser"]
fn the_page_follows_the_agent_and_shows_when_it_is_unreachable() {
    let directory = copied();
    let agent = Agent::on(&directory.0);
    let browser = open(&agent);
    browser.run("window.loadedOnce = true");
    browser.until(&format!("{ROWS}.length === 5"));
    assert_eq!(browser.text("#figure-pods"), "5");
    assert_eq!(browser.text("#pods .count"), "5 pods");
    assert_eq!(browser.text("#node"), "node-1");
    // While nothing changes, the pods are not sent again.
    let asked = |answer: &Answer, path: &str| {
        value(&answer.body, &format!("pod_index_http_requests_total{{path=\"{path}\",code=\"200\"}}"))
    };
    let before = agent.until("/metrics", |answer| value(&answer.body, "pod_index_watches") == 1);
    let rounds = asked(&before, "/mirrors") + 3;
    let after = agent.until("/metrics", |answer| asked(answer, "/mirrors") >= rounds);
    assert_eq!(asked(&after, "/pods"), asked(&before, "/pods"), "the page watches");

    directory.write("dropped.yaml", &manifest("dropped"));
    browser.until(&format!("{ROWS}.some((row) => row.innerText.includes('dropped-node-1'))"));
    browser.until("document.querySelector('#figure-pods').innerText === '6'");
    assert_eq!(browser.run("return window.loadedOnce"), true, "without a reload");

    browser.type_into("#filter", "DROP default");
    browser.until(&format!("{ROWS}.length === 1 && {ROWS}[0].innerText.includes('dropped-node-1')"));
    assert_eq!(browser.text("#pods .count"), "1 of 6 pods");

    // Open the pod and go back.
    let uid = agent.get("/pods/default/dropped-node-1").json::<Value>()["metadata"]["uid"].clone();
    browser.click("#pods tbody a");
    browser.until(&format!(
        "document.querySelector('#pod').open && document.querySelector('#pod-body').innerText.includes({uid})"
    ));
    assert!(browser.text("#pod-body").contains("nginx"), "{}", browser.text("#pod-body"));
    assert_eq!(browser.text("#pod-title").trim_start_matches("default").trim(), "dropped-node-1");
    fs::remove_file(directory.0.join("dropped.yaml")).unwrap();
    browser.until("document.querySelector('#pod-body').innerText.includes('no longer exists')");
    browser.click("#pod button");
    browser.until("!document.querySelector('#pod').open && location.hash === '#/pods'");
    browser.until("document.querySelector('#pods .none').innerText.includes('No pod matches')");
    browser.run("document.querySelector('#filter').value = ''; document.querySelector('#filter').dispatchEvent(new Event('input'))");
    browser.until(&format!("{ROWS}.length === 5"));

    // Sort by another column, then reverse.
    browser.click("#pods th.name button");
    browser.click("#pods th.name button");
    browser.until(&format!("{ROWS}[0].innerText.includes('static-web-node-1')"));

    browser.click("nav a[href='#/mirrors']");
    browser.until(&format!("{ROWS}.length === 5 && !document.querySelector('#mirrors').hidden"));
    directory.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n");
    browser.until("document.querySelector('#problems').innerText === '1 problem'");
    browser.click("nav a[href='#/sources']");
    browser.until("document.querySelector('#sources').innerText.includes('bad.yaml:4')");
    assert!(browser.text("#sources").contains("spec.containers"));
    // The agent answered 404 once, for the removed pod.
    let log = browser.log();
    assert!(log.iter().all(|line| line.contains("404")), "{log:?}");

    browser.click("nav a[href='#/pods']");
    drop(agent);
    browser.until("document.querySelector('#state').innerText.startsWith('No answer since')");
    browser.until("document.title.startsWith('No answer')");
    assert_eq!(browser.run(&format!("return {ROWS}.length")), 5, "the last data stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromedriver: .ci/run browser"]
async fn the_filter_finds_a_pod_by_any_identity() {
    let setup = crate::whois::Setup::new().await;
    let browser = open(&setup.agent);
    browser.until(&format!("{ROWS}.length === 2"));
    let type_anew = |text: &str| {
        browser.run("document.querySelector('#filter').value = ''");
        browser.type_into("#filter", text);
    };
    for (query, name) in [
        ("10.0.0.7", "web-0"),
        (crate::whois::MIRROR, "static-web-node-1"),
        (&*"b".repeat(64), "web-0"),
        ("default/static-web-node-1", "static-web-node-1"),
    ] {
        type_anew(query);
        browser.until(&format!("{ROWS}.length === 1 && {ROWS}[0].innerText.includes('{name}')"));
    }
    browser.click("nav a[href='#/mirrors']");
    browser.until(&format!("{ROWS}.length === 1 && {ROWS}[0].innerText.includes('static-web-node-1')"));
    type_anew("10.9.9.9");
    browser.until("document.querySelector('#mirrors .none').innerText.includes('No pair matches')");
    // Words still filter.
    type_anew("static default");
    browser.until(&format!("{ROWS}.length === 1"));
    assert_quiet(&browser);
}

#[test]
#[ignore = "needs chromedriver: .ci/run browser"]
fn a_restarted_agent_is_followed_again() {
    let port = crate::support::port_to_keep();
    let first = crate::top::At::port(port);
    let browser = Browser::open(&format!("http://127.0.0.1:{port}/"), WINDOW);
    browser.until(&format!("{ROWS}.length === 5"));
    drop(first);
    browser.until("document.querySelector('#state').dataset.state === 'away'");
    let _second = crate::top::At::port(port);
    browser.until("document.querySelector('#state').dataset.state === 'ready'");
    assert_eq!(browser.run(&format!("return {ROWS}.length")), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromedriver: .ci/run browser"]
async fn no_text_of_a_pod_becomes_markup() {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    let markup = "<img src=x onerror=\"window.owned=1\"><script>window.owned=1</script>";
    let name = format!("{markup}\u{202e}\n\u{7}&amp;");
    let mut evil = pod(&name, "node-1", &json!({ markup: markup, "kubernetes.io/config.source": markup }));
    evil["metadata"]["uid"] = json!("../<b>?#%2f&\"'");
    evil["metadata"]["labels"] = json!({ markup: markup });
    evil["spec"]["containers"] = json!([{ "name": markup, "image": markup }]);
    evil["status"] = json!({ "phase": markup });
    server.put("pods", &evil);
    directory.write("<img src=x onerror=alert(1)>.yaml", "kind: Pod");
    let path = directory.0.to_str().unwrap();
    let kubeconfig = kubeconfig(&directory, &server);
    let args = ["--pod-manifest-path", path, "--hostname-override", "node-1", "--kubeconfig", &kubeconfig];
    let agent = Agent::start(&args);
    agent.until("/readyz", |answer| answer.code == 200);

    let browser = open(&agent);
    let assert_text = |selector: &str| {
        let text = browser.run(&format!("return document.querySelector('{selector}').textContent"));
        assert!(text.as_str().unwrap().contains(markup), "{selector}: {text}");
        assert_eq!(browser.run("return document.images.length"), 1, "the icon");
        assert_eq!(browser.run("return document.scripts.length"), 1, "the page's");
        assert_eq!(browser.run("return window.owned ?? null"), Value::Null);
        let seen = browser.text("body");
        assert!(!seen.contains(['\u{202e}', '\u{7}']), "{seen:?}");
    };
    browser.until(&format!("{ROWS}.length === 1"));
    assert_text("#pods tbody");
    browser.click("#pods tbody a");
    browser.until("document.querySelector('#pod-body').innerText.includes('Annotations')");
    assert_text("#pod-title");
    assert_text("#pod-body");
    browser.click("#pod summary");
    assert_eq!(
        browser.run("return JSON.parse(document.querySelector('#pod pre').textContent).metadata.uid"),
        "../<b>?#%2f&\"'"
    );
    browser.click("#pod button");
    browser.click("nav a[href='#/sources']");
    browser.until("document.querySelector('#sources .problems').innerText.includes('<img src=x onerror=alert(1)>.yaml')");
    assert_quiet(&browser);

    // The browser would block such a script.
    let refused = |script: &str| {
        let script = format!("try {{ {script} }} catch (error) {{ return error.name }} return 'done'");
        browser.run(&script)
    };
    assert_eq!(refused("document.body.innerHTML = '<b>x</b>'"), "TypeError");
    assert_eq!(refused("setTimeout('window.owned = 1', 0)"), "TypeError");
    assert_eq!(refused("document.images[0].setAttribute('onerror', 'window.owned = 1')"), "TypeError");
    assert_eq!(browser.run("return window.owned ?? null"), Value::Null);
    assert!(!browser.log().is_empty(), "the browser logged the violations");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromedriver: .ci/run browser"]
async fn a_hundred_thousand_pods_are_scrolled_and_filtered() {
    const PODS: usize = 100_000;
    let server = ApiServer::start().await;
    server.put_all("pods", (0..PODS).map(|number| pod(&format!("pod-{number:05}"), "node-1", &json!({}))));
    server.compact();
    let directory = Directory::new();
    let agent = Agent::start(&["--all-nodes", "--kubeconfig", &kubeconfig(&directory, &server)]);
    // Generous: neither the agent nor the browser is an optimized build.
    agent.until_within(10 * PATIENCE, "/api/v1/pods?limit=1", |answer| answer.code == 200);

    let browser = open(&agent);
    browser.until("document.querySelector('#pods .count').innerText === '100,000 pods'");
    let last = "document.querySelector('#pods .scroll').scrollTop = 1e9";
    browser.run(last);
    browser.until(&format!("{ROWS}.at(-1)?.innerText.includes('pod-99999')"));
    assert_eq!(browser.run(&format!("return {ROWS}.at(-1).getAttribute('aria-rowindex')")), "100001");
    let rendered = browser.run(&format!("return {ROWS}.length")).as_u64().unwrap();
    assert!((10..200).contains(&rendered), "{rendered} rows in the document");
    assert_eq!(
        browser.run("return document.querySelector('#pods table').getAttribute('aria-rowcount')"),
        "100001"
    );
    // The last row is fully in view.
    browser.until(&format!("{ROWS}.at(-1).getBoundingClientRect().bottom <= innerHeight"));
    browser.type_into("#filter", "4242");
    browser.until(&format!(
        "{ROWS}.length === 10 || document.querySelector('#pods .count').innerText.startsWith('2')"
    ));
    browser.until("/^\\d+ of 100,000 pods$/.test(document.querySelector('#pods .count').innerText)");
    assert!(browser.text("#pods tbody").contains("pod-04242"));
    assert_quiet(&browser);
}

#[test]
#[ignore = "needs chromedriver: .ci/run browser"]
fn the_page_follows_the_preferred_colour_scheme_and_is_legible_in_both() {
    let agent = Agent::on(&shipped());
    let browser = open(&agent);
    browser.until(&format!("{ROWS}.length === 5"));
    // The contrast of each text with its background, by WCAG's formula: those below 4.5.
    let faint = "
        const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const light = (colour) => {
          const [r, g, b] = channels(colour).map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = (element) => {
          for (let e = element; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if ((channels(colour)[3] ?? 1) > 0) return colour;
          }
          return 'rgb(255, 255, 255)';
        };
        const texts = [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
        if (texts.length < 40) return ['only ' + texts.length + ' texts'];
        return texts.map((e) => {
          const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
          return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + ' ' + e.textContent.slice(0, 20)];
        }).filter(([contrast]) => contrast < 4.5).map(String)";
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.devtools("Emulation.setEmulatedMedia", &media);
        assert_eq!(browser.run(faint), json!([]), "{scheme}");
        papers.push(browser.run("return getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(papers[0], papers[1]);
    // On a phone, nothing is wider than the window.
    let metrics = json!({ "width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": true });
    browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    browser.until("document.documentElement.scrollWidth <= 360");
    assert_quiet(&browser);
}
