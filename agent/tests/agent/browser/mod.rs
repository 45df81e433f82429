//! The page at `/` in a real browser. Needs Debian's `chromium` and `chromium-driver`, so it is ignored by
//! default:
//!
//! ```text
//! .ci/run browser
//! ```

mod webdriver;

use std::fs;

use serde_json::{Value, json};

use self::webdriver::Browser;
use crate::api::{kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::metrics::{asked, value};
use crate::support::{Agent, Directory, PATIENCE, manifest, shipped};

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
    browser.until(
        "document.querySelector('#pod-body').innerText.includes('no longer exists. It was removed at 20')",
    );
    assert!(!browser.text("#pod-body").contains("Phase"), "{}", browser.text("#pod-body"));
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
    browser.until("document.querySelector('#sources').innerText.includes('bad.yaml')");
    assert!(browser.text("#sources").contains("spec.containers"));
    let log = browser.log();
    assert!(log.is_empty(), "{log:?}");

    browser.click("nav a[href='#/pods']");
    drop(agent);
    browser.until("document.querySelector('#state').innerText.startsWith('No answer since')");
    browser.until("document.title.startsWith('No answer')");
    assert_eq!(browser.run(&format!("return {ROWS}.length")), 5, "the last data stays");
}

#[test]
#[ignore = "needs chromedriver: .ci/run browser"]
fn the_page_says_when_a_source_that_waits_tries_again() {
    let agent = Agent::start(&format!(
        "--pod-manifest-path {} --hostname-override node-1 --manifest-url http://127.0.0.1:1/ --http-check-frequency 1h",
        shipped().display()
    ));
    let browser = Browser::open(&format!("http://{}/", agent.address), WINDOW);
    browser.click("nav a[href='#/sources']");
    let of_the_url = "document.querySelectorAll('#sources article')[1]";
    let shown = |role: &str| format!("{of_the_url}?.querySelector('.{role}')?.innerText");
    browser.until(&format!("{}?.startsWith('its next try in ')", shown("waits-for")));
    browser.until(&format!("/\\d/.test({})", shown("next-try")));
    let of_the_file =
        "document.querySelectorAll('#sources article')[0].querySelector('.waits-for').parentElement.hidden";
    assert_eq!(browser.run(&format!("return {of_the_file}")), true, "it has been read");
    // The seconds run on without a new card, in which a selection would be lost.
    browser.run(&format!("{of_the_url}.isKept = true; window.before = {}", shown("waits-for")));
    browser.until(&format!("{} !== window.before", shown("waits-for")));
    assert_eq!(browser.run(&format!("return {of_the_url}.isKept")), true);
    assert_quiet(&browser);
}

const TEMPLATED: &str = "api-6d4b75cb6d-x7k2p";

/// A pod of a Deployment, whose `ReplicaSet` the agent does not read.
fn templated() -> Value {
    let mut templated = pod(TEMPLATED, "node-1", &json!({}));
    templated["metadata"]["namespace"] = json!("shop");
    templated["metadata"]["labels"] = json!({ "pod-template-hash": "6d4b75cb6d" });
    templated["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api-6d4b75cb6d", "uid": "o2", "controller": true },
    ]);
    templated
}

