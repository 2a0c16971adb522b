//! `numamma top`: objects by cost while the program runs.
//!
//! Without a screen the program has stdin, stdout and stderr of this command. With one, the terminal is the screen's:
//! the program reads what is piped in, or nothing, and [`kept_output`] holds what it prints until the screen is left.
//!
//! A `numamma profile` of its own records into a directory that is removed at the end; this process reads the file
//! again and again. So the screen cannot slow the recording down, and what it shows is what `numamma report` would.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use numamma_kernel::terminal;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use self::directory::Directory;
use self::kept_output::KeptOutput;
use self::keys::{Input, Key, Keys};
use super::output::{of_program, print, terminal_size};
use super::time_option;
use crate::launch::exit::{Ended, Failure, say};
use crate::launch::invocation::with_signals_at_start;
use crate::launch::signals;
use crate::profile::summary::Summary;
use crate::report::live::{self, Before, Frame};
use crate::report::{AccessFilter, Options, Sort, View};

mod directory;
mod kept_output;
mod keys;

/// The file is compacted early: it is read again and again.
const COMPACT_AT: &str = "4M";
/// Reading the file takes at most one in so many parts of the time.
const READING: u32 = 8;
/// Longest wait for a key.
const KEYS: Duration = Duration::from_millis(100);
/// Time that the recorder has to write the end of the file.
const ENDING: Duration = Duration::from_secs(10);
/// Rows of the pages of an object.
const MATRIX_ROWS: usize = 24;

/// Show the objects by cost while a program runs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With a screen, the program reads what is piped into this command; a terminal is kept for the keys, and \
                  the program reads nothing (/dev/null). The first and the last MiB of what it prints are shown when the \
                  screen is left; if this command is killed (SIGKILL), a program that prints more ends with SIGPIPE. \
                  With --batch, or when stdout is no terminal, the program reads stdin and writes stdout and stderr of \
                  this command itself: its lines stand between the screens."
)]
pub struct Args {
    /// Time between two screens (2s, 1min); the recorder writes once a second
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = time_option::parse)]
    delay: Duration,

    /// End after N screens; a program that was started here is ended, too
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,

    /// Write screens as text, one after the other, as when stdout is no terminal
    #[arg(short, long)]
    batch: bool,

    /// Samples per second and thread instead of the calibrated rate
    #[arg(short = 'F', long = "freq", value_name = "HZ")]
    frequency: Option<f64>,

    /// Attach to a process that runs; several with commas
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "command",
          value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,

    /// The program and its arguments; what it prints is shown when the screen is left, and between the screens with
    /// --batch
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// When nothing could be recorded or shown.
pub fn run(args: Args) -> Result<Ended, Failure> {
    let batch = args.batch || !io::stdout().is_terminal();
    let mut recording = Recording::start(&args, batch).map_err(|e| format!("cannot start the recording: {e}"))?;
    let shown = if batch { in_batches(&args, &mut recording) } else { on_screen(&args, &mut recording) };
    let own_end = recording.ended();
    recording.end();
    recording.replay();
    shown?;
    Ok(match own_end {
        Some(status) => status.into(),
        None if recording.closed => Ended::Signalled(libc::SIGHUP),
        None => Ended::with(0),
    })
}

/// The recorder, which runs as a process of its own.
struct Recording {
    recorder: Child,
    dir: Directory,
    /// What the program prints while the screen has the terminal.
    kept: Option<KeptOutput>,
    status: Option<ExitStatus>,
    /// A program was started, and ends with this.
    started: bool,
    /// The terminal of the screen was closed.
    closed: bool,
}

impl Recording {
    fn start(args: &Args, batch: bool) -> Result<Recording, String> {
        let dir = Directory::create()?;
        let error = |e: io::Error| e.to_string();
        let mut command = Command::new(std::env::current_exe().map_err(error)?);
        command.args(["profile", "--quiet", "--live", "--compact-at", COMPACT_AT, "-o"]).arg(profile_in(&dir));
        if let Some(frequency) = args.frequency {
            command.arg(format!("--freq={frequency}"));
        }
        for pid in &args.pid {
            command.arg(format!("--pid={pid}"));
        }
        if !args.command.is_empty() {
            command.arg("--").args(&args.command);
        }
        let kept = if batch { None } else { Some(off_screen(&mut command).map_err(error)?) };
        with_signals_at_start(&mut command);
        signals::hold_signals();
        let recorder = command.spawn();
        // What is sent to this process alone is for the program: when that ends, so does this.
        signals::forward_signals(recorder.as_ref().map_or(0, |recorder| recorder.id() as i32));
        let recorder = recorder.map_err(error)?;
        Ok(Recording { recorder, dir, kept, status: None, started: args.pid.is_empty(), closed: false })
    }

