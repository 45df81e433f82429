//! Takes the README's pictures again. Review them before committing.
//!
//! ```text
//! cargo test -p pod-index-agent --test agent -- --ignored --exact browser::pictures::are_retaken
//! ```

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use vt100::{Color, Screen};

use super::{ROWS, copied};
use crate::api::{kubeconfig, pod};
use crate::api_server::{ApiServer, shipped as rights};
use crate::browser::webdriver::Browser;
use crate::support::{Agent, Directory};
use crate::terminal::Terminal;

/// A terminal's content as an HTML page.
fn html(screen: &Screen) -> String {
    let (height, width) = screen.size();
    let mut rows = String::new();
    for row in 0..height.get() {
        for column in 0..width.get() {
            let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation()) else {
                continue;
            };
            let mut style = match cell.fgcolor() {
                Color::Idx(2) => "color:#7fd08f;",
                Color::Idx(1) => "color:#ff8f80;",
                _ => "",
            }
            .to_owned();
            for (is, rule) in [
                (cell.bold(), "font-weight:700;"),
                (cell.dim(), "color:#8b959e;"),
                (cell.inverse(), "background:#d9d7d1;color:#181b1f;"),
            ] {
                style += if is { rule } else { "" };
            }
            let text = if cell.has_contents() { cell.contents() } else { " " };
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            write!(rows, "<span style='{style}'>{text}</span>").unwrap();
        }
        rows.push('\n');
    }
    format!(
        "<!doctype html><meta charset=utf-8><body style='margin:0;background:#181b1f;color:#d9d7d1'>\
         <pre style='margin:18px 20px;font:15px/1.4 \"DejaVu Sans Mono\",monospace'>{rows}</pre>"
    )
}

fn write(name: &str, picture: &[u8]) {
    assert!(picture.len() < 300_000, "{name}: {} bytes", picture.len());
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("docs/images");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(name), picture).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes docs/images: see the command at the top of this file"]
async fn are_retaken() {
    let server = ApiServer::start().await;
    server.put("nodes", &json!({ "metadata": { "name": "node-1" } }));
    server.restrict_to_node("node-1");
    server.grant(rights("pod-index-mirrors", &["base", "components/mirror-pods"]));
    let pods = [
        ("kube-system", "coredns-6d4b75cb6d-8xk2p", "Running", "coredns:1.12", 0),
        ("kube-system", "kube-proxy-7vq4r", "Running", "kube-proxy:1.36", 1),
        ("monitoring", "node-exporter-x5hzt", "Running", "node-exporter:1.10", 0),
        ("shop", "cart-5f7d8c9b64-lq8vd", "Running", "cart:2.4", 0),
        ("shop", "checkout-7c5ddbdf54-q4x2n", "CrashLoopBackOff", "checkout:3.1", 12),
        ("shop", "checkout-migrate-28817-9wzfb", "Succeeded", "checkout:3.1", 0),
    ];
    let put = |number: usize, label: usize| {
        let (namespace, name, phase, image, restarts) = pods[number];
        let mut pod = pod(name, "node-1", &json!({}));
        pod["metadata"]["namespace"] = json!(namespace);
        let (a, b) = (0x7c1e_93a5 ^ (number * 0x1f3d_5b79), 0x4d2f_8a61_b3c7 ^ (number * 0x5a3_c1e8_7f91));
        pod["metadata"]["uid"] =
            json!(format!("{:08x}-{:04x}-4e1b-9c4a-{b:012x}", a & 0xffff_ffff, b & 0xffff));
        pod["metadata"]["labels"] = json!({ "app": name.split('-').next(), "version": label.to_string() });
        pod["metadata"]["creationTimestamp"] = json!("2026-11-20T09:00:00Z");
        pod["spec"]["containers"] = json!([{ "name": "main", "image": image }]);
        let is_up = phase == "Running";
        let state = if is_up { json!({ "running": {} }) } else { json!({ "waiting": { "reason": phase } }) };
        let status = json!({ "name": "main", "image": image, "imageID": "", "ready": is_up, "restartCount": restarts, "state": state });
        pod["status"] = match phase {
            "Succeeded" => json!({ "phase": phase }),
            _ => {
                json!({ "phase": "Running", "podIP": format!("10.244.1.{}", 11 + number), "containerStatuses": [status] })
            }
        };
        server.put("pods", &pod);
    };
    (0..pods.len()).for_each(|number| put(number, 0));
    let directory = copied();
    directory.write(
        "ingress.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: ingress\nspec:\n  containers:\n  - name: proxy\n",
    );
    let credentials = Directory::new();
    let kubeconfig = kubeconfig(&credentials, &server);
    // A short path for the pictures.
    let manifests = Path::new("/tmp/manifests");
    let _ = fs::remove_file(manifests);
    std::os::unix::fs::symlink(&directory.0, manifests).unwrap();
    let agent = Agent::start(&[
        "--pod-manifest-path",
        manifests.to_str().unwrap(),
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        "node-1",
        "--manage-mirror-pods",
    ]);
    agent.until("/mirrors", |answer| answer.body.matches("inSync").count() == 5);

    // Generate some changes.
    let busy = || {
        for label in 1..16 {
            std::thread::sleep(Duration::from_millis(200));
            put(label % pods.len(), label);
        }
    };
    let browser = Browser::open(&format!("http://{}/", agent.address), (1280, 720));
    busy();
    browser.until(&format!(
        "{ROWS}.length === 11 && document.querySelector('#figure-changed').innerText !== '–'"
    ));
    browser.devtools("Animation.disable", &json!({}));
    for (scheme, name) in [("light", "page.png"), ("dark", "page-dark.png")] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.devtools("Emulation.setEmulatedMedia", &media);
        write(name, &browser.picture());
    }
    let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": "light" }] });
    browser.devtools("Emulation.setEmulatedMedia", &media);
    let metrics = json!({ "width": 390, "height": 720, "deviceScaleFactor": 1, "mobile": true });
    browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    browser.until("document.documentElement.scrollWidth <= 390");
    write("page-phone.png", &browser.picture());

    let mut terminal = Terminal::run(&["top", "--port", &agent.address.port().to_string()], (80, 18));
    busy();
    terminal.until(|seen| seen.contains("11 pods"));
    let page = directory.0.join("top.html");
    fs::write(&page, html(&terminal.screen())).unwrap();
    let browser = Browser::open(&format!("file://{}", page.display()), (764, 414));
    write("top.png", &browser.picture());
    terminal.press("q");
    assert_eq!(terminal.wait(), 0);
    fs::remove_file(manifests).unwrap();
}