/// Asks the page's question, as a person does: types and presses Enter.
fn ask(browser: &Browser, query: &str) {
    browser.run("document.querySelector('#question').value = ''");
    // The last one is Enter.
    browser.type_into("#question", &format!("{query}\u{e007}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromedriver: .ci/run browser"]
async fn the_page_answers_which_pod_something_belongs_to() {
    let setup = crate::whois::Setup::new().await;
    let browser = open(&setup.agent);
    browser.until(&format!("{ROWS}.length === 2"));
    let says = |text: &str| {
        let text = json!(text);
        browser.until(&format!("document.querySelector('#answer').innerText.includes({text})"));
    };
    for (query, pod, by) in [
        ("10.0.0.7", "shop/web-0", "IP"),
        ("10.0.0.7:443", "shop/web-0", "IP"),
        (crate::whois::MIRROR, "default/static-web-node-1", "mirror UID"),
        (&*"b".repeat(64), "shop/web-0", "container ID"),
        ("default/static-web-node-1", "default/static-web-node-1", "name"),
        ("web-0", "shop/web-0", "name"),
    ] {
        ask(&browser, query);
        browser.until(&format!(
            "document.querySelector('#answer .pod')?.innerText === '{pod}'
              && document.querySelector('#answer dd').innerText === '{by}'"
        ));
        assert_eq!(browser.run(&format!("return {ROWS}.length")), 2, "the list below stays");
    }
    says("ReplicaSet/web");
    // A workload that follows from names alone is a guess, and is marked.
    setup.server.put("pods", &templated());
    browser.until(&format!("{ROWS}.some((row) => row.innerText.includes('Deployment/api (derived)'))"));
    ask(&browser, TEMPLATED);
    says(&format!("shop/{TEMPLATED}"));
    says("Deployment/api (derived)");
    ask(&browser, "10.9.9.9");
    says("no pod has this IP address");

    // The question stays in the address, and so does the filter.
    ask(&browser, "10.0.0.7");
    says("shop/web-0");
    browser.type_into("#filter", "replicaset/web tier=front");
    browser.until(&format!("{ROWS}.length === 1 && {ROWS}[0].innerText.includes('web-0')"));
    browser.until("location.search === '?q=10.0.0.7&filter=replicaset%2Fweb+tier%3Dfront'");
    browser.run("window.isOld = true; location.reload()");
    browser.until(&format!("!window.isOld && {ROWS}.length === 1 && {ROWS}[0].innerText.includes('web-0')"));
    says("shop/web-0");
    assert_eq!(browser.run("return document.querySelector('#question').value"), "10.0.0.7");
    browser.run(
        "const field = document.querySelector('#question');
         field.value = '';
         field.dispatchEvent(new Event('input'))",
    );
    browser.until("document.querySelector('#answer').hidden && !location.search.includes('q=')");

    // The answer leads to the pod.
    ask(&browser, "10.0.0.7");
    says("shop/web-0");
    browser.click("#answer .pod a");
    browser.until("document.querySelector('#pod').open && document.querySelector('#pod-body').innerText.includes('Keys')");
    assert_quiet(&browser);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromedriver: .ci/run browser"]
async fn nothing_is_wider_than_its_window() {
    let setup = crate::whois::Setup::new().await;
    let browser = open(&setup.agent);
    browser.until(&format!("{ROWS}.length === 2"));
    ask(&browser, "10.0.0.7");
    browser.until("!document.querySelector('#answer').hidden");
    for width in [320, 360, 660, 768, 900, 1024, 1200, 1280, 1366, 1440, 1600, 1680, 1920, 2560] {
        let phone = width < 640;
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone });
        browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        browser.until(&format!("innerWidth === {width}"));
        for view in ["pods", "mirrors"] {
            browser.run(&format!("location.hash = '#/{view}'"));
            browser.until(&format!("!document.querySelector('#{view}').hidden"));
            let too_wide = browser.run(
                "const wide = (element) => element.scrollWidth > element.clientWidth;
                 const all = [document.documentElement, ...document.querySelectorAll('section:not([hidden]) .scroll, #answer, #ask')];
                 return all.filter(wide).map((e) => `${e.tagName}.${e.className}#${e.id} ${e.scrollWidth} > ${e.clientWidth}`)",
            );
            assert_eq!(too_wide, json!([]), "{view} at {width}");
        }
        browser.run("location.hash = '#/pods'");
        browser.until("!document.querySelector('#pods').hidden");
        for class in ["name", "status"] {
            let shown = format!("return document.querySelector('#pods td.{class}').checkVisibility()");
            assert_eq!(browser.run(&shown), true, "{class} at {width}");
        }
    }
    assert_quiet(&browser);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromedriver: .ci/run browser"]
async fn a_pod_is_shown_with_its_keys_and_as_yaml() {
    let setup = crate::whois::Setup::new().await;
    let browser = open(&setup.agent);
    browser.type_into("#filter", "web-0");
    browser.until(&format!("{ROWS}.length === 1"));
    browser.click("#pods tbody a");
    browser.until("document.querySelector('#pod-body').innerText.includes('Keys')");
    let keys =
        "[...document.querySelectorAll('#pod-body section:nth-of-type(2) dd')].map((key) => key.innerText)";
    let keys = browser.run(&format!("return {keys}"));
    let id = |digit: &str| format!("containerd://{}", digit.repeat(64));
    let uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    assert_eq!(keys, json!(["shop/web-0", uid, "10.0.0.7", "fd00::7", id("a"), id("b"), id("c")]));
    for key in keys.as_array().unwrap() {
        let key: String = form_urlencoded::byte_serialize(key.as_str().unwrap().as_bytes()).collect();
        assert_eq!(setup.agent.get(&format!("/whois?q={key}")).json::<Value>()["podUID"], uid, "{key}");
    }

    browser.click("#pod summary");
    let shown = browser.text("#pod pre");
    let path = "GET /pods/shop/web-0";
    let yaml = setup.agent.send(path, "Accept: application/yaml\r\n", "").body;
    assert_eq!(shown.trim_end(), yaml.trim_end());
    assert!(shown.lines().any(|line| line == "kind: Pod"), "{shown}");
    assert_quiet(&browser);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromedriver: .ci/run browser"]
async fn what_happens_to_pods_is_listed_with_what_has_changed() {
    let server = ApiServer::start().await;
    let web = |phase: &str, image: &str| {
        let mut web = pod("web", "node-1", &json!({}));
        web["metadata"]["uid"] = json!("u-web");
        web["status"] = json!({ "phase": phase });
        web["spec"]["containers"][0]["image"] = json!(image);
        web
    };
    server.put("pods", &web("Pending", "i:1"));
    let directory = Directory::new();
    let agent = Agent::start(&["--all-nodes", "--kubeconfig", &kubeconfig(&directory, &server)]).ready();
    let browser = open(&agent);
    browser.until(&format!("{ROWS}.length === 1"));
    agent.until("/metrics", |answer| value(&answer.body, "pod_index_watches") == 1);
    browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '3', bubbles: true }))");
    browser.until("document.querySelector('#changes .none')?.innerText.includes('Nothing has changed')");

    let newest = |count: usize, expected: &str| {
        browser.until(&format!("{ROWS}.length === {count}"));
        let cells = format!("return [...{ROWS}[0].cells].map((cell) => cell.innerText)");
        let cells: Vec<String> = serde_json::from_value(browser.run(&cells)).unwrap();
        let [time, rest @ ..] = cells.as_slice() else { panic!("{cells:?}") };
        assert_eq!(time.split(':').map(str::len).collect::<Vec<_>>(), [2, 2, 2], "{time}");
        assert_eq!(rest.join(" | "), expected);
    };
    server.put("pods", &web("Running", "i:1"));
    newest(1, "changed | default | web | status: Pending → Running");
    server.put("pods", &web("Running", "i:2"));
    newest(2, "changed | default | web | images: i:1 → i:2");
    server.put("pods", &pod("other", "node-2", &json!({})));
    newest(3, "added | default | other | Unknown");
    server.remove("pods", "default", "web");
    newest(4, "removed | default | web | Running");
    browser.type_into("#filter", "image");
    browser.until(&format!("{ROWS}.length === 1"));
    assert_quiet(&browser);
}

