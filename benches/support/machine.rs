//! The machine on which the figures were taken.

use std::fs;
use std::process::Command;
use std::thread;

/// Processor, cores, system and compiler, in one line.
pub fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let family = field("cpu family").zip(field("model\t")).map(|(family, model)| {
        format!(" (family {family}, model {model}, {} MHz)", field("cpu MHz").unwrap_or_default())
    });
    let virtual_machine = if info.contains(" hypervisor") { ", a virtual machine" } else { "" };
    let cores = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let rustc = Command::new("rustc").arg("-V").output().map(|output| output.stdout).unwrap_or_default();
    format!(
        "{processor}{}, {cores} cores{virtual_machine}, {}, {}",
        family.unwrap_or_default(),
        std::env::consts::OS,
        String::from_utf8_lossy(&rustc).trim()
    )
}
