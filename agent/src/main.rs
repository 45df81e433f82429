//! The node agent; see `pod_index_agent`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pod_index_agent::main()
}
