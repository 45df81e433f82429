//! The terminal while `top` uses it. Always restored afterwards.

use std::io::{self, Stdout, Write};
use std::panic;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};

use super::text::{Line, Tone};

/// The size of a terminal that does not report one.
const SIZE: (u16, u16) = (80, 24);

/// The terminal, from [`enter`](Self::enter) until this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    out: Stdout,
    drawn: Option<Vec<Line>>,
}

impl Screen {
    /// Takes over the terminal. A panic restores it first, so that the panic message is readable.
    pub(super) fn enter() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            hook(info);
        }));
        enable_raw_mode()?;
        // Restores the terminal on drop if the next line fails.
        let mut screen = Self { out: io::stdout(), drawn: None };
        execute!(screen.out, EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(screen)
    }

    /// The number of columns and lines.
    #[allow(clippy::unused_self, reason = "of a screen that was entered")]
    pub(super) fn size(&self) -> io::Result<(usize, usize)> {
        let (width, height) = match size()? {
            (0, _) | (_, 0) => SIZE,
            size => size,
        };
        Ok((width.into(), height.into()))
    }

    /// Forces a full redraw.
    pub(super) fn forget(&mut self) {
        self.drawn = None;
    }

    /// Draws these lines from the top, unless they are unchanged.
    pub(super) fn draw(&mut self, lines: Vec<Line>) -> io::Result<()> {
        if self.drawn.as_ref() == Some(&lines) {
            return Ok(());
        }
        let is_resized = self.drawn.as_ref().is_none_or(|drawn| drawn.len() != lines.len());
        self.out.write_all(&frame(&lines, is_resized)?)?;
        self.out.flush()?;
        self.drawn = Some(lines);
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// What draws the lines, to reach the terminal in one write.
fn frame(lines: &[Line], is_resized: bool) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    queue!(frame, BeginSynchronizedUpdate)?;
    if is_resized {
        queue!(frame, MoveTo(0, 0), Clear(ClearType::FromCursorDown))?;
    }
    for (row, line) in (0..).zip(lines) {
        // Before the text: after a full line the cursor is on its last column, which would be erased.
        queue!(frame, MoveTo(0, row), Clear(ClearType::UntilNewLine))?;
        for span in line.spans() {
            tone(&mut frame, span.tone())?;
            queue!(frame, Print(span.text()))?;
        }
        queue!(frame, SetAttribute(Attribute::Reset))?;
    }
    queue!(frame, EndSynchronizedUpdate)?;
    Ok(frame)
}

/// Restores the terminal. Safe to call twice. Errors are ignored: the terminal may be gone.
fn give_back() {
    let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

fn tone(frame: &mut Vec<u8>, tone: Tone) -> io::Result<()> {
    queue!(frame, SetAttribute(Attribute::Reset))?;
    match tone {
        Tone::Plain => Ok(()),
        Tone::Strong => queue!(frame, SetAttribute(Attribute::Bold)),
        Tone::Faint => queue!(frame, SetAttribute(Attribute::Dim)),
        Tone::Good => queue!(frame, SetForegroundColor(Color::DarkGreen)),
        Tone::Bad => queue!(frame, SetForegroundColor(Color::DarkRed), SetAttribute(Attribute::Bold)),
        Tone::Chosen => queue!(frame, SetAttribute(Attribute::Reverse)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IsTerminal, Read};

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::*;

    const MESSAGE: &str = "a panic that the test wants";

    #[test]
    #[ignore = "panics on purpose: the other test runs it in a separate terminal"]
    fn panics() {
        assert!(io::stdout().is_terminal());
        let mut screen = Screen::enter().unwrap();
        screen.draw(vec![Line::default().and("drawn", Tone::Plain)]).unwrap();
        panic!("{MESSAGE}");
    }

    #[test]
    fn nothing_is_erased_after_the_text_of_a_line() {
        let line = |text| Line::default().and(text, Tone::Plain);
        let frame = String::from_utf8(frame(&[line("first"), line("second")], true).unwrap()).unwrap();
        for (text, erased) in [("first", 2), ("second", 3)] {
            let (before, _) = frame.split_once(text).unwrap();
            assert_eq!(before.matches(['K', 'J']).count(), erased, "{frame:?}");
        }
        assert!(!frame.rsplit_once("second").unwrap().1.contains(['K', 'J']), "{frame:?}");
    }

    #[test]
    fn a_panic_restores_the_terminal_before_it_is_printed() {
        let pair = native_pty_system().openpty(PtySize::default()).unwrap();
        let before = pair.master.get_termios().unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "cli::top::screen::tests::panics"]);
        let mut output = pair.master.try_clone_reader().unwrap();
        let mut child = pair.slave.spawn_command(command).unwrap();
        let mode = pair.slave;
        // Read while it runs: after the last writer closes the terminal, reading fails.
        drop(mode);
        let mut bytes = Vec::new();
        let _ = output.read_to_end(&mut bytes);
        assert!(!child.wait().unwrap().success());
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("drawn"), "{text}");
        let left = text.find("\x1b[?1049l").expect("the other screen is left");
        let message = text.find(MESSAGE).expect("the panic is printed");
        assert!(left < message, "{text}");
        assert!(text.contains("\x1b[?25h"), "the cursor is seen again");
        assert!(pair.master.get_termios().unwrap() == before);
    }
}
