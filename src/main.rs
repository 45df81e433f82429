//! The node agent; see `pod_index::agent`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pod_index::agent::main()
}