#[test]
#[ignore = "needs chromedriver: .ci/run browser"]
fn the_ages_of_sources_and_the_number_of_watchers_are_shown() {
    let agent = Agent::on(&shipped());
    let browser = open(&agent);
    browser.until("document.querySelector('#figure-watchers').innerText === '1'");
    for figure in ["generation", "publications", "changed"] {
        browser.until(&format!("/^[\\d.,]+$/.test(document.querySelector('#figure-{figure}').textContent)"));
    }
    let other = agent.connect("GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n");
    browser.until("document.querySelector('#figure-watchers').innerText === '2'");
    drop(other);
    browser.until("document.querySelector('#figure-watchers').innerText === '1'");

    browser.click("nav a[href='#/sources']");
    browser.until("/^\\d+ s ago$/.test(document.querySelector('#sources .heard').innerText)");
    // The age grows on the same card, which only a look at the files replaces, every 20 seconds.
    browser.until(
        "(() => {
          const age = () => parseInt(window.card.querySelector('.heard').innerText);
          if (!window.card?.isConnected) {
            window.card = document.querySelector('#sources article');
            window.first = age();
          }
          return age() >= window.first + 2 && parseInt(document.querySelector('#figure-silence').innerText) === age();
        })()",
    );
    assert_quiet(&browser);
}

#[test]
#[ignore = "needs chromedriver: .ci/run browser"]
fn a_restarted_agent_is_followed_again() {
    let kept = pod_index_test_support::port::Port::new();
    let port = kept.address().port();
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
    let agent = Agent::start(&args).ready();

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
    let yaml: Value = serde_saphyr::from_str(&browser.text("#pod pre")).unwrap();
    assert_eq!(yaml["metadata"]["uid"], "../<b>?#%2f&\"'");
    assert!(yaml["metadata"]["name"].as_str().unwrap().starts_with(markup), "{yaml}");
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
    browser
        .until_within(10 * PATIENCE, "document.querySelector('#pods .count').innerText === '100,000 pods'");
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

    // Of so many pods, the page has only the rows.
    server.put("pods", &pod("pod-04242", "node-1", &json!({ "a": "b" })));
    server.put("pods", &pod("pod-14242", "node-2", &json!({})));
    browser.click("nav a[href='#/changes']");
    browser.until(&format!("{ROWS}.length === 2"));
    let changes = browser.text("#changes tbody");
    assert!(changes.contains("fields that are not listed here"), "{changes}");
    assert!(changes.contains("node: node-1 → node-2"), "{changes}");
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
    // On a phone, nothing is wider than the window, and each row shows its name and its status.
    let metrics = json!({ "width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": true });
    browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    browser.until("document.documentElement.scrollWidth <= 360");
    let cut = "
        return [...document.querySelectorAll('#pods tbody tr[aria-rowindex] td')].filter((cell) => {
          const [own, row] = [cell.getBoundingClientRect(), cell.parentElement.getBoundingClientRect()];
          return cell.checkVisibility() && (own.right > 360 || own.bottom > row.bottom || cell.scrollWidth > cell.clientWidth);
        }).map((cell) => cell.textContent)";
    assert_eq!(browser.run(cut), json!([]));
    for class in ["name", "status"] {
        let shown = format!("return document.querySelector('#pods td.{class}').checkVisibility()");
        assert_eq!(browser.run(&shown), true, "{class}");
    }
    assert_quiet(&browser);
}
