//! A canary secret that must not appear in any output, and the search for it.

/// The content of the tests' Secrets.
pub const CANARY: &str = "canary-in-a-coal-mine";
/// The same in base64, as in a Secret's `data`.
pub const IN_BASE64: &str = "Y2FuYXJ5LWluLWEtY29hbC1taW5l";

/// Whether a text contains it: plain, in base64, in hexadecimal, or as a list of bytes, with any white space.
#[must_use]
pub fn tells(text: &str) -> bool {
    let text: String = text.split_whitespace().collect();
    let lower = text.to_ascii_lowercase();
    let in_base64 = |spelling: &&str| text.contains(*spelling);
    [IN_BASE64, BEHIND_ONE_BYTE, BEHIND_TWO_BYTES].iter().any(in_base64)
        || spellings().iter().any(|spelling| lower.contains(spelling))
}

/// Its base64 form after one byte and after two, without the characters that depend on neighbours: for a body
/// that was encoded as a whole.
const BEHIND_ONE_BYTE: &str = "NhbmFyeS1pbi1hLWNvYWwtbWluZ";
const BEHIND_TWO_BYTES: &str = "jYW5hcnktaW4tYS1jb2FsLW1pbm";

/// All forms except base64, in lower case and without white space.
fn spellings() -> [String; 5] {
    let each = |spell: fn(u8) -> String| CANARY.bytes().map(spell).collect::<Vec<_>>();
    let hex = each(|byte| format!("{byte:02x}"));
    [
        CANARY.to_owned(),
        each(|byte| byte.to_string()).join(","),
        hex.concat(),
        hex.join(","),
        each(|byte| format!("\\x{byte:02x}")).concat(),
    ]
}

#[test]
fn the_search_finds_it_in_each_form() {
    let bytes = CANARY.as_bytes();
    for said in [
        format!("a {CANARY} b"),
        CANARY.to_uppercase(),
        format!("{bytes:?}"),
        format!("{bytes:#?}"),
        format!("{bytes:02x?}"),
        format!("{bytes:02X?}"),
        "63616e6172792d696e2d612d636f616c2d6d696e65".to_owned(),
        "data: Y2FuYXJ5LWluLWEt\n  Y29hbC1taW5l".to_owned(),
        // Of `{"k":"canary…"}`, `x{"k":"canary…"}` and `xx{"k":"canary…"}`.
        "eyJrIjoiY2FuYXJ5LWluLWEtY29hbC1taW5lIn0=".to_owned(),
        "eHsiayI6ImNhbmFyeS1pbi1hLWNvYWwtbWluZSJ9".to_owned(),
        "eHh7ImsiOiJjYW5hcnktaW4tYS1jb2FsLW1pbmUifQ==".to_owned(),
    ] {
        assert!(tells(&said), "{said}");
    }
    assert!(!tells("canary in a coal mine"), "white space is not looked at; other characters are");
}