    fn profile(&self) -> PathBuf {
        profile_in(&self.dir)
    }

    /// How the recorder, and so the program, ended; none while it runs.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.status = self.status.or_else(|| self.recorder.try_wait().ok().flatten());
        self.status.inspect(|_| signals::forget_child());
        self.status
    }

    /// Ends the recording, and the program if it was started for it.
    fn end(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let pid = self.recorder.id() as i32;
        // SAFETY: the child has not been waited for, so the id is its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let begun = Instant::now();
        while self.ended().is_none() && begun.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.ended().is_none() {
            let what = if self.started { "the program does not end; it goes on" } else { "the recording does not end" };
            say(format_args!("{what}: process {pid}"));
        }
    }

    /// Prints what the program and the recorder printed, which the screen would have destroyed.
    fn replay(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if let Err(e) = of_program(&kept.end()) {
            say(format_args!("cannot show what the program printed: {e}"));
        }
    }

    /// Whether to go on: the program has not ended.
    fn goes_on(&mut self) -> bool {
        self.ended().is_none()
    }
}

fn profile_in(dir: &Directory) -> PathBuf {
    dir.path().join("top.prof")
}

/// Keeps a program from the terminal that the screen and its keys have. Files and pipes remain the program's.
fn off_screen(command: &mut Command) -> io::Result<KeptOutput> {
    let (kept, pipe) = KeptOutput::start()?;
    if io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    // One pipe for both, which leaves them in order.
    if io::stderr().is_terminal() {
        command.stderr(pipe.try_clone()?);
    }
    command.stdout(pipe);
    Ok(kept)
}

/// What is on the screen.
struct Screen {
    options: Options,
    before: Before,
    last: Before,
    summary: Option<Summary>,
    chosen: Option<String>,
    hold: bool,
    /// Bytes of the profile when it was read last.
    length: u64,
    read: Instant,
    /// Time that the last reading took.
    took: Duration,
}

impl Screen {
    fn new() -> Screen {
        let (width, _) = terminal_size();
        let options = Options {
            sort: Sort::Cost,
            top: None,
            access: AccessFilter::All,
            width,
            height: MATRIX_ROWS,
            color: false,
            profile: None,
        };
        let now = Instant::now();
        let (before, last) = (Before::default(), Before::default());
        Screen {
            options,
            before,
            last,
            summary: None,
            chosen: None,
            hold: false,
            length: 0,
            read: now,
            took: Duration::ZERO,
        }
    }

    /// Reads the profile; false when there is nothing in it so far, or nothing new.
    fn read(&mut self, profile: &Path) -> bool {
        let begun = Instant::now();
        let length = std::fs::metadata(profile).map_or(0, |file| file.len());
        if length == self.length {
            return false;
        }
        let Ok(summary) = Summary::load(profile) else { return false };
        self.length = length;
        self.before = std::mem::replace(&mut self.last, Before::of(&View::new(&summary, &[], &self.options)));
        self.summary = Some(summary);
        (self.read, self.took) = (Instant::now(), begun.elapsed());
        true
    }

    fn frame(&self, keys: &str, height: Option<usize>) -> Frame {
        match &self.summary {
            Some(summary) => {
                let view = View::new(summary, &[], &self.options);
                live::frame(&view, &self.before, self.chosen.as_deref(), keys, height)
            }
            None => Frame { lines: vec!["the first samples are on their way".into()], ..Frame::default() },
        }
    }
}

