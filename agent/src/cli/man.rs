//! Completion scripts and manual pages, generated from the definition of the command line.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use super::{format, help};
use crate::config::failure::Failure;

/// Prints the completion script of a shell.
pub(crate) fn print_completions(shell: Shell) -> Result<(), Failure> {
    format::print(&completions(shell))
}

/// Prints the manual page of the agent, or that of a command.
pub(crate) fn print_page(command: Option<&str>) -> Result<(), Failure> {
    format::print(&page(command)?)
}

fn completions(shell: Shell) -> String {
    let mut command = help::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, &name, &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        // clap_complete takes the hyphen of the program's name for the start of a command's name.
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        _ => script.into_owned(),
    }
}

fn page(name: Option<&str>) -> Result<String, Failure> {
    let agent = built();
    let command = match name {
        None => agent,
        Some(name) => agent.find_subcommand(name).cloned().ok_or_else(|| {
            let names: Vec<_> = agent.get_subcommands().map(Command::get_name).collect();
            Failure::Usage(format!("man: there is no command {name:?}, only {}", names.join(", ")))
        })?,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| Failure::unable("man", error))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// The command line, in which each command has its full name and the flags that all commands accept.
fn built() -> Command {
    let mut command = help::command();
    command.build();
    command
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Stdio;

    use clap::ValueEnum;

    use super::*;

    fn flags(command: &Command) -> Vec<String> {
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        arguments.filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
    }

    #[test]
    fn each_script_completes_every_command_and_every_flag_of_it() {
        for shell in Shell::value_variants() {
            let script = completions(*shell);
            let all = built();
            for command in all.get_subcommands().chain([&all]) {
                assert!(script.contains(command.get_name()), "{shell:?}: {}", command.get_name());
                for flag in flags(command) {
                    let spelled =
                        if *shell == Shell::Fish { format!("-l {flag}") } else { format!("--{flag}") };
                    assert!(script.contains(&spelled), "{shell:?}: {} {spelled}", command.get_name());
                }
            }
        }
    }

    /// What the shell offers for this line. `None` if the shell is not installed.
    fn offered(shell: Shell, line: &str) -> Option<Vec<String>> {
        let (program, args, code) = match shell {
            Shell::Bash => (
                "bash",
                ["--norc", "-c"],
                "source /dev/stdin; IFS=' ' read -ra COMP_WORDS <<<\"$0\"; [[ $0 != *' ' ]] || COMP_WORDS+=('')
                 COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
                 _pod__index pod-index \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
                 printf '%s\\n' \"${COMPREPLY[@]}\"",
            ),
            Shell::Fish => ("fish", ["--no-config", "-c"], "source; complete -C $argv[1]"),
            // zsh completes only in a terminal.
            _ => return None,
        };
        let mut command = std::process::Command::new(program);
        command.args(args).args([code, line]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        child.stdin.take().unwrap().write_all(completions(shell).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let mut words: Vec<_> =
            lines.lines().filter_map(|line| Some(line.split('\t').next()?.to_owned())).collect();
        words.sort_unstable();
        Some(words)
    }

    #[test]
    fn shells_offer_commands_flags_and_values() {
        for shell in [Shell::Bash, Shell::Fish] {
            if offered(shell, "pod-index ").is_none() {
                pod_index_test_support::skipped("completion", format!("{shell:?} is not installed"));
                continue;
            }
            let everywhere = [
                ("pod-index wh", &["whois"][..]),
                ("pod-index whois --so", &["--socket"]),
                ("pod-index doctor --kubelet-h", &["--kubelet-healthz"]),
            ];
            // clap's script for fish offers no values of a flag before a command, and none of an argument.
            let bash = [
                ("pod-index --log-format ", &["json", "text"][..]),
                ("pod-index list -o ", &["json", "name", "table", "wide", "yaml"]),
                ("pod-index completions z", &["zsh"]),
                ("pod-index help wh", &["whois"]),
            ];
            let bash = bash.into_iter().filter(|_| shell == Shell::Bash);
            for (line, expected) in everywhere.into_iter().chain(bash) {
                let offered: Vec<_> =
                    offered(shell, line).unwrap().into_iter().filter(|word| !word.is_empty()).collect();
                assert_eq!(offered, expected, "{shell:?}: {line:?}");
            }
        }
    }

    #[test]
    fn each_page_names_every_flag_and_the_agents_page_every_command() {
        // In roff a hyphen is a minus sign unless it is escaped.
        let roff = |text: &str| text.replace('-', r"\-");
        let all = built();
        let main = page(None).unwrap();
        assert!(main.starts_with(".ie"), "roff: {main}");
        for command in all.get_subcommands() {
            let name = command.get_name();
            assert!(main.contains(&roff(&format!("pod-index-{name}"))), "{name}");
            let page = page(Some(name)).unwrap();
            assert!(page.contains(&roff(&format!("pod-index-{name}"))), "{page}");
            for flag in flags(command) {
                assert!(page.contains(&roff(&format!("--{flag}"))), "{name} --{flag}: {page}");
            }
        }
        for flag in flags(&all) {
            assert!(main.contains(&roff(&format!("--{flag}"))), "--{flag}");
        }
        assert!(
            matches!(page(Some("nothing")), Err(Failure::Usage(message)) if message.contains("\"nothing\""))
        );
    }
}
