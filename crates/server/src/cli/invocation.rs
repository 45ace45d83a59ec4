//! Commands to copy, with the flags that reach the same server again, where these are not the defaults.

use std::path::{Path, PathBuf};

use super::output::{fill, width};
use crate::config::Config;

const DEFAULT_URL: &str = "http://127.0.0.1:8400";
const DEFAULT_DATA_DIR: &str = "campanile-data";

/// How to reach the server that a command uses.
#[derive(Debug, Clone)]
pub struct Invocation {
    config: Option<PathBuf>,
    url: String,
    data_dir: PathBuf,
}

impl Invocation {
    pub fn new(file: Option<&Path>, url: &str, config: &Config) -> Self {
        Invocation {
            config: file.map(Path::to_owned),
            url: url.trim_end_matches('/').to_owned(),
            data_dir: config.data_dir.clone(),
        }
    }

    /// The command with its flags: `campanile --url … --data-dir … COMMAND`. Long lines continue after a backslash,
    /// which shells understand.
    pub fn command_lines(&self, command: &str, indent: usize, columns: usize) -> String {
        let room = columns.saturating_sub(" \\".len());
        let flags = self.flags();
        // A command that fits on a line is not split.
        let rest =
            if indent + 4 + width(command) <= room { vec![command.to_owned()] } else { pieces_of(command) };
        let pieces: Vec<&str> = std::iter::once("campanile")
            .chain(flags.iter().map(String::as_str))
            .chain(rest.iter().map(String::as_str))
            .collect();
        let lines = fill(&pieces, " ", (indent, indent + 4), room);
        format!("{:indent$}{}", "", lines.replace('\n', " \\\n"))
    }

    /// Adds the flags to each command that the text contains as `` `campanile …` ``.
    pub fn rewrite(&self, text: &str) -> String {
        let mut pieces = text.split("`campanile ");
        let mut rewritten = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (command, rest) = piece.split_once('`').unwrap_or((piece, ""));
            let command = match command.split_once(' ').unwrap_or((command, "")) {
                ("serve", "") => self.serve(),
                ("serve" | "migrate" | "config", _) => format!("campanile {}{command}", self.local_flags()),
                _ => std::iter::once("campanile")
                    .chain(self.flags().iter().map(String::as_str))
                    .chain([command])
                    .collect::<Vec<_>>()
                    .join(" "),
            };
            rewritten = format!("{rewritten}`{command}`{rest}");
        }
        rewritten
    }

    /// The command that starts a server at this URL.
    pub fn serve(&self) -> String {
        let flags = self.local_flags();
        match self.url.strip_prefix("http://").filter(|_| self.url != DEFAULT_URL) {
            Some(address) => format!("campanile {flags}serve --listen {}", quoted(address)),
            None => format!("campanile {flags}serve"),
        }
    }

    #[cfg(test)]
    pub fn for_tests(url: &str, data_dir: &str) -> Self {
        Invocation { config: None, url: url.to_owned(), data_dir: PathBuf::from(data_dir) }
    }

    /// The flags for commands that use no server, each followed by a blank.
    fn local_flags(&self) -> String {
        let config = self.config.iter().map(|file| format!("--config {} ", shown(file)));
        config.chain(self.data_dir_flag().map(|flag| format!("{flag} "))).collect()
    }

    fn flags(&self) -> Vec<String> {
        let config = self.config.iter().map(|file| format!("--config {}", shown(file)));
        let url = (self.url != DEFAULT_URL).then(|| format!("--url {}", quoted(&self.url)));
        config.chain(url).chain(self.data_dir_flag()).collect()
    }

    fn data_dir_flag(&self) -> Option<String> {
        let folder = self.data_dir.strip_prefix(".").unwrap_or(&self.data_dir);
        (folder != Path::new(DEFAULT_DATA_DIR)).then(|| format!("--data-dir {}", shown(&self.data_dir)))
    }
}

/// Splits a command into words; a flag and its value stay together.
fn pieces_of(command: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in command.split(' ') {
        match pieces.last_mut() {
            Some(last) if last.starts_with("--") && !last.contains(' ') => *last = format!("{last} {word}"),
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// The text for a shell, quoted if necessary.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_default_is_left_out() {
        let usual = Invocation::for_tests(DEFAULT_URL, "./campanile-data");
        assert_eq!(usual.command_lines("trace 1", 0, 80), "campanile trace 1");
        assert_eq!(usual.serve(), "campanile serve");
        let other = Invocation::for_tests("http://127.0.0.1:9000", "/srv/my data");
        assert_eq!(
            other.command_lines("trace 1", 0, 80),
            "campanile --url http://127.0.0.1:9000 --data-dir '/srv/my data' trace 1"
        );
        assert_eq!(other.serve(), "campanile --data-dir '/srv/my data' serve --listen 127.0.0.1:9000");
    }

    #[test]
    fn commands_in_a_text_get_their_flags() {
        let text =
            "run `campanile migrate`; `campanile serve` does it, too; see `campanile trace ID`, or `rm x`";
        assert_eq!(Invocation::for_tests(DEFAULT_URL, DEFAULT_DATA_DIR).rewrite(text), text);
        assert_eq!(
            Invocation::for_tests("http://127.0.0.1:9000", "data").rewrite(text),
            "run `campanile --data-dir data migrate`; `campanile --data-dir data serve --listen 127.0.0.1:9000` \
             does it, too; \
             see `campanile --url http://127.0.0.1:9000 --data-dir data trace ID`, or `rm x`"
        );
    }

    #[test]
    fn long_commands_go_on_behind_a_backslash() {
        let other = Invocation::for_tests("http://127.0.0.1:9000", "data/demo");
        let lines = other.command_lines("explain --type ORDER_CREATED --aggregate RESTAURANT:6", 4, 60);
        assert_eq!(
            lines,
            "    campanile --url http://127.0.0.1:9000 \\\n        --data-dir data/demo explain --type \
             ORDER_CREATED \\\n        --aggregate RESTAURANT:6"
        );
        assert!(lines.lines().all(|line| line.chars().count() <= 60));
    }

    #[test]
    fn quotes_are_for_shells() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(
            (quoted(""), quoted("a b"), quoted("a/b.c")),
            ("''".to_owned(), "'a b'".to_owned(), "a/b.c".to_owned())
        );
    }
}
