//! Refuses names of files and folders that do not say what is inside.

use super::Violation;
use super::tree::File;

const EMPTY_NAMES: [&str; 5] = ["utils", "common", "core", "helpers", "manager"];

pub fn check(file: &File) -> Option<Violation> {
    let name = file.path.split('/').find_map(empty_name)?;
    let message = format!("`{name}` says nothing; name the file or folder after the one idea that it holds");
    Some(Violation::new(&file.path, 1, message))
}

fn empty_name(part: &str) -> Option<&str> {
    let stem = part.split('.').next()?;
    EMPTY_NAMES.contains(&stem).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(path: &str) -> bool {
        check(&File { path: path.into(), text: String::new() }).is_none()
    }

    #[test]
    fn empty_names_of_files_and_folders_are_found() {
        assert!(!passes("crates/a/src/utils.rs"));
        assert!(!passes("crates/core/src/lib.rs"));
        assert!(!passes("crates/a/tests/common/mod.rs"));
        assert!(!passes("docs/helpers.md"));
        assert!(!passes("manager"));
    }

    #[test]
    fn names_that_say_something_pass() {
        assert!(passes("crates/a/tests/support/mod.rs"));
        assert!(passes("crates/a/src/score.rs"));
        assert!(passes("docs/common_questions.md"));
        assert!(passes(".gitignore"));
    }
}
