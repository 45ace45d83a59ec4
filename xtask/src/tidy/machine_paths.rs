//! Refuses paths of the machine that a file was written on.

use super::Violation;
use super::tree::File;

/// Folders in which developers keep their work. They are written without slashes, so that this file passes.
const FOLDERS: [&str; 4] = ["work", "root", "home", "farm"];

pub fn check(file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for folder in FOLDERS {
            if names_folder(line, &format!("/{folder}/")) {
                let message =
                    format!("names a path of one machine, `/{folder}/…`; write it relative to the workspace");
                violations.push(Violation::new(&file.path, index + 1, message));
            }
        }
    }
    violations
}

/// Whether the line names the folder at the root, and not one of the same name in a longer path or an address.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~})]*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&File { path: "docs/a.md".into(), text: text.into() }).len()
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for folder in FOLDERS {
            for before in ["", "see ", "\"", "file://", "PATH=x:", "("] {
                assert_eq!(count(&format!("\n{before}/{folder}/a")), 1, "{before}/{folder}");
            }
        }
    }

    #[test]
    fn relative_paths_and_addresses_pass() {
        for folder in FOLDERS {
            for before in ["docs", "https://example.org", "~", "${here}", ".", "team_"] {
                assert_eq!(count(&format!("{before}/{folder}/a")), 0, "{before}/{folder}");
            }
        }
        assert_eq!(count("work and home, root and farm"), 0);
    }
}
