//! Limits that pages tell in sentences are those of the code. The tables of `docs/reference.md` are compared beside the
//! constants, in the agent.

use super::{assert_says, block, read};

/// Users plan by these numbers. Another value in the code? Then change the pages, and the value here.
#[test]
fn the_limits_of_whois_are_those_of_the_code() {
    for (file, constant, page, sentence) in [
        ("routes.rs", "IN_A_GET: usize = 100;", "docs/whois.md", "no `q`, or more than 100."),
        ("routes.rs", "FEW: usize = 4;", "docs/whois.md", "a GET of up to four queries"),
        ("routes.rs", "FEW: usize = 4;", "docs/languages.md", "One to four queries: add `wait=2s`"),
        ("request.rs", "LONGEST_WAIT: Duration = Duration::from_secs(10);", "docs/whois.md", "at most 10 s"),
    ] {
        let code = read(&format!("agent/src/whois/{file}"));
        let is_so = code.contains(&format!("const {constant}"));
        assert!(is_so, "agent/src/whois/{file} has no longer {constant} Correct {page}: {sentence}");
        assert_says(page, sentence);
    }
}

#[test]
fn pages_say_how_large_a_pod_may_be() {
    let memory = read("kubelet/src/memory/mod.rs");
    let limit = block(&memory, "const LIMIT: usize = ", " << 10;");
    for page in
        ["docs/operators.md", "docs/sizing.md", "docs/security.md", "docs/sources.md", "docs/reference.md"]
    {
        assert_says(page, &format!("{limit} KiB"));
    }
}

#[test]
fn pages_say_how_many_checkpoints_are_read_before_the_agent_serves() {
    let load = read("kubelet/src/checkpoint/load.rs");
    let read_first = block(&load, "const MOST_READ: usize = ", ";").replace('_', ",");
    assert_says(
        "docs/what-if-it-fails.md",
        &format!("reads at most the newest {read_first} files before it serves"),
    );
    assert_says("docs/operators.md", &format!("reads the newest {read_first} before it serves"));
}