/// Screens as text, one after the other.
fn in_batches(args: &Args, recording: &mut Recording) -> Result<(), Failure> {
    let (mut screen, mut written) = (Screen::new(), 0);
    screen.options.top = Some(crate::report::DEFAULT_TOP);
    while args.iterations.is_none_or(|n| written < n) {
        let begun = Instant::now();
        while begun.elapsed() < args.delay && recording.goes_on() {
            std::thread::sleep(KEYS.min(args.delay));
        }
        let over = !recording.goes_on();
        if screen.read(&recording.profile()) {
            let frame = screen.frame("", None);
            print(&(frame.lines.join("\n") + "\n\n"), false)?;
            written += 1;
        }
        if over {
            break;
        }
    }
    Ok(())
}

/// The screen and its keys.
fn on_screen(args: &Args, recording: &mut Recording) -> Result<(), Failure> {
    let unusable = |e: io::Error| Failure::from(format!("cannot use the terminal: {e}; try --batch"));
    let mut keys = Keys::open().map_err(unusable)?;
    // Not dropped: that prints on stderr, and panics if both are on a terminal that was closed.
    let mut terminal = ManuallyDrop::new(ratatui::try_init().map_err(unusable)?);
    let shown = interact(args, recording, &mut terminal, &mut keys);
    // They fail on a terminal that was closed.
    let _ = terminal.show_cursor();
    let _ = ratatui::try_restore();
    match shown {
        // The screen can be drawn or the keys read first.
        Err(_) if keys.next(Duration::ZERO) == Input::Closed => recording.closed = true,
        shown => shown.map_err(unusable)?,
    }
    Ok(())
}

fn interact(
    args: &Args,
    recording: &mut Recording,
    terminal: &mut ratatui::DefaultTerminal,
    keys: &mut Keys,
) -> io::Result<()> {
    let quit = if recording.started { "q end the program" } else { "q quit" };
    let help = format!("{quit}  up/down choose  s order  space hold");
    let (mut screen, mut read, mut fresh, mut size) = (Screen::new(), 0, true, None);
    while recording.goes_on() && args.iterations.is_none_or(|n| read <= n) {
        let now = terminal.size()?;
        if fresh || size != Some(now) {
            draw(terminal, &mut screen, &help)?;
            (fresh, size) = (false, Some(now));
        }
        match keys.next(KEYS) {
            Input::Key(Key::Quit) => return Ok(()),
            Input::Key(key) => {
                act(&mut screen, key);
                fresh = true;
            }
            Input::Nothing => {}
            Input::Closed => {
                recording.closed = true;
                return Ok(());
            }
        }
        // Early at the beginning: the recorder writes once a second.
        let pause = if screen.summary.is_some() { args.delay.max(screen.took * READING) } else { KEYS };
        if !screen.hold && screen.read.elapsed() >= pause && screen.read(&recording.profile()) {
            (read, fresh) = (read + 1, true);
        }
    }
    Ok(())
}

fn act(screen: &mut Screen, key: Key) {
    let step = match key {
        Key::Up => -1,
        Key::Down => 1,
        Key::Order => {
            screen.options.sort = if screen.options.sort == Sort::Cost { Sort::Accesses } else { Sort::Cost };
            return;
        }
        Key::Hold => {
            screen.hold = !screen.hold;
            return;
        }
        Key::Quit => return,
    };
    let objects = screen.frame("", None).objects;
    let now = screen.chosen.as_ref().and_then(|name| objects.iter().position(|o| o == name)).unwrap_or(0);
    screen.chosen = objects.get(now.saturating_add_signed(step).min(objects.len().saturating_sub(1))).cloned();
}

fn draw(terminal: &mut ratatui::DefaultTerminal, screen: &mut Screen, keys: &str) -> io::Result<()> {
    terminal.draw(|f| {
        let area = f.area();
        screen.options.width = usize::from(area.width);
        let frame = screen.frame(keys, Some(usize::from(area.height)));
        let line = |(index, text): (usize, &String)| {
            // Names come from the program.
            let text = Line::from(terminal::line(text).into_owned());
            match index {
                _ if frame.chosen == Some(index) => text.style(Style::new().add_modifier(Modifier::REVERSED)),
                0 => text.style(Style::new().add_modifier(Modifier::BOLD)),
                _ => text,
            }
        };
        let lines: Vec<Line> = frame.lines.iter().enumerate().map(line).collect();
        f.render_widget(Paragraph::new(lines), area);
    })?;
    Ok(())
}
